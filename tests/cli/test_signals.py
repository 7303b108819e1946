from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bertpool.corpus.corpus import WINDOW_ROWS
from tiny_models import WORDS
from vectors import read_column, read_vectors

Tiny = Callable[[str], Path]
Shell = Callable[..., subprocess.CompletedProcess[str]]

BERTPOOL = str(Path(sys.executable).with_name("bertpool"))
PATIENCE = 60  # seconds until a process that does nothing is given up
NOT_SHOWN = ("Traceback", "Exception ignored", "BrokenPipe", "KeyboardInterrupt")


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def finished_windows(folder: Path) -> list[Path]:
    """Return the parts that a run has kept so far."""
    return sorted(folder.glob("*.partial/*.arrow"))


def waiting_bytes(pipe: int) -> int:
    """Return how many bytes of a pipe nobody has read yet."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(count)


@contextlib.contextmanager
def running(
    *arguments: object, cwd: Path, stdin: Any = subprocess.DEVNULL, ignoring: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Run `bertpool embed`, some signals ignored, and end it in any case."""
    words = [str(argument) for argument in arguments]
    trap = f"trap '' {ignoring}; " if ignoring else ""
    process = subprocess.Popen(
        ["bash", "-c", f'{trap}exec "$@"', "bash", BERTPOOL, "embed", *words],
        cwd=cwd,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def endless() -> Iterator[Any]:
    """Give a stream of lines that never ends."""
    with subprocess.Popen(["yes", "hi"], stdout=subprocess.PIPE) as source:
        yield source.stdout
        source.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def check_quiet_end(process: subprocess.Popen[str], code: int, name: str, folder: Path) -> None:
    """Check what an interrupted run leaves: a code, one line that says so, and nothing else."""
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert err.splitlines()[-1].startswith(f"error: interrupted by {name}")
    assert err.count("error: ") == 1
    assert not any(word in err for word in NOT_SHOWN)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_amid_a_run_keeps_the_finished_windows_and_says_how_to_go_on(
    tiny: Tiny, folder: Path, endless: Any, name: str, code: int
) -> None:
    arguments = ("-", "-m", str(tiny("tiny-bert")), "-o", "v.npy", "--force")
    with running(*arguments, cwd=folder, stdin=endless) as process:
        wait_until(lambda: bool(finished_windows(folder)))
        process.send_signal(signal.Signals[name])
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert not any(word in err for word in NOT_SHOWN)
    rows = len(finished_windows(folder)) * WINDOW_ROWS
    assert err.splitlines()[-2:] == [
        f"error: interrupted by {name}",
        f"note: {rows:,} rows are kept in v.npy.partial; to go on: "
        f"bertpool embed - -m {tiny('tiny-bert')} -o v.npy --resume",
    ]
    assert [path.name for path in folder.iterdir()] == ["v.npy.partial"]


def test_the_command_that_an_interrupted_run_names_finishes_its_file(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    lines = "".join(f"{word}\n" for word in itertools.islice(itertools.cycle(WORDS), 40_000))
    (folder.parent / "the notes.txt").write_text(lines)
    os.mkfifo(folder.parent / "in")
    arguments = ("../in", "-m", tiny("tiny-bert"), "-o", "my v.parquet")
    with running(*arguments, cwd=folder) as process:
        with (folder.parent / "in").open("w") as fifo:
            fifo.write(lines)
            fifo.flush()
            wait_until(lambda: len(finished_windows(folder)) == 2)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
    assert "note: 32,768 rows are kept in my v.parquet.partial" in err
    command = err.rpartition("to go on: ")[2].strip()
    again = shell(f"cat '../the notes.txt' > ../in & {command}", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert read_column(folder / "my v.parquet", "text") == lines.splitlines()
    assert [path.name for path in folder.iterdir()] == ["my v.parquet"]


@pytest.mark.parametrize("times", [1, 2])
def test_signals_before_the_model_is_loaded_leave_nothing_either(
    tiny: Tiny, folder: Path, times: int
) -> None:
    (folder.parent / "notes.txt").write_text("hello\n")
    arguments = ("../notes.txt", "-m", tiny("tiny-bert"), "-o", "v.parquet")
    with running(*arguments, cwd=folder) as process:
        wait_until(lambda: bool(list(folder.iterdir())))
        for _ in range(times):
            process.send_signal(signal.SIGINT)
        check_quiet_end(process, 130, "SIGINT", folder)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_stdin_is_awaited_ends_the_run_and_leaves_nothing(
    tiny: Tiny, folder: Path, name: str, code: int
) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"hello\n")
    arguments = ("-", "-m", tiny("tiny-bert"), "-o", "v.npy")
    with running(*arguments, cwd=folder, stdin=reader) as process:
        wait_until(lambda: waiting_bytes(reader) == 0)
        process.send_signal(signal.Signals[name])
        check_quiet_end(process, code, name, folder)
    os.close(reader)
    os.close(writer)


def test_signals_that_are_ignored_as_under_nohup_do_not_end_a_run(tiny: Tiny, folder: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"hello\nword\n")
    arguments = ("-", "-m", tiny("tiny-bert"), "-o", "v.npy")
    with running(*arguments, cwd=folder, stdin=reader, ignoring="HUP INT") as process:
        wait_until(lambda: waiting_bytes(reader) == 0)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        os.close(writer)
        process.communicate(timeout=PATIENCE)
    os.close(reader)
    assert process.returncode == 0
    assert len(read_vectors(folder / "v.npy")) == 2


def test_a_killed_run_leaves_nothing_at_the_path_and_the_next_asks_what_to_do(
    bertpool: Callable[..., Any], tiny: Tiny, folder: Path, endless: Any
) -> None:
    arguments = ("-", "-m", tiny("tiny-bert"), "-o", "v.npy")
    with running(*arguments, cwd=folder, stdin=endless) as process:
        wait_until(lambda: bool(finished_windows(folder)))
        process.kill()
        process.communicate(timeout=PATIENCE)
    assert [path.name for path in folder.iterdir()] == ["v.npy.partial"]
    (folder.parent / "notes.txt").write_text("hello\n")
    command = ("embed", folder.parent / "notes.txt", "-m", tiny("tiny-bert"), "-o")
    again = bertpool(*command, folder / "v.npy")
    assert again.code == 2
    assert "--resume" in again.err
    assert "--force" in again.err
    afresh = bertpool(*command, folder / "v.npy", "--force")
    assert afresh.code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["v.npy", "v.npy.json"]
    assert len(read_vectors(folder / "v.npy")) == 1


def test_a_run_killed_in_its_first_window_does_not_hinder_the_next(
    bertpool: Callable[..., Any], tiny: Tiny, folder: Path
) -> None:
    (folder.parent / "notes.txt").write_text("hello\n")
    reader, writer = os.pipe()
    arguments = ("-", "-m", tiny("tiny-bert"), "-o", "v.npy")
    with running(*arguments, cwd=folder, stdin=reader) as process:
        wait_until(lambda: bool(list(folder.iterdir())))
        process.kill()
        process.communicate(timeout=PATIENCE)
    os.close(reader)
    os.close(writer)
    again = bertpool(
        "embed", folder.parent / "notes.txt", "-m", tiny("tiny-bert"), "-o", folder / "v.npy"
    )
    assert again.code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["v.npy", "v.npy.json"]


# Pipes


def without_reader(command: str, stream: str, *, cwd: Path, **environment: str) -> tuple[int, str]:
    """Run a command line whose stdout or stderr nobody reads; return its code and the other."""
    reader, writer = os.pipe()
    os.close(reader)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    finished = subprocess.run(
        ["bash", "-c", command.replace("bertpool", f"exec {BERTPOOL}", 1)],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
        text=True,
        **{**streams, stream: writer},
    )
    os.close(writer)
    return finished.returncode, finished.stderr or finished.stdout or ""


@pytest.mark.parametrize("arguments", ["--help", "embed --help", "--version"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_into_a_closed_pipe_ends_without_a_word(
    tmp_path: Path, arguments: str, unbuffered: str
) -> None:
    code, err = without_reader(
        f"bertpool {arguments}", "stdout", cwd=tmp_path, PYTHONUNBUFFERED=unbuffered
    )
    assert code in (0, 141)
    assert err == ""


def test_a_report_into_a_closed_pipe_ends_without_a_traceback_and_keeps_the_vectors(
    tiny: Tiny, folder: Path
) -> None:
    (folder / "notes.txt").write_text("hello\n")
    command = f"bertpool embed notes.txt -m {tiny('tiny-bert')} --report -"
    code, err = without_reader(command, "stdout", cwd=folder)
    assert code in (0, 141)
    assert not any(word in err for word in NOT_SHOWN)
    assert len(read_vectors(folder / "notes.parquet")) == 1


def test_notes_into_a_closed_pipe_end_the_run_and_leave_nothing(tiny: Tiny, folder: Path) -> None:
    (folder.parent / "notes.txt").write_text("hello\n")
    command = f"bertpool embed ../notes.txt -m {tiny('tiny-bert')} -o v.parquet"
    code, out = without_reader(command, "stderr", cwd=folder)
    assert (code, out) == (141, "")
    assert list(folder.iterdir()) == []


def test_without_a_file_an_open_pipe_as_stdin_is_not_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    finished = subprocess.run(
        [BERTPOOL, "embed"], stdin=reader, capture_output=True, text=True, timeout=PATIENCE,
        cwd=tmp_path, check=False,
    )  # fmt: skip
    os.close(reader)
    os.close(writer)
    assert finished.returncode == 2
    assert finished.stderr == "error: no input: name files or directories, or - for stdin\n"


def test_closed_standard_streams_do_not_hinder_a_run(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    (folder / "notes.txt").write_text("hello\nword\n")
    command = f"bertpool embed notes.txt -m {tiny('tiny-bert')} --report r.json <&- >&- 2>&-"
    assert shell(command, cwd=folder).returncode == 0
    assert len(read_vectors(folder / "notes.parquet")) == 2
    assert sorted(path.name for path in folder.iterdir()) == [
        "notes.parquet", "notes.txt", "r.json",
    ]  # fmt: skip


def test_a_closed_stdin_that_is_named_is_an_error_of_one_line(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    finished = shell(f"bertpool embed - -m {tiny('tiny-bert')} -o v.npy <&-", cwd=folder)
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: -: ")
    assert len(finished.stderr.splitlines()) == 1
    assert list(folder.iterdir()) == []


# Disks that fill up


@pytest.fixture
def many_lines(folder: Path) -> Path:
    path = folder.parent / "notes.txt"
    path.write_text("".join(f"hello {i}\n" for i in range(2000)))
    return path


def errors_of(finished: subprocess.CompletedProcess[str]) -> list[str]:
    assert not any(word in finished.stderr for word in NOT_SHOWN)
    return [line for line in finished.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.usefixtures("many_lines")
def test_a_file_size_limit_ends_the_run_with_one_line_and_leaves_nothing(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    command = f"ulimit -f 50; bertpool embed ../notes.txt -m {tiny('tiny-bert')} -o v.npy"
    finished = shell(command, cwd=folder)
    assert finished.returncode == 1
    assert errors_of(finished) == ["error: v.npy: File too large; no output was written"]
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("many_lines")
@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_a_full_disk_ends_the_run_with_one_line_and_leaves_nothing(
    shell: Shell, tiny: Tiny, folder: Path, suffix: str
) -> None:
    # A small disk in a mount namespace of its own, which is gone with the command.
    mount = "mount -t tmpfs -o size=64k none ."
    if shell(f"unshare -m bash -c '{mount}'", cwd=folder).returncode != 0:
        pytest.skip("no right to mount a small disk here")
    embed = f"bertpool embed ../notes.txt -m {tiny('tiny-bert')} -o v.{suffix}"
    script = f"{mount}; cd .; cd $PWD; {embed}; code=$?; ls -A; exit $code"
    finished = shell(f"unshare -m bash -c '{script}'", cwd=folder)
    assert finished.returncode == 1
    assert errors_of(finished) == [
        f"error: v.{suffix}: No space left on device; no output was written"
    ]
    assert finished.stdout == ""


def test_a_report_onto_a_full_disk_is_an_error_of_one_line(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    (folder / "notes.txt").write_text("hello\n")
    command = f"bertpool embed notes.txt -m {tiny('tiny-bert')} --report - > /dev/full"
    finished = shell(command, cwd=folder)
    assert finished.returncode == 1
    assert len(errors_of(finished)) == 1
    assert "No space left" in finished.stderr


def test_help_onto_a_full_disk_is_an_error_of_one_line(shell: Shell, folder: Path) -> None:
    finished = shell("bertpool embed --help > /dev/full", cwd=folder)
    assert finished.returncode == 1
    assert len(finished.stderr.splitlines()) == 1
    assert "No space left" in finished.stderr
