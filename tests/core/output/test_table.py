from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bertpool.output.rows import EmbeddedRows
from bertpool.output.table import (
    GROUP_BYTES,
    Groups,
    StoredRows,
    build_table,
    is_vector,
    output_schema,
    row_bytes,
    times_as_text,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import KEPT, LAYOUT, make_rows, portions


def vector_type(width: int, element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable=False), width)


def grouped(rows: EmbeddedRows, sizes: Sequence[int] | None = None) -> list[pa.Table]:
    schema = output_schema(LAYOUT)
    groups = Groups(schema)
    found = [group for some in portions(rows, sizes) for group in groups.add(some.table(schema))]
    return [*found, *groups.rest()]


def test_a_schema_depends_on_the_layout_alone() -> None:
    assert output_schema(LAYOUT).equals(output_schema(replace(LAYOUT)), check_metadata=True)
    assert output_schema(LAYOUT) != output_schema(replace(LAYOUT, width=9))


def test_provenance_is_the_schemas_metadata_under_the_key_bertpool() -> None:
    assert output_schema(LAYOUT, "{}").metadata == {b"bertpool": b"{}"}
    assert output_schema(LAYOUT).metadata is None


def test_kept_columns_stand_between_identity_and_text() -> None:
    schema = output_schema(replace(LAYOUT, extra=KEPT.schema, pair=True))
    own = ["n_tokens", "truncated", "embedding"]
    assert schema.names == ["id", "source", "line", *KEPT.column_names, "text", "pair", *own]


def test_a_kept_column_has_the_type_that_it_came_with() -> None:
    schema = output_schema(replace(LAYOUT, extra=KEPT.schema))
    assert [schema.field(name) for name in KEPT.column_names] == list(KEPT.schema)


def test_an_id_column_stands_first_with_its_own_type() -> None:
    extra = pa.schema([("int", pa.int64()), ("id", pa.string())])
    schema = output_schema(replace(LAYOUT, extra=extra))
    assert schema.names[0] == "id"
    assert schema.field("id").type == pa.string()
    assert schema.names.count("id") == 1


def test_without_texts_there_are_no_second_texts_either() -> None:
    assert "pair" in output_schema(replace(LAYOUT, pair=True)).names
    assert "pair" not in output_schema(replace(LAYOUT, pair=True, text=False)).names


def test_a_table_of_rows_holds_an_id_and_kept_columns_from_the_input() -> None:
    extra = KEPT.append_column("id", pa.array(["x", "y", "z"]))
    schema = output_schema(replace(LAYOUT, extra=extra.schema))
    table = build_table(make_rows(3, extra=extra), schema)
    assert table["id"].to_pylist() == ["x", "y", "z"]
    assert table.select(KEPT.column_names).equals(KEPT)


def test_vectors_are_not_copied() -> None:
    rows = make_rows(3)
    column = build_table(rows, output_schema(LAYOUT))["embedding"].chunk(0)
    assert column.values.buffers()[1].address == rows.vectors["embedding"].ctypes.data


def test_stored_rows_give_back_vectors_and_table() -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"), extra=KEPT.schema)
    schema = output_schema(layout)
    rows = make_rows(3, columns=layout.columns, extra=KEPT)
    table = rows.table(schema)
    stored = StoredRows(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    assert len(stored) == 3
    assert stored.table(output_schema(layout, "{}")).equals(table)
    for name in layout.columns:
        np.testing.assert_array_equal(stored.vectors[name], rows.vectors[name])


def test_stored_rows_drop_columns_that_are_not_asked_for() -> None:
    stored = StoredRows(make_rows(3).table(output_schema(LAYOUT)))
    without = output_schema(replace(LAYOUT, text=False))
    assert stored.table(without).column_names == without.names


def test_a_slice_of_stored_rows_has_the_vectors_of_the_slice() -> None:
    rows = make_rows(10)
    table = rows.table(output_schema(LAYOUT)).slice(3, 4)
    np.testing.assert_array_equal(
        StoredRows(table).vectors["embedding"], rows.vectors["embedding"][3:7]
    )


@pytest.mark.parametrize(
    ("kind", "nullable", "expected"),
    [
        (vector_type(8, pa.float32()), False, True),
        (vector_type(8, pa.float16()), False, True),
        (vector_type(8, pa.float32()), True, False),
        (vector_type(8, pa.int32()), False, False),
        (pa.list_(pa.float32()), False, False),
        (pa.float32(), False, False),
    ],
    ids=str,
)
def test_vectors_are_told_from_what_the_input_holds(
    kind: pa.DataType, nullable: bool, expected: bool
) -> None:
    assert is_vector(pa.field("x", kind, nullable=nullable)) is expected


@pytest.mark.parametrize("size", [1, 500, 10_000])
def test_the_groups_hold_all_rows_in_order(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", size)
    rows = make_rows(300)
    joined = pa.concat_tables(grouped(rows))
    assert joined.equals(rows.table(output_schema(LAYOUT)))


def test_a_group_ends_with_the_row_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = replace(make_rows(5), texts=["x" * 100] * 5)
    (size,) = set(row_bytes(replace(rows, sources=["a"] * 5).table(output_schema(LAYOUT))))
    rows = replace(rows, sources=["a"] * 5)
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 2 * size)
    assert [len(group) for group in grouped(rows)] == [2, 2, 1]
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 2 * size + 1)
    assert [len(group) for group in grouped(rows)] == [3, 2]


def test_rows_that_fill_the_last_group_leave_no_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 1)
    assert [len(group) for group in grouped(make_rows(4))] == [1, 1, 1, 1]


def test_no_rows_make_no_group() -> None:
    assert grouped(make_rows(0)) == []


def test_a_group_is_in_one_piece_however_its_rows_arrive() -> None:
    (group,) = grouped(make_rows(30), [1] * 30)
    assert {column.num_chunks for column in group.columns} == {1}


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 400), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    size=st.integers(1, 2000),
)
def test_where_groups_end_depends_on_the_rows_alone(
    lengths: list[int], cuts: list[int], size: int
) -> None:
    count = len(lengths)
    rows = replace(make_rows(count), texts=["x" * length for length in lengths])
    ends = sorted({0, count, *(cut for cut in cuts if cut <= count)})
    sizes = np.diff(ends).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertpool.output.table.GROUP_BYTES", size)
        whole, portioned = grouped(rows), grouped(rows, sizes)
    assert [len(group) for group in portioned] == [len(group) for group in whole]
    assert sum(len(group) for group in whole) == count


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str
)
def test_the_bytes_of_a_value_of_any_length_count(kind: pa.DataType) -> None:
    value = "x" * 1000 if "string" in str(kind) else b"x" * 1000
    short, long, null = row_bytes(pa.table({"a": pa.array([value[:0], value, None], kind)}))
    assert long - short == 1000
    assert null == short


def test_large_kept_values_fill_groups() -> None:
    extra = pa.table({"image": pa.array([b"x" * (GROUP_BYTES // 4)] * 8)})
    layout = replace(LAYOUT, extra=extra.schema)
    schema = output_schema(layout)
    groups = Groups(schema)
    found = list(groups.add(make_rows(8, extra=extra).table(schema)))
    assert [len(group) for group in found] == [4, 4]


UTC = datetime.timezone.utc
MOMENT = datetime.datetime(2024, 2, 29, 12, 30)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([MOMENT, None], pa.timestamp("s"), ["2024-02-29 12:30:00", None]),
        ([MOMENT], pa.timestamp("us"), ["2024-02-29 12:30:00.000000"]),
        ([10**18 + 1], pa.timestamp("ns"), ["2001-09-09 01:46:40.000000001"]),
        ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("s", "UTC"), ["2024-02-29 12:30:00Z"]),
        ([10**7], pa.date32(), ["29349-01-26"]),
        ([1], pa.time64("ns"), ["00:00:00.000000001"]),
        ([1500], pa.duration("ms"), [1500]),
        ([[1, None]], pa.list_(pa.duration("ns")), [[1, None]]),
        ([[MOMENT]], pa.large_list(pa.timestamp("s")), [["2024-02-29 12:30:00"]]),
        ([[0, 0]], pa.list_(pa.date32(), 2), [["1970-01-01", "1970-01-01"]]),
        ([{"a": 0, "b": 7}], pa.struct([("a", pa.date32()), ("b", pa.int8())]),
         [{"a": "1970-01-01", "b": 7}]),
        ([[("k", 0)]], pa.map_(pa.string(), pa.date32()), [[("k", "1970-01-01")]]),
        (["x", None], pa.string(), ["x", None]),
        ([[0.5], None], pa.list_(pa.float32()), [[0.5], None]),
    ],
    ids=str,
)  # fmt: skip
def test_times_become_texts_wherever_they_stand(
    values: list[Any], kind: pa.DataType, expected: list[Any]
) -> None:
    table = pa.table({"x": pa.array(values, kind)})
    assert times_as_text(table)["x"].to_pylist() == expected
