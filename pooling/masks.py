"""Masks: which tokens are real (R), which are pooled (S)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def without(attention_mask: Tensor, excluded: Tensor) -> Tensor:
    """Leave tokens out of a mask, except in texts of which nothing would be left.

    Args:
        attention_mask: ``(batch, tokens)`` bool.
        excluded: ``(batch, tokens)`` bool, tokens to leave out.

    Returns:
        ``(batch, tokens)`` bool.
    """
    kept = attention_mask & ~excluded
    nothing_left = ~kept.any(dim=1, keepdim=True)
    return kept | (attention_mask & nothing_left)


def select(hidden_states: Tensor, mask: Tensor) -> Tensor:
    """Return float32 token vectors with everything outside the mask replaced by zero.

    Replaced, not multiplied: NaN or infinity in padding times 0 would be NaN.

    Args:
        hidden_states: ``(batch, tokens, hidden)``.
        mask: ``(batch, tokens)`` bool.
    """
    return hidden_states.float().masked_fill(~mask.unsqueeze(-1), 0.0)


def count(mask: Tensor) -> Tensor:
    """Count the masked tokens of each text, ``(batch, 1)`` float32, at least 1 (for a division)."""
    return mask.sum(dim=1, keepdim=True).float().clamp_min(1.0)


def shares(weights: Tensor, mask: Tensor) -> Tensor:
    """Scale weights to the sum 1 within a mask, 0 outside; where they sum to 0, they stay.

    Args:
        weights: ``(batch, tokens)`` float32.
        mask: ``(batch, tokens)`` bool.
    """
    within = weights.masked_fill(~mask, 0.0)
    total = within.sum(dim=1, keepdim=True)
    return within / total.masked_fill(total == 0.0, 1.0)
