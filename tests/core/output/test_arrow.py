from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from bertpool.output.arrow import ArrowWriter
from bertpool.output.rows import EmbeddedRows, Layout
from bertpool.output.table import output_schema
from rows import KEPT, LAYOUT, make_rows, write_rows


def write(
    path: Path, layout: Layout, rows: EmbeddedRows, sizes: Sequence[int] | None = None
) -> Path:
    return write_rows(path, ArrowWriter, layout, rows, sizes)


def read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


class Pipe(io.BytesIO):
    """A stream that can't seek."""

    def seekable(self) -> bool:
        return False


def test_every_column_reads_back_as_it_was_written(tmp_path: Path) -> None:
    layout = replace(LAYOUT, pair=True, columns=("mean", "cls"))
    rows = make_rows(100, columns=layout.columns)
    table = read(write(tmp_path / "f.arrow", layout, rows))
    assert table.equals(rows.table(output_schema(layout)))
    table.validate(full=True)


def test_provenance_is_the_schemas_metadata_under_the_key_bertpool(tmp_path: Path) -> None:
    metadata = read(write(tmp_path / "f.arrow", LAYOUT, make_rows(3))).schema.metadata
    assert json.loads(metadata[b"bertpool"]) == {"rows": 1}


def test_an_empty_file_has_the_schema_of_a_full_one(tmp_path: Path) -> None:
    empty = read(write(tmp_path / "empty.arrow", LAYOUT, make_rows(0)))
    full = read(write(tmp_path / "full.arrow", LAYOUT, make_rows(3)))
    assert len(empty) == 0
    assert empty.schema.equals(full.schema, check_metadata=True)


def test_float16_reads_back_equal(tmp_path: Path) -> None:
    layout, rows = replace(LAYOUT, dtype="float16"), make_rows(100, dtype="float16")
    column = read(write(tmp_path / "f.arrow", layout, rows))["embedding"].combine_chunks()
    assert column.type.value_type == pa.float16()
    found = column.values.to_numpy().reshape(-1, 8)
    np.testing.assert_array_equal(found, rows.vectors["embedding"])


@pytest.mark.parametrize("group_bytes", [32 << 20, 50_000, 1])
@pytest.mark.parametrize("sizes", [[1] * 300, [0, 7, 293], [299, 1]], ids=["ones", "uneven", "1"])
def test_the_same_rows_give_the_same_bytes_however_they_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], group_bytes: int
) -> None:
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", group_bytes)
    rows = make_rows(300, extra=pa.concat_tables([KEPT] * 100))
    layout = replace(LAYOUT, extra=KEPT.schema)
    whole = write(tmp_path / "whole.arrow", layout, rows).read_bytes()
    same = write(tmp_path / "portioned.arrow", layout, rows, sizes).read_bytes() == whole
    assert same, "the bytes differ"


@pytest.mark.parametrize("sizes", [None, [100] * 3, [1] * 300], ids=["whole", "thirds", "ones"])
def test_batches_are_cut_by_the_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int] | None
) -> None:
    rows = replace(make_rows(300), texts=["x" * 100] * 300, sources=["a"] * 300)
    # 4 bytes of n_tokens count as 8; so does a bool.
    row = 32 + 3 * 8 + 8 + 1 + 100 + 8 * 4
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 120 * row)
    path = write(tmp_path / "f.arrow", LAYOUT, rows, sizes)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        counts = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    assert counts == [120, 120, 60]


def test_kept_columns_read_back_with_their_types(tmp_path: Path) -> None:
    layout = replace(LAYOUT, extra=KEPT.schema)
    table = read(write(tmp_path / "f.arrow", layout, make_rows(3, extra=KEPT)))
    assert table.select(KEPT.column_names).replace_schema_metadata().equals(KEPT)


def test_kept_categories_may_differ_from_batch_to_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 1)
    pieces = [pa.table({"c": pa.array(values).dictionary_encode()}) for values in (["a"], ["b"])]
    layout = replace(LAYOUT, extra=pieces[0].schema)
    rows = make_rows(2, extra=pa.concat_tables(pieces))
    table = read(write(tmp_path / "f.arrow", layout, rows, [1, 1]))
    assert table["c"].to_pylist() == ["a", "b"]


def test_polars_reads_vectors_and_kept_columns(tmp_path: Path) -> None:
    layout, rows = replace(LAYOUT, extra=KEPT.schema), make_rows(3, extra=KEPT)
    frame = pl.read_ipc(write(tmp_path / "f.arrow", layout, rows))
    np.testing.assert_array_equal(frame["embedding"].to_numpy(), rows.vectors["embedding"])
    assert frame["int"].to_list() == KEPT["int"].to_pylist()
    assert frame["struct"].dtype == pl.Struct({"a": pl.Int64, "b": pl.String})


def test_pandas_reads_vectors_and_kept_columns(tmp_path: Path) -> None:
    layout, rows = replace(LAYOUT, extra=KEPT.schema), make_rows(3, extra=KEPT)
    frame = pd.read_feather(write(tmp_path / "f.arrow", layout, rows))
    np.testing.assert_array_equal(np.stack(frame["embedding"].tolist()), rows.vectors["embedding"])
    assert frame["string"].isna().tolist() == [False, True, False]
    assert frame["time"].tolist()[0] == pd.Timestamp("2024-02-29 12:30")


def test_duckdb_reads_vectors_and_kept_columns(tmp_path: Path) -> None:
    layout, rows = replace(LAYOUT, extra=KEPT.schema), make_rows(3, extra=KEPT)
    connection = duckdb.connect()
    connection.register("f", read(write(tmp_path / "f.arrow", layout, rows)))
    found = connection.execute('SELECT embedding, "int", struct FROM f').fetchall()
    np.testing.assert_array_equal([row[0] for row in found], rows.vectors["embedding"])
    assert [row[1] for row in found] == KEPT["int"].to_pylist()
    assert [row[2] for row in found] == KEPT["struct"].to_pylist()


def test_what_cannot_seek_gets_a_stream_with_the_same_rows() -> None:
    pipe, rows = Pipe(), make_rows(3)
    writer = ArrowWriter(pipe, LAYOUT, '{"rows": 1}')
    writer.write(rows)
    writer.close()
    table = pa.ipc.open_stream(pipe.getvalue()).read_all()
    assert table.equals(rows.table(output_schema(LAYOUT)))
    assert table.schema.metadata == {b"bertpool": b'{"rows": 1}'}


def test_a_writer_lets_go_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    stream = (tmp_path / "f.arrow").open("wb")
    writer = ArrowWriter(stream, LAYOUT, "{}")
    stream.close()
    writer.abort()
