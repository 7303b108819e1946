"""Parquet: a text is a value of a string column, streamed batch by batch."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

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
from bertpool.corpus.streams import BUFFER_BYTES, Opened
from bertpool.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 512  # few, as a row may hold megabytes


def read_parquet(opened: Opened, options: CorpusOptions) -> Iterator[Record | Flaw | ColumnTypes]:
    """Yield the rows of a Parquet file; a null or undecodable text is a flaw.

    A record's ``kept`` is a batch, its index there and its weight in bytes: values stay in Arrow,
    so that every type comes out as it went in.

    Raises:
        CorpusError: the file is broken, or lacks a column of strings asked for.
    """
    with _parquet_file(opened) as file:
        schema = _checked_schema(file, opened.shown, options)
        if options.has_extra:
            yield ColumnTypes(schema)
        done, count = 0, file.metadata.num_rows
        for batch in file.iter_batches(BATCH_ROWS, columns=list(options.columns)):
            yield from _records(batch, schema, done, options)
            done += batch.num_rows
            # Hashed in step with reading, which seeks: progress is true, and the pages are warm.
            opened.raw.advance(_size(opened) * done // count)
        opened.raw.advance(_size(opened))


def check_parquet(opened: Opened, options: CorpusOptions) -> None:
    """Check that the file has the columns asked for.

    Raises:
        CorpusError: it hasn't, or is broken.
    """
    with _parquet_file(opened) as file:
        _checked_schema(file, opened.shown, options)


def _size(opened: Opened) -> int:
    return os.path.getsize(opened.path) if opened.path is not None else opened.raw.size


@contextlib.contextmanager
def _parquet_file(opened: Opened) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, its errors in one line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with _seekable(opened) as file, pq.ParquetFile(file, buffer_size=BUFFER_BYTES) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        why = (str(error).splitlines() or ["damaged"])[0]
        raise CorpusError(f"{opened.shown}: can't be read as Parquet: {why}") from error


@contextlib.contextmanager
def _seekable(opened: Opened) -> Iterator[BinaryIO]:
    """Open the file itself, or a temporary copy of what can't seek: the footer comes last."""
    if opened.path is not None:
        with open(opened.path, "rb") as file:
            yield file
    else:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(opened.content, copy, BUFFER_BYTES)
            copy.seek(0)
            yield copy


def _checked_schema(file: pq.ParquetFile, shown: str, options: CorpusOptions) -> pa.Schema:
    """Check the columns asked for, and return the schema of the id and the kept ones."""
    import pyarrow as pa

    schema = file.schema_arrow
    for name in options.columns:
        _check_column(schema, name, shown)
    for text in filter(None, (options.text_column, options.pair_column)):
        kind = schema.field(text).type
        if not _is_text(kind):
            raise CorpusError(f"{shown}: column {quoted(text)} is {kind}, not string", usage=True)
    extra = options.extra_columns.items()
    return pa.schema([(name, schema.field(column).type) for name, column in extra])


def _check_column(schema: pa.Schema, name: str, shown: str) -> None:
    count = len(schema.get_all_field_indices(name))
    if count == 0:
        raise CorpusError(
            f"{shown}: no column {quoted(name)}; {named(schema.names)}; {CHOOSE_COLUMNS}",
            usage=True,
        )
    if count > 1:
        raise CorpusError(f"{shown}: {count} columns are named {quoted(name)}", usage=True)


def _is_text(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _records(
    batch: pa.RecordBatch, schema: pa.Schema, done: int, options: CorpusOptions
) -> Iterator[Record | Flaw]:
    """Yield the rows of a batch, of which ``done`` came before it."""
    import pyarrow as pa

    texts = _values(batch.column(options.text_column))
    pairs = None if options.pair_column is None else _values(batch.column(options.pair_column))
    columns = options.extra_columns.values()
    extra = pa.RecordBatch.from_arrays([batch.column(name) for name in columns], schema=schema)
    identifier = None if options.id_column is None else extra.column("id")
    weight = extra.nbytes // max(1, batch.num_rows)
    for index, text in enumerate(texts):
        line = done + index + 1
        try:
            pair = None if pairs is None else _string(pairs[index], options.pair_column or "")
            if identifier is not None and not identifier[index].is_valid:
                raise UnreadableRecord(f"column {quoted(options.id_column or '')} is null")
            kept = (extra, index, weight) if options.has_extra else ()
            yield Record(_string(text, options.text_column), line, pair, kept=kept)
        except UnreadableRecord as error:
            yield error.flaw(line, text if isinstance(text, bytes) else (text or "").encode())


def _values(column: pa.Array) -> list[str | bytes | None]:
    """Turn a column of strings into Python's; bytes that aren't UTF-8 stay bytes."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return [_decoded(value.as_buffer()) for value in _plain(column)]


def _plain(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _decoded(buffer: pa.Buffer | None) -> str | bytes | None:
    if buffer is None:
        return None
    data: bytes = buffer.to_pybytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _string(value: str | bytes | None, name: str) -> str:
    if isinstance(value, str):
        return value
    what = "null" if value is None else "not UTF-8"
    raise UnreadableRecord(f"column {quoted(name)} is {what}")
