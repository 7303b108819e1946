"""What vector files hold, and whether the vectors of several may be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from bertpool.output.provenance import is_unchanged
from bertpool.output.rows import Floats
from bertpool.output.table import table_vectors
from bertpool.output.vector_file import VectorFile, open_vectors

HASH_BYTES = 8  # kept of a row, in memory; a million rows collide once in some 10^7 files
OF_THE_MODEL = ("config_sha256", "weights_sha256", "tokenizer_sha256", "modules_sha256")
# What decides a text's vector, past rounding. Cutting texts and stopping at long ones are alike.
DECIDING = (
    *OF_THE_MODEL,
    "strategies",
    "layers",
    "columns",
    "stages",
    "exclude_special",
    "max_length",
    "stride",
    "prompt",
    "include_prompt",
    "lower_case",
    "normalize",
    "dimensions",
)


@dataclass(frozen=True)
class VectorFacts:
    """A column of vectors; lengths are of the finite ones, None where there are none.

    ``duplicates`` counts the rows whose vector, to the bit, an earlier row has.
    """

    column: str
    dimensions: int
    dtype: str
    norm_min: float | None
    norm_mean: float | None
    norm_max: float | None
    zero: int
    non_finite: int
    duplicates: int


@dataclass(frozen=True)
class TokenFacts:
    """Tokens a text, before truncation: ``histogram`` maps powers of two to the rows up to each."""

    fewest: int
    mean: float
    most: int
    histogram: dict[int, int]
    truncated: int


@dataclass(frozen=True)
class FileFacts:
    """What is in a file.

    Attributes:
        path: as it was named.
        format: ``parquet``, ``npy`` or ``arrow``.
        rows: how many there are.
        columns: the type of each.
        vectors: facts of each column of vectors.
        tokens: None where the file doesn't hold their numbers, or no row.
        problems: why its provenance isn't to be believed.
        provenance: what made it, its shard among that.
    """

    path: str
    format: str
    rows: int
    columns: dict[str, str]
    vectors: tuple[VectorFacts, ...]
    tokens: TokenFacts | None
    problems: tuple[str, ...]
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A field that keeps the vectors of ``path`` from being compared with those of ``first``."""

    path: str
    field: str
    value: Any
    first: str
    first_value: Any


@dataclass(frozen=True)
class Inspection:
    """What is in some files, and in what the later ones differ from the first."""

    files: tuple[FileFacts, ...]
    differences: tuple[Difference, ...]

    @property
    def comparable(self) -> bool:
        """Tell whether the vectors of all the files may be compared."""
        return not self.differences


def inspect_files(paths: Sequence[str | Path]) -> Inspection:
    """Look into vector files, a bounded piece of each at a time.

    Raises:
        OutputError: one can't be read, or isn't of bertpool.
    """
    files = [open_vectors(Path(path)) for path in paths]
    differences = [one for file in files[1:] for one in _differences(files[0], file)]
    return Inspection(tuple(map(inspect_file, files)), tuple(differences))


def inspect_file(file: VectorFile) -> FileFacts:
    """Look into one file.

    Raises:
        OutputError: it is broken.
    """
    kept = file.provenance.get("keep", ())  # may be vectors, too, and others' business
    vectors = [_Vectors(file, name) for name in file.columns if name not in kept]
    tokens = _Tokens()
    counted = [name for name in ("n_tokens", "truncated") if name in file.schema.names]
    rows = 0
    for table in file.batches([*counted, *(one.column for one in vectors)]):
        rows += len(table)
        for one in vectors:
            one.add(table_vectors(table, one.column))
        if "n_tokens" in counted:
            tokens.add(table)
    return FileFacts(
        path=str(file.path),
        format=file.format_name,
        rows=rows,
        columns={one.name: str(one.type) for one in file.schema},
        vectors=tuple(one.facts() for one in vectors),
        tokens=tokens.facts(),
        problems=tuple(provenance_problems(file, rows)),
        provenance=file.provenance,
    )


def provenance_problems(file: VectorFile, rows: int) -> Iterable[str]:
    """Say why a file's provenance isn't to be believed.

    Args:
        file: the file.
        rows: how many rows it has.
    """
    declared = file.provenance.get("rows")  # None in what was written to a pipe
    if declared is not None and declared != rows:
        yield f"its provenance says {declared:,} rows, and it has {rows:,}"
    if not is_unchanged(file.provenance):
        yield "its provenance was changed after the file was written: the fingerprint is another's"


@dataclass
class _Vectors:
    """Gathers the facts of a column."""

    file: VectorFile
    column: str
    zero: int = 0
    non_finite: int = 0
    finite: int = 0
    norm_sum: float = 0.0
    norm_min: float = np.inf
    norm_max: float = -np.inf
    hashes: list[npt.NDArray[np.uint64]] = field(default_factory=list)

    def add(self, vectors: Floats) -> None:
        """Take some rows, ``(rows, width)``."""
        self.hashes.append(row_hashes(vectors))
        finite = np.isfinite(vectors).all(axis=1)
        self.non_finite += int((~finite).sum())
        self.zero += int((~vectors.any(axis=1)).sum())
        if not finite.any():
            return
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))[finite]
        self.finite += len(norms)
        self.norm_sum += float(norms.sum())
        self.norm_min = min(self.norm_min, float(norms.min()))
        self.norm_max = max(self.norm_max, float(norms.max()))

    def facts(self) -> VectorFacts:
        """Put the facts together."""
        kind = self.file.schema.field(self.column).type
        some = self.finite > 0
        return VectorFacts(
            column=self.column,
            dimensions=kind.list_size,
            dtype=str(np.dtype(kind.value_type.to_pandas_dtype())),
            norm_min=self.norm_min if some else None,
            norm_mean=self.norm_sum / self.finite if some else None,
            norm_max=self.norm_max if some else None,
            zero=self.zero,
            non_finite=self.non_finite,
            duplicates=_repeated(self.hashes),
        )


def row_hashes(vectors: Floats) -> npt.NDArray[np.uint64]:
    """Hash the bytes of each row of ``(rows, width)``: ``(rows)`` uint64."""
    rows = np.ascontiguousarray(vectors)
    digests = (hashlib.blake2b(row.data, digest_size=HASH_BYTES).digest() for row in rows)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _repeated(hashes: list[npt.NDArray[np.uint64]]) -> int:
    """Count the hashes that occurred before."""
    every = np.concatenate([*hashes, np.empty(0, dtype=np.uint64)])
    every.sort()
    return int((every[1:] == every[:-1]).sum())


@dataclass
class _Tokens:
    """Gathers the numbers of tokens."""

    rows: int = 0
    total: int = 0
    fewest: int = 0
    most: int = 0
    truncated: int = 0
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, dtype=np.int64))

    def add(self, table: pa.Table) -> None:
        """Take some rows."""
        numbers = table["n_tokens"].to_numpy()
        if not len(numbers):
            return
        self.fewest = int(min(numbers.min(), self.fewest if self.rows else numbers.min()))
        self.most = max(self.most, int(numbers.max()))
        self.rows += len(numbers)
        self.total += int(numbers.sum())
        exponents = np.ceil(np.log2(np.maximum(numbers, 1))).astype(np.int64)
        self.counts += np.bincount(exponents, minlength=len(self.counts))
        self.truncated += int(table["truncated"].to_numpy().sum())

    def facts(self) -> TokenFacts | None:
        """Put the facts together; None without a row."""
        if not self.rows:
            return None
        used = np.flatnonzero(self.counts)
        bins = range(int(used[0]), int(used[-1]) + 1)
        histogram = {1 << exponent: int(self.counts[exponent]) for exponent in bins}
        mean = self.total / self.rows
        return TokenFacts(self.fewest, mean, self.most, histogram, self.truncated)


def _differences(first: VectorFile, other: VectorFile) -> Iterable[Difference]:
    one, two = first.provenance, other.provenance
    names: tuple[str, ...] = DECIDING
    if any(one.get(name) != two.get(name) for name in OF_THE_MODEL):
        names = ("model", *DECIDING)  # the name alone decides nothing, and tells more than a hash
    for name in names:
        if one.get(name) != two.get(name):
            yield Difference(str(other.path), name, two.get(name), str(first.path), one.get(name))
