"""A corpus: the texts of all inputs in order, each with its identity, in bounded windows."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import os
import sys
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bertpool.corpus.columns import Columns, make_columns
from bertpool.corpus.formats import READERS
from bertpool.corpus.inputs import find_inputs
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import ColumnTypes, Flaw, Record, Reject
from bertpool.corpus.sources import Input, Source
from bertpool.corpus.streams import InputIdentity, Opened, open_input, printable_name
from bertpool.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

# Large windows make batches of equal lengths; the bounds keep memory flat whatever the texts.
WINDOW_ROWS = 16_384
WINDOW_CHARACTERS = 8 << 20

Item = Record | Flaw


@dataclass(frozen=True)
class Window:
    """Texts that are sorted, batched and written together, column by column.

    ``extra`` holds the id, named ``id``, and the kept columns, where any are asked for. A window
    has no texts where all that came since the window before was rejected. ``bytes_read`` is how
    far into the inputs the reading stands at the window's end.
    """

    texts: list[str]
    pairs: list[str] | None
    rows: list[int]
    sources: list[str]
    lines: list[int]
    extra: pa.Table | None
    rejects: list[Reject]
    bytes_read: int


def is_blank(text: str) -> bool:
    r"""Tell whether nothing in the text is visible: white space, control and format characters.

    >>> [is_blank(text) for text in ("", " \t", "\u3000", "\u200b", "\x00", "a", ".")]
    [True, True, True, True, True, False, False]
    """
    if text[:1].isalnum():  # most texts: this runs for each
        return False
    if not text or text.isspace():
        return True
    invisible = ("Cc", "Cf", "Zs", "Zl", "Zp")
    return all(unicodedata.category(character) in invisible for character in text)


@dataclass
class _Draft:
    """A window that is being filled."""

    rows: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0  # rows, the rejected ones among them
    characters: int = 0


class Corpus:
    """The texts of several inputs, read once, in order.

    Args:
        inputs: files, directories, or ``-`` for stdin, already checked.
        options: how they are read.
        rows: the rows that are wanted; a row counts every record over all inputs, from 0, those
            that are skipped or rejected among them. Reading stops behind the last.
        window_share: makes windows so many times smaller, where rows take more memory than usual.

    Attributes:
        blank: blank texts met so far.
        rejected: records rejected so far.
        identities: what each input was that has been read to its end.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        options: CorpusOptions,
        *,
        rows: range | None = None,
        window_share: int = 1,
    ) -> None:
        self._inputs = find_inputs(inputs, options)
        self._options = options
        self._rows = range(sys.maxsize) if rows is None else rows
        self._window_rows = max(1, WINDOW_ROWS // window_share)
        self._window_characters = max(1, WINDOW_CHARACTERS // window_share)
        formats = [source.format for source in self._sources]
        self._columns = make_columns(options, formats)
        self._bytes_before = 0
        self._opened: Opened | None = None
        self.blank = 0
        self.rejected = 0
        self.identities: list[InputIdentity] = []

    @property
    def several(self) -> bool:
        """Tell whether texts may come from more than one source."""
        return len(self._inputs) > 1 or any(one.is_directory for one in self._inputs)

    @functools.cached_property
    def size(self) -> int | None:
        """Bytes of all inputs together, or None when one of them is a pipe."""
        if all(source.regular for source in self._sources):
            return sum(os.path.getsize(source.path) for source in self._sources)
        return None

    def extra_schema(self) -> pa.Schema | None:
        """Return the types of the id and kept columns; None where none are asked for.

        They are known when the first window is there, or when there turned out to be none.
        """
        return None if self._columns is None else self._columns.schema()

    def windows(self) -> Iterator[Window]:
        """Yield every text that is wanted, in windows of bounded rows and characters.

        Raises:
            CorpusError: text that can't be read or decoded, or a blank one under ``error``.
        """
        draft = _Draft()
        start, stop = self._rows.start, self._rows.stop
        with contextlib.closing(self._fitted_items()) as items:
            for row, (source, item) in enumerate(items):
                if start <= row < stop:
                    self._add(draft, row, source, item)
                if draft.size >= self._window_rows or draft.characters >= self._window_characters:
                    yield self._window(draft)
                    draft = _Draft()
                if row + 1 >= stop:
                    break
            if draft.rows or draft.rejects:
                yield self._window(draft)

    def _add(self, draft: _Draft, row: int, source: str, item: Item) -> None:
        if isinstance(item, Flaw):
            draft.rejects.append(self._reject(row, source, item))
        elif _is_visible(item) or self._keeps_blank(source, item.line):
            draft.rows.append(row)
            draft.sources.append(source)
            draft.records.append(item)
        else:
            return
        draft.size += 1
        draft.characters += _weight(item, self._columns)

    def _reject(self, row: int, source: str, flaw: Flaw) -> Reject:
        if self._options.on_error == "stop":
            raise CorpusError(f"{source}:{flaw.line}: {flaw.reason}; {flaw.hint}")
        self.rejected += 1
        return Reject(row, source, flaw.line, flaw.reason, flaw.data)

    def _keeps_blank(self, source: str, line: int) -> bool:
        if self._options.blank == "error":
            raise CorpusError(f"{source}:{line}: blank text; pass --blank keep or --blank skip")
        self.blank += 1
        return self._options.blank == "keep"

    def _window(self, draft: _Draft) -> Window:
        records = draft.records
        paired = self._options.pair_column is not None
        return Window(
            texts=[record.text for record in records],
            pairs=[record.pair or "" for record in records] if paired else None,
            rows=draft.rows,
            sources=draft.sources,
            lines=[record.line for record in records],
            extra=None if self._columns is None else self._columns.table(records),
            rejects=draft.rejects,
            bytes_read=self._bytes_read,
        )

    @property
    def _sources(self) -> list[Source]:
        return [source for one in self._inputs for source in one.sources]

    @property
    def _bytes_read(self) -> int:
        return self._bytes_before + (self._opened.raw.size if self._opened is not None else 0)

    def _fitted_items(self) -> Generator[tuple[str, Item], None, None]:
        """Yield each item with its source, checked against the types of the columns."""
        return self.items() if self._columns is None else self._fit(self._columns)

    def _fit(self, columns: Columns) -> Generator[tuple[str, Item], None, None]:
        """Infer types from the first records of the whole input, whichever rows are wanted."""
        with contextlib.closing(self.items()) as items:
            head = collections.deque(_head(items, columns))
            columns.learn([item for _, item in head if isinstance(item, Record)])
            while head:
                source, item = head.popleft()
                yield source, _fitted(item, columns)
            for source, item in items:
                yield source, _fitted(item, columns)

    def items(self) -> Generator[tuple[str, Item], None, None]:
        """Yield each record of the inputs, or what is wrong with it, with its source's name.

        Raises:
            CorpusError: an input can't be read.
        """
        for one in self._inputs:
            identities = []
            for source in one.sources:
                with open_input(source.path) as opened:
                    self._opened = opened
                    yield from self._read(source, opened)
                    self._opened = None
                identities.append(opened.raw.identity(""))
                self._bytes_before += opened.raw.size
            self.identities.append(_identity(one, identities))

    def _read(self, source: Source, opened: Opened) -> Iterator[tuple[str, Item]]:
        shown = source.shown
        for item in READERS[source.format](opened, self._options):
            if not isinstance(item, ColumnTypes):
                yield shown, item
            elif self._columns is not None:
                self._columns.declare(item.schema, shown)


def _head(items: Iterator[tuple[str, Item]], columns: Columns) -> Iterator[tuple[str, Item]]:
    """Yield the first items, as many as a window holds."""
    characters = 0
    for rows, (source, item) in enumerate(items, start=1):
        yield source, item
        characters += _weight(item, columns)
        if rows >= WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
            return


def _weight(item: Item, columns: Columns | None) -> int:
    """Count the characters of an item, which bound its window."""
    if isinstance(item, Flaw):
        return len(item.data)
    own = len(item.text) + (0 if item.pair is None else len(item.pair))
    return own if columns is None else own + columns.weight(item)


def _is_visible(record: Record) -> bool:
    """Tell whether a text isn't blank; of a pair, whether one of the two isn't."""
    return not is_blank(record.text) or not (record.pair is None or is_blank(record.pair))


def _fitted(item: Item, columns: Columns) -> Item:
    if isinstance(item, Record) and (reason := columns.misfit(item)):
        return Flaw(item.line, reason, item.raw)
    return item


def _identity(one: Input, files: Sequence[InputIdentity]) -> InputIdentity:
    """Describe an input; a directory by the names and contents of its files, in order."""
    if not one.is_directory:
        return dataclasses.replace(files[0], name=one.base_name)
    digest = hashlib.sha256()
    for source, file in zip(one.sources, files, strict=True):
        # A name holds no NUL and a hash has one length, so nothing else reads the same.
        digest.update(os.fsencode(source.relative) + b"\0" + bytes.fromhex(file.sha256))
    return InputIdentity(one.base_name, sum(file.bytes for file in files), digest.hexdigest())


def count_rows(inputs: Sequence[str], options: CorpusOptions) -> tuple[int, list[InputIdentity]]:
    """Read all inputs once to count their rows, as shards need to know them beforehand.

    Raises:
        CorpusError: an input is a pipe, which can't be read again, or can't be read at all.
    """
    for one in find_inputs(inputs, options):
        if not all(source.regular for source in one.sources):
            raise CorpusError(
                f"{printable_name(one.name)}: a pipe can be read once, and shards read it twice; "
                "name a file",
                usage=True,
            )
    corpus = Corpus(inputs, options)
    rows = sum(1 for _ in corpus.items())
    return rows, corpus.identities
