from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.errors import ModelError
from bertpool.extraction import extract
from bertpool.model import maker_of, recipe_of
from bertpool.output.vector_file import read_provenance

Tiny = Callable[[str], Path]
Made = Callable[..., dict[str, Any]]


@pytest.fixture
def made(tiny: Tiny, tmp_path: Path) -> Made:
    """Embed a text by some options, and give the provenance."""
    source, output = tmp_path / "in.txt", tmp_path / "v.parquet"
    source.write_text("hello word\n")

    def run(model: str = "tiny-bert", **options: Any) -> dict[str, Any]:
        extract([str(source)], model=str(tiny(model)), output=str(output), force=True, **options)
        return read_provenance(output)

    return run


def columns_of(tiny: Tiny, provenance: dict[str, Any], model: str = "tiny-bert") -> list[str]:
    recipe, _ = recipe_of(find_checkpoint(str(tiny(model))), provenance)
    return list(recipe.columns)


@pytest.mark.parametrize(
    "layer",
    [["first-last"], ["last-2"], ["first-last", -1], ["last-2", -1], ["last-1", 0], [0, 1, -1]],
)
def test_layers_are_named_as_they_were_where_several_names_mean_them(
    made: Made, tiny: Tiny, layer: Sequence[str | int]
) -> None:
    provenance = made(strategy=["mean", "last"], layer=layer)
    assert columns_of(tiny, provenance) == provenance["columns"]


def test_a_named_strategy_is_recovered_where_the_declared_way_is_refused(
    made: Made, tiny: Tiny, tmp_path: Path
) -> None:
    provenance = made("tiny-st-mean-normalize", strategy="mean")
    directory = tmp_path / "unknown"
    directory.mkdir()
    for file in tiny("tiny-st-mean-normalize").rglob("*"):
        if file.is_file():
            target = directory / file.relative_to(tiny("tiny-st-mean-normalize"))
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    modules = json.loads((directory / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.LSTM"
    (directory / "modules.json").write_text(json.dumps(modules))
    recipe, _ = recipe_of(find_checkpoint(str(directory)), provenance)
    assert recipe.strategies == ("mean",)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("tiny-st-multi", {}),
        ("tiny-st-prompt", {}),
        ("tiny-st-dense", {"dimensions": 4, "normalize": True}),
        ("tiny-st-mean-normalize", {"normalize": False}),
        ("tiny-bert", {"strategy": ["cls", "pooler"], "exclude_special": True}),
    ],
)
def test_what_made_a_file_gives_its_vectors_again(
    made: Made, tiny: Tiny, model: str, options: dict[str, Any]
) -> None:
    provenance = made(model, **options)
    maker = maker_of(provenance, model=str(tiny(model)))
    assert list(maker.recipe.columns) == provenance["columns"]
    assert maker.recipe.width == provenance["dimensions"]
    assert maker.limit.tokens == provenance["max_length"]
    assert maker.reading.prompt == provenance["prompt"]


def test_another_dense_layer_is_refused(made: Made, tiny: Tiny, tmp_path: Path) -> None:
    provenance = made("tiny-st-dense") | {"modules_sha256": "0" * 64}
    with pytest.raises(ModelError, match="isn't the model that made the file: its modules differ"):
        maker_of(provenance, model=str(tiny("tiny-st-dense")))


def test_provenance_that_lacks_a_field_is_refused_by_its_name(made: Made, tiny: Tiny) -> None:
    provenance = made()
    del provenance["stages"]
    with pytest.raises(ModelError, match="'stages' is missing"):
        maker_of(provenance, model=str(tiny("tiny-bert")))
