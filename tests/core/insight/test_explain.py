from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bertpool.errors import ModelError, PoolingError
from bertpool.insight.explain import Explanation, explain, special_share
from bertpool.insight.pooled_layer import load_layer
from bertpool.model import Model, load
from bertpool.pooling import STRATEGIES
from embedding import embed
from oracle import encode_alone

Tiny = Callable[[str], Path]

LINEAR = [name for name, strategy in STRATEGIES.items() if strategy.linear]
TEXT = "the cat sees a big old house by the river"
LONG = " ".join(["cat one two house"] * 30)


@pytest.fixture
def model(tiny: Tiny) -> Model:
    return load(str(tiny("tiny-bert")), threads=1)


def applied(explanation: Explanation, strategy: str) -> np.ndarray:
    """Apply the weights of the tokens kept to their vectors, by hand."""
    weights = explanation.weights[strategy][explanation.kept].astype(np.float64)
    return weights @ explanation.token_embeddings.astype(np.float64)


@pytest.mark.parametrize("strategy", LINEAR)
@pytest.mark.parametrize("text", [TEXT, LONG, "cat", ""], ids=["short", "cut", "word", "blank"])
@pytest.mark.parametrize("exclude_special", [False, True], ids=["all", "words"])
def test_the_weights_applied_by_hand_give_the_vector_that_embed_writes(
    tiny: Tiny, model: Model, strategy: str, text: str, exclude_special: bool
) -> None:
    explanation = explain(model, text, strategy=strategy, exclude_special=exclude_special)
    vector = embed(tiny("tiny-bert"), [text], strategy=strategy, exclude_special=exclude_special)
    # Sums over the root of a length reach 15, where one step of float32 is 1e-6 by itself.
    tolerance = 1e-6 * max(1.0, float(np.abs(vector).max()))
    np.testing.assert_allclose(applied(explanation, strategy), vector[0], rtol=0, atol=tolerance)


@pytest.mark.parametrize("strategy", LINEAR)
@pytest.mark.parametrize("name", ["tiny-roberta", "tiny-mpnet", "tiny-modernbert", "tiny-left"])
def test_the_weights_give_the_vector_in_every_family_of_encoders(
    tiny: Tiny, strategy: str, name: str
) -> None:
    explanation = explain(load(str(tiny(name)), threads=1), TEXT, strategy=strategy)
    vector = embed(tiny(name), [TEXT], strategy=strategy)
    np.testing.assert_allclose(applied(explanation, strategy), vector[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("strategy", LINEAR)
def test_the_weights_give_the_real_models_vector(minilm: Path, strategy: str) -> None:
    text = "The river bank was raised by half a metre."
    explanation = explain(load(str(minilm)), text, strategy=strategy)
    vector = embed(minilm, [text], strategy=strategy)
    np.testing.assert_allclose(applied(explanation, strategy), vector[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("layer", [0, 1, "first-last"])
def test_the_weights_give_the_vector_of_another_layer(
    tiny: Tiny, model: Model, layer: int | str
) -> None:
    explanation = explain(model, TEXT, strategy="mean", layer=layer)
    vector = embed(tiny("tiny-bert"), [TEXT], strategy="mean", layer=layer)
    np.testing.assert_allclose(applied(explanation, "mean"), vector[0], rtol=0, atol=1e-6)


def test_the_token_vectors_are_those_of_transformers(tiny: Tiny, model: Model) -> None:
    states, _, _ = encode_alone(tiny("tiny-bert"), TEXT, 64)
    vectors = explain(model, TEXT, strategy="cls").token_embeddings
    np.testing.assert_allclose(vectors, states[-1][0], rtol=0, atol=1e-5)


def test_tokens_come_in_order_with_their_ids_and_the_special_ones_marked(model: Model) -> None:
    tokens = explain(model, "cat two").tokens
    assert [token.text for token in tokens] == ["[CLS]", "cat", "two", "[SEP]"]
    assert [token.special for token in tokens] == [True, False, False, True]
    assert [token.position for token in tokens] == [0, 1, 2, 3]
    (expected,) = load_layer(model, ("mean",), layer=-1).embedder.tokenizer.encode(["cat two"])
    assert [token.id for token in tokens] == expected.input_ids


def test_tokens_beyond_the_limit_are_marked_and_weigh_nothing(model: Model) -> None:
    explanation = explain(model, "cat one two house", strategy="mean", max_length=4)
    assert [token.cut for token in explanation.tokens] == [False, False, False, True, True, False]
    assert explanation.weights["mean"].tolist() == [0.25, 0.25, 0.25, 0.0, 0.0, 0.25]


def test_excluded_special_tokens_are_marked_and_weigh_nothing(model: Model) -> None:
    explanation = explain(model, "cat two", strategy="mean", exclude_special=True)
    assert [token.pooled for token in explanation.tokens] == [False, True, True, False]
    assert explanation.weights["mean"].tolist() == [0.0, 0.5, 0.5, 0.0]


def test_the_prompt_is_among_the_tokens(model: Model) -> None:
    assert [token.text for token in explain(model, "cat", prompt="the dog ").tokens][1:3] == [
        "the",
        "dog",
    ]


@pytest.mark.parametrize("name", ["tiny-bert", "tiny-modernbert"], ids=["packed", "padded"])
def test_a_heads_weights_are_what_tokens_receive_in_that_head(tiny: Tiny, name: str) -> None:
    model = load(str(tiny(name)), threads=1)
    _, _, attentions = encode_alone(tiny(name), TEXT, 64)
    for head in range(4):
        expected = attentions[-1][0, head].mean(axis=0)
        weights = explain(model, TEXT, strategy="attention", head=head).weights["attention"]
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-6)


def test_a_head_that_is_not_there_is_refused(model: Model) -> None:
    with pytest.raises(ModelError, match="--head 4: give 0 to 3"):
        explain(model, TEXT, head=4)


def test_a_head_without_the_attention_strategy_is_refused(model: Model) -> None:
    with pytest.raises(ModelError, match="attention only"):
        explain(model, TEXT, strategy="mean", head=0)


def test_by_default_a_layer_gets_the_strategies_that_it_has(model: Model) -> None:
    assert list(explain(model, TEXT).weights) == ["cls", "mean", "max", "attention"]
    assert list(explain(model, TEXT, layer=0).weights) == ["cls", "mean", "max"]


def test_a_strategy_named_for_a_layer_without_it_is_refused(model: Model) -> None:
    with pytest.raises(PoolingError, match="has no attention"):
        explain(model, TEXT, strategy="attention", layer=0)


def test_several_layers_are_refused(model: Model) -> None:
    with pytest.raises(ModelError, match="name one layer"):
        explain(model, TEXT, layer="-1,-2")


def test_auto_explains_what_the_checkpoint_declares(tiny: Tiny) -> None:
    model = load(str(tiny("tiny-st-cls")), threads=1)
    assert list(explain(model, TEXT, strategy="auto").weights) == ["cls"]


def test_pooler_and_max_are_said_not_to_be_linear(model: Model) -> None:
    explanation = explain(model, TEXT, strategy=["pooler", "max", "cls"])
    assert [explanation.linear(name) for name in explanation.weights] == [False, False, True]


def test_a_text_without_tokens_has_nothing_to_explain(tiny: Tiny) -> None:
    with pytest.raises(ModelError, match="no token"):
        explain(load(str(tiny("tiny-nospecial")), threads=1), "")


def test_the_share_of_special_tokens_is_the_average_over_texts(model: Model) -> None:
    texts = [TEXT, "cat"]
    expected = []
    for text in texts:
        weights = explain(model, text, strategy="attention").weights["attention"]
        expected.append(weights[0] + weights[-1])
    loaded = load_layer(model, ("attention",), layer=-1)
    share = special_share(loaded, texts, "attention")
    assert share == pytest.approx(np.mean(expected), abs=1e-6)
