"""Which rows to look at: how many, as ``--sample`` says it, and a draw of so many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from bertpool.errors import BertpoolError

EVERY_ROW = "all"
SEED = 0  # of every draw that has no seed of its own: equal commands, equal results


def parse_sample(sample: str) -> int | None:
    """Read a number of rows, or ``all``, which is None.

    >>> parse_sample("64"), parse_sample("all")
    (64, None)

    Raises:
        BertpoolError: it is neither.
    """
    if sample == EVERY_ROW:
        return None
    if not sample.isdecimal() or int(sample) < 1:
        raise BertpoolError(f"--sample {sample}: give 1 or more, or {EVERY_ROW}", usage=True)
    return int(sample)


def draw_rows(count: int, most: int) -> npt.NDArray[np.int64]:
    """Draw at most so many of ``count`` rows, in their order.

    >>> draw_rows(3, 5).tolist()
    [0, 1, 2]
    """
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(SEED).choice(count, most, replace=False))
