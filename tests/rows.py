"""Rows as they leave the encoder, made up; what a folder holds; settings that could be a run's."""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from bertpool.output.provenance import Settings
from bertpool.output.rows import EmbeddedRows, Layout

LAYOUT = Layout(("embedding",), 8, "float32", text=True, source=True, line=True)
TEXTS = ["hello", "", "a\x00b", "日本 😀", "\ufeff", "x" * 300]
FORMATS = ["parquet", "npy", "arrow", "jsonl"]

SETTINGS = Settings(
    bertpool_version="0.1.0",
    model="owner/name",
    revision="abc",
    config_sha256="0" * 64,
    weights_sha256="1" * 64,
    tokenizer_sha256="2" * 64,
    modules_sha256="3" * 64,
    strategies=("mean",),
    layers=((2,),),
    columns=("embedding",),
    stages=("normalization",),
    exclude_special=False,
    max_length=64,
    prompt="",
    include_prompt=True,
    lower_case=False,
    normalize=False,
    dimensions=8,
    dtype="float32",
    output_dtype="float32",
    on_truncate="keep",
    stride=None,
    input_format="auto",
    text_column="text",
    pair_column=None,
    id_column=None,
    keep=(),
    text=True,
    encoding="utf-8",
    blank="keep",
    on_error="stop",
)

# A column of each kind that an input may hold, a null in each.
KEPT = pa.table(
    {
        "int": pa.array([1, None, 2**62], pa.int64()),
        "float": pa.array([0.5, None, -1e300], pa.float64()),
        "bool": pa.array([True, None, False], pa.bool_()),
        "string": pa.array(["007", None, "é\x00"], pa.string()),
        "time": pa.array(
            [datetime.datetime(2024, 2, 29, 12, 30), None, datetime.datetime(1969, 1, 1)],
            pa.timestamp("us"),
        ),
        "decimal": pa.array(
            [decimal.Decimal("1.10"), None, decimal.Decimal("-0.01")], pa.decimal128(9, 2)
        ),
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
        "struct": pa.array(
            [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
    }
)


def make_rows(
    count: int,
    width: int = 8,
    dtype: str = "float32",
    columns: Sequence[str] = ("embedding",),
    *,
    extra: pa.Table | None = None,
    seed: int = 0,
) -> EmbeddedRows:
    random = np.random.default_rng(seed)
    numbers = np.arange(count, dtype=np.int64)
    return EmbeddedRows(
        numbers=numbers,
        texts=[TEXTS[i % len(TEXTS)] for i in range(count)],
        pairs=[f"pair {i}" for i in range(count)],
        sources=["a.txt" if i % 2 else r"caf\xe9.txt" for i in range(count)],
        lines=numbers + 1,
        n_tokens=(numbers % 70).astype(np.int32),
        truncated=numbers % 70 > 64,
        vectors={
            name: random.standard_normal((count, width), dtype=np.float32).astype(dtype)
            for name in columns
        },
        extra=extra,
    )


def portion(rows: EmbeddedRows, start: int, end: int) -> EmbeddedRows:
    return EmbeddedRows(
        numbers=rows.numbers[start:end],
        texts=rows.texts[start:end],
        pairs=None if rows.pairs is None else rows.pairs[start:end],
        sources=rows.sources[start:end],
        lines=rows.lines[start:end],
        n_tokens=rows.n_tokens[start:end],
        truncated=rows.truncated[start:end],
        vectors={name: vectors[start:end] for name, vectors in rows.vectors.items()},
        extra=None if rows.extra is None else rows.extra.slice(start, end - start),
    )


def portions(rows: EmbeddedRows, sizes: Sequence[int] | None = None) -> Iterator[EmbeddedRows]:
    """Yield rows in portions of the given sizes, or all at once."""
    ends = [0, *itertools.accumulate([len(rows)] if sizes is None else sizes)]
    for start, end in itertools.pairwise(ends):
        yield portion(rows, start, end)


def write_rows(
    path: Path,
    writer: type[Any],
    layout: Layout,
    rows: EmbeddedRows,
    sizes: Sequence[int] | None = None,
    provenance: str = '{"rows": 1}',
) -> Path:
    """Write rows with a writer, in portions of the given sizes or all at once."""
    with path.open("wb") as stream:
        opened = writer(stream, layout, provenance)
        for some in portions(rows, sizes):
            opened.write(some)
        opened.close()
    return path


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
