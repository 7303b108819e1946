from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.tokenizer_json import OwnTokenizer, read_tokenizer_json
from tiny_models import sentences

Tiny = Callable[[str], Path]

PACKED = (
    "tiny-bert",
    "tiny-roberta",
    "tiny-roberta-pad3",
    "tiny-xlm-roberta",
    "tiny-camembert",
    "tiny-mpnet",
    "tiny-electra",
    "tiny-distil",
)
TYPED = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>")
TEXTS = [
    "",
    " ",
    "cat",
    " cat",
    "the  cat   runs ",
    "one\ttwo\nthree\r\nfour\u00a0five\u3000six\u200bseven",
    "The CAT Runs, HELLO!",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c9\u00c8 \u0130 \u00df \ufb01ne",
    "\u4e2d\u6587 \u65e5\u672c\u8a9e cat\u4e2dcat \ud55c\uad6d\uc5b4",
    "\U0001f600 cat \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "cat\0dog \0 \ufffd \x07",
    "it's don't we'll \u2019 \u201cx\u201d",
    "\u2581cat \u2581 \u0120cat ##ing",
    "x" * 150,
    *TYPED,
    *(f"cat {token} dog" for token in TYPED),
    *(f"cat{token}{token} dog" for token in TYPED),
    *(token.lower() if token.isupper() else token.upper() for token in TYPED),
    "cat  <mask>  dog  [MASK]  dog",
    *sentences(20, 3, 90),
]


@pytest.mark.parametrize("model", PACKED)
def test_tokens_equal_transformers(tiny: Tiny, model: str) -> None:
    assert_equal_to_transformers(tiny(model))


def test_the_real_models_tokens_equal_transformers(minilm: Path) -> None:
    assert_equal_to_transformers(minilm)


@pytest.mark.parametrize("model", ["tiny-left", "tiny-nomax", "tiny-baked", "tiny-limits"])
def test_padding_and_truncation_in_the_files_are_no_reason_for_transformers(
    tiny: Tiny, model: str
) -> None:
    assert_equal_to_transformers(tiny(model))


def test_the_side_of_truncation_is_read(tiny: Tiny, tmp_path: Path) -> None:
    left = copied(tiny("tiny-bert"), tmp_path)
    rewrite(left / "tokenizer_config.json", truncation_side="left")
    assert read_own(left).truncate_left
    assert not read_own(tiny("tiny-bert")).truncate_left


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-mpnet", "tiny-distil"])
@pytest.mark.parametrize(
    ("setting", "normalizer"),
    [
        ({"do_lower_case": False}, {"lowercase": False}),
        ({"strip_accents": False}, {"strip_accents": False}),
        ({"tokenize_chinese_chars": False}, {"handle_chinese_chars": False}),
    ],
)
def test_settings_that_both_files_agree_on_are_kept(
    tiny: Tiny,
    tmp_path: Path,
    model: str,
    setting: dict[str, object],
    normalizer: dict[str, object],
) -> None:
    directory = copied(tiny(model), tmp_path)
    rewrite(directory / "tokenizer_config.json", **setting)
    content = read(directory / "tokenizer.json")
    rewrite(directory / "tokenizer.json", normalizer={**content["normalizer"], **normalizer})
    assert_equal_to_transformers(directory)


# Where transformers decides


@pytest.mark.parametrize("model", ["tiny-nospecial", "tiny-albert"])
def test_another_kind_of_tokenizer_is_left_to_transformers(tiny: Tiny, model: str) -> None:
    assert read_tokenizer_json(find_checkpoint(str(tiny(model)))) is None


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-mpnet", "tiny-distil"])
@pytest.mark.parametrize(
    "setting",
    [
        {"do_lower_case": False},
        {"strip_accents": False},
        {"strip_accents": True},
        {"tokenize_chinese_chars": False},
        {"unheard_of": 1},
        {"split_special_tokens": True},
        {"never_split": ["cat"]},
        {"do_basic_tokenize": False},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"auto_map": {"AutoTokenizer": ["code.Own", None]}},
        {"mask_token": "[OTHER]"},
        {"extra_special_tokens": ["<new>"]},
    ],
    ids=str,
)
def test_a_tokenizer_config_that_says_something_else_is_left_to_transformers(
    tiny: Tiny, tmp_path: Path, model: str, setting: dict[str, object]
) -> None:
    directory = copied(tiny(model), tmp_path)
    assert read_tokenizer_json(find_checkpoint(str(directory))) is not None
    rewrite(directory / "tokenizer_config.json", **setting)
    assert read_tokenizer_json(find_checkpoint(str(directory))) is None


@pytest.mark.parametrize("model", ["tiny-roberta", "tiny-xlm-roberta", "tiny-camembert"])
def test_another_space_before_the_first_word_is_left_to_transformers(
    tiny: Tiny, tmp_path: Path, model: str
) -> None:
    directory = copied(tiny(model), tmp_path)
    usual = model != "tiny-roberta"
    rewrite(directory / "tokenizer_config.json", add_prefix_space=not usual)
    assert read_tokenizer_json(find_checkpoint(str(directory))) is None


@pytest.mark.parametrize("model", PACKED)
def test_an_added_token_that_is_not_special_is_left_to_transformers(
    tiny: Tiny, tmp_path: Path, model: str
) -> None:
    directory = copied(tiny(model), tmp_path)
    tokenizer = hf.AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(directory)
    assert read_tokenizer_json(find_checkpoint(str(directory))) is None


@pytest.mark.parametrize("model", PACKED)
def test_another_post_processor_is_left_to_transformers(
    tiny: Tiny, tmp_path: Path, model: str
) -> None:
    directory = copied(tiny(model), tmp_path)
    rewrite(directory / "tokenizer.json", post_processor=None)
    assert read_tokenizer_json(find_checkpoint(str(directory))) is None


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_without_both_files_transformers_decides(tiny: Tiny, tmp_path: Path, file: str) -> None:
    directory = copied(tiny("tiny-bert"), tmp_path)
    (directory / file).unlink()
    assert read_tokenizer_json(find_checkpoint(str(directory))) is None


# What the tests above use


def read_own(directory: Path) -> OwnTokenizer:
    own = read_tokenizer_json(find_checkpoint(str(directory)))
    assert own is not None
    return own


def assert_equal_to_transformers(directory: Path) -> None:
    own, theirs = read_own(directory), hf.AutoTokenizer.from_pretrained(directory)
    theirs.backend_tokenizer.no_padding()
    theirs.backend_tokenizer.no_truncation()
    for text in TEXTS:
        expected = theirs(text)
        encoding = own.backend.encode(text)
        assert encoding.ids == expected["input_ids"], text
        assert own.emits_types == ("token_type_ids" in expected)
        if own.emits_types:
            assert encoding.type_ids == expected["token_type_ids"], text
    assert own.special_ids == frozenset(theirs.all_special_ids)
    assert own.pad_id == theirs.pad_token_id
    assert own.unknown_id == theirs.unk_token_id
    assert own.size == len(theirs)


def copied(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / directory.name))


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def rewrite(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**read(path), **values}), encoding="utf-8")
