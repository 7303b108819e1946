from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import LengthLimit
from bertpool.encoder.recipe import Reading
from bertpool.encoder.tokenizer import load_tokenizer
from bertpool.errors import ModelError
from embedding import embed
from tiny_models import WORDS, sentences
from tokenizers_of_models import own_tokenizer, tokenizer_of

Tiny = Callable[[str], Path]

FAMILIES = (
    "tiny-bert", "tiny-roberta", "tiny-roberta-pad3", "tiny-xlm-roberta", "tiny-camembert",
    "tiny-distil", "tiny-electra", "tiny-mpnet", "tiny-albert", "tiny-deberta-v2",
    "tiny-modernbert", "tiny-baked", "tiny-nospecial",
)  # fmt: skip
ODD_TEXTS = [
    "", " ", "\t", "\u3000", "\u200b", "a\x00b", "hello [SEP] word", "<s> cat </s>", "<pad>",
    "[PAD] [CLS] [MASK] [UNK]", "<mask><unk>", "[sep]", "[ SEP ]", "CAT", "caf\u00e9 cafe\u0301",
    "\u4e2d\u6587 \u65e5\u672c\u8a9e", "\U0001f600 cat\U0001f600", "a" * 300, "  cat  one ",
    "\ud7ff\ufffd", "cat\none", "cat\u2028one", "##ing", "\u2581cat", "\u0120cat",
]  # fmt: skip


def copied(directory: Path, tmp_path: Path, **tokenizer_config: object) -> Path:
    copy = Path(shutil.copytree(directory, tmp_path / directory.name))
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **tokenizer_config}))
    return copy


@pytest.mark.parametrize("model", FAMILIES)
def test_ids_are_those_of_the_models_own_tokenizer(tiny: Tiny, model: str) -> None:
    texts = [*ODD_TEXTS, *sentences(20, 0, 20)]
    own = own_tokenizer(tiny(model))
    tokenizer = tokenizer_of(tiny(model))
    encoded = tokenizer.encode(texts)
    limit = tokenizer.limit.tokens
    expected = [own(text, truncation=True, max_length=limit)["input_ids"] for text in texts]
    assert [text.input_ids for text in encoded] == expected


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("max_length", [3, 4, 7, 20])
def test_truncation_is_that_of_transformers(
    tiny: Tiny, tmp_path: Path, model: str, side: str, max_length: int
) -> None:
    directory = copied(tiny(model), tmp_path, truncation_side=side)
    texts = [" ".join(WORDS[:n]) for n in range(25)]
    encoded = tokenizer_of(directory, max_length).encode(texts)
    own = own_tokenizer(directory)
    expected = own(texts, truncation=True, max_length=max_length)
    assert [text.input_ids for text in encoded] == expected["input_ids"]


@pytest.mark.parametrize("model", FAMILIES)
def test_token_types_are_those_of_the_models_own_tokenizer(tiny: Tiny, model: str) -> None:
    texts = ["", "cat one", "one " * 200]
    own = own_tokenizer(tiny(model))
    encoded = tokenizer_of(tiny(model), 16).encode(texts)
    expected = own(texts, truncation=True, max_length=16).get("token_type_ids") or [None] * 3
    assert [text.token_type_ids for text in encoded] == expected


@pytest.mark.parametrize("model", FAMILIES)
def test_tokens_are_counted_before_truncation(tiny: Tiny, model: str) -> None:
    texts = ["", "cat one", "one two " * 200]
    own = own_tokenizer(tiny(model))
    encoded = tokenizer_of(tiny(model), 8).encode(texts)
    whole = [len(own(text, verbose=False)["input_ids"]) for text in texts]
    assert [text.n_tokens for text in encoded] == whole
    assert [text.truncated for text in encoded] == [False, False, True]


def test_a_text_that_just_fits_is_not_truncated(tiny: Tiny) -> None:
    fits, exceeds = tokenizer_of(tiny("tiny-bert"), 10).encode(["cat " * 8, "cat " * 9])
    assert (fits.n_tokens, fits.truncated) == (10, False)
    assert (exceeds.n_tokens, exceeds.truncated) == (11, True)


def test_truncation_keeps_the_special_tokens_at_both_ends(tiny: Tiny) -> None:
    (text,) = tokenizer_of(tiny("tiny-bert"), 5).encode(["cat one two dog word"])
    own = own_tokenizer(tiny("tiny-bert"))
    assert own.convert_ids_to_tokens(text.input_ids) == ["[CLS]", "cat", "one", "two", "[SEP]"]


def test_padding_and_truncation_of_the_file_are_reset(tiny: Tiny) -> None:
    texts = ["cat", "cat " * 50]
    baked, plain = (tokenizer_of(tiny(name)).encode(texts) for name in ("tiny-baked", "tiny-bert"))
    assert [text.input_ids for text in baked] == [text.input_ids for text in plain]


@pytest.mark.parametrize("split", [True, False])
def test_special_tokens_are_split_where_the_tokenizer_says_so(
    tiny: Tiny, tmp_path: Path, split: bool
) -> None:
    directory = copied(tiny("tiny-bert"), tmp_path, split_special_tokens=split)
    (text,) = tokenizer_of(directory).encode(["cat [SEP] dog"])
    assert text.input_ids == own_tokenizer(directory)("cat [SEP] dog")["input_ids"]


@pytest.mark.parametrize(
    ("model", "special", "least"),
    [("tiny-bert", 2, 3), ("tiny-roberta", 2, 3), ("tiny-xlm-roberta", 2, 3)],
)
def test_a_limit_with_no_room_for_a_token_is_refused_with_the_least(
    tiny: Tiny, model: str, special: int, least: int
) -> None:
    with pytest.raises(ModelError) as refusal:
        tokenizer_of(tiny(model), special)
    assert f"give --max-length {least} or more" in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_limit_with_no_room_that_nobody_asked_for_is_not_wrong_usage(tiny: Tiny) -> None:
    checkpoint = find_checkpoint(str(tiny("tiny-bert")))
    with pytest.raises(ModelError, match=r"tokenizer_config\.json") as refusal:
        load_tokenizer(checkpoint, LengthLimit(2, "tokenizer_config.json"), Reading())
    assert refusal.value.exit_code == 1


def test_no_texts_are_no_tokens(tiny: Tiny) -> None:
    assert tokenizer_of(tiny("tiny-bert")).encode([]) == []


# What is left out of the pooling


def excluded(text: Any) -> list[bool]:
    assert isinstance(text.excluded, np.ndarray)
    marks: list[bool] = text.excluded.tolist()
    return marks


def test_nothing_is_excluded_unless_asked(tiny: Tiny) -> None:
    (text,) = tokenizer_of(tiny("tiny-bert")).encode(["cat"])
    assert text.excluded is None


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-roberta", "tiny-xlm-roberta", "tiny-albert"])
def test_special_tokens_are_excluded_on_both_ends(tiny: Tiny, model: str) -> None:
    (text,) = tokenizer_of(tiny(model), exclude_special=True).encode(["cat one"])
    assert excluded(text) == [True, *[False] * (len(text.input_ids) - 2), True]


def test_special_tokens_typed_are_excluded_and_unknown_words_are_not(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"), exclude_special=True)
    (text,) = tokenizer.encode(["[MASK] cat [SEP] \U0001f600"])
    assert excluded(text) == [True, True, False, True, False, True]


def test_special_tokens_kept_by_truncation_are_excluded(tiny: Tiny) -> None:
    (text,) = tokenizer_of(tiny("tiny-bert"), 4, exclude_special=True).encode(["cat " * 9])
    assert excluded(text) == [True, False, False, True]


def test_a_prompt_to_leave_out_is_counted_with_the_tokens_before_it(tiny: Tiny) -> None:
    reading = {"prompt": "the cat ", "include_prompt": False}
    (text,) = tokenizer_of(tiny("tiny-bert"), **reading).encode(["one two"])
    assert text.prompt_tokens == 3


@pytest.mark.parametrize("prompt", ["", "the cat "])
def test_a_prompt_pooled_like_the_rest_excludes_nothing(tiny: Tiny, prompt: str) -> None:
    (text,) = tokenizer_of(tiny("tiny-bert"), prompt=prompt).encode(["one two"])
    assert (text.excluded, text.prompt_tokens) == (None, 0)


def test_no_prompt_leaves_nothing_out(tiny: Tiny) -> None:
    (text,) = tokenizer_of(tiny("tiny-bert"), include_prompt=False).encode(["one two"])
    assert (text.excluded, text.prompt_tokens) == (None, 0)


def test_lower_casing_reads_words_a_cased_vocabulary_lacks(tiny: Tiny) -> None:
    lower = tokenizer_of(tiny("tiny-roberta"), lower_case=True).encode(["THE Cat"])
    plain = tokenizer_of(tiny("tiny-roberta")).encode(["the cat"])
    assert lower[0].input_ids == plain[0].input_ids


@pytest.mark.parametrize(
    ("text", "unknown"),
    [("\U0001f600", True), ("\U0001f600 \U0001f601", True), ("cat \U0001f600", False), ("", False),
     ("[SEP]", False), ("[UNK]", True), ("cat", False)],
)  # fmt: skip
def test_a_text_of_unknown_tokens_only_is_told(tiny: Tiny, text: str, unknown: bool) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"))
    assert tokenizer.unknown_only(tokenizer.encode([text])[0]) is unknown


# Tokenizers in Python, and none


def canine(tmp_path: Path) -> Path:
    """Save CANINE's tokenizer, which is written in Python and reads characters."""
    directory = tmp_path / "canine"
    hf.CanineTokenizer(model_max_length=64).save_pretrained(directory)
    (directory / "config.json").write_text('{"model_type": "canine", "hidden_size": 32}')
    return directory


def japanese(tiny: Tiny, tmp_path: Path) -> Path:
    """Give tiny-bert the Python tokenizer of Japanese BERT models, with the basic word splitter."""
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "japanese"))
    vocab = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (directory / file).unlink()
    lines = "\n".join(sorted(vocab, key=vocab.__getitem__))
    (directory / "vocab.txt").write_text(lines, encoding="utf-8")
    tokenizer = hf.BertJapaneseTokenizer(
        str(directory / "vocab.txt"), word_tokenizer_type="basic", model_max_length=64
    )
    tokenizer.save_pretrained(directory)
    return directory


def test_a_tokenizer_in_python_gives_its_own_ids(tmp_path: Path) -> None:
    directory = canine(tmp_path)
    own = own_tokenizer(directory)
    assert not own.is_fast
    texts = ["", "cat one", "\u4e2d\u6587", "one " * 40]
    encoded = tokenizer_of(directory).encode(texts)
    expected = [own(text, truncation=True, max_length=64)["input_ids"] for text in texts]
    assert [text.input_ids for text in encoded] == expected
    assert [text.n_tokens for text in encoded] == [2, 9, 4, 162]


def test_a_tokenizer_in_python_gives_no_tokens_for_no_texts(tmp_path: Path) -> None:
    assert tokenizer_of(canine(tmp_path)).encode([]) == []


@pytest.mark.parametrize("max_length", [3, 5, 20])
def test_a_tokenizer_in_python_is_truncated_as_transformers_does(
    tiny: Tiny, tmp_path: Path, max_length: int
) -> None:
    directory = japanese(tiny, tmp_path)
    own = own_tokenizer(directory)
    assert not own.is_fast
    texts = [" ".join(WORDS[:n]) for n in range(25)]
    encoded = tokenizer_of(directory, max_length).encode(texts)
    expected = own(texts, truncation=True, max_length=max_length)["input_ids"]
    assert [text.input_ids for text in encoded] == expected


def test_a_tokenizer_in_python_of_the_same_vocabulary_gives_the_same_vectors(
    tiny: Tiny, tmp_path: Path
) -> None:
    texts = ["", "cat one", "hello [SEP] word", *sentences(10, 0, 90)]
    np.testing.assert_allclose(
        embed(japanese(tiny, tmp_path), texts), embed(tiny("tiny-bert"), texts), atol=1e-6
    )


# transformers makes an empty tokenizer of no files: it reads every text as the same unknown tokens.
@pytest.mark.parametrize(
    "model",
    ["tiny-bert", "tiny-roberta", "tiny-xlm-roberta", "tiny-mpnet", "tiny-albert",
     "tiny-deberta-v2", "tiny-modernbert"],
)  # fmt: skip
@pytest.mark.parametrize(
    "missing",
    [("tokenizer.json",), ("tokenizer.json", "tokenizer_config.json")],
    ids=["no vocabulary", "no tokenizer file at all"],
)
def test_a_checkpoint_without_its_vocabulary_is_an_error_of_the_model(
    tiny: Tiny, tmp_path: Path, model: str, missing: tuple[str, ...]
) -> None:
    directory = Path(shutil.copytree(tiny(model), tmp_path / "bare"))
    for file in missing:
        (directory / file).unlink()
    with pytest.raises(ModelError, match="tokenizer of bare can't be loaded") as refusal:
        tokenizer_of(directory)
    assert "\n" not in str(refusal.value)
