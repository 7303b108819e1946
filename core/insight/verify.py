"""Is a vector file right? Texts of it are encoded again, each alone, and the vectors compared."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from bertpool.corpus import Corpus, count_rows
from bertpool.corpus.inputs import check_inputs
from bertpool.corpus.options import CorpusOptions
from bertpool.errors import BertpoolError, ModelError, OutputError
from bertpool.insight.inspect import provenance_problems
from bertpool.output.table import table_vectors
from bertpool.output.vector_file import VectorFile, open_vectors

if TYPE_CHECKING:
    from bertpool.embedder import Embedder

SAMPLE = 64  # rows
# How far a value may be off, as a share of its vector's length, by the dtype that computed it.
TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 3e-2}
# And how far the length itself, as a share: finer, since the values' errors don't add up to one.
# Of all-MiniLM-L6-v2 in bfloat16, 200 texts were off by up to 0.006 in a value, 0.005 in length.
LENGTH_TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 2e-2}
# What rounding to the file's dtype may add: half a unit in the last place, as a share of the value.
ROUNDING = {"float32": 0.0, "float16": 2.0**-11}
SMALLEST = {"float32": 0.0, "float16": 2.0**-25}  # half of the smallest step above zero
ROWS_NAMED = 5  # of those that fail

# What of a file's provenance says how its inputs were read.
OF_THE_CORPUS = (
    "input_format",
    "text_column",
    "pair_column",
    "id_column",
    "encoding",
    "blank",
    "on_error",
)

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class ColumnCheck:
    """How a column's vectors compare with those of the texts encoded again.

    Attributes:
        column: its name in the recipe.
        difference: the largest difference of a value; None where one isn't finite.
        difference_row: the row where that is, from 0.
        cosine: the smallest cosine.
        cosine_row: the row where that is.
        failed: how many rows are off by more than the tolerance.
        failed_rows: the first of those.
    """

    column: str
    difference: float | None
    difference_row: int
    cosine: float
    cosine_row: int
    failed: int
    failed_rows: tuple[int, ...]


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found.

    Attributes:
        path: the file.
        rows: how many it has.
        sampled: how many of them were encoded again.
        tolerance: how far a value may be off, as a share of its vector's length; rounding to the
            file's dtype may add to that.
        columns: a check each; none where the file has no rows.
        problems: what is wrong, in words; empty where the file is right.
    """

    path: str
    rows: int
    sampled: int
    tolerance: float
    columns: tuple[ColumnCheck, ...]
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.problems


def verify(
    path: str | Path,
    *,
    inputs: Sequence[str] = (),
    model: str | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
    tolerance: float | None = None,
    offline: bool = False,
    device: str = "auto",
    threads: int | None = None,
) -> Verification:
    """Encode a sample of a file's texts again, and compare the vectors with the file's.

    Each text is encoded alone, in float32, by transformers: no packing, no batch, no padding. The
    first, the last and the longest row are always among the sample.

    Args:
        path: the file.
        inputs: what it was made from; needed where the file doesn't hold its texts.
        model: where the model is; None goes by the provenance.
        sample: how many rows; None is all of them.
        seed: of the choice of rows.
        tolerance: how far a value may be off, as a share of its vector's length; None is what
            suits the dtype that the file was computed in.
        offline: never reach for the network.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        threads: CPU threads.

    Raises:
        BertpoolError: the file, its texts or the model that made it can't be had.
    """
    _check_values(sample, tolerance)
    file = open_vectors(Path(path))
    rows, columns = file.count_rows(), file.recipe_columns()
    pieces = _texts_of_inputs(file, inputs) if inputs else _texts_of_file(file)
    texts = _gather(pieces, _choose(rows, sample, seed))
    if texts.rows != rows:
        raise OutputError(f"{path}: has {rows:,} rows, and its input {texts.rows:,} texts")
    bounds = find_bounds(file.provenance, tolerance=tolerance)
    worst = {name: _Worst(name, bounds) for name in columns}
    if rows:
        embedder = _load(file, model, offline=offline, device=device, threads=threads)
        for row, vectors, expected in _side_by_side(file, columns, texts.chosen, embedder):
            for name, one in worst.items():
                one.add(row, vectors[name], expected[name])
    checks = tuple(one.check() for one in worst.values()) if rows else ()
    problems = (*provenance_problems(file, rows), *filter(None, map(_problem, checks)))
    sampled = len(texts.chosen)
    return Verification(str(path), rows, sampled, bounds.tolerance, checks, problems)


def _check_values(sample: int | None, tolerance: float | None) -> None:
    if sample is not None and sample < 1:
        raise BertpoolError(f"--sample {sample}: give 1 or more", usage=True)
    if tolerance is not None and not 0 <= tolerance <= 1:
        raise BertpoolError(f"--tolerance {tolerance}: give 0 to 1", usage=True)


def _choose(rows: int, sample: int | None, seed: int) -> Container[int]:
    """Choose rows at random, and the first and the last."""
    if sample is None or sample >= rows:
        return range(rows)
    return {0, rows - 1, *random.Random(seed).sample(range(rows), sample)}


@dataclass(frozen=True)
class _Text:
    """A text, with its pair where there are pairs; ``length`` is in tokens, or characters."""

    text: str
    pair: str | None
    length: int


@dataclass(frozen=True)
class _Texts:
    """How many texts there are, and the chosen ones by row."""

    rows: int
    chosen: dict[int, _Text]


def _gather(texts: Iterable[_Text], chosen: Container[int]) -> _Texts:
    """Collect the texts of the chosen rows, and the longest of all."""
    found: dict[int, _Text] = {}
    longest, longest_row, rows = None, 0, 0
    for row, text in enumerate(texts):
        if row in chosen:
            found[row] = text
        if longest is None or text.length > longest.length:
            longest, longest_row = text, row
        rows = row + 1
    if longest is not None:
        found[longest_row] = longest
    return _Texts(rows, dict(sorted(found.items())))


def _texts_of_file(file: VectorFile) -> Iterator[_Text]:
    """Read the texts that a file holds."""
    paired = file.provenance["pair_column"] is not None
    names = ["text", "pair"] if paired else ["text"]
    if not set(names) <= set(file.schema.names):
        raise OutputError(f"{file.path}: holds no texts; name what it was made from with --input")
    for table in file.batches([*names, "n_tokens"]):
        texts, lengths = table["text"].to_pylist(), table["n_tokens"].to_pylist()
        pairs = table["pair"].to_pylist() if paired else [None] * len(texts)
        yield from map(_Text, texts, pairs, lengths)


def _texts_of_inputs(file: VectorFile, inputs: Sequence[str]) -> Iterator[_Text]:
    """Read the inputs as the run did that made the file.

    Raises:
        OutputError: they aren't the ones that the file was made from.
    """
    made, shard = file.provenance, file.provenance.get("shard")
    read_as = {name: made[name] for name in OF_THE_CORPUS}
    options = CorpusOptions(**read_as, keep=tuple(made["keep"]))
    check_inputs(inputs, options)
    within = None if shard is None else range(shard["first"], shard["stop"])
    corpus = Corpus(inputs, options, rows=within)
    for window in corpus.windows():
        pairs: Sequence[str | None] = window.pairs or [None] * len(window.texts)
        yield from map(_Text, window.texts, pairs, map(len, window.texts))
    # Of a shard the reading ends before its input does.
    read = corpus.identities if shard is None else count_rows(inputs, options)[1]
    if made["inputs"] is None:
        return  # written to a pipe, when the inputs weren't known yet
    if [one.sha256 for one in read] != [one["sha256"] for one in made["inputs"]]:
        names = ", ".join(one["name"] for one in made["inputs"])
        raise OutputError(f"{file.path}: was made from {names}, and --input has other content")


def _load(
    file: VectorFile, model: str | None, *, offline: bool, device: str, threads: int | None
) -> Embedder:
    """Load the model that made a file, the padded way, in float32."""
    # Here, not at the top: torch takes seconds, and what is wrong before this needs none of it.
    from bertpool.embedder import load_embedder
    from bertpool.encoder.device import check_device_name, find_device
    from bertpool.encoder.threads import chosen_threads
    from bertpool.encoder.tokenizer import load_tokenizer
    from bertpool.model import maker_of

    check_device_name(device)
    using = chosen_threads(threads)
    maker = maker_of(file.provenance, model=model, offline=offline)
    return load_embedder(
        maker.checkpoint,
        load_tokenizer(maker.checkpoint, maker.limit, maker.reading, stride=maker.stride),
        maker.recipe,
        device=find_device(device, "float32"),
        threads=using,
        padded=True,
    )


def _side_by_side(
    file: VectorFile,
    columns: Mapping[str, str],
    texts: Mapping[int, _Text],
    embedder: Embedder,
) -> Iterator[tuple[int, dict[str, Floats], dict[str, Floats]]]:
    """Yield each chosen row with its vectors, those of the file and those of its text alone."""
    start = 0
    for table in file.batches(list(columns.values())):
        rows = [row for row in texts if start <= row < start + len(table)]
        held = {name: table_vectors(table, stored) for name, stored in columns.items()}
        for row in rows:
            vectors = {name: column[row - start] for name, column in held.items()}
            yield row, vectors, _encoded_alone(embedder, row, texts[row])
        start += len(table)


def _encoded_alone(embedder: Embedder, row: int, text: _Text) -> dict[str, Floats]:
    """Encode one text: each column's ``(width)``.

    Raises:
        ModelError: a vector isn't finite.
    """
    from bertpool.encoder.tokenized import tokenize

    pairs = None if text.pair is None else [text.pair]
    embedded = embedder.encode(tokenize(embedder.tokenizer, [text.text], pairs))
    if not embedded.finite.all():
        raise ModelError(f"row {row}: encoded again, its vector isn't finite")
    return {name: column[0] for name, column in embedded.vectors.items()}


@dataclass(frozen=True)
class Bounds:
    """How far a vector may be off.

    Attributes:
        tolerance: of a value, as a share of the vector's length.
        length: of the length, as a share of it.
        rounding: what rounding to the file's dtype adds, as a share of a value.
        smallest: and at least that.
    """

    tolerance: float
    length: float
    rounding: float
    smallest: float

    def hold(self, vector: Floats, expected: Floats) -> bool:
        """Tell whether a vector, ``(width)``, is the expected one within the bounds."""
        length = np.linalg.norm(expected)
        rounded = self.rounding * np.abs(expected).max() + self.smallest
        near = np.abs(vector - expected).max() <= self.tolerance * length + rounded
        off = abs(np.linalg.norm(vector) - length)
        as_long = off <= (self.length + self.rounding) * length + rounded
        return bool(near and as_long)  # what isn't finite is neither


def find_bounds(provenance: Mapping[str, Any], *, tolerance: float | None = None) -> Bounds:
    """Choose the bounds by the dtypes of the computation and of the file.

    Args:
        provenance: of the file; where that says so, lengths are 1, whatever computed the vectors.
        tolerance: of a value, in place of what suits the dtype; lengths may then be off at will.
    """
    dtype, output_dtype = provenance["dtype"], provenance["output_dtype"]
    length = LENGTH_TOLERANCES["float32" if provenance["normalize"] else dtype]
    return Bounds(
        tolerance=TOLERANCES[dtype] if tolerance is None else tolerance,
        length=length if tolerance is None else np.inf,
        rounding=ROUNDING[output_dtype],
        smallest=SMALLEST[output_dtype],
    )


class _Worst:
    """Keeps the worst of a column."""

    def __init__(self, column: str, bounds: Bounds) -> None:
        self._column, self._bounds = column, bounds
        self._difference, self._cosine = (-np.inf, 0), (np.inf, 0)
        self._failed: list[int] = []

    def add(self, row: int, vector: Floats, expected: Floats) -> None:
        """Compare a row's vector with the expected one, both ``(width)``."""
        vector, expected = vector.astype(np.float64), expected.astype(np.float64)
        difference = float(np.abs(vector - expected).max())
        # NaN compares as nothing, and is the worst there is.
        difference = np.inf if np.isnan(difference) else difference
        self._difference = max(self._difference, (difference, row), key=lambda one: one[0])
        self._cosine = min(self._cosine, (_cosine(vector, expected), row))
        if not self._bounds.hold(vector, expected):
            self._failed.append(row)

    def check(self) -> ColumnCheck:
        """Say what was found."""
        difference, difference_row = self._difference
        return ColumnCheck(
            column=self._column,
            difference=difference if np.isfinite(difference) else None,
            difference_row=difference_row,
            cosine=self._cosine[0],
            cosine_row=self._cosine[1],
            failed=len(self._failed),
            failed_rows=tuple(self._failed[:ROWS_NAMED]),
        )


def _cosine(one: Floats, other: Floats) -> float:
    """Return the cosine; that of two zero vectors is 1, and of what has none -1."""
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    if lengths == 0:
        return 1.0 if not one.any() and not other.any() else -1.0
    cosine = float(one @ other / lengths)
    return cosine if np.isfinite(cosine) else -1.0


def _problem(check: ColumnCheck) -> str | None:
    """Say which rows of a column are wrong."""
    if not check.failed:
        return None
    rows = ", ".join(map(str, check.failed_rows))
    more = ", ..." if check.failed > len(check.failed_rows) else ""
    return f"{check.column}: not the vectors of their texts: row {rows}{more} ({check.failed:,})"
