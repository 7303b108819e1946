"""Output formats by suffix: a format is one writer and one row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from bertpool.output.rows import Layout, Writer

# Each writer is imported when its format is chosen: pyarrow alone takes a fifth of a second.


def _parquet(stream: BinaryIO, layout: Layout) -> Writer:
    from bertpool.output.parquet import ParquetWriter

    return ParquetWriter(stream, layout)


def _npy(stream: BinaryIO, layout: Layout) -> Writer:
    from bertpool.output.npy import NpyWriter

    return NpyWriter(stream, layout)


@dataclass(frozen=True)
class OutputFormat:
    """How to open a writer, and whether the metadata needs a file of its own (``OUT.json``)."""

    open_writer: Callable[[BinaryIO, Layout], Writer]
    sidecar: bool


FORMATS = {
    ".parquet": OutputFormat(_parquet, sidecar=False),
    ".npy": OutputFormat(_npy, sidecar=True),
}
