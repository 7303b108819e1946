"""Parquet: one row a text, vectors as fixed-size lists, provenance in the file's metadata."""

from __future__ import annotations

import base64
import contextlib
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bertpool.output.rows import Floats, Layout, Rows

METADATA_KEY = "bertpool"
ROW_GROUP_BYTES = 32 << 20  # before compression; a whole row group is held in memory
ROW_OVERHEAD_BYTES = 32  # id, counts and offsets, about


def parquet_schema(layout: Layout) -> pa.Schema:
    """Build the schema, the same for every run with the same layout, empty ones too."""
    element = pa.field("element", getattr(pa, layout.dtype)(), nullable=False)
    vector = pa.list_(element, layout.width)
    fields = [
        ("id", pa.int64(), True),
        ("source", pa.string(), layout.source),
        ("line", pa.int64(), layout.line),
        ("text", pa.string(), layout.text),
        ("n_tokens", pa.int32(), True),
        ("truncated", pa.bool_(), True),
        *((name, vector, True) for name in layout.columns),
    ]
    return pa.schema([pa.field(n, kind, nullable=False) for n, kind, wanted in fields if wanted])


class ParquetWriter:
    """Writes row groups of about ``ROW_GROUP_BYTES``, cut by the rows themselves.

    Where a group ends depends on the rows before it alone, never on how they arrive: the same rows
    give the same bytes.
    """

    def __init__(self, stream: BinaryIO, layout: Layout) -> None:
        self._schema = parquet_schema(layout)
        vectors = {f"{name}.list.element" for name in layout.columns}
        plain = [field.name for field in self._schema if field.name not in layout.columns]
        self._writer = pq.ParquetWriter(
            stream,
            self._schema,
            store_schema=False,
            use_dictionary=["source"] if layout.source else False,
            write_statistics=[name for name in ("id", "line") if name in plain],
            # Float noise doesn't compress: it would cost time on both sides and save 8%.
            compression={**dict.fromkeys(plain, "zstd"), **dict.fromkeys(vectors, "none")},
        )
        self._vector_bytes = len(layout.columns) * layout.width * np.dtype(layout.dtype).itemsize
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    def write(self, rows: Rows) -> None:
        """Append rows, writing each row group that they fill."""
        table = self._table(rows)
        ends = self._pending_bytes + np.cumsum(self._row_bytes(table, len(rows)))
        start, written = 0, 0
        while start < len(rows) and ends[-1] - written >= ROW_GROUP_BYTES:
            stop = int(np.searchsorted(ends, written + ROW_GROUP_BYTES)) + 1
            self._pending.append(table.slice(start, stop - start))
            self._flush()
            start, written = stop, int(ends[stop - 1])
        if start < len(rows):
            self._pending.append(table.slice(start))
            self._pending_bytes = int(ends[-1]) - written

    def close(self, provenance: str) -> None:
        """Write the last row group and the footer."""
        self._flush()
        # Arrow stores its schema when a file is opened, and provenance is known when it is closed.
        # Written here, it holds both: readers find the key in the file's and the schema's metadata.
        schema = self._schema.with_metadata({METADATA_KEY: provenance})
        arrow_schema = base64.b64encode(schema.serialize().to_pybytes())
        self._writer.add_key_value_metadata(
            {METADATA_KEY: provenance, "ARROW:schema": arrow_schema.decode()}
        )
        self._writer.close()

    def abort(self) -> None:
        """Close the underlying writer, whose destructor would else write to a closed file."""
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()

    def _flush(self) -> None:
        if self._pending:
            # In one piece: pages, too, must not end where the rows happened to arrive.
            group = pa.concat_tables(self._pending).combine_chunks()
            self._writer.write_table(group, row_group_size=max(1, len(group)))
        self._pending, self._pending_bytes = [], 0

    def _table(self, rows: Rows) -> pa.Table:
        arrays = {
            "id": rows.ids,
            "source": rows.sources,
            "line": rows.lines,
            "text": rows.texts,
            "n_tokens": rows.n_tokens,
            "truncated": rows.truncated,
        }
        vectors = {
            name: fixed_size_lists(v, self._schema.field(name).type)
            for name, v in rows.vectors.items()
        }
        columns = [
            vectors[field.name]
            if field.name in vectors
            else pa.array(arrays[field.name], field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)

    def _row_bytes(self, table: pa.Table, count: int) -> npt.NDArray[np.int64]:
        sizes = np.full(count, self._vector_bytes + ROW_OVERHEAD_BYTES, dtype=np.int64)
        if "text" in table.column_names:
            sizes += pc.binary_length(table["text"]).to_numpy()
        return sizes


def fixed_size_lists(vectors: Floats, kind: pa.DataType) -> pa.Array:
    """View a ``(rows, width)`` array as an Arrow array of fixed-size lists, without copying."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)
