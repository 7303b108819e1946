from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.errors import OutputError
from bertpool.output.destination import find_destination
from bertpool.output.rows import Layout
from bertpool.output.stream import StdoutOutput
from bertpool.output.table import output_schema
from faults import files_limited_to
from rows import FORMATS, SETTINGS, make_rows, portions

LAYOUT = Layout(("embedding",), 8, "float32", text=True, source=False, line=False)


def opened(name: Any) -> StdoutOutput:
    destination = find_destination("-", [], columns=LAYOUT.columns, output_format=name)
    output = StdoutOutput(destination, lambda: '{"rows": null}')
    assert output.open(resume=False, force=False) is False
    return output


def send(name: str, *, sizes: list[int] | None = None, count: int = 30) -> None:
    """Write rows to stdout, a window for each of the given sizes."""
    output = opened(name)
    windows = list(portions(make_rows(count), sizes)) if count else []
    for index, rows in enumerate(windows):
        output.add(index, rows, LAYOUT, "", {}, last=False)
    output.finish(len(windows), LAYOUT, "{}", None)
    output.remove()


def read(name: str, data: bytes) -> Any:
    """Read vectors back."""
    if name == "npy":
        return np.load(io.BytesIO(data), allow_pickle=False)
    if name == "jsonl":
        rows = [json.loads(line)["embedding"] for line in data.decode().splitlines()]
        return np.array(rows, np.float32).reshape(-1, 8)
    if name == "arrow":
        table = pa.ipc.open_stream(data).read_all()
    else:
        table = pq.read_table(io.BytesIO(data))
    return np.array(table["embedding"].to_pylist(), np.float32).reshape(-1, 8)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("count", [0, 1, 30])
def test_every_format_goes_to_stdout(
    capfdbinary: pytest.CaptureFixture[bytes], name: str, count: int
) -> None:
    send(name, count=count)
    found = read(name, capfdbinary.readouterr().out)
    np.testing.assert_array_equal(found, make_rows(count).vectors["embedding"])


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_do_not_depend_on_the_windows(
    capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    send(name)
    whole = capfdbinary.readouterr().out
    send(name, sizes=[1, 20, 9])
    assert capfdbinary.readouterr().out == whole


@pytest.mark.parametrize("name", FORMATS)
def test_a_pipe_takes_the_bytes_that_a_redirected_file_takes(
    capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    send(name)
    to_file = capfdbinary.readouterr().out
    end, start = os.pipe()
    before = os.dup(1)
    os.dup2(start, 1)
    os.close(start)
    try:
        send(name)
    finally:
        os.dup2(before, 1)
        os.close(before)
    with os.fdopen(end, "rb") as pipe:
        assert pipe.read() == to_file


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_provenance_goes_along_where_the_format_holds_it(
    capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    send(name)
    data = capfdbinary.readouterr().out
    if name == "arrow":
        schema = pa.ipc.open_stream(data).schema
    else:
        schema = pq.read_schema(io.BytesIO(data))
    assert schema == output_schema(LAYOUT)
    assert schema.metadata[b"bertpool"] == b'{"rows": null}'


def test_json_lines_come_window_by_window(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output = opened("jsonl")
    for index, rows in enumerate(portions(make_rows(30), [10, 20])):
        output.add(index, rows, LAYOUT, "", {}, last=False)
        assert len(read("jsonl", capfdbinary.readouterr().out)) == len(rows)
    output.finish(2, LAYOUT, "{}", None)
    output.remove()
    assert capfdbinary.readouterr().out == b""


def test_what_cannot_stream_comes_only_when_it_is_whole(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    output = opened("npy")
    output.add(0, make_rows(30), LAYOUT, "", {}, last=False)
    output.keep()
    assert capfdbinary.readouterr().out == b""


def test_the_callers_stdout_stays_open(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    send("jsonl", count=0)
    os.write(1, b"more")
    assert capfdbinary.readouterr().out == b"more"


@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_that_is_gone_is_an_error_of_one_line(name: str) -> None:
    end, start = os.pipe()
    os.close(end)
    before = os.dup(1)
    os.dup2(start, 1)
    os.close(start)
    output = opened(name)
    try:
        with pytest.raises(OutputError) as caught:
            _add_and_finish(output)
    finally:
        os.dup2(before, 1)
        os.close(before)
        output.keep()
    assert str(caught.value) == "stdout: Broken pipe"
    assert isinstance(caught.value.__cause__, BrokenPipeError)


def _add_and_finish(output: StdoutOutput) -> None:
    output.add(0, make_rows(30), LAYOUT, "", {}, last=False)
    output.finish(1, LAYOUT, "{}", None)


def test_a_full_disk_is_an_error_of_one_line(tmp_path: Path) -> None:
    before = os.dup(1)
    with (tmp_path / "out").open("wb") as file:
        os.dup2(file.fileno(), 1)
    output = opened("jsonl")
    try:
        with files_limited_to(100), pytest.raises(OutputError, match="stdout: File too large"):
            output.add(0, make_rows(30), LAYOUT, "", {}, last=False)
    finally:
        os.dup2(before, 1)
        os.close(before)
        output.keep()


def test_nothing_is_kept_and_nothing_found() -> None:
    output = opened("jsonl")
    output.check(SETTINGS)
    assert output.find(0, "") is None
    assert not output.keeps_parts
    output.keep()
    output.keep()
