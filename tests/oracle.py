"""The reference for vectors: transformers, one text at a time, pooled by the NumPy definitions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from bertpool.pooling.reference import REFERENCES


def reference_vectors(
    directory: Path,
    texts: Sequence[str],
    strategy: str,
    *,
    max_length: int,
    layers: tuple[int, ...] = (-1,),
) -> npt.NDArray[np.float64]:
    """Encode each text alone, in float32, and pool the average of layers: ``(texts, hidden)``."""
    return np.array([_vector(directory, text, strategy, max_length, layers) for text in texts])


def _vector(
    directory: Path, text: str, strategy: str, max_length: int, layers: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    states, pooler, attentions = encode_alone(directory, text, max_length)
    hidden = np.mean([states[layer] for layer in layers], axis=0)
    if strategy == "pooler":
        assert pooler is not None
        return pooler[0]
    real = np.ones(hidden.shape[:2], dtype=bool)
    if strategy == "attention":
        (layer,) = layers
        of_layer = attentions[layer if layer < 0 else layer - 1]
        return REFERENCES["attention"](hidden, real, real, of_layer)[0]
    return REFERENCES[strategy](hidden, real)[0]


Arrays = tuple[npt.NDArray[np.float64], ...]


@functools.lru_cache(maxsize=4096)
def encode_alone(
    directory: Path, text: str, max_length: int
) -> tuple[Arrays, npt.NDArray[np.float64] | None, Arrays]:
    """Return every hidden state, the pooler output and every attention of one text, as float64."""
    tokenizer, model = load(directory)
    inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
    accepted = inspect.signature(model.forward).parameters
    with torch.inference_mode():
        output = model(
            **{k: v for k, v in inputs.items() if k in accepted},
            output_attentions=True,
            output_hidden_states=True,
        )
    pooler = getattr(output, "pooler_output", None)
    states = (*output.hidden_states[:-1], output.last_hidden_state)
    return (
        tuple(state.double().numpy() for state in states),
        None if pooler is None else pooler.double().numpy(),
        tuple(weights.double().numpy() for weights in output.attentions),
    )


@functools.lru_cache(maxsize=64)
def load(directory: Path) -> tuple[Any, Any]:
    """Load tokenizer and float32 model as any user of transformers would, padding state reset."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    tokenizer.backend_tokenizer.no_padding()
    model = transformers.AutoModel.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    return tokenizer, model.eval()
