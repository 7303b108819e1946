"""Parquet: one row a text, vectors as fixed-size lists, provenance in the file's metadata."""

from __future__ import annotations

import contextlib
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from bertpool.output.rows import Layout, Rows
from bertpool.output.table import Groups, output_schema


class ParquetWriter:
    """Writes row groups that are cut by the rows themselves."""

    def __init__(self, stream: BinaryIO, layout: Layout, provenance: str) -> None:
        self._schema = output_schema(layout, provenance)
        vectors = {f"{name}.list.element" for name in layout.columns}
        if layout.tokens:
            vectors.add("token_embeddings.list.element.list.element")
        repetitive = (("source", layout.source), ("tokens.list.element", layout.tokens))
        # Float noise doesn't compress: it would cost time on both sides and save 8%.
        compression = dict.fromkeys(_leaves(self._schema), "zstd") | dict.fromkeys(vectors, "none")
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            use_dictionary=[name for name, there in repetitive if there] or False,
            write_statistics=[name for name in ("id", "line") if name in self._schema.names],
            compression=compression,
        )
        self._groups = Groups(self._schema)

    def write(self, rows: Rows) -> None:
        """Append rows, writing each row group that they fill."""
        for group in self._groups.add(rows.table(self._schema)):
            self._write(group)

    def close(self) -> None:
        """Write the last row group and the footer."""
        for group in self._groups.rest():
            self._write(group)
        self._writer.close()

    def abort(self) -> None:
        """Close the underlying writer, whose destructor would else write to a closed file."""
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()

    def _write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=max(1, len(group)))


def _leaves(schema: pa.Schema) -> list[str]:
    """Name the physical columns, as Parquet calls them: nested ones by their path."""
    parquet = pq.ParquetFile(_empty_file(schema)).schema
    return [parquet.column(index).path for index in range(len(parquet))]


def _empty_file(schema: pa.Schema) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    return pa.BufferReader(sink.getvalue())
