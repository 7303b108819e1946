from __future__ import annotations

import pytest
import torch
from bertpool.pooling.sentence_embedding import ACTIVATIONS, l2_normalize


def test_three_and_four_become_unit_length() -> None:
    assert l2_normalize(torch.tensor([[3.0, 4.0]])).tolist() == [pytest.approx([0.6, 0.8])]


def test_a_zero_vector_stays_zero() -> None:
    assert l2_normalize(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_a_zero_vector_changes_no_neighbour() -> None:
    normalized = l2_normalize(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    torch.testing.assert_close(normalized, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_vectors_of_any_usual_size_get_norm_one(scale: float) -> None:
    vectors = torch.randn(20, 384, generator=torch.Generator().manual_seed(0)) * scale
    torch.testing.assert_close(l2_normalize(vectors).norm(dim=1), torch.ones(20))


def test_normalizing_twice_is_normalizing_once() -> None:
    once = l2_normalize(torch.randn(20, 32, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(l2_normalize(once), once)


def test_nan_is_not_hidden_by_normalizing() -> None:
    assert l2_normalize(torch.tensor([[float("nan"), 1.0]])).isnan().all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_is_what_torch_calls_by_its_name(activation: str) -> None:
    values = torch.linspace(-3, 3, 13)
    expected = getattr(torch.nn, activation)()(values)
    torch.testing.assert_close(ACTIVATIONS[activation](values), expected)
