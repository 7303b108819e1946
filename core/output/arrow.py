"""Arrow: the columns of the Parquet file as an IPC file, or as a stream where it can't seek."""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
from bertpool.output.rows import Layout, Rows
from bertpool.output.table import Groups, output_schema


class ArrowWriter:
    """Writes record batches that are cut by the rows themselves; provenance is in the schema."""

    def __init__(self, stream: BinaryIO, layout: Layout, provenance: str) -> None:
        self._schema = output_schema(layout, provenance)
        self._groups = Groups(self._schema)
        new = pa.ipc.new_file if stream.seekable() else pa.ipc.new_stream
        self._writer = new(stream, self._schema)

    def write(self, rows: Rows) -> None:
        """Append rows, writing each record batch that they fill."""
        for group in self._groups.add(rows.table(self._schema)):
            self._writer.write_table(group)

    def close(self) -> None:
        """Write the last record batch and the footer."""
        for group in self._groups.rest():
            self._writer.write_table(group)
        self._writer.close()

    def abort(self) -> None:
        """Leave the file as it is: closed, a stream would end as if it were whole."""
