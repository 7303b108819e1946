"""CSV and TSV: a text is a cell, read as RFC 4180 has it and kept as typed."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertpool.corpus import lines
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import (
    CHOOSE_COLUMNS,
    ColumnTypes,
    Flaw,
    Record,
    UnreadableRecord,
    named,
    quoted,
)
from bertpool.corpus.streams import Opened
from bertpool.errors import CorpusError

# What Python's parser says, in words that make sense to who has the file.
PARSE_REASONS = {
    "new-line character seen": "a CR that isn't in quotes and ends no line",
    "line contains NUL": "a NUL character, which needs Python 3.11 or newer",
}


def read_csv(opened: Opened, options: CorpusOptions) -> Iterator[Record | Flaw | ColumnTypes]:
    """Yield the rows of comma-separated values; see ``_read``."""
    return _read(opened, options, ",")


def read_tsv(opened: Opened, options: CorpusOptions) -> Iterator[Record | Flaw | ColumnTypes]:
    """Yield the rows of tab-separated values; see ``_read``."""
    return _read(opened, options, "\t")


def check_csv(opened: Opened, options: CorpusOptions) -> None:
    """Check that the header has the columns asked for.

    Raises:
        CorpusError: it hasn't.
    """
    _Table(opened, options, ",").read_header()


def check_tsv(opened: Opened, options: CorpusOptions) -> None:
    """Check that the header has the columns asked for.

    Raises:
        CorpusError: it hasn't.
    """
    _Table(opened, options, "\t").read_header()


def _read(
    opened: Opened, options: CorpusOptions, delimiter: str
) -> Iterator[Record | Flaw | ColumnTypes]:
    """Yield the rows below the header; a row with cells too few or too many is a flaw.

    Raises:
        CorpusError: the input isn't text in the encoding, or the header lacks a column.
    """
    table = _Table(opened, options, delimiter)
    header = table.read_header()
    if options.has_extra:
        yield _string_types(options)
    if header is None:
        return
    while (row := table.next_row()) is not None:
        try:
            yield header.record(row.cells(), row.line)
        except UnreadableRecord as error:
            yield error.flaw(row.line, lines.without_end(b"".join(table.source.raw)))


def _string_types(options: CorpusOptions) -> ColumnTypes:
    import pyarrow as pa

    return ColumnTypes(pa.schema([(name, pa.string()) for name in options.extra_columns]))


class _Lines:
    """Feeds physical lines to the parser and remembers those of the record it is at."""

    def __init__(self, opened: Opened, encoding: str) -> None:
        self._lines = lines.byte_lines(opened, encoding)
        self._shown = opened.shown
        self.number = 0
        self.begin()

    def begin(self) -> None:
        """Start a record."""
        self.start = self.number + 1
        self.raw: list[bytes] = []
        self.size = 0
        self.fault: UnreadableRecord | None = None

    def __iter__(self) -> Iterator[str]:
        for raw in self._lines:
            self.number += 1
            self.raw.append(raw)
            self.size += len(raw)
            self._check_size()
            yield self._decode(raw)

    def _decode(self, raw: bytes) -> str:
        """Decode a line so that one bad record doesn't cost those around it."""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            where = f" of line {self.number}" if self.number > self.start else " of the line"
            self.fault = self.fault or lines.not_utf8(error, where)
            return raw.decode("utf-8", "surrogateescape")

    def _check_size(self) -> None:
        if self.size >= lines.MAX_LINE_BYTES:
            limit = lines.MAX_LINE_BYTES >> 20
            raise CorpusError(
                f"{self._shown}:{self.start}: a record of over {limit} MiB; is a quote left open?"
            )


@dataclass(frozen=True)
class _Row:
    """A row as parsed: its cells, or why it has none."""

    line: int
    parsed: list[str]
    fault: UnreadableRecord | None

    def cells(self) -> list[str]:
        if self.fault is not None:
            raise self.fault
        return self.parsed


class _Table:
    """The rows of one input."""

    def __init__(self, opened: Opened, options: CorpusOptions, delimiter: str) -> None:
        csv.field_size_limit(lines.MAX_LINE_BYTES)  # else a cell of 131,073 characters is an error
        self.source = _Lines(opened, options.encoding)
        self._opened = opened
        self._options = options
        self._delimiter = delimiter
        self._rows = csv.reader(iter(self.source), delimiter=delimiter, strict=True)
        self._width = 0

    def read_header(self) -> _Header | None:
        """Read the first row that isn't empty; None where there is none."""
        row = self.next_row()
        if row is None:
            return None
        try:
            names = row.cells()
        except UnreadableRecord as error:
            raise CorpusError(f"{self._opened.shown}:{row.line}: the header is {error}") from error
        self._width = len(names)
        return _Header(names, self._opened.shown, self._options)

    def next_row(self) -> _Row | None:
        """Parse the next row, passing over empty lines, or return None at the end."""
        while True:
            self.source.begin()
            try:
                cells = next(self._rows, None)
            except csv.Error as error:
                return self._broken(error)
            if cells is None:
                return None
            if cells or self._width == 1:  # in a file of one column, an empty line is a cell
                return _Row(self.source.start, cells or [""], self.source.fault)

    def _broken(self, error: csv.Error) -> _Row:
        source = self.source
        if str(error).startswith("unexpected end of data"):
            line = source.start + _open_quote(source.raw, self._delimiter)
            return _Row(line, [], UnreadableRecord("the quote opened here is never closed"))
        known = (words for start, words in PARSE_REASONS.items() if str(error).startswith(start))
        return _Row(source.start, [], UnreadableRecord(next(known, f"not CSV: {error}")))


def _open_quote(raw: Sequence[bytes], delimiter: str) -> int:
    r"""Count the line ends before the quote that is left open.

    >>> _open_quote([b'1,"x\n', b'y",2,"z\n', b"w\n"], ",")
    1
    """
    record, end = b"".join(raw), re.escape(delimiter.encode())
    cell = re.compile(rb'(?:"[^"]*(?:""[^"]*)*"|(?!")[^%b\n]*)(?:%b|\r?\n)' % (end, end))
    at = 0
    while found := cell.match(record, at):
        at = found.end()
    return record.count(b"\n", 0, at)


class _Header:
    """Where in a row the columns asked for stand."""

    def __init__(self, names: list[str], shown: str, options: CorpusOptions) -> None:
        for name in options.columns:
            _check_column(names, name, shown)
        self._width = len(names)
        self._text = names.index(options.text_column)
        self._pair = _index(names, options.pair_column)
        self._id = _index(names, options.id_column)
        self._keep = [names.index(name) for name in options.keep]

    def record(self, cells: list[str], line: int) -> Record:
        """Make a record of a row.

        Raises:
            UnreadableRecord: it has cells too few or too many.
        """
        if len(cells) != self._width:
            count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
            raise UnreadableRecord(f"{count}, where the header has {self._width}")
        return Record(
            text=cells[self._text],
            line=line,
            pair=None if self._pair is None else cells[self._pair],
            id=None if self._id is None else cells[self._id],
            kept=tuple([cells[index] for index in self._keep]),
        )


def _index(names: list[str], name: str | None) -> int | None:
    return None if name is None else names.index(name)


def _check_column(names: list[str], name: str, shown: str) -> None:
    if name not in names:
        raise CorpusError(
            f"{shown}: no column {quoted(name)}; {named(names)}; {CHOOSE_COLUMNS}", usage=True
        )
    if names.count(name) > 1:
        raise CorpusError(
            f"{shown}: {names.count(name)} columns are named {quoted(name)}; rename one", usage=True
        )
