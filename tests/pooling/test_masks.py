from __future__ import annotations

import pytest
import torch
from bertpool.pooling.masks import count, select, without
from torch import Tensor


def bits(*rows: str) -> Tensor:
    """Return a mask, one string of 0 and 1 a text."""
    return torch.tensor([[character == "1" for character in row] for row in rows])


@pytest.mark.parametrize(
    ("real", "excluded", "pooled"),
    [
        ("1110", "0000", "1110"),
        ("1110", "1010", "0100"),
        ("0111", "0101", "0010"),
        ("1100", "1100", "1100"),
        ("1100", "1111", "1100"),
        ("1100", "0011", "1100"),
        ("0000", "0000", "0000"),
        ("0000", "1111", "0000"),
    ],
    ids=[
        "nothing excluded",
        "both ends excluded",
        "padding on the left",
        "all excluded, so all pooled",
        "padding excluded too",
        "only padding excluded",
        "no real token",
        "no real token, all excluded",
    ],
)
def test_the_pooled_tokens_are_the_real_ones_left_or_all_of_them(
    real: str, excluded: str, pooled: str
) -> None:
    assert torch.equal(without(bits(real), bits(excluded)), bits(pooled))


def test_a_text_with_nothing_left_changes_no_other_text() -> None:
    pooled = without(bits("111", "110"), bits("101", "110"))
    assert torch.equal(pooled, bits("010", "110"))


def test_masks_given_are_left_as_they_were() -> None:
    real, excluded = bits("1110"), bits("1000")
    without(real, excluded)
    assert torch.equal(real, bits("1110"))
    assert torch.equal(excluded, bits("1000"))


@pytest.mark.parametrize("fill", [9.0, float("nan"), float("inf"), float("-inf")])
def test_what_the_mask_leaves_out_is_replaced_by_zero(fill: float) -> None:
    hidden_states = torch.tensor([[[1.0, 2.0], [fill, fill]]])
    expected = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])
    assert torch.equal(select(hidden_states, bits("10")), expected)


def test_nan_in_a_selected_token_is_not_hidden() -> None:
    assert select(torch.tensor([[[float("nan")]]]), bits("1")).isnan().all()


def test_selecting_leaves_the_token_vectors_as_they_were() -> None:
    hidden_states = torch.tensor([[[1.0], [9.0]]])
    select(hidden_states, bits("10"))
    assert hidden_states.flatten().tolist() == [1.0, 9.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_selected_vectors_are_float32(dtype: torch.dtype) -> None:
    assert select(torch.ones(1, 2, 3, dtype=dtype), bits("10")).dtype == torch.float32


def test_the_count_is_of_true_bits_and_at_least_one() -> None:
    counted = count(bits("110", "001", "000"))
    assert counted.dtype == torch.float32
    assert counted.tolist() == [[2.0], [1.0], [1.0]]
