"""How many rows to look at, as ``--sample`` says it."""

from __future__ import annotations

from bertpool.errors import BertpoolError

EVERY_ROW = "all"


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
