"""What may follow the pooling: a dense layer, fewer dimensions, unit length."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-12  # as torch.nn.functional.normalize: a zero vector stays zero

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": lambda x: x.tanh(),
    "Sigmoid": lambda x: x.sigmoid(),
    "ReLU": lambda x: x.relu(),
}


def dense(vectors: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Apply ``activation(x W^T + b)``.

    Args:
        vectors: ``(batch, in_features)`` float32.
        weight: ``(out_features, in_features)``, as ``torch.nn.Linear`` stores it.
        bias: ``(out_features)`` or None.
        activation: a key of ``ACTIVATIONS``.
    """
    projected = vectors @ weight.T
    return ACTIVATIONS[activation](projected if bias is None else projected + bias)


def l2_normalize(vectors: Tensor) -> Tensor:
    """Scale each vector to unit length; a zero vector stays zero.

    Args:
        vectors: ``(batch, hidden)`` float32.
    """
    length: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / length.clamp_min(EPSILON)
