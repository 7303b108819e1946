from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bertpool.cli.messages import VERBOSITY_VARIABLES
from vectors import read_vectors

Tiny = Callable[[str], Path]
Bertpool = Callable[..., Any]
Shell = Callable[..., subprocess.CompletedProcess[str]]

BERTPOOL = str(Path(sys.executable).with_name("bertpool"))
ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|38|9[0-7])(?:;\d+)*m")
# The last is what Python makes of a byte that isn't UTF-8.
CONTROL_NAMES = ["a\x1b[31mb", "a\rb", "a\nb", "a\x07b", "a\x01b", "a\x9bb", "a\udce9b"]


@dataclass(frozen=True)
class OnTerminal:
    """What a command showed on a terminal, and its exit code."""

    code: int
    shown: str


def on_terminal(*arguments: str, columns: int = 80, cwd: Path, **environment: str) -> OnTerminal:
    """Run `bertpool` with a pseudo-terminal as stderr."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "CI")}
    process = subprocess.Popen(
        [BERTPOOL, *arguments],
        cwd=cwd,
        env={**kept, "TERM": "xterm-256color", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while piece := _read(screen):
        shown += piece
    os.close(screen)
    return OnTerminal(process.wait(timeout=60), shown.decode())


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 1 << 16)
    except OSError:  # the other end was closed
        return b""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("hello word\n" * 300)
    return path


# Without a terminal


@pytest.mark.parametrize(
    "environment",
    [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "xterm-256color"}, {"COLUMNS": "20"}],
    ids=str,
)
def test_without_a_terminal_stderr_is_plain_lines_that_are_never_wrapped(
    bertpool: Bertpool, tiny: Tiny, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str],
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("bertpool.cli.progress.PLAIN_INTERVAL", 0.0)
    path = tmp_path / ("long " * 30) / "notes.txt"
    path.parent.mkdir()
    path.write_text("hello word\n" * 300)
    finished = bertpool("embed", path, "-m", tiny("tiny-bert"))
    assert finished.code == 0
    assert not {ESCAPE, "\r"} & set(finished.err)
    lines = finished.err.splitlines()
    assert lines[-1].startswith(f"{path.with_suffix('.parquet')}: 300 rows of 32 float32; ")
    assert lines[-2].startswith("100%, 300 rows, 1,200 tokens, ")


def test_an_error_is_one_line_however_long_its_path(
    bertpool: Bertpool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    path = tmp_path / ("very " * 40) / "no.txt"
    assert bertpool("embed", path).err == f"error: {path}: no such file\n"


def test_progress_of_a_pipe_has_no_share(
    bertpool: Bertpool, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertpool.cli.progress.PLAIN_INTERVAL", 0.0)
    reader, writer = os.pipe()
    os.write(writer, b"hello word\n" * 3)
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    os.close(reader)
    try:
        finished = bertpool("embed", "-", "-m", tiny("tiny-bert"), "-o", tmp_path / "v.npy")
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert finished.code == 0
    assert "\n3 rows, 12 tokens, " in finished.err
    assert "%" not in finished.err


def test_a_real_run_without_a_terminal_shows_two_plain_lines(
    shell: Shell, tiny: Tiny, notes: Path
) -> None:
    command = f"bertpool embed notes.txt -m {tiny('tiny-bert')} > o 2> e < /dev/null"
    assert shell(command, cwd=notes.parent, CI="true").returncode == 0
    assert (notes.parent / "o").read_bytes() == b""
    shown = (notes.parent / "e").read_bytes().decode()
    assert not {ESCAPE, "\r"} & set(shown)
    assert len(shown.splitlines()) == 2


def test_help_without_a_terminal_has_no_escape(bertpool: Bertpool) -> None:
    finished = bertpool("embed", "--help")
    assert finished.code == 0
    assert "--strategy" in finished.out
    assert ESCAPE not in finished.out


LIBRARIES = """
import logging, sys, warnings
from bertpool.cli.main import run
code = run(sys.argv[1:])
for name in ("transformers", "huggingface_hub", "some.library"):
    logging.getLogger(name).warning("odd " + name)
warnings.warn("odd warnings")
raise SystemExit(code)
"""


@pytest.mark.parametrize(("flag", "times"), [("--verbose", 1), ("--text", 0), ("--quiet", 0)])
def test_what_libraries_warn_of_shows_once_when_verbose_and_never_else(
    tiny: Tiny, notes: Path, flag: str, times: int
) -> None:
    command = ["embed", str(notes), "-m", str(tiny("tiny-bin")), flag]
    finished = subprocess.run(
        [sys.executable, "-c", LIBRARIES, *command],
        env={name: value for name, value in os.environ.items() if name not in VERBOSITY_VARIABLES},
        capture_output=True,
        text=True,
        check=True,
    )
    names = ("transformers", "huggingface_hub", "some.library", "warnings")
    shown = {name: finished.stderr.count(f"odd {name}") for name in names}
    assert shown == dict.fromkeys(names, times)


def test_quiet_is_silent_on_success(bertpool: Bertpool, tiny: Tiny, notes: Path) -> None:
    finished = bertpool("embed", notes, "-m", tiny("tiny-bert"), "-q")
    assert (finished.code, finished.out, finished.err) == (0, "", "")


def test_a_report_to_stdout_is_json_alone_beside_notes_on_stderr(
    bertpool: Bertpool, tiny: Tiny, notes: Path
) -> None:
    finished = bertpool("embed", notes, "-m", tiny("tiny-st-dense"), "-s", "cls", "--report", "-")
    assert json.loads(finished.out)["rows"] == 300
    assert "note: " in finished.err


# What a name can hold


@pytest.mark.parametrize("name", CONTROL_NAMES, ids=ascii)
def test_control_characters_of_a_name_are_escaped_in_an_error(
    bertpool: Bertpool, tmp_path: Path, name: str
) -> None:
    finished = bertpool("embed", tmp_path / f"{name}.txt")
    assert finished.code == 2
    assert finished.err.endswith("b.txt: no such file\n")
    assert finished.err.removesuffix("\n").isprintable()


@pytest.mark.parametrize("name", CONTROL_NAMES, ids=ascii)
def test_control_characters_of_a_name_are_escaped_in_the_summary(
    bertpool: Bertpool, tiny: Tiny, tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"{name}.txt"
    path.write_text("hello\n")
    finished = bertpool("embed", path, "-m", tiny("tiny-bert"))
    assert finished.code == 0
    assert path.with_suffix(".parquet").exists()
    lines = finished.err.removesuffix("\n").split("\n")
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "\ufffd" not in finished.err  # a byte that was no UTF-8


@pytest.mark.parametrize(
    "option", ["--strategy", "--device", "--encoding", "--blank", "--mod\x1bel"]
)
def test_control_characters_of_an_option_are_escaped_in_an_error(
    bertpool: Bertpool, notes: Path, option: str
) -> None:
    finished = bertpool("embed", notes, option, "a\x1b[31mred\nb")
    assert finished.code == 2
    assert finished.err.removesuffix("\n").isprintable()


# On a terminal


@pytest.mark.parametrize("columns", [20, 80])
def test_on_a_terminal_a_bar_appears_and_the_run_ends_well(
    tiny: Tiny, notes: Path, columns: int
) -> None:
    ran = on_terminal(
        "embed", "notes.txt", "-m", str(tiny("tiny-bert")), columns=columns, cwd=notes.parent
    )
    assert ran.code == 0
    assert "\x1b[?25l" in ran.shown  # the cursor is hidden while a bar is drawn,
    assert ran.shown.rindex("\x1b[?25h") > ran.shown.rindex("\x1b[?25l")  # and shown again
    assert "loading" in ran.shown
    assert "notes.parquet: " in ran.shown
    assert "300 rows of 32 float32" in ran.shown
    assert len(read_vectors(notes.with_suffix(".parquet"))) == 300


def test_a_dumb_terminal_gets_plain_lines(tiny: Tiny, notes: Path) -> None:
    ran = on_terminal(
        "embed", "notes.txt", "-m", str(tiny("tiny-bert")), cwd=notes.parent, TERM="dumb"
    )
    assert ran.code == 0
    assert ESCAPE not in ran.shown
    assert len(ran.shown.splitlines()) == 2


def test_an_error_on_a_terminal_is_coloured(tmp_path: Path) -> None:
    ran = on_terminal("embed", "no.txt", cwd=tmp_path)
    assert ran.code == 2
    assert COLOUR.search(ran.shown)
    assert "no.txt: no such file" in ran.shown


def test_no_color_is_obeyed_on_a_terminal(tmp_path: Path) -> None:
    ran = on_terminal("embed", "no.txt", cwd=tmp_path, NO_COLOR="1")
    assert ran.code == 2
    assert not COLOUR.search(ran.shown)
    assert "no.txt: no such file" in ran.shown


def test_a_path_on_a_narrow_terminal_is_not_broken_by_us(tmp_path: Path) -> None:
    name = "n" * 100
    ran = on_terminal("embed", name, cwd=tmp_path, columns=20)
    assert f"{name}: no such file" in ran.shown
