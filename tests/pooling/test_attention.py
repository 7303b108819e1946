from __future__ import annotations

import pytest
import torch
from bertpool.pooling.attention import attention_received
from torch import Tensor

NAN = float("nan")


def bits(*rows: str) -> Tensor:
    """Return a mask, one string of 0 and 1 a text."""
    return torch.tensor([[character == "1" for character in row] for row in rows])


def random_weights(mask: Tensor, *, heads: int = 3, seed: int = 0) -> Tensor:
    """Return softmax weights that give padded keys nothing, ``(batch, heads, tokens, tokens)``."""
    batch, tokens = mask.shape
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(batch, heads, tokens, tokens, generator=generator)
    return scores.masked_fill(~mask[:, None, None, :], float("-inf")).softmax(dim=-1)


def test_the_weights_average_heads_and_queries() -> None:
    # Two heads, two tokens; each row is a query. Token 0 receives (1 + 0.5 + 0.5 + 0) / 4.
    probabilities = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.0, 1.0]]]])
    assert attention_received(probabilities, bits("11")).tolist() == [[0.5, 0.5]]


def test_a_padded_query_counts_for_nothing() -> None:
    # The third query is padding: were it averaged in, token 0 would receive more.
    probabilities = torch.tensor([[[[0.25, 0.75, 0.0], [0.75, 0.25, 0.0], [1.0, 0.0, 0.0]]]])
    assert attention_received(probabilities, bits("110")).tolist() == [[0.5, 0.5, 0.0]]


@pytest.mark.parametrize("mask", ["1111", "1100", "0011", "0110"])
def test_the_weights_of_real_tokens_sum_to_one(mask: str) -> None:
    received = attention_received(random_weights(bits(mask)), bits(mask))
    assert received.sum().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("mask", ["1100", "0011", "0110"])
def test_padding_gets_exactly_zero(mask: str) -> None:
    received = attention_received(random_weights(bits(mask)), bits(mask))
    assert (received[~bits(mask)] == 0.0).all()


def test_padding_gets_exactly_zero_even_from_a_layer_that_looks_at_it() -> None:
    received = attention_received(torch.full((1, 1, 3, 3), 1 / 3), bits("110"))
    assert received[0, 2].item() == 0.0


@pytest.mark.parametrize("mask", ["1100", "0011"])
def test_padded_queries_that_hold_nan_count_for_nothing(mask: str) -> None:
    clean = random_weights(bits(mask))
    spoilt = clean.masked_fill(~bits(mask)[:, None, :, None], NAN)
    expected = attention_received(clean, bits(mask))
    assert torch.equal(attention_received(spoilt, bits(mask)), expected)


def test_nan_for_padded_keys_counts_for_nothing() -> None:
    probabilities = torch.tensor([[[[0.5, 0.5, NAN], [0.5, 0.5, NAN], [NAN, NAN, NAN]]]])
    assert attention_received(probabilities, bits("110")).tolist() == [[0.5, 0.5, 0.0]]


def test_each_text_is_averaged_over_its_own_queries() -> None:
    masks = bits("1111", "1100")
    weights = random_weights(masks)
    short = attention_received(weights[1:, :, :2, :2], bits("11"))
    torch.testing.assert_close(attention_received(weights, masks)[1:, :2], short)


def test_a_text_without_tokens_gets_zeros() -> None:
    received = attention_received(torch.full((1, 2, 3, 3), NAN), bits("000"))
    assert received.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_averaged_in_float32(dtype: torch.dtype) -> None:
    # 1 + 1/128 of attention over 3 queries has no place in either half type.
    probabilities = torch.tensor([[[[1.0, 0, 0], [1 / 128, 0, 0], [0.0, 0, 0]]]], dtype=dtype)
    received = attention_received(probabilities, bits("111"))
    assert received.dtype == torch.float32
    assert received[0, 0].item() == pytest.approx((1 + 1 / 128) / 3, rel=1e-6)
