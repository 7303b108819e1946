"""How inputs are read: what is the same for every input of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Blank = Literal["keep", "skip", "error"]
OnError = Literal["stop", "reject"]
InputFormat = Literal["auto", "lines", "text", "jsonl", "csv", "tsv", "parquet"]

DEFAULT_TEXT_COLUMN = "text"


@dataclass(frozen=True)
class CorpusOptions:
    """How inputs are read.

    Args:
        input_format: of every input; ``auto`` tells it from the name.
        text_column: column or field that holds the text, in formats that have them.
        pair_column: column of the second text of a pair.
        id_column: column that identifies a record in the output.
        keep: columns that go into the output as they are.
        encoding: a Python codec name; never guessed, never taken from the locale.
        blank: keep blank texts, skip them (their row numbers stay unused), or stop at the first.
        on_error: stop at the first record that can't be read, or reject it and read on.
    """

    input_format: InputFormat = "auto"
    text_column: str = DEFAULT_TEXT_COLUMN
    pair_column: str | None = None
    id_column: str | None = None
    keep: tuple[str, ...] = ()
    encoding: str = "utf-8"
    blank: Blank = "keep"
    on_error: OnError = "stop"

    @property
    def has_extra(self) -> bool:
        """Tell whether the output gets columns from the input beside the text."""
        return self.id_column is not None or bool(self.keep)

    @property
    def extra_columns(self) -> dict[str, str]:
        """Map names in the output to columns of the input: the id first, then what is kept."""
        identifier = {} if self.id_column is None else {"id": self.id_column}
        return identifier | {name: name for name in self.keep}

    @property
    def columns(self) -> tuple[str, ...]:
        """Name the columns that are read, each once."""
        pair = () if self.pair_column is None else (self.pair_column,)
        return tuple(dict.fromkeys((self.text_column, *pair, *self.extra_columns.values())))
