"""Which texts of a vector file are nearest to others: exact, in one pass over the file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from bertpool.corpus import Corpus
from bertpool.corpus.inputs import STDIN
from bertpool.corpus.options import CorpusOptions
from bertpool.errors import BertpoolError, CorpusError, OutputError
from bertpool.output.table import table_vectors
from bertpool.output.vector_file import VectorFile, open_vectors

if TYPE_CHECKING:
    import pyarrow as pa
    from bertpool.model import Maker

TOP = 10
SCORES = 1 << 21  # of a block, held at once: 8 MiB in float32
BLOCK_ROWS = 4096
CELLS = ("id", "source", "line", "text", "pair")  # shown of a row, where the file has them

Floats = npt.NDArray[np.float64]

_log = logging.getLogger("bertpool")


@dataclass(frozen=True)
class Hit:
    """A row that is near to a query.

    Attributes:
        rank: from 1.
        score: the cosine.
        row: its place in the file, from 0.
        cells: its ``id``, ``source``, ``line``, ``text`` and ``pair``, those that the file has.
    """

    rank: int
    score: float
    row: int
    cells: dict[str, Any]


def search(
    path: str | Path,
    queries: Sequence[str],
    *,
    top: int = TOP,
    column: str | None = None,
    model: str | None = None,
    prompt: str | None = None,
    offline: bool = False,
    device: str = "auto",
    threads: int | None = None,
) -> list[list[Hit]]:
    """Find the rows of a file whose vectors have the largest cosine with those of queries.

    Queries are encoded as the file's texts were, by the model that made it, in float32. Every row
    is looked at; equal cosines rank in the order of the rows, and zero vectors never do.

    Args:
        path: the file.
        queries: any number of texts; their vectors are held at once.
        top: how many rows of each to return, at most.
        column: which vectors, where the file has several; None is the first.
        model: where the model is; None goes by the provenance.
        prompt: put before the queries; None is the one that the file's texts had.
        offline: never reach for the network.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: CPU threads of the model.

    Returns:
        The hits of each query, the nearest first.

    Raises:
        BertpoolError: the file or its model can't be had, or there is no such column.
    """
    if top < 1:
        raise BertpoolError(f"--top {top}: give 1 or more", usage=True)
    file = open_vectors(Path(path))
    name, stored = _choose_column(file, column)
    if not queries:
        return []
    # Here, not at the top: torch takes seconds, and what is wrong before this needs none of it.
    from bertpool.model import maker_of

    maker = maker_of(file.provenance, model=model, offline=offline)
    maker = _with_prompt(maker, prompt)
    vectors = _encode(maker, name, queries, device=device, threads=threads)
    return nearest(file, stored, vectors, top=top)


def read_queries(query: str) -> list[str]:
    """Return the query; ``-`` stands for the lines of stdin that aren't blank.

    Raises:
        CorpusError: it isn't UTF-8.
    """
    if query != STDIN:
        try:
            return [query.encode("utf-8", "surrogateescape").decode()]
        except UnicodeError as error:
            raise CorpusError("QUERY: not UTF-8", usage=True) from error
    options = CorpusOptions(input_format="lines", blank="skip")
    return [text for window in Corpus([STDIN], options).windows() for text in window.texts]


def _choose_column(file: VectorFile, column: str | None) -> tuple[str, str]:
    """Return a column's names, in the recipe and in the file."""
    columns = file.recipe_columns()
    name = column or next(iter(columns))
    if name not in columns:
        known = ", ".join(columns)
        raise OutputError(f"{file.path}: --column {name}: it has {known}", usage=True)
    if column is None and len(columns) > 1:
        _log.warning("searching %s; --column takes any of %s", name, ", ".join(columns))
    return name, columns[name]


def _with_prompt(maker: Maker, prompt: str | None) -> Maker:
    """Take another prompt, or say that the file's is taken."""
    own = maker.reading.prompt
    if prompt is not None:
        return replace(maker, reading=replace(maker.reading, prompt=prompt))
    if own:
        _log.warning("queries get the prompt of the file's texts: %r; --prompt changes that", own)
    return maker


def _encode(
    maker: Maker, column: str, queries: Sequence[str], *, device: str, threads: int | None
) -> npt.NDArray[np.float32]:
    """Encode queries: ``(queries, width)``."""
    from bertpool.encoder.threads import chosen_threads
    from bertpool.model import Model, embed_all

    model = Model(maker.checkpoint, device=device, threads=chosen_threads(threads))
    embedder = model.embedder_for(maker.recipe, maker.reading, maker.limit, stride=maker.stride)
    return embed_all(embedder, queries)[column]


def nearest(
    file: VectorFile, column: str, queries: npt.NDArray[np.float32], *, top: int
) -> list[list[Hit]]:
    """Find the rows of a file that are nearest to some vectors, in one pass with memory flat.

    Args:
        file: the file.
        column: one of its columns of vectors.
        queries: ``(queries, width)``; nothing is near to a zero vector.
        top: how many rows to find for each, at most.

    Raises:
        OutputError: the file is broken.
    """
    best = [_Best(top) for _ in queries]
    units, _ = _unit(queries)
    names = [name for name in CELLS if name in file.schema.names]
    step = max(1, min(BLOCK_ROWS, SCORES // max(1, len(queries))))
    row = 0
    for table in file.batches([*names, column]):
        for start in range(0, len(table), step):
            piece = table.slice(start, step)
            _rank(table_vectors(piece, column), piece.select(names), row + start, units, best)
        row += len(table)
    return [one.hits() for one in best]


def _unit(vectors: npt.NDArray[np.floating]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Scale ``(rows, width)`` to unit length, and tell which of them have a direction at all."""
    precise = vectors.astype(np.float64)
    lengths = np.linalg.norm(precise, axis=1)
    real = np.isfinite(lengths) & (lengths > 0)
    precise[~real] = 0
    return precise / np.where(real, lengths, 1)[:, None], real


def _rank(
    vectors: npt.NDArray[np.floating], cells: pa.Table, first: int, units: Floats, best: list[_Best]
) -> None:
    """Take a block of rows, ``(rows, width)``, from row ``first`` of the file, for every query.

    One product in float32 finds what may rank; that alone is computed again in float64, so that
    equal vectors have equal cosines wherever they stand.
    """
    block, real = _unit(vectors)
    # (queries, rows)
    scores = units.astype(np.float32) @ block.astype(np.float32).T
    scores[:, ~real] = -np.inf
    # Twice what rounding can do to a sum of so many products of unit vectors.
    slack = (vectors.shape[1] + 4) * 2.0**-23
    for one, unit, own in zip(best, units, scores, strict=True):
        near = one.candidates(own, slack)
        near = near[real[near]]
        if len(near) and unit.any():
            one.add((block[near] * unit).sum(axis=1), near, first, cells)


class _Best:
    """The best rows for one query so far."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._scores: Floats = np.empty(0)
        self._rows = np.empty(0, dtype=np.int64)
        self._cells: list[dict[str, Any]] = []

    def candidates(self, scores: npt.NDArray[np.float32], slack: float) -> npt.NDArray[np.int64]:
        """List the rows of a block that may be among the best, by scores off by up to a slack."""
        floor = float(self._scores[-1]) if len(self._scores) == self._top else -np.inf
        if len(scores) > self._top:
            floor = max(floor, float(np.partition(scores, -self._top)[-self._top]) - slack)
        return np.flatnonzero(scores >= floor - slack)

    def add(
        self, scores: Floats, places: npt.NDArray[np.int64], first: int, cells: pa.Table
    ) -> None:
        """Take rows at some places of a block, by their exact scores."""
        every = np.concatenate([self._scores, scores])
        rows = np.concatenate([self._rows, places + first])
        order = np.lexsort((rows, -every))[: self._top]
        self._cells = [
            self._cells[i] if i < len(self._rows) else _row(cells, int(rows[i]) - first)
            for i in order.tolist()
        ]
        self._scores, self._rows = every[order], rows[order]

    def hits(self) -> list[Hit]:
        """Return the best, the nearest first."""
        found = zip(self._scores.tolist(), self._rows.tolist(), self._cells, strict=True)
        return [
            Hit(rank, min(1.0, score), row, cells)
            for rank, (score, row, cells) in enumerate(found, start=1)
        ]


def _row(table: pa.Table, index: int) -> dict[str, Any]:
    return {name: table[name][index].as_py() for name in table.column_names}
