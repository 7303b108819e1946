"""Output formats by suffix: a format is one writer and one row of ``FORMATS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from bertpool.output.rows import Layout, Writer

OutputFormatName = Literal["parquet", "npy", "arrow", "jsonl"]

# Each writer is imported when its format is chosen: pyarrow alone takes a fifth of a second.


def _parquet(stream: BinaryIO, layout: Layout, provenance: str) -> Writer:
    from bertpool.output.parquet import ParquetWriter

    return ParquetWriter(stream, layout, provenance)


def _npy(stream: BinaryIO, layout: Layout, provenance: str) -> Writer:
    from bertpool.output.npy import NpyWriter

    return NpyWriter(stream, layout, provenance)


def _arrow(stream: BinaryIO, layout: Layout, provenance: str) -> Writer:
    from bertpool.output.arrow import ArrowWriter

    return ArrowWriter(stream, layout, provenance)


def _jsonl(stream: BinaryIO, layout: Layout, provenance: str) -> Writer:
    from bertpool.output.jsonl import JsonlWriter

    return JsonlWriter(stream, layout, provenance)


@dataclass(frozen=True)
class OutputFormat:
    """A row of the table.

    Attributes:
        open_writer: opens a writer on a stream, with the provenance as JSON.
        sidecar: the metadata needs a file of its own, ``OUT.json``.
        rows: holds the rows' other columns, too; else vectors alone, a file for each column.
        streams: can go to a pipe as rows come; else it is written whole, then copied.
        binary: isn't for a terminal.
    """

    open_writer: Callable[[BinaryIO, Layout, str], Writer]
    sidecar: bool
    rows: bool = True
    streams: bool = False
    binary: bool = True


FORMATS: dict[OutputFormatName, OutputFormat] = {
    "parquet": OutputFormat(_parquet, sidecar=False),
    "npy": OutputFormat(_npy, sidecar=True, rows=False),
    "arrow": OutputFormat(_arrow, sidecar=False, streams=True),
    "jsonl": OutputFormat(_jsonl, sidecar=True, streams=True, binary=False),
}


def format_of(path: Path) -> OutputFormatName | None:
    """Tell a file's format by its suffix, None for one that isn't a format's."""
    suffix = path.suffix.lower().removeprefix(".")
    return next((name for name in FORMATS if name == suffix), None)
