"""Pooling strategies: token vectors -> one vector a text.

A strategy is one function below and one row of ``STRATEGIES``; the command line, the Python API,
the help and the tests read the table. The functions call tensor methods only, so that the table can
be read without importing torch.

Notation: ``h_t`` the token vectors, ``R`` the real tokens, ``S`` the pooled ones among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bertpool.pooling.masks import count, select, shares
from bertpool.pooling.token_embeddings import TokenEmbeddings
from bertpool.pooling.token_weights import (
    by_attention,
    by_dimensions_won,
    by_rank,
    equal,
    of_first,
    of_last,
    over_root,
)
from bertpool.pooling.windows import (
    attention_mass,
    average,
    equal_weight,
    final,
    largest,
    rank_sum,
    ranks,
    size,
    sum_over_root,
)

if TYPE_CHECKING:
    from torch import Tensor

AUTO = "auto"


def cls(tokens: TokenEmbeddings) -> Tensor:
    """Take the vector at the first real position, ``(batch, hidden)``.

    Not index 0: padding may stand on the left.

    Source: Devlin et al. 2019, BERT, section 3.
    """
    first = tokens.attention_mask.int().argmax(dim=1)
    return _at(tokens, first)


def last(tokens: TokenEmbeddings) -> Tensor:
    """Take the vector at the last real position, ``(batch, hidden)``: for causal models.

    Source: Neelakantan et al. 2022, Text and Code Embeddings by Contrastive Pre-Training.
    """
    from_end = tokens.attention_mask.flip(1).int().argmax(dim=1)
    return _at(tokens, tokens.attention_mask.shape[1] - 1 - from_end)


def pooler(tokens: TokenEmbeddings) -> Tensor:
    """Take the checkpoint's own pooler, ``tanh(W h_c + b)``, ``(batch, hidden)``.

    Raises:
        ValueError: the encoder gave no pooler output.

    Source: the released code of Devlin et al. 2019, BERT; trained by next-sentence prediction.
    """
    if tokens.pooler_output is None:
        raise ValueError("the encoder gave no pooler output")
    return tokens.pooler_output.float()


def mean(tokens: TokenEmbeddings) -> Tensor:
    """Average over S, ``(batch, hidden)``.

    Source: Reimers and Gurevych 2019, Sentence-BERT, section 3.
    """
    return select(tokens.hidden_states, tokens.pooled_mask).sum(dim=1) / count(tokens.pooled_mask)


def mean_sqrt_len(tokens: TokenEmbeddings) -> Tensor:
    """Sum over S divided by the square root of its size, ``(batch, hidden)``.

    Source: Cer et al. 2018, Universal Sentence Encoder, section 3.1.
    """
    summed = select(tokens.hidden_states, tokens.pooled_mask).sum(dim=1)
    return summed / count(tokens.pooled_mask).sqrt()


def weighted_mean(tokens: TokenEmbeddings) -> Tensor:
    """Average over S with weights 1, 2, 3, ... along it, ``(batch, hidden)``.

    In a text's later windows they go on where those before end.

    Source: Muennighoff 2022, SGPT.
    """
    return _weighted(tokens, ranks(tokens).float())


def max(tokens: TokenEmbeddings) -> Tensor:
    """Take the largest value of each dimension over S, ``(batch, hidden)``.

    Source: Reimers and Gurevych 2019, Sentence-BERT, section 3.
    """
    outside = ~tokens.pooled_mask.unsqueeze(-1)
    largest = tokens.hidden_states.float().masked_fill(outside, float("-inf")).amax(dim=1)
    # A text without any token has no largest value: zeros, as for the sums.
    return largest.masked_fill(~tokens.pooled_mask.any(dim=1, keepdim=True), 0.0)


def attention(tokens: TokenEmbeddings) -> Tensor:
    """Average over S, weighted by the attention each token receives in the last layer run.

    Raises:
        ValueError: the encoder gave no attention weights.

    Source: attention received as importance, Clark et al. 2019, What Does BERT Look At?, section 3.
    """
    if tokens.attention_received is None:
        raise ValueError("the encoder gave no attention weights")
    return _weighted(tokens, tokens.attention_received)


def _at(tokens: TokenEmbeddings, position: Tensor) -> Tensor:
    hidden_size = tokens.hidden_states.shape[2]
    index = position[:, None, None].expand(-1, 1, hidden_size)
    vectors = tokens.hidden_states.gather(1, index).squeeze(1).float()
    # A text without any token has no such position: zeros, as for the sums.
    return vectors.masked_fill(~tokens.attention_mask.any(dim=1, keepdim=True), 0.0)


def _weighted(tokens: TokenEmbeddings, weights: Tensor) -> Tensor:
    """Average over S with weights ``(batch, tokens)`` that are renormalised there."""
    scaled = shares(weights, tokens.pooled_mask)
    summed: Tensor = (select(tokens.hidden_states, tokens.pooled_mask) * scaled[..., None]).sum(1)
    return summed


@dataclass(frozen=True)
class Strategy:
    """A row of the table.

    Attributes:
        pool: the function, token vectors -> ``(batch, hidden)`` float32.
        weight: what a window counts for in its text, token vectors -> ``(batch)`` float32.
        combine: vectors ``(windows, hidden)`` of a text's windows and their weights ``(windows)``
            -> its vector, ``(hidden)`` float32.
        token_weights: what each token counts for in the vector, token vectors -> ``(batch,
            tokens)`` float32.
        definition: what it is, in a phrase.
        needs: what it takes beside token vectors.
        linear: the vector is the sum of the token vectors by their weights.
    """

    pool: Callable[[TokenEmbeddings], Tensor]
    weight: Callable[[TokenEmbeddings], Tensor]
    combine: Callable[[Tensor, Tensor], Tensor]
    token_weights: Callable[[TokenEmbeddings], Tensor]
    definition: str
    needs: Literal["pooler", "attention"] | None = None
    linear: bool = True


STRATEGIES = {
    "cls": Strategy(cls, equal_weight, average, of_first, "the vector of the first token"),
    "pooler": Strategy(
        pooler,
        equal_weight,
        average,
        of_first,
        "tanh(W h + b) of the first token, trained weights",
        needs="pooler",
        linear=False,
    ),
    "mean": Strategy(mean, size, average, equal, "average of the tokens"),
    "max": Strategy(
        max, size, largest, by_dimensions_won, "largest value of each dimension", linear=False
    ),
    "attention": Strategy(
        attention,
        attention_mass,
        average,
        by_attention,
        "average weighted by attention received",
        needs="attention",
    ),
    "mean_sqrt_len": Strategy(
        mean_sqrt_len, size, sum_over_root, over_root, "sum over the square root of the token count"
    ),
    "weighted_mean": Strategy(
        weighted_mean, rank_sum, average, by_rank, "average weighted 1, 2, 3, ... along the text"
    ),
    "last": Strategy(last, equal_weight, final, of_last, "the vector of the last token"),
}


def pool(tokens: TokenEmbeddings, strategies: tuple[str, ...]) -> dict[str, Tensor]:
    """Pool one batch by several strategies at once, each ``(batch, hidden)`` float32."""
    return {name: STRATEGIES[name].pool(tokens) for name in strategies}


def pool_windows(
    tokens: TokenEmbeddings, strategies: tuple[str, ...]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Pool one batch of windows: vectors ``(batch, hidden)``, weights ``(batch)``, both float32.

    ``STRATEGIES[name].combine`` makes one vector of those of a text's windows, whatever batches
    they came from; a window alone keeps its vector, bit for bit.
    """
    rows = {name: STRATEGIES[name] for name in strategies}
    return {name: (row.pool(tokens), row.weight(tokens)) for name, row in rows.items()}
