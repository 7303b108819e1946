"""Split a text that exceeds the limit into windows that overlap, each token owned by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Window:
    """Some tokens of a text, between the special tokens that frame it.

    Attributes:
        positions: ``(tokens)`` int64, where the window's tokens stand in the whole text.
        owned: ``(tokens)`` bool, those that this window speaks for, and no other.
    """

    positions: npt.NDArray[np.int64]
    owned: npt.NDArray[np.bool_]


def split(length: int, *, before: int, after: int, limit: int, stride: int) -> Iterator[Window]:
    """Yield the windows of a text, each ``limit`` tokens long, in time linear in their tokens.

    Neighbours overlap by ``stride`` tokens, the last two by as many more as make the last one
    full. Of an overlap the earlier window owns the first half and the later one the rest, so that
    a token is read with context on both sides. The special tokens stand in every window; those
    before the text are owned by the first, those after it by the last.

    Args:
        length: tokens of the whole text, specials included; more than ``limit``.
        before: special tokens before the text.
        after: special tokens after it.
        limit: tokens of a window, specials included.
        stride: tokens that neighbours share, under ``limit - before - after``.

    >>> for window in split(10, before=1, after=1, limit=6, stride=2):
    ...     print(window.positions, window.positions[window.owned])
    [0 1 2 3 4 9] [0 1 2 3]
    [0 3 4 5 6 9] [4 5]
    [0 5 6 7 8 9] [6 7 8 9]
    """
    room = limit - before - after
    step, last = room - stride, length - after - room
    starts = np.minimum(np.arange(before, last + step, step), last)
    middles = (starts[:-1] + room + starts[1:]) // 2
    bounds = [0, *middles.tolist(), length]
    leading, trailing = np.arange(before), np.arange(length - after, length)
    for start, begin, end in zip(starts.tolist(), bounds[:-1], bounds[1:], strict=True):
        positions = np.concatenate([leading, np.arange(start, start + room), trailing])
        yield Window(positions, (begin <= positions) & (positions < end))
