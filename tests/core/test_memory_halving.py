from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from bertpool.embedder import Embedder, Memory
from bertpool.encoder.encoder import Encoder
from bertpool.encoder.layers import Layers
from bertpool.encoder.tokenizer import TokenizedText
from bertpool.errors import TextTooLarge
from bertpool.pooling import TokenEmbeddings
from embedding import load
from safetensors.torch import load_file, save_file
from tiny_models import sentences

Tiny = Callable[[str], Path]

TEXTS = sentences(200, 5, 60)
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
    MemoryError(),
]
MODELS = ["tiny-bert", "tiny-bin"]  # packed, padded

every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@dataclass(frozen=True)
class SmallMemory:
    """An encoder that fails with ``error`` on more than ``most`` slots."""

    inner: Encoder
    most: int
    error: Exception
    failed: list[int] = field(default_factory=list)
    encoded: list[TokenizedText] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def workers(self) -> int:
        return self.inner.workers

    def batches(self, texts: Sequence[TokenizedText]) -> Iterator[list[int]]:
        return self.inner.batches(texts)

    def slots(self, texts: Sequence[TokenizedText]) -> int:
        return self.inner.slots(texts)

    def encode(self, texts: Sequence[TokenizedText]) -> Iterator[tuple[Layers, TokenEmbeddings]]:
        if self.slots(texts) > self.most:
            self.failed.append(self.slots(texts))
            raise self.error
        self.encoded.extend(texts)
        yield from self.inner.encode(texts)


def short_of_memory(
    embedder: Embedder, most: int, error: Exception
) -> tuple[Embedder, SmallMemory]:
    encoder = SmallMemory(embedder.encoder, most, error)
    return dataclasses.replace(embedder, encoder=encoder, memory=Memory()), encoder


@every_error
@pytest.mark.parametrize("model", MODELS)
def test_batches_that_do_not_fit_are_halved_and_give_the_same_vectors(
    tiny: Tiny, model: str, error: Exception
) -> None:
    embedder = load(tiny(model), batch_tokens=512)
    short, encoder = short_of_memory(embedder, 100, error)
    whole, halved = embedder.embed(TEXTS), short.embed(TEXTS)
    np.testing.assert_allclose(
        halved.vectors["embedding"], whole.vectors["embedding"], rtol=0, atol=1e-5
    )
    if model == "tiny-bert":
        assert np.array_equal(halved.vectors["embedding"], whole.vectors["embedding"])
    assert encoder.failed
    assert len(encoder.encoded) == halved.distinct  # each text once


@every_error
def test_progress_counts_each_text_once_where_batches_are_halved(
    tiny: Tiny, error: Exception
) -> None:
    short, _ = short_of_memory(load(tiny("tiny-bert"), batch_tokens=512), 100, error)
    rows, tokens = [], []
    again = [*TEXTS, *TEXTS[:7]]
    embedded = short.embed(again, on_batch=lambda r, t: (rows.append(r), tokens.append(t))[0])
    assert sum(rows) == len(again)
    assert sum(tokens) == embedded.encoded_tokens.sum()


@every_error
@pytest.mark.parametrize("most", [70, 100, 200, 300])
def test_what_does_not_fit_is_not_tried_again(tiny: Tiny, most: int, error: Exception) -> None:
    short, encoder = short_of_memory(load(tiny("tiny-bert"), batch_tokens=512), most, error)
    short.embed(TEXTS)
    assert encoder.failed == sorted(set(encoder.failed), reverse=True)  # none as large again
    assert short.memory.too_much == min(encoder.failed) * 3 // 4
    encoder.failed.clear()
    short.embed(TEXTS)
    assert encoder.failed == []


@pytest.mark.parametrize("most", [70, 100, 200, 300])
def test_fewer_batches_fail_than_there_are(tiny: Tiny, most: int) -> None:
    embedder = load(tiny("tiny-bert"), batch_tokens=512)
    short, encoder = short_of_memory(embedder, most, ERRORS[0])
    batches = list(encoder.batches(embedder.tokenizer.encode(TEXTS)))
    short.embed(TEXTS)
    assert 0 < len(encoder.failed) < len(batches)


@every_error
def test_a_single_text_that_does_not_fit_is_named(tiny: Tiny, error: Exception) -> None:
    texts = ["cat", "one two", " ".join(["dog"] * 50), "hi"]
    short, encoder = short_of_memory(load(tiny("tiny-bert")), 40, error)
    with pytest.raises(TextTooLarge) as raised:
        short.embed(texts)
    assert raised.value.index == 2
    assert raised.value.__cause__ is error
    assert encoder.encoded == []  # it came first


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 don't fit"), ValueError("another")])
def test_another_error_passes_through_at_once(tiny: Tiny, error: Exception) -> None:
    short, encoder = short_of_memory(load(tiny("tiny-bert"), batch_tokens=512), 100, error)
    with pytest.raises(type(error)) as raised:
        short.embed(TEXTS)
    assert raised.value is error
    assert len(encoder.failed) == 1


# Vectors that overflow


def test_texts_that_overflow_in_bfloat16_are_encoded_again_in_float32(
    tiny: Tiny, tmp_path: Path
) -> None:
    directory = overflowing(tiny("tiny-bert"), tmp_path)
    texts = [*TEXTS[:20], *TEXTS[:3]]
    half = load(directory, strategy="cls", dtype="bfloat16").embed(texts)
    exact = load(directory, strategy="cls").embed(texts)
    assert (half.redone, exact.redone) == (len(texts), 0)
    assert half.finite.all()
    assert np.array_equal(half.vectors["embedding"], exact.vectors["embedding"])


def test_what_does_not_overflow_is_not_encoded_again(tiny: Tiny) -> None:
    embedded = load(tiny("tiny-bert"), strategy="cls", dtype="bfloat16").embed(TEXTS[:20])
    assert embedded.redone == 0


def test_without_a_way_to_float32_the_overflow_is_seen(tiny: Tiny, tmp_path: Path) -> None:
    embedder = load(overflowing(tiny("tiny-bert"), tmp_path), strategy="cls", dtype="bfloat16")
    embedded = dataclasses.replace(embedder, in_float32=None).embed(TEXTS[:3])
    assert embedded.redone == 0
    assert not embedded.finite.any()


@pytest.mark.parametrize("model", MODELS)
def test_a_text_given_again_is_encoded_once(tiny: Tiny, model: str) -> None:
    short, encoder = short_of_memory(load(tiny(model)), 1 << 30, MemoryError())
    embedded = short.embed(["cat", "one two", "cat", "cat", "hi", "one two"])
    assert embedded.distinct == len(encoder.encoded) == 3
    vectors = embedded.vectors["embedding"]
    assert np.array_equal(vectors[[2, 3, 5]], vectors[[0, 0, 1]])
    assert embedded.distinct_tokens == sum(len(text.input_ids) for text in encoder.encoded)


def overflowing(directory: Path, tmp_path: Path) -> Path:
    """Copy a model and give its last layer a value that float32 holds and bfloat16 doesn't."""
    copy = Path(shutil.copytree(directory, tmp_path / directory.name))
    weights = load_file(copy / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.bias"][0] = 3.4e38
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    return copy
