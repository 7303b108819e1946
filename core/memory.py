"""Memory that was freed, given back."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back_memory() -> None:
    """Return to the system what the C library holds of freed memory, where it is glibc.

    Each window frees many pieces of all sizes, in several threads; what glibc keeps of them grows
    with the number of windows, for no use.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim
