"""What may follow the pooling: activations of dense layers, unit length."""

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


def l2_normalize(vectors: Tensor) -> Tensor:
    """Scale each vector to unit length; a zero vector stays zero.

    Args:
        vectors: ``(batch, hidden)`` float32.
    """
    length: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors / length.clamp_min(EPSILON)
