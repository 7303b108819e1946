from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from bertpool.embedder import Embedder, load_embedder
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.device import Dtype
from bertpool.encoder.limits import length_limit
from bertpool.encoder.packed.encoder import PackedEncoder
from bertpool.encoder.recipe import make_recipe
from bertpool.encoder.tokenizer import load_tokenizer
from bertpool.pooling import STRATEGIES
from tiny_models import sentences

Tiny = Callable[[str], Path]
Vectors = npt.NDArray[np.float32]

CORPUS = Path(__file__).parents[4] / "sample_data" / "corpus.txt"
WITH_POOLER = ("tiny-bert", "tiny-roberta", "tiny-xlm-roberta", "tiny-camembert", "tiny-mpnet")
FAMILIES = (*WITH_POOLER, "tiny-electra", "tiny-distil")
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
TEXTS = sentences(40, 7, 60)
BUDGETS = (20, 256, 16384)  # one text a batch, a few, all

every_family = pytest.mark.parametrize("family", FAMILIES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_family
@every_dtype
def test_the_size_of_the_batches_changes_no_bit(tiny: Tiny, family: str, dtype: Dtype) -> None:
    for strategy in strategies_of(family):
        one, *others = (
            vectors(load(tiny(family), strategy, dtype, batch_tokens=budget), TEXTS)
            for budget in BUDGETS
        )
        for other in others:
            assert np.array_equal(one, other), strategy


@every_family
@every_dtype
def test_the_order_of_the_texts_changes_no_bit(tiny: Tiny, family: str, dtype: Dtype) -> None:
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    for strategy in strategies_of(family):
        embedder = load(tiny(family), strategy, dtype)
        shuffled = vectors(embedder, [TEXTS[i] for i in order])
        assert np.array_equal(shuffled, vectors(embedder, TEXTS)[order]), strategy


@every_family
@every_dtype
def test_a_text_alone_has_the_bits_it_has_among_others(
    tiny: Tiny, family: str, dtype: Dtype
) -> None:
    for strategy in strategies_of(family):
        embedder = load(tiny(family), strategy, dtype)
        assert np.array_equal(each_alone(embedder, TEXTS), vectors(embedder, TEXTS)), strategy


@every_family
@every_dtype
def test_the_number_of_threads_changes_no_bit(tiny: Tiny, family: str, dtype: Dtype) -> None:
    for strategy in strategies_of(family):
        one, two = (
            vectors(load(tiny(family), strategy, dtype, threads=threads), TEXTS)
            for threads in (1, 2)
        )
        assert np.array_equal(one, two), strategy


@every_family
@every_dtype
def test_texts_given_again_change_no_bit(tiny: Tiny, family: str, dtype: Dtype) -> None:
    again = [*TEXTS, *TEXTS[10:30], TEXTS[0], TEXTS[0]]
    for strategy in strategies_of(family):
        embedder = load(tiny(family), strategy, dtype)
        single, repeated = vectors(embedder, TEXTS), vectors(embedder, again)
        assert np.array_equal(repeated[:40], single), strategy
        assert np.array_equal(repeated[40:], single[[*range(10, 30), 0, 0]]), strategy


# The real model


@pytest.fixture(scope="module")
def real_texts() -> list[str]:
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    lengths = random.Random(2).choices((1, 1, 1, 4, 9), k=60)
    return [" ".join(lines[5 * i : 5 * i + length]) for i, length in enumerate(lengths)]


@every_dtype
@pytest.mark.parametrize("strategy", ["mean", "cls"])
def test_the_real_models_bits_stay_whatever_stands_beside_a_text(
    minilm: Path, real_texts: list[str], strategy: str, dtype: Dtype
) -> None:
    embedder = load(minilm, strategy, dtype, batch_tokens=BUDGETS[-1])
    together = vectors(embedder, real_texts)
    order = random.Random(3).sample(range(60), 60)
    assert np.array_equal(vectors(embedder, [real_texts[i] for i in order]), together[order])
    assert np.array_equal(each_alone(embedder, real_texts), together)
    two_threads = load(minilm, strategy, dtype, batch_tokens=256, threads=2)
    assert np.array_equal(vectors(two_threads, [*real_texts, *real_texts[:5]])[:60], together)


@pytest.mark.parametrize("strategy", ["mean", "cls"])
def test_the_real_models_bfloat16_is_near_its_float32(
    minilm: Path, real_texts: list[str], strategy: str
) -> None:
    exact, half = (vectors(load(minilm, strategy, dtype), real_texts) for dtype in DTYPES)
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(half, axis=1)
    assert ((exact * half).sum(axis=1) / norms).min() >= 0.9998


# What the tests above use


def strategies_of(family: str) -> list[str]:
    return [name for name in STRATEGIES if name != "pooler" or family in WITH_POOLER]


def load(
    directory: Path, strategy: str, dtype: Dtype, *, batch_tokens: int = 256, threads: int = 1
) -> Embedder:
    checkpoint = find_checkpoint(str(directory))
    recipe, reading = make_recipe(
        checkpoint,
        strategy=strategy,
        exclude_special=False,
        prompt=None,
        normalize=None,
        dimensions=None,
    )
    embedder = load_embedder(
        checkpoint,
        load_tokenizer(checkpoint, length_limit(checkpoint, None), reading),
        recipe,
        device=torch.device("cpu"),
        dtype=dtype,
        batch_tokens=batch_tokens,
        threads=threads,
    )
    assert isinstance(embedder.encoder, PackedEncoder)
    assert embedder.encoder.workers == threads
    return embedder


def vectors(embedder: Embedder, texts: list[str]) -> Vectors:
    found = embedder.embed(texts).vectors["embedding"]
    assert np.isfinite(found).all()
    return found


def each_alone(embedder: Embedder, texts: list[str]) -> Vectors:
    return np.concatenate([vectors(embedder, [text]) for text in texts])
