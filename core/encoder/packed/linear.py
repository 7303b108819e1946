"""Linear layers: oneDNN with prepacked weights on a CPU, ``F.linear`` elsewhere.

Every choice here depends on the layer alone, never on the batch, so that a row's result is the same
bits whatever other rows stand beside it:

- float32: oneDNN sums a row alike for any number of rows but one, so a single row is doubled;
- bfloat16: how it splits long sums depends on the number of rows, so rows go in tiles of one size.

MKL's own ``F.linear`` keeps neither promise; it is the fallback where the operators are missing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

TILE_ROWS = 1024  # rows of a bfloat16 tile, and what oneDNN lays weights out for
ROW_MULTIPLE = 32  # float32: 1.6% of a batch of 1,024 tokens on average
CHECK_ROWS = 4

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
# How oneDNN calls the activations that it can fuse: name and algorithm.
FUSED = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}


class Linear:
    """``activation(x W^T + b)``, or ``x W^T + b + residual``.

    Args:
        weight: ``(out_features, in_features)`` in the compute dtype, on its device.
        bias: ``(out_features)``.
        activation: a key of ``ACTIVATIONS``, or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation: str | None = None) -> None:
        self._weight, self._bias, self._activation = weight, bias, activation
        self._packed: Tensor | None = None
        self._tiled = weight.dtype == torch.bfloat16 and weight.device.type == "cpu"
        if weight.device.type == "cpu":
            self._prepack()

    @property
    def prepacked(self) -> bool:
        """Tell whether oneDNN's prepacked weights are used."""
        return self._packed is not None

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Apply the layer to ``(rows, in_features)``; the residual is ``(rows, out_features)``."""
        if self._packed is None:
            return self._fallback(x, residual)
        if self._tiled and len(x) != TILE_ROWS:
            return self._in_tiles(x, residual)
        return self._onednn(x, residual) if len(x) != 1 else self._single(x, residual)

    def _prepack(self) -> None:
        """Lay out the weights for oneDNN, and keep that only if it computes the same layer."""
        try:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, TILE_ROWS)
            x = torch.linspace(-1, 1, CHECK_ROWS * self._weight.shape[1], dtype=torch.float32)
            x = x.view(CHECK_ROWS, -1).to(self._weight.dtype)
            same = torch.allclose(self(x).float(), self._fallback(x, None).float(), 5e-2, 1e-1)
        except (AttributeError, RuntimeError):
            same = False
        if not same:
            self._packed = None

    def _onednn(self, x: Tensor, residual: Tensor | None) -> Tensor:
        ops = torch.ops.mkldnn
        if residual is not None:
            added: Tensor = ops._linear_pointwise.binary(
                x, residual, self._packed, self._bias, "add"
            )
            return added
        name, algorithm = FUSED[self._activation] if self._activation else ("none", "")
        result: Tensor = ops._linear_pointwise(x, self._packed, self._bias, name, [], algorithm)
        return result

    def _single(self, x: Tensor, residual: Tensor | None) -> Tensor:
        twice = None if residual is None else residual.expand(2, -1).contiguous()
        return self._onednn(x.expand(2, -1).contiguous(), twice)[:1]

    def _in_tiles(self, x: Tensor, residual: Tensor | None) -> Tensor:
        rows = len(x)
        result = x.new_empty(rows, self._weight.shape[0])
        for start in range(0, rows, TILE_ROWS):
            end = min(start + TILE_ROWS, rows)
            tile = fill_rows(x[start:end])
            added = None if residual is None else fill_rows(residual[start:end])
            result[start:end] = self._onednn(tile, added)[: end - start]
        return result

    def _fallback(self, x: Tensor, residual: Tensor | None) -> Tensor:
        result = F.linear(x, self._weight, self._bias)
        if self._activation is not None:
            result = ACTIVATIONS[self._activation](result)
        return result if residual is None else result + residual


def fill_rows(rows: Tensor) -> Tensor:
    """Fill up with zero rows to a number that oneDNN has seen before, on a CPU.

    It compiles a kernel for each number of rows and keeps it; with any number of tokens in a batch
    that would take time again and again, and 100 MB.
    """
    if rows.device.type != "cpu":
        return rows
    multiple = TILE_ROWS if rows.dtype == torch.bfloat16 else ROW_MULTIPLE
    missing = -len(rows) % multiple
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows
