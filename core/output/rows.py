"""Rows of the output, and the shape that all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

OutputDtype = Literal["float32", "float16"]
Floats = npt.NDArray[np.floating]
# Columns that bertpool writes beside the vectors; a kept column can't have such a name.
OWN_COLUMNS = (
    "id", "source", "line", "text", "pair", "n_tokens", "truncated", "tokens", "token_embeddings",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """What every row has: vector columns with their width and dtype, and the optional columns.

    ``extra`` are the columns that come from the input with types of their own: ``id`` where it
    isn't the row number, and those kept. ``tokens`` adds each token and its vector.
    """

    columns: tuple[str, ...]
    width: int
    dtype: OutputDtype
    text: bool
    source: bool
    line: bool
    pair: bool = False
    extra: pa.Schema | None = None
    tokens: bool = False


class Rows(Protocol):
    """Rows in output order."""

    @property
    def vectors(self) -> Mapping[str, Floats]:
        """Each column's ``(rows, width)``, of the layout's dtype."""

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the rows as an Arrow table of that schema."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class EmbeddedRows:
    """Rows as a window leaves the encoder; ``extra`` as in :class:`Layout`.

    ``tokens`` are each text's, ``token_vectors`` theirs, ``(tokens, width)``.
    """

    numbers: npt.NDArray[np.int64]
    texts: list[str]
    sources: list[str]
    lines: npt.NDArray[np.int64]
    n_tokens: npt.NDArray[np.int32]
    truncated: npt.NDArray[np.bool_]
    vectors: Mapping[str, Floats]
    pairs: list[str] | None = None
    extra: pa.Table | None = None
    tokens: list[list[str]] | None = None
    token_vectors: list[Floats] | None = None

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the rows as an Arrow table of that schema."""
        from bertpool.output.table import build_table

        return build_table(self, schema)

    def __len__(self) -> int:
        return len(self.numbers)


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

    def close(self) -> None:
        """Finish the file."""

    def abort(self) -> None:
        """Let go of the file, whatever state it is in, without an error."""
