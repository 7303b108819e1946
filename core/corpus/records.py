"""Records: what readers make of an input, one text each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.streams import Opened

if TYPE_CHECKING:
    import pyarrow as pa

REJECT_HINT = "pass --on-error reject to go on without it"
SHOWN_NAMES = 20  # columns that a message names at most


# Not frozen: one is made for each text, and a frozen one takes five times as long to make.
@dataclass(slots=True)
class Record:
    """One text of an input.

    ``line``, from 1, is where the record starts: a physical line, or a row of a Parquet file.
    ``raw`` is what a reader read, where a value may yet turn out not to fit its column.
    """

    text: str
    line: int
    pair: str | None = None
    id: object = None
    kept: tuple[object, ...] = ()
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A record that can't be read: why, what to do about it, and its bytes (no line end)."""

    line: int
    reason: str
    data: bytes
    hint: str = REJECT_HINT


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that was left out, under ``on_error="reject"``; it uses up its row number."""

    row: int
    source: str
    line: int
    reason: str
    data: bytes


@dataclass(frozen=True)
class ColumnTypes:
    """What an input says of the types of its id and kept columns, before its first record."""

    schema: pa.Schema


class UnreadableRecord(Exception):
    """Says within a reader why a record can't be read."""

    def __init__(self, reason: str, hint: str = REJECT_HINT) -> None:
        super().__init__(reason)
        self.hint = hint

    def flaw(self, line: int, data: bytes) -> Flaw:
        """Describe the record at a line."""
        return Flaw(line, str(self), data, self.hint)


Reader = Callable[[Opened, CorpusOptions], "Iterator[Record | Flaw | ColumnTypes]"]


def quoted(name: str) -> str:
    r"""Return a user's column name for a message of one line.

    >>> print(quoted("a\nb"))
    "a\nb"
    """
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'.encode("utf-8", "backslashreplace").decode()


CHOOSE_COLUMNS = "--text-column, --id-column and each --keep name one"


def named(names: list[str]) -> str:
    """List the columns there are, in the words of a message."""
    shown = ", ".join(quoted(name) for name in names[:SHOWN_NAMES]) or "none"
    more = len(names) - SHOWN_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return f"there are: {shown}{rest}"
