"""Rows of the output, and the shape that all of them share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

OutputDtype = Literal["float32", "float16"]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Layout:
    """What every row has: vector columns with their width and dtype, and the optional columns."""

    columns: tuple[str, ...]
    width: int
    dtype: OutputDtype
    text: bool
    source: bool
    line: bool


@dataclass(frozen=True)
class Rows:
    """Rows in output order; ``vectors``: each column's ``(rows, width)`` of its dtype."""

    ids: npt.NDArray[np.int64]
    texts: list[str]
    sources: list[str]
    lines: npt.NDArray[np.int64]
    n_tokens: npt.NDArray[np.int32]
    truncated: npt.NDArray[np.bool_]
    vectors: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.ids)


def finite_rows(columns: Iterable[Floats], rows: int) -> npt.NDArray[np.bool_]:
    """Tell for each row whether its vectors, ``(rows, width)`` a column, are finite throughout."""
    finite = np.ones(rows, dtype=bool)
    for column in columns:
        finite &= np.isfinite(column).all(axis=1)
    return finite


def zero_rows(columns: Iterable[Floats], rows: int) -> npt.NDArray[np.bool_]:
    """Tell for each row whether one of its vectors, ``(rows, width)`` a column, is zero."""
    zero = np.zeros(rows, dtype=bool)
    for column in columns:
        zero |= ~column.any(axis=1)
    return zero


class Writer(Protocol):
    """Writes rows into an open binary file; one implementation a format."""

    def write(self, rows: Rows) -> None:
        """Append rows."""

    def close(self, provenance: str) -> None:
        """Finish the file; ``provenance`` is JSON for formats that hold metadata."""

    def abort(self) -> None:
        """Let go of the file, whatever state it is in, without an error."""
