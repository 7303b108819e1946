"""``.npy``: the vectors alone, ``(rows, width)``, C order, readable by memory map."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
from bertpool.output.rows import Layout, Rows


class NpyWriter:
    """Appends vectors after a header whose row count is filled in at the end.

    NumPy pads the header so that a longer first axis never moves the data (its
    ``GROWTH_AXIS_MAX_DIGITS``), so the finished file has the bytes that ``np.save`` writes.
    Provenance stands in the sidecar.
    """

    def __init__(self, stream: BinaryIO, layout: Layout, provenance: str) -> None:
        (self._column,) = layout.columns
        self._stream = stream
        self._dtype = np.dtype(layout.dtype).newbyteorder("<")
        self._width = layout.width
        self._rows = 0
        self._write_header()

    def write(self, rows: Rows) -> None:
        """Append the rows' vectors."""
        vectors = np.ascontiguousarray(rows.vectors[self._column], dtype=self._dtype)
        self._stream.write(vectors.data)
        self._rows += len(rows)

    def close(self) -> None:
        """Fill in the row count."""
        self._stream.seek(0)
        self._write_header()

    def abort(self) -> None:
        """Nothing to let go of."""

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._rows, self._width),
        }
        np.lib.format.write_array_header_1_0(self._stream, header)
