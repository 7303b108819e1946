"""The rows of a vector file as points in the plane, with what is told of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bertpool.encoder.recipe import TOKENS
from bertpool.errors import OutputError
from bertpool.insight.colours import Colouring, colour_by
from bertpool.insight.projection import METHODS, Projection
from bertpool.insight.sample import draw_rows
from bertpool.output.table import table_vectors
from bertpool.output.vector_file import VectorFile


@dataclass(frozen=True)
class VectorMap:
    """What is drawn.

    Attributes:
        title: the file's name.
        subtitle: what made its vectors, and how many are shown.
        projection: the points and their axes.
        texts: what stands at each point, empty where the file has none.
        colouring: the colours, where a column was named.
    """

    title: str
    subtitle: str
    projection: Projection
    texts: list[str]
    colouring: Colouring | None = None


def make_map(
    file: VectorFile, *, color: str | None, column: str | None, method: str, sample: int
) -> VectorMap:
    """Read a file's rows, or a sample of them, and project them.

    Raises:
        OutputError: a column isn't there, or there are too few rows.
    """
    name = _vector_column(file, column)
    if color is not None:
        _check_color(file, color)
    rows = file.count_rows()
    if rows < 3:
        raise OutputError(f"{file.path}: {rows} rows; a map needs three")
    vectors, texts, values = _read(file, name, color, draw_rows(rows, sample))
    if not np.isfinite(vectors).all():
        raise OutputError(f"{file.path}: holds vectors that aren't finite; see bertpool inspect")
    return VectorMap(
        title=file.path.name,
        subtitle=_subtitle(file, name, len(vectors), rows),
        projection=METHODS[method].project(vectors),
        texts=texts,
        colouring=None if color is None else colour_by(color, values),
    )


def _vector_column(file: VectorFile, column: str | None) -> str:
    """Choose the vectors: those of ``--column``, which may be an input's own, else pooled ones."""
    if column is None:
        return next(iter(file.recipe_columns().values()))
    if column not in file.columns:
        known = ", ".join(file.columns)
        raise OutputError(f"--column {column}: {file.path} has vectors in {known}", usage=True)
    return column


def _check_color(file: VectorFile, color: str) -> None:
    known = [name for name in file.schema.names if name not in file.columns]
    if color not in known:
        others = ", ".join(known) or "none"
        raise OutputError(f"--color {color}: {file.path} has the columns {others}", usage=True)


def _read(
    file: VectorFile, name: str, color: str | None, chosen: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float32], list[str], list[object]]:
    """Read the rows chosen: vectors ``(rows, hidden)``, texts, values that colour them."""
    has_text = "text" in file.schema.names
    wanted = [name, *(["text"] if has_text else []), *([color] if color else [])]
    vectors: list[npt.NDArray[np.float32]] = []
    texts: list[str] = []
    values: list[object] = []
    start = 0
    for table in file.batches(list(dict.fromkeys(wanted))):
        end = start + len(table)
        inside = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, end)] - start
        some = table.take(inside)
        vectors.append(np.asarray(table_vectors(some, name), dtype=np.float32))
        texts += some["text"].to_pylist() if has_text else []
        values += some[color].to_pylist() if color else []
        start = end
    return np.concatenate(vectors), texts, values


def _subtitle(file: VectorFile, column: str, shown: int, rows: int) -> str:
    made_by = file.provenance
    pooled = [name for name in made_by["strategies"] if name != TOKENS]
    strategy = "+".join(pooled) if len(file.columns) == 1 else column
    of_all = "" if shown == rows else f", a sample of {rows:,}"
    return f"{made_by['model']}, {strategy}: {shown:,} texts{of_all}"
