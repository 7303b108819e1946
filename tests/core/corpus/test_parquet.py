from __future__ import annotations

import datetime
import decimal
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.corpus import Corpus, CorpusOptions, Window
from bertpool.corpus import parquet as parquet_module
from bertpool.errors import CorpusError

Read = Any


def write(path: Path, table: pa.Table | dict[str, Any], **options: Any) -> Path:
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return path


def windows_of(*paths: Path, **options: Any) -> list[Window]:
    return list(Corpus([str(path) for path in paths], CorpusOptions(**options)).windows())


def texts_of(*paths: Path, **options: Any) -> list[str]:
    return [text for window in windows_of(*paths, **options) for text in window.texts]


def extra_of(*paths: Path, **options: Any) -> pa.Table:
    tables = [window.extra for window in windows_of(*paths, **options)]
    return pa.concat_tables([table for table in tables if table is not None])


def usage_error(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        windows_of(path, **options)
    assert caught.value.exit_code == 2
    return str(caught.value)


TEXTS = ["hello", "", "é\0\n", "hello"]
TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_of_string_is_text(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array(TEXTS).cast(kind) if not pa.types.is_dictionary(kind) else None
    if column is None:
        column = pa.array(TEXTS, kind.value_type).dictionary_encode().cast(kind)
    assert texts_of(write(tmp_path / "a.parquet", {"text": column})) == TEXTS


def test_rows_count_over_batches_and_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_module, "BATCH_ROWS", 7)
    texts = list(map(str, range(100)))
    path = write(tmp_path / "a.parquet", {"text": texts, "n": range(100)}, row_group_size=30)
    (window,) = windows_of(path, keep=("n",))
    assert window.texts == texts
    assert window.lines == list(range(1, 101))
    assert window.extra is not None
    assert window.extra.column("n").to_pylist() == list(range(100))


KEPT = pa.table(
    {
        "text": ["a", "b", "c"],
        "time": pa.array([1, None, 3], pa.timestamp("ns", "UTC")),
        "price": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("2.00")]),
        "day": pa.array([datetime.date(2024, 2, 29), None, None]),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        "place": pa.array([{"a": 1, "b": None}, None, {"a": 2, "b": "x"}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        "small": pa.array([1, 2, 3], pa.uint8()),
        "bytes": pa.array([b"\xff", None, b""]),
        "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
    }
)


def test_kept_columns_have_the_types_and_values_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", KEPT)
    keep = tuple(name for name in KEPT.column_names if name != "text")
    table = extra_of(path, keep=keep, id_column="small")
    assert table.schema.field("id").type == pa.uint8()
    expected = pq.read_table(path)
    assert table.select(keep).to_pylist() == expected.select(keep).to_pylist()
    assert table.select(keep).schema.types == expected.select(keep).schema.types


def test_kept_values_stay_beside_their_texts_where_rows_are_left_out(tmp_path: Path) -> None:
    table = {"text": ["a", " ", "b", None, "c", "d"], "n": range(6)}
    path = write(tmp_path / "a.parquet", table)
    kept = extra_of(path, keep=("n",), blank="skip", on_error="reject")
    assert kept.column("n").to_pylist() == [0, 2, 4, 5]


@pytest.mark.parametrize("column", ["text", "pair", "doc"])
def test_a_null_where_a_value_must_be_is_an_error_of_its_row(tmp_path: Path, column: str) -> None:
    table = {"text": ["a", "b"], "pair": ["c", "d"], "doc": ["e", "f"]}
    table[column][1] = None  # type: ignore[call-overload]
    path = write(tmp_path / "a.parquet", table)
    options = {"pair_column": "pair", "id_column": "doc"}
    with pytest.raises(CorpusError, match=rf'a\.parquet:2: column "{column}" is null'):
        windows_of(path, **options)
    (window,) = windows_of(path, on_error="reject", **options)
    assert window.texts == ["a"]
    assert window.pairs == ["c"]
    assert [(reject.row, reject.line) for reject in window.rejects] == [(1, 2)]


def test_a_string_that_is_not_utf8_is_an_error_of_its_row(tmp_path: Path) -> None:
    column = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    path = write(tmp_path / "a.parquet", {"text": column})
    (window,) = windows_of(path, on_error="reject")
    assert window.texts == ["a", "c"]
    assert [(r.row, r.reason, r.data) for r in window.rejects] == [
        (1, 'column "text" is not UTF-8', b"\xff")
    ]


def test_a_column_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": ["x"], "b": [1]})
    assert usage_error(path).startswith(f'{path}: no column "text"; there are: "a", "b"; ')


@pytest.mark.parametrize("values", [[1], [b"x"], [["x"]]])
def test_a_text_column_of_another_type_is_a_usage_error(
    tmp_path: Path, values: list[object]
) -> None:
    path = write(tmp_path / "a.parquet", {"text": values})
    assert "not string" in usage_error(path)


def test_a_column_named_like_another_is_a_usage_error(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
    assert "2 columns are named" in usage_error(write(tmp_path / "a.parquet", table))


def test_files_whose_kept_columns_have_different_types_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "1.parquet", {"text": ["a"], "n": [1]})
    two = write(tmp_path / "2.parquet", {"text": ["a"], "n": [0.5]})
    with pytest.raises(CorpusError, match=r'2\.parquet: column "n" is double, and int64'):
        windows_of(one, two, keep=("n",))
    assert texts_of(one, two) == ["a", "a"]


def test_an_empty_file_has_the_types_of_its_columns(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array([], pa.string()), "n": pa.array([], pa.int8())})
    one = Corpus([str(write(tmp_path / "a.parquet", table))], CorpusOptions(keep=("n",)))
    assert list(one.windows()) == []
    assert one.extra_schema() == pa.schema([("n", pa.int8())])
    assert len(one.identities) == 1


@pytest.mark.parametrize("cut", [4, 100, -1], ids=["head", "middle", "last"])
def test_a_broken_file_is_an_error_of_one_line(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a.parquet", {"text": ["hello"] * 100})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorpusError, match=r"a\.parquet: can't be read as Parquet") as caught:
        windows_of(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_page_is_an_error_of_one_line(tmp_path: Path) -> None:
    texts = list(map(str, range(10_000)))
    path = write(tmp_path / "a.parquet", {"text": texts}, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[200:4000] = bytes(3800)
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"can't be read as Parquet") as caught:
        windows_of(path)
    assert "\n" not in str(caught.value)


def test_the_bytes_are_hashed_and_counted_whole(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(40_000)]
    path = write(tmp_path / "a.parquet", {"text": texts}, row_group_size=5000)
    one = Corpus([str(path)], CorpusOptions())
    read = [window.bytes_read for window in one.windows()]
    assert read == sorted(read)
    assert 0 < read[0] < read[-1] == one.size
    assert one.identities[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_pipe_of_parquet_is_read_whole(tmp_path: Path) -> None:
    content = write(tmp_path / "a.parquet", {"text": TEXTS}).read_bytes()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    one = Corpus([str(tmp_path / "pipe")], CorpusOptions(input_format="parquet"))
    (window,) = one.windows()
    writer.join()
    assert window.texts == TEXTS
    assert one.identities[0].sha256 == hashlib.sha256(content).hexdigest()
