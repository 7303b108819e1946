"""Attention that each token receives: the weights of attention pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def attention_received(probabilities: Tensor, attention_mask: Tensor) -> Tensor:
    """Average the attention each token receives over heads and over real query positions.

    Args:
        probabilities: ``(batch, heads, queries, keys)``, softmax weights of one layer.
        attention_mask: ``(batch, tokens)`` bool, the real tokens.

    Returns:
        ``(batch, tokens)`` float32, 0 at padding; sums to 1 where the layer gives padding nothing.
    """
    padded_query = ~attention_mask[:, None, :, None]
    from_real = probabilities.float().masked_fill(padded_query, 0.0)
    received = from_real.sum(dim=2).mean(dim=1)  # (batch, keys)
    queries = attention_mask.sum(dim=1, keepdim=True).clamp_min(1)
    return (received / queries).masked_fill(~attention_mask, 0.0)
