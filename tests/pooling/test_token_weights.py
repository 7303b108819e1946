from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from bertpool.pooling import STRATEGIES, TokenEmbeddings
from bertpool.pooling.token_weights import apply, by_attention
from torch import Tensor

NAN = float("nan")
NAMES = tuple(STRATEGIES)
LINEAR = tuple(name for name in NAMES if STRATEGIES[name].linear)

# Of the tokens [CLS] 3 5 [SEP] beside padding, with the two words pooled, which receive 1/4 and 3/4
# of the attention that stays with them; 5 is larger than 3 in the only dimension.
BY_HAND = {
    "cls": [1, 0, 0, 0, 0],
    "pooler": [1, 0, 0, 0, 0],
    "mean": [0, 1 / 2, 1 / 2, 0, 0],
    "max": [0, 0, 1, 0, 0],
    "attention": [0, 1 / 4, 3 / 4, 0, 0],
    "mean_sqrt_len": [0, 1 / math.sqrt(2), 1 / math.sqrt(2), 0, 0],
    "weighted_mean": [0, 1 / 3, 2 / 3, 0, 0],
    "last": [0, 0, 0, 1, 0],
}


def words_between_specials() -> TokenEmbeddings:
    return TokenEmbeddings(
        torch.tensor([70.0, 3.0, 5.0, 80.0, NAN])[None, :, None],
        torch.tensor([[True, True, True, True, False]]),
        torch.tensor([[False, True, True, False, False]]),
        torch.tensor([[0.4, 0.1, 0.3, 0.2, 0.0]]),
        torch.tensor([[0.5]]),
    )


def padded_left(tokens: TokenEmbeddings) -> TokenEmbeddings:
    """Roll the padding from the end to the start."""
    assert tokens.attention_received is not None
    return TokenEmbeddings(
        tokens.hidden_states.roll(1, dims=1),
        tokens.attention_mask.roll(1, dims=1),
        tokens.pooled_mask.roll(1, dims=1),
        tokens.attention_received.roll(1, dims=1),
        tokens.pooler_output,
    )


def random_batch() -> TokenEmbeddings:
    """Return three texts, padded on both sides with NaN, and some of their tokens left out."""
    generator = torch.Generator().manual_seed(0)
    real = torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0]]).bool()
    pooled = torch.tensor([[0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0]]).bool()
    hidden = torch.randn(3, 6, 8, generator=generator).masked_fill(~real[..., None], NAN)
    received = torch.rand(3, 6, generator=generator).masked_fill(~real, 0.0)
    return TokenEmbeddings(hidden, real, pooled, received, torch.randn(3, 8, generator=generator))


def weights_of(name: str, tokens: TokenEmbeddings) -> Tensor:
    return STRATEGIES[name].token_weights(tokens)


def test_the_numbers_above_cover_every_strategy() -> None:
    assert set(BY_HAND) == set(STRATEGIES)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_computed_by_hand(name: str) -> None:
    weights = weights_of(name, words_between_specials())
    assert weights.tolist()[0] == pytest.approx(BY_HAND[name])


@pytest.mark.parametrize("name", NAMES)
def test_padding_on_the_left_moves_the_weights_and_changes_none(name: str) -> None:
    weights = weights_of(name, padded_left(words_between_specials()))
    assert weights.roll(-1, dims=1).tolist()[0] == pytest.approx(BY_HAND[name])


@pytest.mark.parametrize("name", LINEAR)
def test_the_vector_of_a_linear_strategy_is_the_tokens_summed_by_their_weights(name: str) -> None:
    tokens = random_batch()
    summed = apply(weights_of(name, tokens), tokens)
    torch.testing.assert_close(summed, STRATEGIES[name].pool(tokens), rtol=0, atol=1e-6)


def test_the_strategies_that_are_not_linear_are_max_and_the_pooler() -> None:
    assert set(NAMES) - set(LINEAR) == {"max", "pooler"}


def test_the_dimensions_won_of_all_tokens_together_are_all_dimensions() -> None:
    assert weights_of("max", random_batch()).sum(dim=1).tolist() == pytest.approx([1, 1, 1])


def test_tokens_that_are_equally_large_split_the_dimension() -> None:
    tokens = replace(words_between_specials(), hidden_states=torch.full((1, 5, 2), 4.0))
    assert weights_of("max", tokens).tolist()[0] == pytest.approx([0, 1 / 2, 1 / 2, 0, 0])


@pytest.mark.parametrize("name", NAMES)
def test_a_text_without_tokens_has_no_weights(name: str) -> None:
    nothing = torch.zeros(1, 5, dtype=torch.bool)
    tokens = replace(words_between_specials(), attention_mask=nothing, pooled_mask=nothing)
    assert not weights_of(name, tokens).any()


def test_attention_weights_need_the_encoders_attention() -> None:
    with pytest.raises(ValueError, match="no attention weights"):
        by_attention(replace(words_between_specials(), attention_received=None))
