"""Vectors of a text's windows -> the vector of the text, as if all its tokens were pooled at once.

A text that exceeds a model's limit is encoded in windows that overlap; of each only the tokens that
it owns are pooled. For each strategy the table says what a window counts for (a weight below) and
how the windows' vectors combine by those weights (a combination below). Like the strategies, the
functions call tensor methods only.

Weights are ``(batch)`` float32; combinations take ``(windows, hidden)`` vectors of one text in its
order and their ``(windows)`` weights, sum in float64, and give ``(hidden)`` float32. A window of
weight 0 holds nothing, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertpool.pooling.token_embeddings import TokenEmbeddings

if TYPE_CHECKING:
    from torch import Tensor


def ranks(tokens: TokenEmbeddings) -> Tensor:
    """Number the tokens of S 1, 2, 3, ... along the whole text, ``(batch, tokens)`` int64.

    Tokens outside S have some other number.
    """
    within = tokens.pooled_mask.cumsum(dim=1)
    return within if tokens.pooled_before is None else within + tokens.pooled_before[:, None]


def equal_weight(tokens: TokenEmbeddings) -> Tensor:
    """Let every window with a token count for 1."""
    return tokens.attention_mask.any(dim=1).float()


def size(tokens: TokenEmbeddings) -> Tensor:
    """Let a window count for the number of its pooled tokens."""
    return tokens.pooled_mask.sum(dim=1).float()


def rank_sum(tokens: TokenEmbeddings) -> Tensor:
    """Let a window count for the sum of its pooled tokens' numbers along the text."""
    # Summed as integers: exact, for any length.
    return ranks(tokens).masked_fill(~tokens.pooled_mask, 0).sum(dim=1).float()


def attention_mass(tokens: TokenEmbeddings) -> Tensor:
    """Let a window count for the attention that its pooled tokens receive.

    Raises:
        ValueError: the encoder gave no attention weights.
    """
    if tokens.attention_received is None:
        raise ValueError("the encoder gave no attention weights")
    return tokens.attention_received.masked_fill(~tokens.pooled_mask, 0.0).sum(dim=1)


def average(vectors: Tensor, weights: Tensor) -> Tensor:
    """Average the vectors by their weights."""
    vectors, weights = _counting(vectors, weights)
    return _quotient((vectors * weights).sum(dim=0), weights.sum())


def sum_over_root(vectors: Tensor, weights: Tensor) -> Tensor:
    """Combine sums over the root of a size to the sum of all over the root of all sizes."""
    vectors, weights = _counting(vectors, weights)
    return _quotient((vectors * weights.sqrt()).sum(dim=0), weights.sum().sqrt())


def largest(vectors: Tensor, weights: Tensor) -> Tensor:
    """Take the largest value of each dimension."""
    holding = vectors[weights > 0.0]
    # As for a text without any token: zeros.
    return holding.amax(dim=0).float() if len(holding) else vectors.new_zeros(vectors.shape[1:])


def final(vectors: Tensor, weights: Tensor) -> Tensor:
    """Take the last window's vector."""
    return vectors[-1].float()


def _counting(vectors: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Take the windows that count, in float64: ``(windows, hidden)`` and ``(windows, 1)``."""
    counts = weights > 0.0
    return vectors[counts].double(), weights[counts].double().unsqueeze(1)


def _quotient(summed: Tensor, total: Tensor) -> Tensor:
    return (summed / total.masked_fill(total == 0.0, 1.0)).float()
