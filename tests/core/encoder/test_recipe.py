from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.recipe import (
    TOKENS,
    Column,
    Reading,
    Recipe,
    check_strategies,
    hidden_size,
    make_recipe,
)
from bertpool.errors import ModelError, PoolingError
from bertpool.pooling import AUTO, STRATEGIES

Tiny = Callable[[str], Path]

NONE_ASKED: dict[str, Any] = {
    "strategy": AUTO,
    "exclude_special": False,
    "prompt": None,
    "normalize": None,
    "dimensions": None,
}


def recipe_of(directory: Path, **options: Any) -> Recipe:
    return make_recipe(find_checkpoint(str(directory)), **{**NONE_ASKED, **options})[0]


def reading_of(directory: Path, **options: Any) -> Reading:
    return make_recipe(find_checkpoint(str(directory)), **{**NONE_ASKED, **options})[1]


def copied(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / directory.name))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


@pytest.mark.parametrize("name", [AUTO, *STRATEGIES])
def test_a_known_strategy_passes(name: str) -> None:
    check_strategies(name)


@pytest.mark.parametrize("name", ["", "Mean", "avg", "mean,", "mean,clss"])
def test_an_unknown_strategy_is_wrong_usage_that_lists_the_known(name: str) -> None:
    with pytest.raises(PoolingError) as refusal:
        check_strategies(name)
    assert str(refusal.value).endswith(", ".join((AUTO, *STRATEGIES, TOKENS)))
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("names", ["auto,mean", ["tokens", "auto"]])
def test_auto_stands_alone(names: Any) -> None:
    with pytest.raises(PoolingError, match="stands alone"):
        check_strategies(names)


@pytest.mark.parametrize("names", ["cls,mean", " cls , mean,cls", ["cls", "mean"], ["cls,mean"]])
def test_several_strategies_are_named_with_commas_or_one_by_one(names: Any) -> None:
    assert check_strategies(names) == ("cls", "mean")


def test_auto_is_mean_where_nothing_is_declared(tiny: Tiny) -> None:
    assert recipe_of(tiny("tiny-bert")) == Recipe({"embedding": Column(("mean",), (2,))}, 32)


@pytest.mark.parametrize(
    ("model", "strategies", "width", "normalize"),
    [
        ("tiny-st-cls", ("cls",), 32, False),
        ("tiny-st-mean-normalize", ("mean",), 32, True),
        ("tiny-st-dense", ("mean",), 8, False),
        ("tiny-st-multi", ("cls", "max", "mean"), 96, False),
    ],
)
def test_auto_takes_what_is_declared(
    tiny: Tiny, model: str, strategies: tuple[str, ...], width: int, normalize: bool
) -> None:
    recipe = recipe_of(tiny(model))
    assert (recipe.strategies, recipe.width, recipe.normalize) == (strategies, width, normalize)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", ["tiny-st-mean-normalize", "tiny-st-dense", "tiny-st-multi"])
def test_a_strategy_named_gives_the_raw_pooled_vector(
    tiny: Tiny, model: str, strategy: str
) -> None:
    recipe = recipe_of(tiny(model), strategy=strategy)
    assert recipe == Recipe({"embedding": Column((strategy,), (2,))}, 32)


def test_a_strategy_named_does_without_the_declared_prompt(tiny: Tiny) -> None:
    assert reading_of(tiny("tiny-st-prompt"), strategy="mean") == Reading()


def test_auto_takes_the_declared_prompt(tiny: Tiny) -> None:
    assert reading_of(tiny("tiny-st-prompt")) == Reading("the cat ", include_prompt=False)


def test_a_prompt_given_takes_the_place_of_the_declared_one(tiny: Tiny) -> None:
    assert reading_of(tiny("tiny-st-prompt"), prompt="").prompt == ""
    assert reading_of(tiny("tiny-st-prompt"), prompt="a dog ").prompt == "a dog "


@pytest.mark.parametrize(
    ("model", "asked", "expected"),
    [
        ("tiny-st-mean-normalize", None, True),
        ("tiny-st-mean-normalize", False, False),
        ("tiny-bert", None, False),
        ("tiny-bert", True, True),
    ],
)
def test_normalizing_is_what_is_asked_else_what_is_declared(
    tiny: Tiny, model: str, asked: bool | None, expected: bool
) -> None:
    assert recipe_of(tiny(model), normalize=asked).normalize is expected


@pytest.mark.parametrize(
    ("strategy", "needs"),
    [("mean", set()), ("pooler", {"pooler"}), ("attention", {"attention"}), ("cls", set())],
)
def test_the_encoder_is_asked_for_what_a_strategy_needs(
    tiny: Tiny, strategy: str, needs: set[str]
) -> None:
    assert recipe_of(tiny("tiny-bert"), strategy=strategy).needs == needs


@pytest.mark.parametrize("dimensions", [1, 8, 32])
def test_dimensions_within_the_width_are_the_width(tiny: Tiny, dimensions: int) -> None:
    assert recipe_of(tiny("tiny-bert"), dimensions=dimensions).width == dimensions


@pytest.mark.parametrize(
    ("model", "dimensions", "most"),
    [("tiny-bert", 0, 32), ("tiny-bert", -1, 32), ("tiny-bert", 33, 32), ("tiny-st-dense", 9, 8)],
)
def test_dimensions_outside_the_width_are_refused_with_it(
    tiny: Tiny, model: str, dimensions: int, most: int
) -> None:
    with pytest.raises(ModelError, match=f"give 1 to {most}$") as refusal:
        recipe_of(tiny(model), dimensions=dimensions)
    assert refusal.value.exit_code == 2


# Notes and refusals


@pytest.mark.parametrize(
    ("model", "strategy", "phrase"),
    [
        ("tiny-st-cls", "mean", "declares cls pooling"),
        ("tiny-st-mean-normalize", "mean", "declares mean pooling + normalization"),
        ("tiny-st-dense", "mean", "32-d encoder pooling, not the model's 8-d"),
        ("tiny-st-prompt", "mean", "the prompt 'the cat '"),
    ],
)
def test_a_strategy_that_differs_from_the_declared_is_noted_once(
    tiny: Tiny, caplog: pytest.LogCaptureFixture, model: str, strategy: str, phrase: str
) -> None:
    recipe_of(tiny(model), strategy=strategy)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert phrase in record.getMessage()


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("tiny-bert", {"strategy": "cls"}),
        ("tiny-st-cls", {"strategy": "cls"}),
        ("tiny-st-mean-normalize", {"strategy": "mean", "normalize": True}),
        ("tiny-st-prompt", {"strategy": "mean", "prompt": "the cat "}),
        ("tiny-st-dense", {"strategy": "auto"}),
    ],
    ids=str,
)
def test_what_agrees_with_the_declared_is_not_noted(
    tiny: Tiny, caplog: pytest.LogCaptureFixture, model: str, options: dict[str, Any]
) -> None:
    recipe_of(tiny(model), **options)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("edited", "complaint"),
    [
        ({"activation_function": "torch.nn.modules.activation.Mish"}, "Dense with Mish"),
        ({"in_features": 31}, "Dense 31->8 after 32 dimensions"),
    ],
    ids=str,
)
def test_a_dense_module_that_can_not_be_applied_is_refused_under_auto_only(
    tiny: Tiny, tmp_path: Path, edited: dict[str, Any], complaint: str
) -> None:
    directory = copied(tiny("tiny-st-dense"), tmp_path)
    edit(directory / "2_Dense" / "config.json", lambda config: {**config, **edited})
    with pytest.raises(PoolingError, match=complaint):
        recipe_of(directory)
    assert recipe_of(directory, strategy="mean").width == 32


def test_an_unknown_module_is_refused_under_auto_only(tiny: Tiny, tmp_path: Path) -> None:
    directory = copied(tiny("tiny-st-mean-normalize"), tmp_path)
    module = {"idx": 3, "name": "3", "path": "3_LSTM", "type": "sentence_transformers.models.LSTM"}
    edit(directory / "modules.json", lambda modules: [*modules, module])
    with pytest.raises(PoolingError, match="LSTM"):
        recipe_of(directory)
    assert recipe_of(directory, strategy="mean").width == 32


def test_a_dense_module_for_token_vectors_is_refused_under_auto(tiny: Tiny, tmp_path: Path) -> None:
    directory = copied(tiny("tiny-st-dense"), tmp_path)
    name = {"module_input_name": "token_embeddings"}
    edit(directory / "2_Dense" / "config.json", lambda config: {**config, **name})
    with pytest.raises(PoolingError):
        recipe_of(directory)


@pytest.mark.parametrize(
    ("model", "size"), [("tiny-bert", 32), ("tiny-distil", 32), ("tiny-electra", 32)]
)
def test_the_hidden_size_is_read_by_the_familys_own_key(tiny: Tiny, model: str, size: int) -> None:
    assert hidden_size(find_checkpoint(str(tiny(model)))) == size


def test_a_configuration_without_a_hidden_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(ModelError, match="not a text encoder"):
        hidden_size(find_checkpoint(str(tmp_path)))


def test_a_recipe_is_described_in_a_phrase(tiny: Tiny) -> None:
    recipe = recipe_of(tiny("tiny-st-dense"), dimensions=4, normalize=True)
    expected = "mean pooling + Dense 32->8 + first 4 dimensions + normalization"
    assert recipe.describe() == expected
