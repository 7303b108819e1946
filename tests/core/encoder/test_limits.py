from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bertpool.encoder.checkpoint import Checkpoint, find_checkpoint
from bertpool.encoder.limits import (
    FALLBACK_LIMIT,
    POSITIONS_AFTER_PAD,
    LengthLimit,
    length_limit,
    position_limit,
)
from bertpool.errors import ModelError
from embedding import load

Tiny = Callable[[str], Path]

BEYOND_SANE = 1000000000000000019884624838656  # what tokenizers without a limit declare


def checkpoint_of(
    directory: Path,
    config: dict[str, Any],
    *,
    tokenizer: dict[str, Any] | None = None,
    transformer: dict[str, Any] | None = None,
) -> Checkpoint:
    """Write the files that may set a limit, and open them."""
    files = {
        "config.json": config,
        "tokenizer_config.json": tokenizer,
        "sentence_bert_config.json": transformer,
    }
    for name, content in files.items():
        if content is not None:
            (directory / name).write_text(json.dumps(content))
    return find_checkpoint(str(directory))


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 66, "pad_token_id": 3}, 62),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "longformer", "max_position_embeddings": 4098, "pad_token_id": 1}, 4096),
        ({"model_type": "distilbert", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "bert"}, None),
        ({"model_type": "xlnet", "max_position_embeddings": -1}, None),
        ({"model_type": "bert", "max_position_embeddings": None}, None),
    ],
    ids=str,
)
def test_positions_set_the_limit_of_their_family(config: dict[str, Any], limit: int) -> None:
    assert position_limit(config) == limit


# Their modules in transformers compute positions as RoBERTa's does, from pad_id + 1.
@pytest.mark.parametrize("kind", ["ibert", "esm", "lilt", "markuplm", *sorted(POSITIONS_AFTER_PAD)])
def test_positions_that_start_after_the_padding_leave_two_fewer(kind: str) -> None:
    config = {"model_type": kind, "max_position_embeddings": 514, "pad_token_id": 1}
    assert position_limit(config) == 512


@pytest.mark.parametrize(
    "model",
    [
        "tiny-bert", "tiny-roberta", "tiny-roberta-pad3", "tiny-xlm-roberta", "tiny-camembert",
        "tiny-distil", "tiny-electra", "tiny-mpnet", "tiny-albert", "tiny-modernbert",
    ],
)  # fmt: skip
def test_a_model_takes_as_many_tokens_as_its_positions_allow(tiny: Tiny, model: str) -> None:
    limit = position_limit(find_checkpoint(str(tiny(model))).config)
    assert limit is not None
    embedded = load(tiny(model), max_length=limit).embed(["cat one " * 100])
    assert embedded.encoded_tokens.tolist() == [limit]
    assert embedded.finite.all()


@pytest.mark.parametrize(
    ("tokenizer", "transformer", "expected"),
    [
        ({"model_max_length": 40}, {"max_seq_length": 30}, (30, "sentence_bert_config.json")),
        ({"model_max_length": 20}, {"max_seq_length": 30}, (20, "tokenizer_config.json")),
        ({"model_max_length": 512}, {"max_seq_length": 512}, (64, "the positions in config.json")),
        ({"model_max_length": BEYOND_SANE}, None, (64, "the positions in config.json")),
        ({"model_max_length": 1e30}, None, (64, "the positions in config.json")),
        (
            {"model_max_length": None},
            {"max_seq_length": None},
            (64, "the positions in config.json"),
        ),
        ({"model_max_length": 0}, {"max_seq_length": -1}, (64, "the positions in config.json")),
        ({"model_max_length": 512.0}, {"max_seq_length": 16}, (16, "sentence_bert_config.json")),
        (None, None, (64, "the positions in config.json")),
    ],
)
def test_the_smallest_sane_limit_counts_and_is_named(
    tmp_path: Path,
    tokenizer: dict[str, Any] | None,
    transformer: dict[str, Any] | None,
    expected: tuple[int, str],
) -> None:
    config = {"model_type": "bert", "max_position_embeddings": 64}
    checkpoint = checkpoint_of(tmp_path, config, tokenizer=tokenizer, transformer=transformer)
    assert length_limit(checkpoint) == LengthLimit(*expected)


def test_a_stray_max_length_and_truncation_of_the_tokenizer_count_for_nothing(tiny: Tiny) -> None:
    limit = length_limit(find_checkpoint(str(tiny("tiny-limits"))))
    assert limit == LengthLimit(32, "sentence_bert_config.json")


def test_a_checkpoint_that_sets_no_limit_gets_one_that_says_so(tmp_path: Path) -> None:
    limit = length_limit(checkpoint_of(tmp_path, {"model_type": "t5"}))
    assert limit.tokens == FALLBACK_LIMIT
    assert "--max-length" in limit.origin


@pytest.mark.parametrize("max_length", [3, 33, 64])
def test_a_limit_given_wins_up_to_what_positions_allow(tiny: Tiny, max_length: int) -> None:
    limit = length_limit(find_checkpoint(str(tiny("tiny-limits"))), max_length)
    assert limit == LengthLimit(max_length, "--max-length")


@pytest.mark.parametrize(
    ("model", "most"),
    [("tiny-bert", 64), ("tiny-roberta", 64), ("tiny-roberta-pad3", 62), ("tiny-modernbert", 128)],
)
def test_a_limit_above_what_positions_allow_is_refused_with_their_number(
    tiny: Tiny, model: str, most: int
) -> None:
    with pytest.raises(ModelError, match=f"positions for {most} tokens") as refusal:
        length_limit(find_checkpoint(str(tiny(model))), most + 1)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("max_length", [0, -1])
def test_a_limit_below_one_is_refused(tiny: Tiny, max_length: int) -> None:
    with pytest.raises(ModelError, match=f"--max-length {max_length}: no room") as refusal:
        length_limit(find_checkpoint(str(tiny("tiny-bert"))), max_length)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("max_length", [1, 2])
def test_a_limit_of_special_tokens_only_is_refused_with_the_least_that_holds_one(
    tiny: Tiny, max_length: int
) -> None:
    with pytest.raises(ModelError, match="--max-length 3 or more") as refusal:
        load(tiny("tiny-bert"), max_length=max_length)
    assert refusal.value.exit_code == 2


def test_a_limit_of_one_token_holds_one_where_the_tokenizer_adds_none(tiny: Tiny) -> None:
    embedded = load(tiny("tiny-nospecial"), max_length=1).embed(["cat one"])
    assert embedded.encoded_tokens.tolist() == [1]
    assert embedded.truncated.tolist() == [True]


def test_a_tokenizer_config_that_is_not_json_is_an_error_that_names_it(
    tiny: Tiny, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "broken"))
    (directory / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: can't be read as JSON"):
        length_limit(find_checkpoint(str(directory)))
