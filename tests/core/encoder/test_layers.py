from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bertpool.encoder.layers import parse_layers
from bertpool.encoder.packed.encoder import PackedEncoder
from bertpool.errors import ModelError, PoolingError
from bertpool.pooling import STRATEGIES
from embedding import embed, load
from oracle import reference_vectors
from tiny_models import sentences

Tiny = Callable[[str], Path]

TEXTS = ["", "hi", *sentences(6, 3, 50)]
PACKED = ("tiny-bert", "tiny-roberta", "tiny-mpnet", "tiny-electra", "tiny-distil")
PADDED = ("tiny-albert", "tiny-deberta-v2", "tiny-modernbert", "tiny-bin")
NO_ATTENTION_OF_ALL = ("tiny-modernbert",)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("0", {"layer0": (0,)}),
        ("12", {"layer12": (12,)}),
        ("-1", {"layer12": (12,)}),
        ("-13", {"layer0": (0,)}),
        (" 3 ", {"layer3": (3,)}),
        ("first-last", {"first_last": (1, 12)}),
        ("last-1", {"last_1": (12,)}),
        ("last-12", {"last_12": tuple(range(1, 13))}),
    ],
)
def test_a_layer_is_read_by_number_or_as_an_average(
    name: str, parsed: dict[str, tuple[int, ...]]
) -> None:
    assert parse_layers([name], 12) == parsed


@pytest.mark.parametrize(
    "name", ["13", "-14", "last-0", "last-13", "first", "", "1.0", "²", "last"]
)
def test_what_is_no_layer_is_wrong_usage_that_says_what_is(name: str) -> None:
    with pytest.raises(ModelError, match=r"0 \(the embeddings\) to 12") as refusal:
        parse_layers([name], 12)
    assert refusal.value.exit_code == 2


def test_one_layer_named_twice_is_taken_once() -> None:
    assert parse_layers(["-1", "12", "last-1"], 12) == {"layer12": (12,)}


def test_the_last_layer_needs_no_number_of_layers() -> None:
    assert list(parse_layers(["-1"], -1).values()) == [(-1,)]


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "pooler"])
@pytest.mark.parametrize("model", [*PACKED, *PADDED])
def test_every_layer_equals_the_references_hidden_states(
    tiny: Tiny, model: str, strategy: str, layer: int
) -> None:
    if strategy == "attention" and (layer == 0 or model in NO_ATTENTION_OF_ALL):
        pytest.skip("no attention of each token for each in this layer")
    vectors = embed(tiny(model), TEXTS, strategy=strategy, layer=layer, batch_tokens=64)
    expected = reference_vectors(tiny(model), TEXTS, strategy, max_length=64, layers=(layer,))
    scale = max(1.0, np.abs(expected).max())  # not every inner layer is normalized
    assert np.abs(vectors - expected).max() < 1e-5 * scale


@pytest.mark.parametrize(("layer", "indices"), [("first-last", (1, 2)), ("last-2", (1, 2))])
@pytest.mark.parametrize("strategy", ["cls", "mean", "max"])
@pytest.mark.parametrize("model", ["tiny-bert", "tiny-albert"])
def test_averages_of_layers_are_averaged_before_the_pooling(
    tiny: Tiny, model: str, strategy: str, layer: str, indices: tuple[int, ...]
) -> None:
    vectors = embed(tiny(model), TEXTS, strategy=strategy, layer=layer, batch_tokens=64)
    expected = reference_vectors(tiny(model), TEXTS, strategy, max_length=64, layers=indices)
    assert np.abs(vectors - expected).max() < 1e-5


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-albert"])
def test_several_strategies_and_layers_are_what_each_is_alone(tiny: Tiny, model: str) -> None:
    together = load(tiny(model), strategy="cls,attention,max", layer="-1,1").embed(TEXTS).vectors
    assert list(together) == [
        f"{strategy}_layer{layer}" for layer in (2, 1) for strategy in ("cls", "attention", "max")
    ]
    for name, vectors in together.items():
        strategy, layer = name.split("_layer")
        alone = embed(tiny(model), TEXTS, strategy=strategy, layer=layer)
        # Not bit for bit: alone, cls runs the last layer for first tokens only.
        np.testing.assert_allclose(vectors, alone, rtol=0, atol=5e-6, err_msg=name)


def test_several_strategies_of_one_layer_are_named_by_strategy(tiny: Tiny) -> None:
    vectors = load(tiny("tiny-bert"), strategy=["mean", "pooler"], layer=2).embed(["hi"]).vectors
    assert list(vectors) == ["mean", "pooler"]


def test_one_strategy_of_several_layers_is_named_by_both(tiny: Tiny) -> None:
    vectors = load(tiny("tiny-bert"), layer="first-last,0").embed(["hi"]).vectors
    assert list(vectors) == ["mean_first_last", "mean_layer0"]


def test_cls_of_several_layers_runs_the_last_for_first_tokens_only(tiny: Tiny) -> None:
    embedder = load(tiny("tiny-bert"), strategy="cls", layer="0,1,2")
    assert isinstance(embedder.encoder, PackedEncoder)
    assert embedder.encoder.first_token_layer is not None
    expected = reference_vectors(tiny("tiny-bert"), TEXTS, "cls", max_length=64, layers=(1,))
    assert np.abs(embedder.embed(TEXTS).vectors["cls_layer1"] - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("strategy", "layer", "message"),
    [
        ("pooler", "1", "last layer only"),
        ("pooler", "first-last", "last layer only"),
        ("mean,pooler", "-1,-2", "last layer only"),
        ("attention", "0", "layer 0, the embeddings, has no attention"),
        ("attention", "last-2", "an average of layers has no attention"),
    ],
)
def test_a_strategy_that_a_layer_does_not_have_is_refused_before_loading(
    tiny: Tiny, strategy: str, layer: str, message: str
) -> None:
    with pytest.raises(PoolingError, match=message) as refusal:
        load(tiny("tiny-bert"), strategy=strategy, layer=layer)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("budget", [20, 4096])
def test_no_bit_of_a_layer_depends_on_the_batch(tiny: Tiny, budget: int) -> None:
    texts = sentences(30, 5, 60)
    whole = load(tiny("tiny-bert"), strategy="mean,attention", layer="1,2").embed(texts).vectors
    other = load(
        tiny("tiny-bert"), strategy="mean,attention", layer="1,2", batch_tokens=budget
    ).embed(texts[::-1])
    for name, vectors in whole.items():
        assert np.array_equal(vectors, other.vectors[name][::-1]), name
