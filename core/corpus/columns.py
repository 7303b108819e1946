"""Columns that go from the input into the output: the id and what is kept, with their types."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bertpool.corpus.jsonl import JsonText, Missing, json_text
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Record, named, quoted
from bertpool.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

EXACT_FLOAT = 1 << 53  # up to here float64 holds every integer
INT64 = range(-(1 << 63), 1 << 63)


class Columns(Protocol):
    """How the id and kept columns of a corpus get their types and come together."""

    def declare(self, schema: pa.Schema, shown: str) -> None:
        """Take the types that an input states; the first input's hold for all."""

    def learn(self, records: Sequence[Record]) -> None:
        """Infer the types from the first records, where no input states them."""

    def misfit(self, record: Record) -> str | None:
        """Say why a record's values don't fit the types, or None."""

    def weight(self, record: Record) -> int:
        """Estimate the characters of a record's values, which count towards its window."""

    def table(self, records: Sequence[Record]) -> pa.Table:
        """Make the columns of a window."""

    def schema(self) -> pa.Schema:
        """Return the types."""


def make_columns(options: CorpusOptions, formats: Iterable[str]) -> Columns | None:
    """Return what makes the columns of inputs in these formats; None where none are asked for."""
    if not options.has_extra:
        return None
    return next(iter({MAKERS.get(name, ValueColumns) for name in formats}))(options)


class _Declared:
    """Types as the first input states them."""

    def __init__(self, options: CorpusOptions) -> None:
        self._names = list(options.extra_columns)
        self._has_id = options.id_column is not None
        self._types: list[pa.DataType] | None = None

    def declare(self, schema: pa.Schema, shown: str) -> None:
        """Take an input's types.

        Raises:
            CorpusError: they aren't those of the inputs before.
        """
        if self._types is None:
            self._types = list(schema.types)
        for name, expected, found in zip(self._names, self._types, schema.types, strict=True):
            if found != expected:
                raise CorpusError(
                    f"{shown}: column {quoted(name)} is {found}, and {expected} in the input before"
                )

    def schema(self) -> pa.Schema:
        """Return the types; strings where no input told any."""
        import pyarrow as pa

        types = self._types or [pa.string()] * len(self._names)
        return pa.schema(list(zip(self._names, types, strict=True)))


class ArrowColumns(_Declared):
    """Columns that are in Arrow already; a record's ``kept`` is a batch, an index, a weight."""

    def learn(self, records: Sequence[Record]) -> None:
        """Learn nothing: every file states its types."""

    def misfit(self, record: Record) -> str | None:
        """Find nothing: a file's values are of its types."""
        return None

    def weight(self, record: Record) -> int:
        """Return the bytes of a row, on average over its batch."""
        weight: Any = record.kept[2]
        return int(weight)

    def table(self, records: Sequence[Record]) -> pa.Table:
        """Put together the runs of rows that stand side by side, without copying a value."""
        import pyarrow as pa

        runs = []
        numbered = enumerate([record.kept for record in records])
        for _, run in itertools.groupby(numbered, key=_run_of):
            places: list[Any] = [place for _, place in run]
            batch, start, _weight = places[0]
            runs.append(batch.slice(start, len(places)))
        return pa.Table.from_batches(runs, self.schema())


def _run_of(numbered: tuple[int, Any]) -> tuple[int, int]:
    """Return what rows of one batch have in common as long as none between them is left out."""
    number, (batch, index, _weight) = numbered
    return id(batch), index - number


class ValueColumns(_Declared):
    """Columns of Python values, whose types the first records show."""

    def __init__(self, options: CorpusOptions) -> None:
        super().__init__(options)
        self._kinds = [STRING] * len(self._names)

    def learn(self, records: Sequence[Record]) -> None:
        """Infer each column's type from the values that the first records have.

        Raises:
            CorpusError: none of them has a field that is to be kept.
        """
        if self._types is not None or not records:
            return
        kept = zip(*[record.kept for record in records], strict=True)
        self._kinds = [_id_kind(records[0].id)] if self._has_id else []
        for name, values in zip(self._names[self._has_id :], kept, strict=True):
            _check_present(name, values)
            self._kinds.append(_kind_of(values))
        self._types = [kind.type() for kind in self._kinds]

    def misfit(self, record: Record) -> str | None:
        """Say which value isn't of its column's type."""
        for name, kind, value in zip(self._names, self._kinds, self._values(record), strict=True):
            if not (value is None or isinstance(value, Missing) or kind.fits(value)):
                return f"field {quoted(name)} doesn't fit its column, which holds {kind.what}"
        return None

    def weight(self, record: Record) -> int:
        """Count the characters of the strings."""
        return sum(len(value) for value in self._values(record) if isinstance(value, str))

    def table(self, records: Sequence[Record]) -> pa.Table:
        """Make an Arrow column of each."""
        import pyarrow as pa

        if not records:
            return self.schema().empty_table()
        columns = zip(*map(self._values, records), strict=True)
        arrays = [
            pa.array([kind.convert(value) for value in column], kind.type())
            for kind, column in zip(self._kinds, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema())

    def _values(self, record: Record) -> tuple[object, ...]:
        return (record.id, *record.kept) if self._has_id else record.kept


# Formats whose columns aren't Python values.
MAKERS: dict[str, type[ArrowColumns]] = {"parquet": ArrowColumns}


def _check_present(name: str, values: Sequence[object]) -> None:
    missing = [value for value in values if isinstance(value, Missing)]
    if len(missing) == len(values):
        fields = list(dict.fromkeys(field for value in missing for field in value.fields))
        raise CorpusError(
            f"--keep: no record has a field {quoted(name)}; {named(fields)}", usage=True
        )


@dataclass(frozen=True)
class Kind:
    """A type of column that JSON values may have; ``what`` it holds, in the words of messages."""

    arrow: str
    what: str
    fits: Callable[[object], bool]
    write: Callable[[object], object] = lambda value: value

    def type(self) -> pa.DataType:
        """Return the Arrow type."""
        import pyarrow as pa

        return pa.type_for_alias(self.arrow)

    def convert(self, value: object) -> object:
        """Return a value as Arrow takes it; a field that isn't there is null."""
        return None if value is None or isinstance(value, Missing) else self.write(value)


def _is_integer(value: object) -> bool:
    return type(value) is int and value in INT64


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= EXACT_FLOAT)


def _is_string(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, JsonText)


def _write_json(value: object) -> str:
    return value if isinstance(value, JsonText) else json_text(value)


STRING = Kind("string", "strings", _is_string)
INTEGER = Kind("int64", "integers of 64 bits", _is_integer)
# From the narrowest on: a column is of the first that all its values fit.
KINDS = (
    Kind("bool", "true and false", lambda value: isinstance(value, bool)),
    INTEGER,
    Kind("double", "numbers", _is_number),
    STRING,
    Kind("string", "JSON text", lambda value: True, _write_json),
)


def _kind_of(values: Sequence[object]) -> Kind:
    given = [value for value in values if value is not None and not isinstance(value, Missing)]
    return next(kind for kind in KINDS if all(map(kind.fits, given))) if given else STRING


def _id_kind(first: object) -> Kind:
    return INTEGER if _is_integer(first) else STRING
