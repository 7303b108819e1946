"""Vector files read back: what made them, and their rows, a bounded piece at a time."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bertpool.errors import OutputError
from bertpool.output.formats import FORMATS, OutputFormatName, format_of
from bertpool.output.rows import Floats, Rows
from bertpool.output.table import METADATA_KEY, StoredRows, is_vector
from bertpool.output.vector_format import ARROW_FILE, CONTINUATION, NPY, find_format

BATCH_ROWS = 4096  # of a piece of .npy
END_OF_STREAM = CONTINUATION + bytes(4)
ONLY_TOKENS = "has token vectors and no pooled ones; embed the texts with --strategy mean, say"
NOT_OURS = "no vectors of bertpool: it has no provenance"

ArrowReader: TypeAlias = "pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader"


@dataclass(frozen=True)
class VectorFile:
    """A file that bertpool wrote.

    Attributes:
        path: where it is.
        format_name: a key of ``FORMATS``.
        provenance: what made it.
        schema: its columns; ``.npy`` has one, of vectors.
    """

    path: Path
    format_name: OutputFormatName
    provenance: dict[str, Any]
    schema: pa.Schema

    @property
    def columns(self) -> tuple[str, ...]:
        """Name the columns of vectors."""
        return tuple(field.name for field in self.schema if is_vector(field))

    @property
    def rows(self) -> int:
        """Return the number of rows that the provenance states; what stdout got states none."""
        rows: int = self.provenance["rows"]
        return rows

    def recipe_columns(self) -> dict[str, str]:
        """Map the recipe's columns to those of the file: the one that ``.npy`` holds is unnamed.

        Raises:
            OutputError: it has no pooled vectors, or nothing says which it holds.
        """
        made: list[str] = self.provenance["columns"]
        if not made:
            raise OutputError(f"{self.path}: {ONLY_TOKENS}", usage=True)
        if FORMATS[self.format_name].rows:
            found = {name: name for name in made if name in self.columns}
        else:
            found = {name: self.columns[0] for name in made if name == self._only_column(made)}
        if not found:
            names = ", ".join(made)
            raise OutputError(f"{self.path}: which of {names} it holds, nothing says")
        return found

    def _only_column(self, made: list[str]) -> str:
        """Name the column that the file holds; before sidecars named it, only its own name did."""
        if len(made) == 1:
            return made[0]
        return str(self.provenance.get("column") or Path(self.path.stem).suffix.removeprefix("."))

    def count_rows(self) -> int:
        """Count the rows that are there, whatever the provenance says.

        Raises:
            OutputError: the file is broken.
        """
        with self._broken():
            return COUNTS[self.format_name](self)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield all rows in order, in pieces of bounded size, with the named columns.

        Raises:
            OutputError: the file is broken.
        """
        names = columns or self.schema.names
        with self._broken():
            yield from BATCHES[self.format_name](self, names)

    @contextlib.contextmanager
    def _broken(self) -> Iterator[None]:
        """Turn what the readers raise into one line about the file."""
        try:
            yield
        except (pa.ArrowException, ValueError, KeyError, OSError) as error:
            reason = str(error).split("\n")[0]
            raise OutputError(f"{self.path}: broken: {reason}") from error

    def stored_rows(self) -> Iterator[Rows]:
        """Yield all rows as a writer takes them."""
        for table in self.batches():
            yield StoredRows(table)


def open_vectors(path: Path, format_name: OutputFormatName | None = None) -> VectorFile:
    """Open a file of vectors for reading; without a format it goes by the suffix, or the bytes.

    Raises:
        OutputError: it isn't there, or isn't one that bertpool wrote.
    """
    try:
        name = format_name or find_format(path)
        schema = SCHEMAS[name](path)
        provenance = read_provenance(path, name)
    except OSError as error:
        raise OutputError(
            f"{error.filename or path}: {error.strerror or error}", usage=True
        ) from error
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise OutputError(f"{path}: can't be read: {reason}") from error
    return VectorFile(path, name, provenance, schema)


def read_provenance(path: Path, format_name: OutputFormatName | None = None) -> dict[str, Any]:
    """Read what made a file: from its own metadata, or the sidecar.

    Raises:
        OutputError: there is none.
        OSError: the file, or its sidecar, isn't there.
    """
    name = format_name or format_of(path)
    if name is None:
        raise OutputError(f"{path}: {NOT_OURS}")
    if FORMATS[name].sidecar:
        text: bytes | None = path.with_name(path.name + ".json").read_bytes()
    else:
        text = (SCHEMAS[name](path).metadata or {}).get(METADATA_KEY.encode())
    if text is None:
        raise OutputError(f"{path}: {NOT_OURS}")
    content = json.loads(text)
    if not isinstance(content, dict) or "fingerprint" not in content:
        raise OutputError(f"{path}: {NOT_OURS}")
    return content


def _vector_field(name: str, vectors: Floats) -> pa.Field:
    element = pa.field("element", pa.from_numpy_dtype(vectors.dtype), nullable=False)
    return pa.field(name, pa.list_(element, vectors.shape[1]), nullable=False)


def _npy(path: Path) -> Floats:
    with path.open("rb") as file:
        if file.read(len(NPY)) != NPY:
            raise ValueError("not an .npy file")
    vectors: Floats = np.load(path, mmap_mode="r", allow_pickle=False)
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ValueError(f"an array of shape {vectors.shape}, not (rows, dimensions)")
    return vectors


def _npy_schema(path: Path) -> pa.Schema:
    return pa.schema([_vector_field("embedding", _npy(path))])


def _open_arrow(source: pa.NativeFile) -> ArrowReader:
    """Open what Arrow wrote: a file, or a stream, as stdout gets it, which lacks the footer."""
    if source.read(len(ARROW_FILE)) == ARROW_FILE:
        return pa.ipc.open_file(source)
    source.seek(max(0, source.size() - len(END_OF_STREAM)))
    if source.read(len(END_OF_STREAM)) != END_OF_STREAM:
        raise ValueError("no Arrow file, nor a whole stream")
    source.seek(0)
    return pa.ipc.open_stream(source)


def _record_batches(reader: ArrowReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(index) for index in range(reader.num_record_batches))
    return iter(reader)


def _arrow_schema(path: Path) -> pa.Schema:
    with pa.memory_map(os.fspath(path)) as source:
        return _open_arrow(source).schema


def _jsonl_schema(path: Path) -> pa.Schema:
    raise OutputError(f"{path}: .jsonl is written, not read back; use .parquet", usage=True)


SCHEMAS = {
    "parquet": pq.read_schema,
    "npy": _npy_schema,
    "arrow": _arrow_schema,
    "jsonl": _jsonl_schema,
}


def _parquet_batches(file: VectorFile, names: list[str]) -> Iterator[pa.Table]:
    with pq.ParquetFile(file.path) as parquet:
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group, columns=names).select(names)


def _npy_batches(file: VectorFile, names: list[str]) -> Iterator[pa.Table]:
    kind = file.schema.field(0).type
    for start in range(0, len(_npy(file.path)), BATCH_ROWS):
        # Mapped anew: what one map has read would stay in memory as long as it.
        some = np.array(_npy(file.path)[start : start + BATCH_ROWS])
        lists = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), type=kind)
        yield pa.table([lists], schema=file.schema)


def _arrow_batches(file: VectorFile, names: list[str]) -> Iterator[pa.Table]:
    with pa.OSFile(os.fspath(file.path)) as source:
        for batch in _record_batches(_open_arrow(source)):
            yield pa.Table.from_batches([batch]).select(names)


def _arrow_rows(file: VectorFile) -> int:
    with pa.memory_map(os.fspath(file.path)) as source:
        return sum(batch.num_rows for batch in _record_batches(_open_arrow(source)))


COUNTS: dict[str, Callable[[VectorFile], int]] = {
    "parquet": lambda file: int(pq.read_metadata(file.path).num_rows),
    "npy": lambda file: len(_npy(file.path)),
    "arrow": _arrow_rows,
}
BATCHES = {"parquet": _parquet_batches, "npy": _npy_batches, "arrow": _arrow_batches}
