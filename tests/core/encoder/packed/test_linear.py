from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from bertpool.encoder.packed.linear import ACTIVATIONS, ROW_MULTIPLE, TILE_ROWS, Linear, fill_rows
from torch import Tensor

ROWS = (1, 2, 3, 7, 64, 1000, 1024, 1500)
SHAPES = ((96, 32), (384, 384), (384, 768))
CASES = [(shape, dtype) for shape in SHAPES for dtype in (torch.float32, torch.bfloat16)]
CASES.append(((384, 1536), torch.bfloat16))  # sums this long aren't used in float32


@pytest.mark.parametrize("rows", [1, 2, 37])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_a_prepacked_layer_equals_torchs_with_activation(rows: int, activation: str | None) -> None:
    weight, bias, x, _ = parts((96, 32), torch.float32, rows)
    linear = Linear(weight, bias, activation)
    assert linear.prepacked
    expected = F.linear(x, weight, bias)
    expected = expected if activation is None else ACTIVATIONS[activation](expected)
    torch.testing.assert_close(linear(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 37])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_prepacked_layer_equals_torchs_with_residual(rows: int, shape: tuple[int, int]) -> None:
    weight, bias, x, residual = parts(shape, torch.float32, rows)
    before = residual.clone()
    result = Linear(weight, bias)(x, residual)
    expected = F.linear(x, weight, bias) + residual
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)
    assert torch.equal(residual, before)


@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize(("shape", "dtype"), CASES)
def test_a_row_is_the_same_bits_whatever_the_number_of_rows(
    shape: tuple[int, int], dtype: torch.dtype, with_residual: bool
) -> None:
    weight, bias, x, residual = parts(shape, dtype, max(ROWS))
    linear = Linear(weight, bias, None if with_residual else "gelu")
    assert linear.prepacked

    def run(rows: slice) -> Tensor:
        return linear(x[rows], residual[rows]) if with_residual else linear(x[rows])

    every = run(slice(None))
    for count in ROWS:
        for first in (0, max(ROWS) - count, (max(ROWS) - count) // 2):
            rows = slice(first, first + count)
            assert torch.equal(run(rows), every[rows]), (count, first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 37])
def test_without_prepacked_weights_the_layer_is_the_same(rows: int, dtype: torch.dtype) -> None:
    weight, bias, x, residual = parts((96, 32), dtype, rows)
    linear, plain = (Linear(weight, bias, "gelu") for _ in range(2))
    back, plain_back = (Linear(weight, bias) for _ in range(2))
    plain._packed = plain_back._packed = None  # as where the operators are missing
    assert not plain.prepacked
    within = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(plain(x), linear(x), rtol=0, atol=within)
    torch.testing.assert_close(plain_back(x, residual), back(x, residual), rtol=0, atol=within)


@pytest.mark.parametrize(
    ("dtype", "multiple"), [(torch.float32, ROW_MULTIPLE), (torch.bfloat16, TILE_ROWS)]
)
@pytest.mark.parametrize(("over", "filled"), [(0, 1), (1, 2)])
def test_rows_are_filled_up_with_zeros(
    dtype: torch.dtype, multiple: int, over: int, filled: int
) -> None:
    rows = multiple + over
    tiles = fill_rows(torch.ones(rows, 2, dtype=dtype))
    assert tiles.shape == (filled * multiple, 2)
    assert bool((tiles[:rows] == 1).all())
    assert bool((tiles[rows:] == 0).all())
    assert fill_rows(torch.ones(0, 2, dtype=dtype)).shape == (0, 2)


def parts(
    shape: tuple[int, int], dtype: torch.dtype, rows: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a random weight, bias, input and residual."""
    generator = torch.Generator().manual_seed(0)
    sizes = (shape, shape[:1], (rows, shape[1]), (rows, shape[0]))
    weight, bias, x, residual = (torch.randn(size, generator=generator) for size in sizes)
    return (weight / shape[1] ** 0.5).to(dtype), bias.to(dtype), x.to(dtype), residual.to(dtype)
