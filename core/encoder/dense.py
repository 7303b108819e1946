"""Weights of the Dense modules that a checkpoint declares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.declared import Dense
from bertpool.encoder.packed.linear import Linear
from bertpool.errors import ModelError
from bertpool.pooling.sentence_embedding import ACTIVATIONS
from safetensors.torch import load_file
from torch import Tensor


def load_dense(
    checkpoint: Checkpoint, layer: Dense, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return the layer as a function on ``(batch, in_features)`` float32.

    Raises:
        ModelError: its weights are missing or have other shapes than declared.
    """
    weights = _read(checkpoint.root / layer.folder)
    names = ("linear.weight", "linear.bias") if layer.bias else ("linear.weight",)
    shapes = {
        "linear.weight": (layer.out_features, layer.in_features),
        "linear.bias": (layer.out_features,),
    }
    for name in names:
        if name not in weights or tuple(weights[name].shape) != shapes[name]:
            raise ModelError(
                f"{checkpoint.name}: {layer.folder}: no {name} of shape {shapes[name]}"
            )
    weight = weights["linear.weight"].float().to(device)
    bias = (
        weights["linear.bias"].float().to(device) if layer.bias else weight.new_zeros(len(weight))
    )
    linear, activation = Linear(weight, bias), ACTIVATIONS[layer.activation]
    return lambda vectors: activation(linear(vectors))


def _read(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").is_file():
        return load_file(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").is_file():
        weights: dict[str, Tensor] = torch.load(
            folder / "pytorch_model.bin", map_location="cpu", weights_only=True
        )
        return weights
    raise ModelError(f"{folder}: no weights of the Dense module")
