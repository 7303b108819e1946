from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from bertpool.output.jsonl import JsonlWriter
from bertpool.output.rows import EmbeddedRows, Layout
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from rows import KEPT, LAYOUT, make_rows, write_rows


def write(
    path: Path, layout: Layout, rows: EmbeddedRows, sizes: Sequence[int] | None = None
) -> Path:
    return write_rows(path, JsonlWriter, layout, rows, sizes)


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read(path: Path) -> list[dict[str, Any]]:
    """Parse each line as strictly as JSON is defined."""
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    return [json.loads(line, parse_constant=no_constant) for line in lines]


def kept(tmp_path: Path, values: Sequence[Any], kind: pa.DataType | None = None) -> list[Any]:
    """Write a kept column of one type and read it back."""
    extra = pa.table({"x": pa.array(values, kind)})
    layout = replace(LAYOUT, extra=extra.schema)
    rows = make_rows(len(values), extra=extra)
    return [row["x"] for row in read(write(tmp_path / "f.jsonl", layout, rows))]


def test_every_line_is_an_object_with_the_columns_in_order(tmp_path: Path) -> None:
    found = read(write(tmp_path / "f.jsonl", LAYOUT, make_rows(20)))
    names = ["id", "source", "line", "text", "n_tokens", "truncated", "embedding"]
    assert [list(row) for row in found] == [names] * 20


def test_every_column_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = make_rows(70)
    found = read(write(tmp_path / "f.jsonl", LAYOUT, rows))
    assert [row["id"] for row in found] == rows.numbers.tolist()
    assert [row["text"] for row in found] == rows.texts
    assert [row["source"] for row in found] == rows.sources
    assert [row["n_tokens"] for row in found] == rows.n_tokens.tolist()
    assert [row["truncated"] for row in found] == rows.truncated.tolist()
    np.testing.assert_array_equal(
        np.array([row["embedding"] for row in found], np.float32), rows.vectors["embedding"]
    )


def test_a_text_with_line_ends_of_every_kind_is_one_line(tmp_path: Path) -> None:
    text = "a\nb\r\nc\x0b\x0c\x1c\x85\u2028\u2029d"
    rows = replace(make_rows(1), texts=[text])
    (found,) = read(write(tmp_path / "f.jsonl", LAYOUT, rows))
    assert found["text"] == text


def test_texts_are_written_as_utf8_and_not_escaped(tmp_path: Path) -> None:
    rows = replace(make_rows(1), texts=["日本 😀"])
    assert "日本 😀".encode() in write(tmp_path / "f.jsonl", LAYOUT, rows).read_bytes()


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(vectors=nps.arrays(np.float32, (3, 8), elements=FLOATS))
def test_numbers_give_the_same_float32_again(
    tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray
) -> None:
    rows = replace(make_rows(3), vectors={"embedding": vectors})
    found = read(write(tmp_path_factory.getbasetemp() / "f.jsonl", LAYOUT, rows))
    again = np.array([row["embedding"] for row in found], np.float32)
    np.testing.assert_array_equal(again.view(np.int32), vectors.view(np.int32))


@pytest.mark.parametrize(
    ("number", "digits"),
    [(0.1, "0.1"), (1 / 3, "0.33333334"), (-1.5, "-1.5"), (16777216.0, "16777216.0")],
)
def test_numbers_have_the_fewest_digits(tmp_path: Path, number: float, digits: str) -> None:
    vectors = {"embedding": np.full((1, 1), number, np.float32)}
    rows = replace(make_rows(1), vectors=vectors)
    line = write(tmp_path / "f.jsonl", replace(LAYOUT, width=1), rows).read_text()
    written = line.split('"embedding": [')[1].split("]")[0]
    assert float(written) == float(digits)
    assert len(written) <= len(digits)


def test_float16_numbers_give_the_same_float16_again(tmp_path: Path) -> None:
    rows = make_rows(20, dtype="float16")
    found = read(write(tmp_path / "f.jsonl", replace(LAYOUT, dtype="float16"), rows))
    again = np.array([row["embedding"] for row in found], np.float16)
    np.testing.assert_array_equal(again, rows.vectors["embedding"])


def test_two_vector_columns_keep_apart(tmp_path: Path) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"))
    rows = make_rows(5, columns=layout.columns)
    found = read(write(tmp_path / "f.jsonl", layout, rows))
    for name in layout.columns:
        again = np.array([row[name] for row in found], np.float32)
        np.testing.assert_array_equal(again, rows.vectors[name])


def test_no_rows_give_an_empty_file(tmp_path: Path) -> None:
    assert write(tmp_path / "f.jsonl", LAYOUT, make_rows(0)).read_bytes() == b""


@pytest.mark.parametrize("sizes", [[1] * 30, [0, 29, 1]], ids=["ones", "uneven"])
def test_the_same_rows_give_the_same_bytes_however_they_arrive(
    tmp_path: Path, sizes: list[int]
) -> None:
    rows = make_rows(30, extra=pa.concat_tables([KEPT] * 10))
    layout = replace(LAYOUT, extra=KEPT.schema)
    whole = write(tmp_path / "whole.jsonl", layout, rows)
    portioned = write(tmp_path / "portioned.jsonl", layout, rows, sizes)
    assert portioned.read_bytes() == whole.read_bytes()


def test_kept_columns_keep_what_json_has_a_type_for(tmp_path: Path) -> None:
    layout = replace(LAYOUT, extra=KEPT.schema)
    found = read(write(tmp_path / "f.jsonl", layout, make_rows(3, extra=KEPT)))
    for name in ("int", "float", "bool", "string", "list", "struct"):
        assert [row[name] for row in found] == KEPT[name].to_pylist()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_a_kept_number_that_is_none_becomes_null(tmp_path: Path, kind: pa.DataType) -> None:
    values = [np.float16(one) for one in (0.5, math.nan, math.inf, -math.inf)]
    assert kept(tmp_path, [*values, None], kind) == [0.5, None, None, None, None]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ([math.nan, 1.0], pa.list_(pa.float64()), [None, 1.0]),
        ([math.inf, 1.0], pa.list_(pa.float32(), 2), [None, 1.0]),
        ({"a": math.nan, "b": 1}, pa.struct([("a", pa.float64()), ("b", pa.int8())]),
         {"a": None, "b": 1}),
        ([{"a": [-math.inf]}], pa.list_(pa.struct([("a", pa.list_(pa.float64()))])),
         [{"a": [None]}]),
        ([("k", math.nan)], pa.map_(pa.string(), pa.float64()), [["k", None]]),
    ],
    ids=str,
)  # fmt: skip
def test_a_number_that_is_none_becomes_null_within_a_kept_value_too(
    tmp_path: Path, value: Any, kind: pa.DataType, expected: Any
) -> None:
    assert kept(tmp_path, [value], kind) == [expected]


def test_bytes_become_base64_and_decimals_text(tmp_path: Path) -> None:
    assert kept(tmp_path, [b"\xff\x00", None]) == ["/wA=", None]
    assert kept(tmp_path, KEPT["decimal"].to_pylist()) == ["1.10", None, "-0.01"]
    assert kept(tmp_path, [{"a": b"x"}]) == [{"a": "eA=="}]


def test_times_become_text(tmp_path: Path) -> None:
    found = kept(tmp_path, KEPT["time"].to_pylist(), pa.timestamp("us"))
    assert found == ["2024-02-29 12:30:00.000000", None, "1969-01-01 00:00:00.000000"]


WITHOUT_PANDAS = """
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
import io
import pyarrow as pa
from bertpool.output.jsonl import JsonlWriter
from bertpool.output.parts import window_digest
from bertpool.corpus.corpus import Window
from dataclasses import replace
from rows import LAYOUT, make_rows
extra = pa.table({"x": pa.array([1], pa.timestamp("ns")), "y": pa.array([1], pa.duration("ns")),
                  "z": pa.array([[1]], pa.list_(pa.timestamp("ns")))})
out = io.BytesIO()
JsonlWriter(out, replace(LAYOUT, extra=extra.schema), "").write(make_rows(1, extra=extra))
window_digest(Window(["a"], None, [0], ["a"], [1], extra, [], 0))
sys.stdout.buffer.write(out.getvalue())
"""


def test_times_finer_than_pythons_need_no_pandas() -> None:
    tests = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", f"import sys; sys.path.append({tests!r}){WITHOUT_PANDAS}"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert found["x"] == "1970-01-01 00:00:00.000000001"
    assert found["y"] == 1
    assert found["z"] == ["1970-01-01 00:00:00.000000001"]


def test_a_date_beyond_pythons_is_written(tmp_path: Path) -> None:
    assert kept(tmp_path, [10**7], pa.date32()) == ["29349-01-26"]


def test_pandas_polars_and_duckdb_read_the_file(tmp_path: Path) -> None:
    layout, rows = replace(LAYOUT, extra=KEPT.schema), make_rows(3, extra=KEPT)
    path = write(tmp_path / "f.jsonl", layout, rows)
    by_duckdb = duckdb.connect().execute(f"SELECT embedding, int FROM '{path}'").fetchall()
    by_polars = pl.read_ndjson(path)
    by_pandas = pd.read_json(path, lines=True)
    expected = rows.vectors["embedding"]
    for vectors in ([row[0] for row in by_duckdb], by_polars["embedding"].to_list(),
                    by_pandas["embedding"].tolist()):  # fmt: skip
        np.testing.assert_array_equal(np.array(vectors, np.float32), expected)
    assert [row[1] for row in by_duckdb] == KEPT["int"].to_pylist()
    assert by_polars["int"].to_list() == KEPT["int"].to_pylist()
