"""Vectors on stdout: data and nothing else, whole rows or a quiet end."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vectors import read_vectors

Tiny = Callable[[str], Path]
Shell = Callable[..., subprocess.CompletedProcess[str]]

BERTPOOL = str(Path(sys.executable).with_name("bertpool"))
TEXTS = ["hello word", "", "the cat runs by the river", "dog"]


@pytest.fixture
def expected(bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path) -> npt.NDArray[Any]:
    """Write in.txt, and give the vectors of its texts."""
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    finished = bertpool(
        "embed", tmp_path / "in.txt", "-m", tiny("tiny-bert"), "-o", tmp_path / "expected.npy"
    )
    assert finished.code == 0
    return read_vectors(tmp_path / "expected.npy")


def on_stdout(tmp_path: Path, *arguments: object) -> bytes:
    """Return what a run in a process of its own writes to stdout."""
    command = [BERTPOOL, "embed", "in.txt", "-o", "-", *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    return done.stdout


READ: dict[str, Callable[[bytes], pa.Table]] = {
    "parquet": lambda content: pq.read_table(io.BytesIO(content)),
    "arrow": lambda content: pa.ipc.open_stream(content).read_all(),
}


def test_by_default_stdout_is_json_lines(
    tiny: Tiny, tmp_path: Path, expected: npt.NDArray[Any]
) -> None:
    lines = on_stdout(tmp_path, "-m", tiny("tiny-head")).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["parquet", "arrow", "npy"])
def test_other_formats_on_stdout_hold_the_same_vectors(
    tiny: Tiny, tmp_path: Path, expected: npt.NDArray[Any], name: str
) -> None:
    content = on_stdout(tmp_path, "-m", tiny("tiny-bert"), "--output-format", name)
    if name == "npy":
        vectors = np.load(io.BytesIO(content), allow_pickle=False)
    else:
        table = READ[name](content)
        assert table["text"].to_pylist() == TEXTS
        vectors = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    np.testing.assert_array_equal(vectors, expected)


def test_nothing_is_left_in_the_folder_by_a_run_to_stdout(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("hello\n")
    finished = bertpool("embed", "in.txt", "-m", tiny("tiny-bert"), "-o", "-")
    assert finished.code == 0
    assert len(finished.out.splitlines()) == 1
    assert "stdout: 1 row of 32 float32" in finished.err
    assert os.listdir() == ["in.txt"]


def test_rows_come_to_a_pipe_before_the_input_has_ended(tiny: Tiny, tmp_path: Path) -> None:
    command = [BERTPOOL, "embed", "-", "-m", str(tiny("tiny-bert")), "-o", "-", "-q"]
    with (
        subprocess.Popen(["yes", "hi"], stdout=subprocess.PIPE) as source,
        subprocess.Popen(command, stdin=source.stdout, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.kill()
        source.kill()
    assert first["text"] == "hi"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", ["jsonl", "arrow", "parquet"])
def test_a_reader_that_leaves_ends_the_run_with_141_and_without_a_word(
    shell: Shell, tiny: Tiny, tmp_path: Path, name: str, unbuffered: str
) -> None:
    (tmp_path / "in.txt").write_text("hello word\n" * 20_000)
    options = f"-m {tiny('tiny-bert')} -o - --output-format {name} -q"
    finished = shell(
        f"bertpool embed in.txt {options} | head -c 10 > head; echo ${{PIPESTATUS[0]}}",
        cwd=tmp_path,
        PYTHONUNBUFFERED=unbuffered,
    )
    assert finished.stdout == "141\n"
    assert finished.stderr == ""
    assert (tmp_path / "head").stat().st_size == 10
    assert sorted(os.listdir(tmp_path)) == ["head", "in.txt"]


def test_a_reader_that_leaves_an_endless_input_ends_the_run(
    shell: Shell, tiny: Tiny, tmp_path: Path
) -> None:
    finished = shell(
        f"yes hi | bertpool embed - -m {tiny('tiny-bert')} -o - | head -n 1 | wc -l; "
        "echo ${PIPESTATUS[1]}",
        cwd=tmp_path,
    )
    assert finished.stdout.split() == ["1", "141"]
    assert "Traceback" not in finished.stderr


def test_a_full_disk_behind_stdout_is_an_error_of_one_line(
    shell: Shell, tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("hello\n")
    finished = shell(
        f"bertpool embed in.txt -m {tiny('tiny-bert')} -o - -q > /dev/full", cwd=tmp_path
    )
    assert finished.returncode == 1
    assert finished.stderr == "error: stdout: No space left on device\n"


@pytest.mark.parametrize("name", ["npy", "parquet", "arrow"])
def test_binary_on_a_terminal_is_refused(tiny: Tiny, tmp_path: Path, name: str) -> None:
    (tmp_path / "in.txt").write_text("hello\n")
    screen, terminal = pty.openpty()
    command = [BERTPOOL, "embed", "in.txt", "-m", str(tiny("tiny-bert")), "-o", "-"]
    done = subprocess.run(
        [*command, "--output-format", name], cwd=tmp_path, stdout=terminal, check=False,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(terminal)
    os.close(screen)
    assert done.returncode == 2
    assert f"{name} is no text for a terminal" in done.stderr


def test_several_columns_of_npy_do_not_go_to_stdout(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("hello\n")
    command = ("embed", tmp_path / "in.txt", "-m", tiny("tiny-bert"), "-o", "-")
    finished = bertpool(*command, "--output-format", "npy", "-s", "cls,mean")
    assert finished.code == 2
    assert "cls, mean" in finished.err


def test_a_report_and_vectors_do_not_share_stdout(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("hello\n")
    command = ("embed", tmp_path / "in.txt", "-m", tiny("tiny-bert"), "-o", "-")
    finished = bertpool(*command, "--report", "-")
    assert (finished.code, finished.out) == (2, "")
    assert "stdout takes the vectors" in finished.err


def test_a_run_to_stdout_that_fails_keeps_nothing_and_names_nothing_to_resume(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 2)
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_bytes(b"hello\ncat\ndog\n\xff\n")
    finished = bertpool("embed", "in.txt", "-m", tiny("tiny-bert"), "-o", "-")
    assert finished.code == 1
    assert "in.txt:4: not UTF-8" in finished.err
    assert "--resume" not in finished.err
    assert os.listdir() == ["in.txt"]
