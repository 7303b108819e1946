"""The weight that each token has in the vector of its text, strategy by strategy.

All return ``(batch, tokens)`` float32, 0 outside of what is pooled, and zeros for a text without
any token. For a linear strategy the vector is ``sum_t w_t h_t`` with these weights. Like the
strategies, the functions call tensor methods only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertpool.pooling.masks import count, select, shares
from bertpool.pooling.token_embeddings import TokenEmbeddings
from bertpool.pooling.windows import ranks

if TYPE_CHECKING:
    from torch import Tensor


def of_first(tokens: TokenEmbeddings) -> Tensor:
    """Give the first real token 1."""
    real = tokens.attention_mask
    return (real & (real.cumsum(dim=1) == 1)).float()


def of_last(tokens: TokenEmbeddings) -> Tensor:
    """Give the last real token 1."""
    from_end = tokens.attention_mask.flip(1)
    return (from_end & (from_end.cumsum(dim=1) == 1)).flip(1).float()


def equal(tokens: TokenEmbeddings) -> Tensor:
    """Give each token of S ``1 / |S|``."""
    return tokens.pooled_mask.float() / count(tokens.pooled_mask)


def over_root(tokens: TokenEmbeddings) -> Tensor:
    """Give each token of S ``1 / sqrt(|S|)``: the weights' sum grows with the text."""
    return tokens.pooled_mask.float() / count(tokens.pooled_mask).sqrt()


def by_rank(tokens: TokenEmbeddings) -> Tensor:
    """Give the tokens of S 1, 2, 3, ... over the sum of those."""
    return shares(ranks(tokens).float(), tokens.pooled_mask)


def by_attention(tokens: TokenEmbeddings) -> Tensor:
    """Give the tokens of S the attention that they receive, renormalised there.

    Raises:
        ValueError: the encoder gave no attention weights.
    """
    if tokens.attention_received is None:
        raise ValueError("the encoder gave no attention weights")
    return shares(tokens.attention_received, tokens.pooled_mask)


def by_dimensions_won(tokens: TokenEmbeddings) -> Tensor:
    """Give each token of S the share of dimensions in which it is the largest; ties split one."""
    pooled = tokens.pooled_mask.unsqueeze(-1)
    values = tokens.hidden_states.float().masked_fill(~pooled, float("-inf"))
    wins = ((values == values.amax(dim=1, keepdim=True)) & pooled).float()
    won: Tensor = (wins / wins.sum(dim=1, keepdim=True).clamp_min(1.0)).mean(dim=2)
    return won


def apply(weights: Tensor, tokens: TokenEmbeddings) -> Tensor:
    """Sum the token vectors by their weights: ``(batch, tokens)`` -> ``(batch, hidden)``."""
    weighted = select(tokens.hidden_states, weights != 0.0) * weights[..., None]
    summed: Tensor = weighted.sum(dim=1)
    return summed
