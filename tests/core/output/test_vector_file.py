from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.errors import OutputError
from bertpool.output.destination import find_destination
from bertpool.output.finished import write_output
from bertpool.output.provenance import provenance_json
from bertpool.output.rows import EmbeddedRows, Layout
from bertpool.output.table import output_schema
from bertpool.output.vector_file import open_vectors, read_provenance
from rows import KEPT, LAYOUT, SETTINGS, make_rows

READ_BACK = ["parquet", "npy", "arrow"]


def write(path: Path, rows: EmbeddedRows, layout: Layout = LAYOUT) -> Path:
    destination = find_destination(str(path), [], columns=layout.columns)
    write_output(destination, layout, provenance_json(SETTINGS, [], len(rows)), [rows])
    return path


def refusal(path: Path) -> str:
    with pytest.raises(OutputError) as caught:
        list(open_vectors(path).batches())
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path)) or ".npy.json" in message
    return message


def vectors_of(path: Path, column: str = "embedding") -> Any:
    found = [rows.vectors[column] for rows in open_vectors(path).stored_rows()]
    return np.concatenate(found) if found else np.zeros((0, 8), np.float32)


@pytest.mark.parametrize("name", READ_BACK)
def test_every_format_reads_back(tmp_path: Path, name: str) -> None:
    rows = make_rows(100)
    path = write(tmp_path / f"v.{name}", rows)
    file = open_vectors(path)
    assert file.format_name == name
    assert file.columns == ("embedding",)
    assert file.rows == 100
    assert file.provenance["fingerprint"] == SETTINGS.fingerprint()
    np.testing.assert_array_equal(vectors_of(path), rows.vectors["embedding"])


@pytest.mark.parametrize("name", READ_BACK)
def test_an_empty_file_reads_back(tmp_path: Path, name: str) -> None:
    file = open_vectors(write(tmp_path / f"v.{name}", make_rows(0)))
    assert file.rows == 0
    assert file.schema.field("embedding").type.list_size == 8
    assert sum(len(table) for table in file.batches()) == 0


@pytest.mark.parametrize("name", READ_BACK)
def test_float16_reads_back(tmp_path: Path, name: str) -> None:
    rows = make_rows(10, dtype="float16")
    path = write(tmp_path / f"v.{name}", rows, replace(LAYOUT, dtype="float16"))
    found = vectors_of(path)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, rows.vectors["embedding"])


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_every_column_reads_back(tmp_path: Path, name: str) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"), extra=KEPT.schema)
    rows = make_rows(3, columns=layout.columns, extra=KEPT)
    file = open_vectors(write(tmp_path / f"v.{name}", rows, layout))
    assert file.columns == ("mean", "cls")
    schema = output_schema(layout)
    (table,) = file.batches()
    assert table.replace_schema_metadata().equals(rows.table(schema))


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_only_the_named_columns_are_read(tmp_path: Path, name: str) -> None:
    file = open_vectors(write(tmp_path / f"v.{name}", make_rows(3)))
    (table,) = file.batches(["text", "id"])
    assert table.column_names == ["text", "id"]


@pytest.mark.parametrize("name", READ_BACK)
def test_rows_come_in_bounded_pieces_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 2000)
    monkeypatch.setattr("bertpool.output.vector_file.BATCH_ROWS", 30)
    rows = make_rows(100)
    path = write(tmp_path / f"v.{name}", rows)
    assert len(list(open_vectors(path).batches())) > 3
    np.testing.assert_array_equal(vectors_of(path), rows.vectors["embedding"])


def test_a_file_of_one_of_several_columns_reads_back(tmp_path: Path) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"))
    rows = make_rows(10, columns=layout.columns)
    write(tmp_path / "v.npy", rows, layout)
    for name in layout.columns:
        path = tmp_path / f"v.{name}.npy"
        np.testing.assert_array_equal(vectors_of(path), rows.vectors[name])
        assert open_vectors(path).provenance["column"] == name


def test_json_lines_are_not_read_back(tmp_path: Path) -> None:
    path = write(tmp_path / "v.jsonl", make_rows(3))
    assert "use .parquet" in refusal(path)


def test_the_provenance_of_json_lines_is_read_from_the_sidecar(tmp_path: Path) -> None:
    path = write(tmp_path / "v.jsonl", make_rows(3))
    assert read_provenance(path)["rows"] == 3


@pytest.mark.parametrize("name", ["v", "v.txt", "v.npz", "v.parquet.gz"])
def test_an_unknown_suffix_is_refused_and_the_known_ones_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert ".parquet, .npy, .arrow" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", READ_BACK)
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    assert "o such file" in refusal(tmp_path / f"v.{name}")


@pytest.mark.parametrize("name", READ_BACK)
def test_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"v.{name}").mkdir()
    assert "directory" in refusal(tmp_path / f"v.{name}")


@pytest.mark.parametrize(
    "data", [b"", b"x", b"PK\x05\x06" + bytes(18), b"\x93NUMPY", b"hello\n" * 100], ids=repr
)
@pytest.mark.parametrize("name", READ_BACK)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / f"v.{name}"
    path.write_bytes(data)
    assert "can't be read" in refusal(path)


def test_an_archive_of_arrays_under_the_suffix_of_one_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", a=np.zeros(3))
    (tmp_path / "v.npz").rename(tmp_path / "v.npy")
    assert "not an .npy file" in refusal(tmp_path / "v.npy")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("name", READ_BACK)
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, share: float) -> None:
    path = write(tmp_path / f"v.{name}", make_rows(100))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "can't be read" in refusal(path)


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "v.parquet", make_rows(100))
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(3)
    assert column.path_in_schema == "text"
    start, size = column.data_page_offset, column.total_compressed_size
    data[start : start + size] = b"\xff" * size
    path.write_bytes(data)
    assert "broken" in refusal(path)


@pytest.mark.parametrize(
    "array",
    [np.zeros(3, np.float32), np.zeros((3, 8), np.int32), np.array([{}]), np.zeros((2, 2, 2))],
    ids=["one axis", "integers", "objects", "three axes"],
)
def test_an_array_that_holds_no_vectors_is_refused(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "v.npy", array)
    assert "can't be read" in refusal(tmp_path / "v.npy")


def test_an_array_without_a_sidecar_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((3, 8), np.float32))
    refusal(tmp_path / "v.npy")


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"rows": 3}', "\udcff"])
def test_a_sidecar_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "v.npy", make_rows(3))
    sidecar = tmp_path / "v.npy.json"
    sidecar.write_bytes(text.encode("utf-8", "surrogateescape"))
    refusal(path)


@pytest.mark.parametrize("name", ["parquet", "arrow"])
@pytest.mark.parametrize("metadata", [None, {"other": "x"}, {"bertpool": "{}"}, {"bertpool": "x"}])
def test_a_table_that_another_program_wrote_is_refused(
    tmp_path: Path, name: str, metadata: dict[str, str] | None
) -> None:
    path = tmp_path / f"v.{name}"
    table = pa.table({"x": [1]}).replace_schema_metadata(metadata)
    if name == "parquet":
        pq.write_table(table, path)
    else:
        with path.open("wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)
    refusal(path)


def write_stream(path: Path, rows: EmbeddedRows) -> Path:
    """Write rows as stdout gets them under `--output-format arrow`."""
    schema = output_schema(LAYOUT, provenance_json(SETTINGS, None, None))
    with path.open("wb") as stream, pa.ipc.new_stream(stream, schema) as writer:
        for start in range(0, len(rows), 40):
            writer.write_table(rows.table(schema).slice(start, 40))
    return path


@pytest.mark.parametrize("name", ["v.arrow", "v.txt"])
def test_an_arrow_stream_reads_back(tmp_path: Path, name: str) -> None:
    rows = make_rows(100)
    path = write_stream(tmp_path / name, rows)
    file = open_vectors(path)
    assert (file.format_name, file.count_rows()) == ("arrow", 100)
    assert [len(table) for table in file.batches(["id"])] == [40, 40, 20]
    np.testing.assert_array_equal(vectors_of(path), rows.vectors["embedding"])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_arrow_stream_is_refused(tmp_path: Path, share: float) -> None:
    path = write_stream(tmp_path / "v.arrow", make_rows(100))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "can't be read: no Arrow file, nor a whole stream" in refusal(path)


def test_a_column_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    file = open_vectors(write(tmp_path / "v.arrow", make_rows(3)))
    with pytest.raises(OutputError, match="none"):
        list(file.batches(["none"]))


def test_provenance_is_read_without_the_rows(tmp_path: Path) -> None:
    for name in READ_BACK:
        path = write(tmp_path / f"v.{name}", make_rows(3))
        assert read_provenance(path) == json.loads(provenance_json(SETTINGS, [], 3))


def test_the_provenance_of_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no provenance"):
        read_provenance(tmp_path / "v.bin")
