"""Texts beyond the limit, pooled over windows of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from bertpool.embedder import Embedded, Embedder
from bertpool.encoder.tokenized import tokenize
from bertpool.encoder.tokenizer_windows import split
from bertpool.errors import TextTooLarge
from bertpool.pooling import STRATEGIES
from bertpool.pooling.reference import REFERENCES, join_windows
from embedding import load
from oracle import load as load_reference
from tiny_models import sentences

Tiny = Callable[[str], Path]

LIMIT, STRIDE = 16, 4
LONG = " ".join(sentences(6, 3, 12))
TEXTS = ["hi", LONG, "", "cat one two", " ".join(sentences(4, 9, 12)), LONG]
ONE_VECTOR_A_WINDOW = ("cls", "pooler")
MODELS = ["tiny-bert", "tiny-roberta", "tiny-albert"]  # packed, packed, padded


def embed(embedder: Embedder, texts: list[str]) -> Embedded:
    return embedder.encode(tokenize(embedder.tokenizer, texts))


def encode_windows(directory: Path, text: str) -> tuple[list[Any], list[npt.NDArray[np.bool_]]]:
    """Run transformers on each window alone; return the outputs and what each window owns."""
    tokenizer, model = load_reference(directory)
    ids = np.array(tokenizer(text)["input_ids"])
    assert len(ids) > LIMIT
    outputs, owned = [], []
    for window in split(len(ids), before=1, after=1, limit=LIMIT, stride=STRIDE):
        inputs = torch.tensor([ids[window.positions].tolist()])
        with torch.inference_mode():
            outputs.append(model(input_ids=inputs, output_attentions=True))
        owned.append(window.owned)
    assert len(outputs) > 2
    return outputs, owned


def reference(directory: Path, text: str, strategy: str) -> npt.NDArray[np.float64]:
    """Pool what all windows own at once; where one vector a window is pooled, average those."""
    outputs, owned = encode_windows(directory, text)
    if strategy == "pooler":
        return np.mean([output.pooler_output[0].double().numpy() for output in outputs], axis=0)
    states = [output.last_hidden_state[0].double().numpy() for output in outputs]
    if strategy == "cls":
        return np.mean([state[0] for state in states], axis=0)
    joined = join_windows(states, owned)
    if strategy == "attention":
        received = [o.attentions[-1][0].double().numpy().mean(axis=(0, 1)) for o in outputs]
        weights = np.concatenate([r[own] for r, own in zip(received, owned, strict=True)])
        return np.average(joined[0], axis=0, weights=weights)
    return REFERENCES[strategy](joined, np.ones(joined.shape[:2], dtype=bool))[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
def test_a_long_text_is_pooled_over_all_of_its_tokens(
    tiny: Tiny, model: str, strategy: str
) -> None:
    embedder = load(tiny(model), strategy=strategy, max_length=LIMIT, stride=STRIDE)
    vectors = embed(embedder, TEXTS).vectors["embedding"]
    expected = reference(tiny(model), LONG, strategy)
    assert np.abs(vectors[1] - expected).max() < 1e-5
    assert np.array_equal(vectors[5], vectors[1])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_text_within_the_limit_keeps_its_bits(tiny: Tiny, strategy: str) -> None:
    short = [0, 2, 3]
    windowed = load(tiny("tiny-bert"), strategy=strategy, max_length=LIMIT, stride=STRIDE)
    plain = load(tiny("tiny-bert"), strategy=strategy, max_length=LIMIT)
    one = embed(windowed, TEXTS).vectors["embedding"][short]
    assert np.array_equal(one, embed(plain, TEXTS).vectors["embedding"][short])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_bit_of_a_long_text_depends_on_the_batch(tiny: Tiny, strategy: str) -> None:
    one, *others = (
        embed(
            load(
                tiny("tiny-bert"), strategy=strategy, max_length=LIMIT, stride=STRIDE,
                batch_tokens=budget,
            ),
            texts,
        ).vectors["embedding"][-1]
        for budget, texts in ((20, TEXTS), (4096, TEXTS), (4096, [LONG]))
    )  # fmt: skip
    for other in others:
        assert np.array_equal(one, other)


def test_a_long_text_is_not_truncated_and_all_its_tokens_are_counted(tiny: Tiny) -> None:
    embedder = load(tiny("tiny-bert"), max_length=LIMIT, stride=STRIDE)
    embedded = embed(embedder, TEXTS)
    whole = embed(load(tiny("tiny-bert")), TEXTS)
    assert embedded.n_tokens.tolist() == whole.n_tokens.tolist()
    assert not embedded.truncated.any()
    # Neighbours share tokens, and each window has its special ones.
    assert embedded.encoded_tokens[1] > embedded.n_tokens[1]
    assert embedded.slots == embedded.distinct_tokens


def test_a_long_text_is_announced_once(tiny: Tiny) -> None:
    seen: list[tuple[int, int]] = []
    embedder = load(tiny("tiny-bert"), max_length=LIMIT, stride=STRIDE, batch_tokens=32)
    tokenized = tokenize(embedder.tokenizer, TEXTS)
    embedder.encode(tokenized, on_batch=lambda rows, tokens: seen.append((rows, tokens)))
    assert sum(rows for rows, _ in seen) == len(TEXTS)


def test_what_follows_the_pooling_follows_the_combination(tiny: Tiny) -> None:
    embedder = load(
        tiny("tiny-bert"), max_length=LIMIT, stride=STRIDE, normalize=True, dimensions=8
    )
    expected = reference(tiny("tiny-bert"), LONG, "mean")[:8]
    vector = embed(embedder, TEXTS).vectors["embedding"][1]
    assert np.abs(vector - expected / np.linalg.norm(expected)).max() < 1e-5


def test_several_strategies_and_layers_of_a_long_text_are_what_each_is_alone(tiny: Tiny) -> None:
    options: dict[str, Any] = {"max_length": LIMIT, "stride": STRIDE}
    together = load(tiny("tiny-bert"), strategy="mean,max", layer="1,2", **options)
    for name, vectors in embed(together, TEXTS).vectors.items():
        strategy, layer = name.split("_layer")
        alone = load(tiny("tiny-bert"), strategy=strategy, layer=layer, **options)
        np.testing.assert_allclose(
            vectors, embed(alone, TEXTS).vectors["embedding"], rtol=0, atol=1e-6
        )


def test_excluding_special_tokens_leaves_out_those_of_every_window(tiny: Tiny) -> None:
    embedder = load(tiny("tiny-bert"), max_length=LIMIT, stride=STRIDE, exclude_special=True)
    outputs, owned = encode_windows(tiny("tiny-bert"), LONG)
    states = [output.last_hidden_state[0].double().numpy() for output in outputs]
    expected = join_windows(states, owned)[0, 1:-1].mean(axis=0)
    vector = embed(embedder, TEXTS).vectors["embedding"][1]
    assert np.abs(vector - expected).max() < 1e-5


def test_a_window_that_does_not_fit_into_memory_names_its_text(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = load(tiny("tiny-bert"), max_length=LIMIT, stride=STRIDE)
    encoder = type(embedder.encoder)
    encode = encoder.encode

    def too_much(self: Any, texts: Any) -> Any:
        if len(texts[0].input_ids) == LIMIT:
            raise MemoryError
        return encode(self, texts)

    monkeypatch.setattr(encoder, "encode", too_much)
    tokenized = tokenize(embedder.tokenizer, TEXTS)
    with pytest.raises(TextTooLarge) as caught:
        embedder.encode(tokenized)
    assert caught.value.index == 1
