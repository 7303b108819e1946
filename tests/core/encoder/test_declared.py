from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bertpool.encoder.checkpoint import Checkpoint, find_checkpoint
from bertpool.encoder.declared import Declared, Dense, read_declared
from bertpool.errors import ModelError

Tiny = Callable[[str], Path]
ModelWith = Callable[..., Checkpoint]


@pytest.fixture
def model_with(tiny: Tiny, tmp_path: Path) -> ModelWith:
    """Build tiny-bert with sentence-transformers files: names with ``/`` for ``__``."""

    def build(kinds: list[str], **files: Any) -> Checkpoint:
        directory = tmp_path / "model"
        shutil.copytree(tiny("tiny-bert"), directory)
        modules = [
            {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"st.{kind}"}
            for i, kind in enumerate(kinds)
        ]
        write(directory / "modules.json", modules)
        for name, content in files.items():
            write(directory / f"{name.replace('__', '/')}.json", content)
        return find_checkpoint(str(directory))

    return build


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_without_modules_nothing_is_declared(tiny: Tiny) -> None:
    assert read_declared(find_checkpoint(str(tiny("tiny-bert")))) == Declared()


OLD = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean_tokens": "weighted_mean",
    "lasttoken": "last",
}
NEW = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}


@pytest.mark.parametrize(("key", "strategy"), OLD.items())
def test_a_boolean_key_names_its_strategy(model_with: ModelWith, key: str, strategy: str) -> None:
    config = {f"pooling_mode_{other}": other == key for other in OLD}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    assert read_declared(checkpoint).strategies == (strategy,)


@pytest.mark.parametrize(("mode", "strategy"), NEW.items())
def test_a_pooling_mode_names_its_strategy(model_with: ModelWith, mode: str, strategy: str) -> None:
    config = {"pooling_mode": mode}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    assert read_declared(checkpoint).strategies == (strategy,)


def test_several_boolean_keys_are_concatenated_in_a_fixed_order(model_with: ModelWith) -> None:
    config = {f"pooling_mode_{key}": True for key in reversed(OLD)}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    assert read_declared(checkpoint).strategies == tuple(OLD.values())


def test_a_list_of_pooling_modes_keeps_its_order(model_with: ModelWith) -> None:
    config = {"pooling_mode": ["max", "cls"]}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    assert read_declared(checkpoint).strategies == ("max", "cls")


def test_a_pooling_mode_wins_over_boolean_keys(model_with: ModelWith) -> None:
    config = {"pooling_mode": "cls", "pooling_mode_mean_tokens": True}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    assert read_declared(checkpoint).strategies == ("cls",)


def test_an_unknown_pooling_mode_is_an_error_that_names_it(model_with: ModelWith) -> None:
    config = {"pooling_mode": "median"}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    with pytest.raises(ModelError, match="'median'"):
        read_declared(checkpoint)


@pytest.mark.parametrize("include", [True, False])
def test_whether_the_prompt_is_pooled_is_read(model_with: ModelWith, include: bool) -> None:
    config = {"pooling_mode": "mean", "include_prompt": include}
    checkpoint = model_with(["Transformer", "Pooling"], **{"1_Pooling__config": config})
    assert read_declared(checkpoint).include_prompt is include


def test_a_dense_module_is_read_with_its_folder(tiny: Tiny) -> None:
    declared = read_declared(find_checkpoint(str(tiny("tiny-st-dense"))))
    assert declared.dense == (Dense("2_Dense", 32, 8, bias=True, activation="Tanh"),)


def test_dense_modules_keep_their_order(model_with: ModelWith) -> None:
    checkpoint = model_with(
        ["Transformer", "Pooling", "Dense", "Dense"],
        **{
            "1_Pooling__config": {"pooling_mode": "mean"},
            "2_Dense__config": {"in_features": 32, "out_features": 16, "bias": False},
            "3_Dense__config": {"in_features": 16, "out_features": 8},
        },
    )
    sizes = [(layer.out_features, layer.bias) for layer in read_declared(checkpoint).dense]
    assert sizes == [(16, False), (8, True)]


def test_normalizing_is_read(tiny: Tiny) -> None:
    checkpoint = find_checkpoint(str(tiny("tiny-st-mean-normalize")))
    assert read_declared(checkpoint).normalize
    assert not read_declared(find_checkpoint(str(tiny("tiny-st-cls")))).normalize


def test_modules_that_are_not_known_are_named(model_with: ModelWith) -> None:
    checkpoint = model_with(
        ["Transformer", "Pooling", "LSTM", "Dropout", "WeightedLayerPooling"],
        **{"1_Pooling__config": {"pooling_mode": "mean"}},
    )
    assert read_declared(checkpoint).unknown == ("LSTM", "WeightedLayerPooling")


def test_the_default_prompt_is_read(tiny: Tiny) -> None:
    assert read_declared(find_checkpoint(str(tiny("tiny-st-prompt")))).prompt == "the cat "


@pytest.mark.parametrize(
    "settings",
    [
        {"prompts": {"query": "q: "}},
        {"prompts": {"query": "q: "}, "default_prompt_name": None},
        {"prompts": {"query": ""}, "default_prompt_name": "query"},
        {},
    ],
    ids=str,
)
def test_prompts_without_a_default_are_put_before_nothing(
    model_with: ModelWith, settings: dict[str, Any]
) -> None:
    checkpoint = model_with(["Transformer"], config_sentence_transformers=settings)
    assert read_declared(checkpoint).prompt == ""


@pytest.mark.parametrize("prompts", [{}, None, {"other": "x"}], ids=str)
def test_a_default_prompt_that_is_not_there_is_an_error_that_names_it(
    model_with: ModelWith, prompts: dict[str, str] | None
) -> None:
    settings = {"prompts": prompts, "default_prompt_name": "query"}
    checkpoint = model_with(["Transformer"], config_sentence_transformers=settings)
    with pytest.raises(ModelError, match="'query'"):
        read_declared(checkpoint)


@pytest.mark.parametrize("lower", [True, False])
def test_lower_casing_is_read(model_with: ModelWith, lower: bool) -> None:
    checkpoint = model_with(["Transformer"], sentence_bert_config={"do_lower_case": lower})
    assert read_declared(checkpoint).lower_case is lower


def test_a_module_without_its_configuration_is_an_error_that_names_the_file(
    model_with: ModelWith,
) -> None:
    checkpoint = model_with(["Transformer", "Pooling"])
    with pytest.raises(ModelError, match=r"1_Pooling/config\.json"):
        read_declared(checkpoint)


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": 1}', "3", "null"])
def test_a_broken_list_of_modules_is_an_error_that_names_the_file(
    tiny: Tiny, tmp_path: Path, content: str
) -> None:
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "model"))
    (directory / "modules.json").write_text(content)
    with pytest.raises(ModelError, match=r"modules\.json"):
        read_declared(find_checkpoint(str(directory)))


def test_a_dense_module_without_its_sizes_is_an_error_that_names_the_file(
    model_with: ModelWith,
) -> None:
    checkpoint = model_with(["Transformer", "Dense"], **{"1_Dense__config": {"bias": True}})
    with pytest.raises(ModelError, match=r"1_Dense"):
        read_declared(checkpoint)


def test_the_stages_are_named_in_a_phrase(tiny: Tiny) -> None:
    phrases = {
        "tiny-st-cls": "cls pooling",
        "tiny-st-multi": "cls+max+mean pooling",
        "tiny-st-mean-normalize": "mean pooling + normalization",
        "tiny-st-dense": "mean pooling + Dense 32->8",
        "tiny-st-prompt": "the prompt 'the cat ' + mean pooling without the prompt",
    }
    stages = {name: read_declared(find_checkpoint(str(tiny(name)))).describe() for name in phrases}
    assert stages == phrases
