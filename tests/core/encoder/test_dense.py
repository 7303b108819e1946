from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.declared import Dense
from bertpool.encoder.dense import load_dense
from bertpool.errors import ModelError
from bertpool.pooling.sentence_embedding import ACTIVATIONS
from safetensors.torch import save_file

# x W^T + b of x = (1, 2), W = ((3, 4), (-5, 1)), b = (0.5, 1): (11.5, -2).
VECTOR = torch.tensor([[1.0, 2.0]])
WEIGHT = torch.tensor([[3.0, 4.0], [-5.0, 1.0]])
BIAS = torch.tensor([0.5, 1.0])
PROJECTED = {
    "Identity": [11.5, -2.0],
    "Tanh": [math.tanh(11.5), math.tanh(-2)],
    "Sigmoid": [1 / (1 + math.exp(-11.5)), 1 / (1 + math.exp(2))],
    "ReLU": [11.5, 0.0],
}


def test_the_numbers_cover_every_activation() -> None:
    assert set(PROJECTED) == set(ACTIVATIONS)


def layer_of(
    root: Path, weights: dict[str, torch.Tensor], *, bias: bool, activation: str = "Identity"
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Write a checkpoint with one Dense module and load that."""
    (root / "config.json").write_text("{}")
    (root / "2_Dense").mkdir()
    save_file(weights, root / "2_Dense" / "model.safetensors")
    dense = Dense("2_Dense", 2, 2, bias=bias, activation=activation)
    return load_dense(find_checkpoint(str(root)), dense, torch.device("cpu"))


@pytest.mark.parametrize("activation", PROJECTED)
def test_it_multiplies_by_the_transpose_adds_the_bias_and_activates(
    tmp_path: Path, activation: str
) -> None:
    weights = {"linear.weight": WEIGHT, "linear.bias": BIAS}
    layer = layer_of(tmp_path, weights, bias=True, activation=activation)
    assert layer(VECTOR)[0].tolist() == pytest.approx(PROJECTED[activation], rel=1e-5)


def test_without_a_bias_it_adds_nothing(tmp_path: Path) -> None:
    layer = layer_of(tmp_path, {"linear.weight": WEIGHT}, bias=False)
    assert layer(VECTOR).tolist() == [[11.0, -3.0]]


def test_a_row_is_the_same_bits_alone_and_among_others(tmp_path: Path) -> None:
    layer = layer_of(tmp_path, {"linear.weight": WEIGHT, "linear.bias": BIAS}, bias=True)
    rows = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([layer(row[None]) for row in rows])
    assert torch.equal(layer(rows), alone)


@pytest.mark.parametrize("missing", ["linear.weight", "linear.bias"])
def test_weights_that_are_missing_are_an_error_that_names_them(
    tmp_path: Path, missing: str
) -> None:
    weights = {"linear.weight": WEIGHT, "linear.bias": BIAS}
    del weights[missing]
    with pytest.raises(ModelError, match=f"2_Dense: no {missing} of shape"):
        layer_of(tmp_path, weights, bias=True)
