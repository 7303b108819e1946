"""Embed texts in memory, as the pipeline does between reading and writing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from bertpool.embedder import Embedder, load_embedder
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.device import Dtype
from bertpool.encoder.limits import length_limit
from bertpool.encoder.recipe import Named, make_recipe
from bertpool.encoder.tokenizer import load_tokenizer


def load(
    directory: Path,
    *,
    strategy: Named = "mean",
    layer: Named = -1,
    batch_tokens: int = 4096,
    exclude_special: bool = False,
    max_length: int | None = None,
    prompt: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    dtype: Dtype = "float32",
    device: str = "cpu",
    stride: int | None = None,
) -> Embedder:
    """Load a checkpoint with the options of the same names.

    Torch runs on one thread from here on: tiny models gain nothing by more, and where other
    processes keep the cores busy each of their operations would wait for the second.
    """
    torch.set_num_threads(1)
    checkpoint = find_checkpoint(str(directory))
    recipe, reading = make_recipe(
        checkpoint,
        strategy=strategy,
        layer=layer,
        exclude_special=exclude_special,
        prompt=prompt,
        normalize=normalize,
        dimensions=dimensions,
    )
    return load_embedder(
        checkpoint,
        load_tokenizer(checkpoint, length_limit(checkpoint, max_length), reading, stride=stride),
        recipe,
        device=torch.device(device),
        dtype=dtype,
        batch_tokens=batch_tokens,
    )


def embed(
    directory: Path,
    texts: Sequence[str],
    *,
    strategy: Named = "mean",
    layer: Named = -1,
    batch_tokens: int = 4096,
    exclude_special: bool = False,
    max_length: int | None = None,
    prompt: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    dtype: Dtype = "float32",
    device: str = "cpu",
) -> npt.NDArray[np.float32]:
    """Load a checkpoint and embed texts: ``(texts, width)``."""
    embedder = load(
        directory,
        strategy=strategy,
        layer=layer,
        batch_tokens=batch_tokens,
        exclude_special=exclude_special,
        max_length=max_length,
        prompt=prompt,
        normalize=normalize,
        dimensions=dimensions,
        dtype=dtype,
        device=device,
    )
    return embedder.embed(texts).vectors["embedding"]
