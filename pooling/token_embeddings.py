"""What an encoder hands over: the token vectors of some texts, and which of them are real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokenEmbeddings:
    """Token vectors of one batch; padding may stand on either side of a text.

    A text may be a window of a longer one: then S holds the tokens that this window owns.

    Attributes:
        hidden_states: ``(batch, tokens, hidden)``, any float dtype; padding may hold NaN.
        attention_mask: ``(batch, tokens)`` bool, R: the real tokens.
        pooled_mask: ``(batch, tokens)`` bool, S within R: the tokens to pool.
        attention_received: ``(batch, tokens)`` float32, see
            :func:`bertpool.pooling.attention.attention_received`; only where it was asked for.
        pooler_output: ``(batch, hidden)``, of the checkpoint's own pooler; only where asked for.
        pooled_before: ``(batch)`` int64, how many pooled tokens the text's windows before this one
            hold; None where all are whole texts.
    """

    hidden_states: Tensor
    attention_mask: Tensor
    pooled_mask: Tensor
    attention_received: Tensor | None = None
    pooler_output: Tensor | None = None
    pooled_before: Tensor | None = None
