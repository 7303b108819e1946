"""Batches: texts of similar length together, within a budget of token slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

# Token slots of a batch by default, measured: what one core's cache likes in the packed way, and
# what the last-level cache likes in the padded.
PACKED_BATCH_TOKENS = 1024
PADDED_BATCH_TOKENS = 4096


def make_batches(
    lengths: Sequence[int], batch_tokens: int, *, mixed_lengths: bool = True
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the indices of each batch, longest texts first, equal lengths in input order.

    A batch's slots (texts times the longest of them) stay within ``batch_tokens``; a longer text is
    a batch of its own. Without ``mixed_lengths`` every batch holds one length, and no padding.

    >>> [batch.tolist() for batch in make_batches([3, 9, 4, 3], 9)]
    [[1], [2, 0], [3]]
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        longest = int(sizes[order[start]])
        end = start + max(1, batch_tokens // max(1, longest))
        batch = order[start:end]
        if not mixed_lengths:
            batch = batch[sizes[batch] == longest]
        yield batch
        start += len(batch)


def make_packed_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the indices of each batch, longest texts first, within a budget of real tokens.

    >>> list(make_packed_batches([3, 9, 4, 3], 9))
    [[1], [2, 0], [3]]
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    batch: list[int] = []
    tokens = 0
    for index in order.tolist():
        if batch and tokens + lengths[index] > batch_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += lengths[index]
    if batch:
        yield batch
