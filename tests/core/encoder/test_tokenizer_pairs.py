from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import LengthLimit
from bertpool.encoder.recipe import Reading
from bertpool.encoder.tokenized import tokenize
from bertpool.encoder.tokenizer import Tokenizer, load_tokenizer
from bertpool.encoder.tokenizer_pairs import longest_first
from bertpool.errors import ModelError
from tiny_models import WORDS, sentences
from tokenizers_of_models import own_tokenizer, tokenizer_of

Tiny = Callable[[str], Path]

FAMILIES = (
    "tiny-bert", "tiny-roberta", "tiny-roberta-pad3", "tiny-xlm-roberta", "tiny-camembert",
    "tiny-distil", "tiny-electra", "tiny-mpnet", "tiny-albert", "tiny-deberta-v2",
    "tiny-modernbert", "tiny-baked", "tiny-nospecial",
)  # fmt: skip
ODD_TEXTS = [
    "", " ", "cat", " cat", "hello [SEP] word", "<s> cat </s>", "[UNK] <unk>", "CAT", "cat ",
    "caf\u00e9", "\u4e2d\u6587", "\U0001f600", "<mask> [MASK]", "\u2581cat", "##ing",
]  # fmt: skip
ODD_PAIRS = [(first, second) for first in ODD_TEXTS for second in ODD_TEXTS]
LENGTHS = [(a, b) for a in (0, 1, 2, 5, 6, 7, 24) for b in (0, 1, 2, 5, 6, 7, 24)]
LONG_AND_SHORT = [(" ".join(WORDS[:a]), " ".join(WORDS[30 : 30 + b])) for a, b in LENGTHS]


def by_transformers(own: Any, pairs: list[tuple[str, str]], limit: int) -> Any:
    firsts, seconds = (list(texts) for texts in zip(*pairs, strict=True))
    return own(firsts, seconds, truncation="longest_first", max_length=limit, verbose=False)


def encoded(tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> list[Any]:
    return [*tokenizer.encode([first for first, _ in pairs], [second for _, second in pairs])]


def copied(directory: Path, tmp_path: Path, **tokenizer_config: object) -> Path:
    copy = Path(shutil.copytree(directory, tmp_path / directory.name))
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **tokenizer_config}))
    return copy


def canine(tmp_path: Path, **options: Any) -> Path:
    """Save CANINE's tokenizer, which is written in Python and reads characters."""
    directory = tmp_path / "canine"
    hf.CanineTokenizer(model_max_length=64, **options).save_pretrained(directory)
    (directory / "config.json").write_text('{"model_type": "canine", "hidden_size": 32}')
    return directory


def test_a_pair_is_framed_as_bert_does(tiny: Tiny) -> None:
    (pair,) = encoded(tokenizer_of(tiny("tiny-bert")), [("cat one", "dog")])
    tokens = own_tokenizer(tiny("tiny-bert")).convert_ids_to_tokens(pair.input_ids)
    assert tokens == ["[CLS]", "cat", "one", "[SEP]", "dog", "[SEP]"]
    assert pair.token_type_ids == [0, 0, 0, 0, 1, 1]


def test_a_pair_is_framed_as_roberta_does(tiny: Tiny) -> None:
    (pair,) = encoded(tokenizer_of(tiny("tiny-roberta")), [(" cat one", " dog")])
    tokens = own_tokenizer(tiny("tiny-roberta")).convert_ids_to_tokens(pair.input_ids)
    assert tokens == ["<s>", "\u0120cat", "\u0120one", "</s>", "</s>", "\u0120dog", "</s>"]
    assert pair.token_type_ids is None


@pytest.mark.parametrize("model", FAMILIES)
def test_ids_of_pairs_are_those_of_the_models_own_tokenizer(tiny: Tiny, model: str) -> None:
    pairs = [*ODD_PAIRS, *zip(sentences(30, 0, 40), sentences(30, 1, 40), strict=True)]
    tokenizer = tokenizer_of(tiny(model))
    expected = by_transformers(own_tokenizer(tiny(model)), pairs, tokenizer.limit.tokens)
    assert [pair.input_ids for pair in encoded(tokenizer, pairs)] == expected["input_ids"]


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_truncation_of_pairs_is_that_of_transformers(
    tiny: Tiny, tmp_path: Path, model: str, side: str
) -> None:
    directory = copied(tiny(model), tmp_path, truncation_side=side)
    own = own_tokenizer(directory)
    for max_length in (6, 7, 13, 14, 30):
        expected = by_transformers(own, LONG_AND_SHORT, max_length)
        pairs = encoded(tokenizer_of(directory, max_length), LONG_AND_SHORT)
        assert [pair.input_ids for pair in pairs] == expected["input_ids"]


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("max_length", [12, 60])
def test_token_types_of_pairs_are_those_of_the_models_own_tokenizer(
    tiny: Tiny, model: str, max_length: int
) -> None:
    expected = by_transformers(own_tokenizer(tiny(model)), LONG_AND_SHORT, max_length).get(
        "token_type_ids"
    )
    pairs = encoded(tokenizer_of(tiny(model), max_length), LONG_AND_SHORT)
    assert [pair.token_type_ids for pair in pairs] == (expected or [None] * len(pairs))


def test_token_types_are_those_of_the_tokens_that_stay(tiny: Tiny) -> None:
    (pair,) = encoded(tokenizer_of(tiny("tiny-bert"), 8), [("cat " * 9, "one")])
    assert pair.token_type_ids == [0, 0, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("model", FAMILIES)
def test_tokens_of_a_pair_are_counted_before_truncation(tiny: Tiny, model: str) -> None:
    pairs = [("cat", "one"), ("cat " * 40, "one"), ("cat", "one " * 40)]
    whole = by_transformers(own_tokenizer(tiny(model)), pairs, 1000)["input_ids"]
    tokenized = encoded(tokenizer_of(tiny(model), 10), pairs)
    assert [pair.n_tokens for pair in tokenized] == [len(ids) for ids in whole]
    assert [pair.truncated for pair in tokenized] == [False, True, True]


def test_a_pair_that_just_fits_is_not_truncated(tiny: Tiny) -> None:
    fits, exceeds = encoded(
        tokenizer_of(tiny("tiny-bert"), 10), [("cat " * 3, "cat " * 4), ("cat " * 4, "cat " * 4)]
    )
    assert (fits.n_tokens, fits.truncated) == (10, False)
    assert (exceeds.n_tokens, exceeds.truncated) == (11, True)


@pytest.mark.parametrize(
    ("lengths", "room", "stay"),
    [((9, 2), 6, (4, 2)), ((2, 9), 6, (2, 4)), ((9, 8), 6, (3, 3)), ((9, 8), 7, (4, 3)),
     ((8, 9), 7, (3, 4)), ((8, 8), 7, (3, 4)), ((9, 0), 5, (5, 0)), ((0, 9), 5, (0, 5)),
     ((3, 9), 6, (3, 3)), ((9, 9), 2, (1, 1))],
)  # fmt: skip
def test_the_longer_text_is_cut_first(
    lengths: tuple[int, int], room: int, stay: tuple[int, int]
) -> None:
    assert longest_first(lengths, room) == stay


def test_an_empty_second_text_makes_a_pair_all_the_same(tiny: Tiny) -> None:
    (pair,) = encoded(tokenizer_of(tiny("tiny-bert")), [("cat", "")])
    tokens = own_tokenizer(tiny("tiny-bert")).convert_ids_to_tokens(pair.input_ids)
    assert tokens == ["[CLS]", "cat", "[SEP]", "[SEP]"]


@pytest.mark.parametrize(
    ("model", "least"),
    [("tiny-bert", 5), ("tiny-roberta", 6), ("tiny-mpnet", 6), ("tiny-nospecial", 2)],
)
def test_a_limit_with_no_room_for_a_pair_is_refused_with_the_least(
    tiny: Tiny, model: str, least: int
) -> None:
    with pytest.raises(ModelError) as refusal:
        encoded(tokenizer_of(tiny(model), least - 1), [("cat", "one")])
    assert f"give --max-length {least} or more" in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_the_least_limit_for_a_pair_holds_a_token_of_each_text(tiny: Tiny) -> None:
    (pair,) = encoded(tokenizer_of(tiny("tiny-bert"), 5), [("cat one", "dog two")])
    tokens = own_tokenizer(tiny("tiny-bert")).convert_ids_to_tokens(pair.input_ids)
    assert tokens == ["[CLS]", "cat", "[SEP]", "dog", "[SEP]"]


def test_room_for_a_pair_can_be_checked_without_one(tiny: Tiny) -> None:
    with pytest.raises(ModelError, match="a token of each text"):
        tokenizer_of(tiny("tiny-bert"), 4).check_pair_room()


def test_a_limit_with_no_room_for_a_pair_that_nobody_asked_for_is_not_wrong_usage(
    tiny: Tiny,
) -> None:
    checkpoint = find_checkpoint(str(tiny("tiny-bert")))
    tokenizer = load_tokenizer(checkpoint, LengthLimit(4, "tokenizer_config.json"), Reading())
    with pytest.raises(ModelError, match=r"tokenizer_config\.json") as refusal:
        tokenizer.check_pair_room()
    assert refusal.value.exit_code == 1


def test_texts_and_pairs_of_different_number_are_a_bug(tiny: Tiny) -> None:
    with pytest.raises(ValueError, match="zip"):
        tokenizer_of(tiny("tiny-bert")).encode(["cat", "one"], ["dog"])


def test_no_pairs_are_no_tokens(tiny: Tiny) -> None:
    assert tokenizer_of(tiny("tiny-bert")).encode([], []) == []


# What holds for pairs as for texts


def test_the_prompt_stands_before_the_first_text_only(tiny: Tiny) -> None:
    prompted = encoded(tokenizer_of(tiny("tiny-bert"), prompt="the cat "), [("one", "two")])
    assert prompted == encoded(tokenizer_of(tiny("tiny-bert")), [("the cat one", "two")])


def test_a_prompt_to_leave_out_of_a_pair_is_counted(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"), prompt="the cat ", include_prompt=False)
    (pair,) = encoded(tokenizer, [("one", "two")])
    assert pair.prompt_tokens == 3


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-albert"])
def test_special_tokens_of_a_pair_are_excluded_between_the_texts_too(
    tiny: Tiny, model: str
) -> None:
    (pair,) = encoded(tokenizer_of(tiny(model), exclude_special=True), [("cat one", "dog")])
    assert pair.excluded.tolist() == [True, False, False, True, False, True]


@pytest.mark.parametrize(
    ("pair", "unknown"),
    [(("\U0001f600", "\U0001f601"), True), (("\U0001f600", "cat"), False),
     (("\U0001f600", ""), True), (("", ""), False)],
)  # fmt: skip
def test_a_pair_of_unknown_tokens_only_is_told(
    tiny: Tiny, pair: tuple[str, str], unknown: bool
) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"))
    assert tokenizer.unknown_only(encoded(tokenizer, [pair])[0]) is unknown


def test_an_id_of_a_second_text_without_embedding_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "few"))
    config = json.loads((directory / "config.json").read_text())
    known = own_tokenizer(directory).convert_tokens_to_ids("dog")
    (directory / "config.json").write_text(json.dumps({**config, "vocab_size": known}))
    tokenizer = tokenizer_of(directory)
    with pytest.raises(ModelError, match=f"gives id {known}"):
        encoded(tokenizer, [("cat", "dog")])


# Each distinct pair once


def test_equal_texts_with_different_pairs_are_told_apart(tiny: Tiny) -> None:
    tokenized = tokenize(
        tokenizer_of(tiny("tiny-bert")), ["cat", "cat", "one", "cat"], ["a", "b", "a", "a"]
    )
    assert tokenized.places.tolist() == [0, 1, 2, 0]
    assert len(tokenized.texts) == 3


def test_distinct_pairs_are_tokenized_as_pairs(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"))
    tokenized = tokenize(tokenizer, ["cat", "cat"], ["", ""])
    assert tokenized.texts == tokenizer.encode(["cat"], [""])


def test_texts_without_pairs_are_tokenized_alone(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"))
    tokenized = tokenize(tokenizer, ["cat", "one", "cat"])
    assert tokenized.texts == tokenizer.encode(["cat", "one"])
    assert tokenized.places.tolist() == [0, 1, 0]


# Tokenizers in Python


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_tokenizer_in_python_reads_pairs_by_its_own_call(tmp_path: Path, side: str) -> None:
    directory = canine(tmp_path, truncation_side=side)
    own = own_tokenizer(directory)
    for max_length in (13, 14):
        expected = by_transformers(own, LONG_AND_SHORT, max_length)
        pairs = encoded(tokenizer_of(directory, max_length), LONG_AND_SHORT)
        assert [pair.input_ids for pair in pairs] == expected["input_ids"]
        assert [pair.token_type_ids for pair in pairs] == expected["token_type_ids"]


def test_a_tokenizer_in_python_counts_a_pair_before_truncation(tmp_path: Path) -> None:
    pairs = encoded(tokenizer_of(canine(tmp_path), 10), [("cat", "one"), ("cat", "one two")])
    assert [pair.n_tokens for pair in pairs] == [9, 13]
    assert [pair.truncated for pair in pairs] == [False, True]


def test_a_tokenizer_in_python_gives_no_tokens_for_no_pairs(tmp_path: Path) -> None:
    assert tokenizer_of(canine(tmp_path)).encode([], []) == []


def test_a_tokenizer_in_python_with_no_room_for_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give --max-length 5 or more"):
        tokenizer_of(canine(tmp_path), 4).encode(["cat"], ["one"])


def test_a_tokenizer_in_python_cuts_pairs_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transformers = logging.getLogger("transformers")  # it passes nothing on to the root
    transformers.addHandler(caplog.handler)
    encoded(tokenizer_of(canine(tmp_path)), [("cat " * 40, "one " * 40)])
    transformers.removeHandler(caplog.handler)
    assert caplog.messages == []
