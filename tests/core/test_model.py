from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bertpool
import numpy as np
import pyarrow.parquet as pq
import pytest
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.errors import ModelError, PoolingError
from bertpool.extraction import extract
from bertpool.model import Model, find_maker, recipe_of
from embedding import embed
from tiny_models import sentences

Tiny = Callable[[str], Path]

TEXTS = ["", "hi", "cat one two", *sentences(20, 4, 50), "hi"]


@pytest.fixture
def model(tiny: Tiny) -> Model:
    return bertpool.load(str(tiny("tiny-bert")), threads=1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(TEXTS))
    return path


def test_texts_become_an_array_with_a_row_each(model: Model) -> None:
    vectors = model.embed(TEXTS, strategy="mean")
    assert isinstance(vectors, np.ndarray)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 32)


def test_the_vectors_are_those_of_the_command(model: Model, tiny: Tiny) -> None:
    expected = embed(tiny("tiny-bert"), TEXTS, strategy="max")
    assert np.array_equal(np.asarray(model.embed(TEXTS, strategy="max")), expected)


def test_several_columns_come_by_name(model: Model) -> None:
    vectors = model.embed(TEXTS, strategy="cls,mean")
    assert isinstance(vectors, dict)
    assert list(vectors) == ["cls", "mean"]


@pytest.mark.parametrize("strategy", ["tokens", "tokens,mean", ["mean", "tokens"]])
def test_token_vectors_are_refused_and_what_writes_them_named(
    model: Model, strategy: str | list[str]
) -> None:
    with pytest.raises(PoolingError, match="extract"):
        model.embed(TEXTS, strategy=strategy)


def test_one_text_for_a_list_of_texts_is_refused(model: Model) -> None:
    with pytest.raises(TypeError, match="a list of texts wanted"):
        model.embed("hello")


def test_no_texts_give_no_rows(model: Model) -> None:
    assert np.asarray(model.embed([])).shape == (0, 32)


def test_more_texts_than_a_window_holds_keep_their_order(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = np.asarray(model.embed(TEXTS))
    monkeypatch.setattr("bertpool.model.WINDOW_ROWS", 5)
    assert np.array_equal(np.asarray(model.embed(TEXTS)), expected)


def test_pairs_differ_from_their_texts_alone(model: Model) -> None:
    one = np.asarray(model.embed(["cat one"], ["dog two"]))
    assert np.abs(one - np.asarray(model.embed(["cat one"]))).max() > 1e-3


def test_progress_counts_every_text_once(model: Model) -> None:
    seen: list[int] = []
    model.embed(TEXTS, on_batch=seen.append)
    assert sum(seen) == len(TEXTS)


def test_after_an_interrupt_the_model_still_works(model: Model) -> None:
    def interrupt(texts: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.embed(TEXTS, on_batch=interrupt)
    assert np.asarray(model.embed(TEXTS)).shape == (len(TEXTS), 32)


def test_the_same_way_of_embedding_is_loaded_once(model: Model) -> None:
    assert model.embedder(strategy="mean") is model.embedder(strategy=["mean"])
    assert model.embedder(strategy="mean") is not model.embedder(strategy="cls")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "mean"},
        {"strategy": "cls,max", "layer": "1,2"},
        {"strategy": "mean", "normalize": True, "dimensions": 8},
        {"normalize": False},
        {"layer": "first-last,0"},
        {"layer": "last-2"},
        {"exclude_special": True, "prompt": "the "},
    ],
)
@pytest.mark.parametrize("name", ["tiny-bert", "tiny-st-dense", "tiny-st-mean-normalize"])
def test_a_files_provenance_gives_the_recipe_that_made_it(
    tiny: Tiny, source: Path, name: str, options: dict[str, Any]
) -> None:
    extract([str(source)], model=str(tiny(name)), **options)
    file = source.with_suffix(".parquet")
    provenance = json.loads(pq.read_metadata(file).metadata[b"bertpool"])
    checkpoint = find_checkpoint(str(tiny(name)))
    recipe, _ = recipe_of(checkpoint, provenance)
    assert list(recipe.columns) == provenance["columns"]
    assert [str(stage) for stage in recipe.stages] == provenance["stages"]
    assert [list(layers) for layers in recipe.layers] == provenance["layers"]


def provenance_of(tiny: Tiny, source: Path) -> dict[str, Any]:
    extract([str(source)], model=str(tiny("tiny-bert")))
    metadata = pq.read_metadata(source.with_suffix(".parquet")).metadata
    content: dict[str, Any] = json.loads(metadata[b"bertpool"])
    return content


def test_a_local_model_must_be_named(tiny: Tiny, source: Path) -> None:
    with pytest.raises(ModelError, match="--model") as caught:
        find_maker(provenance_of(tiny, source))
    assert caught.value.exit_code == 2


def test_the_model_that_made_a_file_is_found_where_it_is_named(tiny: Tiny, source: Path) -> None:
    maker = find_maker(provenance_of(tiny, source), model=str(tiny("tiny-bert")))
    assert maker.directory == tiny("tiny-bert")


@pytest.mark.parametrize(
    ("other", "what"), [("tiny-roberta", "config"), ("tiny-st-cls", "tokenizer|weights")]
)
def test_another_model_is_refused_by_what_differs(
    tiny: Tiny, source: Path, other: str, what: str
) -> None:
    provenance = provenance_of(tiny, source)
    if other == "tiny-st-cls":
        provenance["weights_sha256"] = "0" * 64
    with pytest.raises(ModelError, match=f"its ({what}) differs"):
        find_maker(provenance, model=str(tiny(other)))
