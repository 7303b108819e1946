from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from bertpool.output.parquet import ParquetWriter
from bertpool.output.rows import EmbeddedRows, Layout
from bertpool.output.table import GROUP_BYTES
from rows import KEPT, LAYOUT, make_rows, write_rows
from vectors import read_vectors

Dtype = Literal["float32", "float16"]


def write(
    path: Path, layout: Layout, rows: EmbeddedRows, sizes: Sequence[int] | None = None
) -> Path:
    return write_rows(path, ParquetWriter, layout, rows, sizes)


def vector_type(width: int, element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable=False), width)


def test_the_schema_is_the_documented_one_with_no_null_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", LAYOUT, make_rows(3))
    expected = [
        ("id", pa.int64()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("text", pa.string()),
        ("n_tokens", pa.int32()),
        ("truncated", pa.bool_()),
        ("embedding", vector_type(8, pa.float32())),
    ]
    schema = pq.read_schema(path).remove_metadata()
    assert schema == pa.schema([pa.field(n, kind, nullable=False) for n, kind in expected])


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        (replace(LAYOUT, text=False), "id source line n_tokens truncated embedding"),
        (replace(LAYOUT, source=False, line=False), "id text n_tokens truncated embedding"),
        (replace(LAYOUT, source=False), "id line text n_tokens truncated embedding"),
        (
            replace(LAYOUT, source=False, line=False, columns=("mean", "cls")),
            "id text n_tokens truncated mean cls",
        ),
    ],
    ids=["no-text", "one-input", "blank-skipped", "two-columns"],
)
def test_a_column_that_was_not_asked_for_is_absent(
    tmp_path: Path, layout: Layout, names: str
) -> None:
    path = write(tmp_path / "f.parquet", layout, make_rows(3, columns=layout.columns))
    assert pq.read_schema(path).names == names.split()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_empty_file_has_the_schema_of_a_full_one(tmp_path: Path, dtype: Dtype) -> None:
    layout = replace(LAYOUT, dtype=dtype)
    empty = write(tmp_path / "empty.parquet", layout, make_rows(0, dtype=dtype))
    full = write(tmp_path / "full.parquet", layout, make_rows(3, dtype=dtype))
    assert pq.read_schema(empty).equals(pq.read_schema(full), check_metadata=True)
    assert read_vectors(empty).shape == (0, 8)


def test_a_file_to_which_nothing_was_ever_written_is_a_valid_empty_one(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", LAYOUT, make_rows(0), sizes=())
    assert pq.read_table(path).num_rows == 0


def test_every_column_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = make_rows(100)
    table = pq.read_table(write(tmp_path / "f.parquet", LAYOUT, rows))
    assert table["id"].to_pylist() == rows.numbers.tolist()
    assert table["text"].to_pylist() == rows.texts
    assert table["source"].to_pylist() == rows.sources
    assert table["line"].to_pylist() == rows.lines.tolist()
    assert table["n_tokens"].to_pylist() == rows.n_tokens.tolist()
    assert table["truncated"].to_pylist() == rows.truncated.tolist()
    np.testing.assert_array_equal(table["embedding"].to_pylist(), rows.vectors["embedding"])


def test_two_vector_columns_keep_apart(tmp_path: Path) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"))
    rows = make_rows(50, columns=layout.columns)
    path = write(tmp_path / "f.parquet", layout, rows)
    for name in layout.columns:
        np.testing.assert_array_equal(read_vectors(path, name), rows.vectors[name])


def test_float16_is_written_as_float16_and_reads_back_equal(tmp_path: Path) -> None:
    rows = make_rows(100, dtype="float16")
    path = write(tmp_path / "f.parquet", replace(LAYOUT, dtype="float16"), rows)
    assert pq.read_schema(path).field("embedding").type == vector_type(8, pa.float16())
    np.testing.assert_array_equal(read_vectors(path), rows.vectors["embedding"])


def test_provenance_is_the_metadata_under_the_key_bertpool(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", LAYOUT, make_rows(3))
    assert json.loads(pq.read_metadata(path).metadata[b"bertpool"]) == {"rows": 1}


PORTIONS = {
    "one by one": [1] * 3000,
    "thirds": [1000, 1000, 1000],
    "uneven": [7, 2000, 993],
    "around 1024": [1023, 1, 1024, 1, 951],
    "empty portions": [0, 3000, 0],
    "one left over": [2999, 1],
}


@pytest.mark.parametrize("sizes", PORTIONS.values(), ids=PORTIONS)
@pytest.mark.parametrize("group_bytes", [GROUP_BYTES, 1_000_000, 50_000])
def test_the_same_rows_give_the_same_bytes_however_they_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], group_bytes: int
) -> None:
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", group_bytes)
    layout = replace(LAYOUT, width=384)
    rows = make_rows(3000, width=384)
    whole = write(tmp_path / "whole.parquet", layout, rows)
    portioned = write(tmp_path / "portioned.parquet", layout, rows, sizes)
    same = portioned.read_bytes() == whole.read_bytes()
    assert same, "the bytes differ"


def _groups(path: Path) -> list[Any]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(i) for i in range(metadata.num_row_groups)]


def test_row_groups_are_cut_by_the_bytes_of_the_vectors(tmp_path: Path) -> None:
    width = 16_384
    layout = replace(LAYOUT, width=width, text=False)
    path = write(tmp_path / "f.parquet", layout, make_rows(1200, width=width), [100] * 12)
    counts = [group.num_rows for group in _groups(path)]
    assert counts[0] == counts[1] == pytest.approx(GROUP_BYTES / (4 * width), rel=0.01)
    assert sum(counts) == 1200


def test_row_groups_are_cut_by_the_bytes_of_the_texts(tmp_path: Path) -> None:
    rows = replace(make_rows(100), texts=["é" * (1 << 19)] * 100)
    path = write(tmp_path / "f.parquet", LAYOUT, rows)
    assert [group.num_rows for group in _groups(path)] == [16] * 6 + [4]
    assert pq.read_table(path)["text"].to_pylist() == rows.texts


def test_a_text_larger_than_a_row_group_is_a_row_group_of_its_own(tmp_path: Path) -> None:
    rows = replace(make_rows(3), texts=["a", "x" * (GROUP_BYTES + 1), "b"])
    path = write(tmp_path / "f.parquet", LAYOUT, rows)
    assert [group.num_rows for group in _groups(path)] == [2, 1]
    assert pq.read_table(path)["text"].to_pylist() == rows.texts


def test_short_rows_fill_one_row_group(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", LAYOUT, make_rows(20_000), [1000] * 20)
    assert len(_groups(path)) == 1


def test_vectors_carry_neither_statistics_nor_a_dictionary(tmp_path: Path) -> None:
    (group,) = _groups(write(tmp_path / "f.parquet", LAYOUT, make_rows(100)))
    columns = [group.column(i) for i in range(group.num_columns)]
    (vectors,) = (c for c in columns if c.path_in_schema.startswith("embedding"))
    assert vectors.statistics is None
    assert not vectors.has_dictionary_page
    assert not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(vectors.encodings)


def test_row_numbers_carry_statistics_that_let_a_reader_skip_row_groups(tmp_path: Path) -> None:
    (group,) = _groups(write(tmp_path / "f.parquet", LAYOUT, make_rows(100)))
    column = next(c for i in range(7) if (c := group.column(i)).path_in_schema == "id")
    assert (column.statistics.min, column.statistics.max) == (0, 99)


def _with_pyarrow(paths: list[Path]) -> npt.NDArray[Any]:
    column = ds.dataset([str(path) for path in paths]).to_table()["embedding"]
    return np.array(column.to_pylist(), dtype=np.float64).reshape(-1, 8)


def _with_pandas(paths: list[Path]) -> npt.NDArray[Any]:
    frame = pd.concat([pd.read_parquet(path) for path in paths])
    return np.array(frame["embedding"].tolist(), dtype=np.float64).reshape(-1, 8)


def _with_polars(paths: list[Path]) -> npt.NDArray[Any]:
    column = pl.read_parquet([str(path) for path in paths])["embedding"]
    assert isinstance(column.dtype, pl.Array)
    assert column.dtype.shape == (8,)
    return column.to_numpy().astype(np.float64)


def _with_duckdb(paths: list[Path]) -> npt.NDArray[Any]:
    files = ", ".join(f"'{path}'" for path in paths)
    query = f"SELECT embedding FROM read_parquet([{files}])"
    found = duckdb.connect().execute(query).fetchall()
    return np.array([row[0] for row in found], dtype=np.float64).reshape(-1, 8)


READERS = {
    "pyarrow": _with_pyarrow,
    "pandas": _with_pandas,
    "polars": _with_polars,
    "duckdb": _with_duckdb,
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [0, 1, 1000])
@pytest.mark.parametrize("reader", READERS)
def test_vectors_read_back_equal_in_every_reader(
    tmp_path: Path, reader: str, count: int, dtype: Dtype
) -> None:
    rows = make_rows(count, dtype=dtype)
    path = write(tmp_path / "f.parquet", replace(LAYOUT, dtype=dtype), rows)
    found = READERS[reader]([path])
    np.testing.assert_array_equal(found, rows.vectors["embedding"].astype(np.float64))


@pytest.mark.parametrize("reader", READERS)
def test_files_of_several_runs_read_as_one_dataset_an_empty_one_among_them(
    tmp_path: Path, reader: str
) -> None:
    counts = (10, 0, 3)
    paths = [write(tmp_path / f"{n}.parquet", LAYOUT, make_rows(n)) for n in counts]
    found = READERS[reader](paths)
    expected = np.concatenate([make_rows(n).vectors["embedding"] for n in counts])
    np.testing.assert_array_equal(found, expected.astype(np.float64))


def _texts_with_pandas(path: Path) -> list[str]:
    return pd.read_parquet(path)["text"].tolist()


def _texts_with_polars(path: Path) -> list[str]:
    return pl.read_parquet(path)["text"].to_list()


def _texts_with_duckdb(path: Path) -> list[str]:
    found = duckdb.connect().execute(f"SELECT text FROM '{path}'").fetchall()
    return [row[0] for row in found]


@pytest.mark.parametrize(
    "reader", [_texts_with_pandas, _texts_with_polars, _texts_with_duckdb], ids=lambda f: f.__name__
)
def test_texts_read_back_equal_in_every_reader(tmp_path: Path, reader: Any) -> None:
    rows = make_rows(30)
    assert reader(write(tmp_path / "f.parquet", LAYOUT, rows)) == rows.texts


def kept_file(folder: Path) -> Path:
    layout = replace(LAYOUT, extra=KEPT.schema)
    return write(folder / "f.parquet", layout, make_rows(3, extra=KEPT))


def test_kept_columns_read_back_with_their_types(tmp_path: Path) -> None:
    table = pq.read_table(kept_file(tmp_path)).select(KEPT.column_names)
    assert table.replace_schema_metadata().equals(KEPT)


def test_polars_reads_kept_columns_with_their_types(tmp_path: Path) -> None:
    frame = pl.read_parquet(kept_file(tmp_path)).select(KEPT.column_names)
    assert [frame[name].to_list() for name in ("int", "list", "struct")] == [
        KEPT["int"].to_pylist(),
        KEPT["list"].to_pylist(),
        KEPT["struct"].to_pylist(),
    ]
    assert frame["time"].dtype == pl.Datetime("us")
    assert frame["decimal"].to_list() == KEPT["decimal"].to_pylist()


def test_pandas_reads_kept_columns_with_their_types(tmp_path: Path) -> None:
    frame = pd.read_parquet(kept_file(tmp_path), dtype_backend="numpy_nullable")
    assert frame["int"].tolist() == [1, pd.NA, 2**62]
    assert frame["bool"].tolist() == [True, pd.NA, False]
    assert frame["time"].tolist()[0] == pd.Timestamp("2024-02-29 12:30")
    assert frame["list"].tolist()[0].tolist() == [1, 2]


def test_duckdb_reads_kept_columns_with_their_types(tmp_path: Path) -> None:
    names = ", ".join(f'"{name}"' for name in KEPT.column_names)
    query = f"SELECT {names} FROM '{kept_file(tmp_path)}'"
    found = duckdb.connect().execute(query).fetchall()
    expected = [tuple(row.values()) for row in KEPT.to_pylist()]
    assert found == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.decimal128(12, 2)], ids=str)
def test_an_id_column_takes_the_place_of_row_numbers(tmp_path: Path, kind: pa.DataType) -> None:
    extra = pa.table({"id": pa.array([7, None, 8], pa.int32()).cast(kind)})
    layout = replace(LAYOUT, extra=extra.schema)
    table = pq.read_table(write(tmp_path / "f.parquet", layout, make_rows(3, extra=extra)))
    assert table.schema.field("id").type == kind
    assert table["id"].to_pylist() == extra["id"].to_pylist()


@pytest.mark.parametrize("sizes", [[1, 1, 1], [3], [2, 1]], ids=str)
def test_kept_columns_give_the_same_bytes_however_they_arrive(
    tmp_path: Path, sizes: list[int]
) -> None:
    layout = replace(LAYOUT, extra=KEPT.schema)
    whole = kept_file(tmp_path).read_bytes()
    path = write(tmp_path / "p.parquet", layout, make_rows(3, extra=KEPT), sizes)
    assert path.read_bytes() == whole


def test_second_texts_are_a_column(tmp_path: Path) -> None:
    rows = make_rows(3)
    path = write(tmp_path / "f.parquet", replace(LAYOUT, pair=True), rows)
    assert pq.read_table(path)["pair"].to_pylist() == rows.pairs
