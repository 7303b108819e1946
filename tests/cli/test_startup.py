from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

Shell = Callable[..., subprocess.CompletedProcess[str]]
HEAVY = {"torch", "transformers", "pyarrow", "sentence_transformers", "pandas"}
COMPLETE = {"_BERTPOOL_COMPLETE": "complete_bash", "COMP_CWORD": "3"}


def imported(stderr: str) -> set[str]:
    """Return the top-level modules that `python -X importtime` names."""
    names = re.findall(r"^import time:.*\|\s+([\w.]+)$", stderr, flags=re.MULTILINE)
    return {name.split(".")[0] for name in names}


def messages(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not line.startswith("import time:")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "notes.parquet").write_text("old")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--help", 0, "embed"),
        ("", 2, "embed"),
        ("embed --help", 0, "--strategy"),
        ("embed -h", 0, "--strategy"),
        ("--version", 0, f"bertpool {metadata.version('bertpool')}"),
        ("embed", 2, "no input"),
        ("embed notes.txt --strategy typo", 2, "typo"),
        ("embed notes.txt --no-such-option", 2, "--no-such-option"),
        ("embed no-such.txt", 2, "no-such.txt: no such file"),
        ("embed notes.txt", 2, "notes.parquet: exists"),
        ("embed notes.txt -o v.bin", 2, ".parquet, .npy"),
        ("embed notes.txt -o v.npy -m ./no-such-model", 2, "model directory not found"),
        ("embed notes.txt -o v.npy --device gpu", 2, "--device gpu"),
        ("embed notes.txt -o v.npy --threads 0", 2, "--threads 0"),
        ("embed notes.txt -o v.npy --shard 3/2", 2, "shard 3 of 2"),
        ("embed notes.txt -o v.npy --resume --force", 2, "choose one"),
        ("embed notes.txt -o v.npy --engine ray --shard 1/2", 2, "leave out --shard"),
        ("embed notes.txt -o notes.txt --output-format npy --force", 2, "is an input"),
        ("embed no-such-folder/ -o v.npy", 2, "no-such-folder/: no such file"),
        ("merge --help", 0, "PART..."),
        ("merge", 2, "PART..."),
        ("merge no-such.parquet -o v.parquet", 2, "no-such.parquet: No such file"),
        ("inspect no-such.parquet", 2, "no-such.parquet: No such file"),
        ("inspect notes.txt", 2, "unknown suffix"),
        ("verify no-such.parquet", 2, "no-such.parquet: No such file"),
        ("verify notes.parquet --sample some", 2, "--sample some"),
        ("search no-such.parquet hello", 2, "no-such.parquet: No such file"),
        ("plot no-such.parquet", 2, "no-such.parquet: No such file"),
        ("plot notes.parquet -o x.gif", 2, "x.gif: unknown suffix"),
        ("explain", 2, "give a text"),
        ("explain --input no-such.txt", 2, "no-such.txt: no such file"),
        ("compare no-such.txt", 2, "no-such.txt: no such file"),
        ("compare notes.txt --plot x.gif", 2, "x.gif: unknown suffix"),
    ],
    ids=lambda value: str(value) or "nothing",
)
def test_an_answer_without_a_model_imports_nothing_heavy(
    shell: Shell, folder: Path, arguments: str, code: int, said: str
) -> None:
    finished = shell(f"python -X importtime -m bertpool {arguments}", cwd=folder)
    assert finished.returncode == code
    assert said in " ".join((finished.stdout + "\n".join(messages(finished.stderr))).split())
    assert "typer" in imported(finished.stderr)
    assert not HEAVY & imported(finished.stderr)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bertpool embed --strategy me", "mean"),
        ("bertpool embed --strategy mea", "mean_sqrt_len"),
        ("bertpool embed --str", "--strategy"),
    ],
)
def test_completion_answers_and_imports_nothing_heavy(
    shell: Shell, folder: Path, words: str, expected: str
) -> None:
    environment = {**COMPLETE, "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    script = "import sys; sys.argv = ['bertpool']; from bertpool.cli.main import main; main()"
    finished = shell(f'python -X importtime -c "{script}"', cwd=folder, **environment)
    assert finished.returncode == 0
    assert expected in finished.stdout.split()
    assert not HEAVY & imported(finished.stderr)


def test_importing_the_package_imports_nothing_heavy(shell: Shell, folder: Path) -> None:
    finished = shell("python -X importtime -c 'import bertpool'", cwd=folder)
    assert finished.returncode == 0
    assert "bertpool" in imported(finished.stderr)
    assert not (HEAVY | {"numpy", "typer", "rich"}) & imported(finished.stderr)


@pytest.mark.parametrize("command", ["bertpool", "python -m bertpool", "python -m bertpool.cli"])
def test_every_way_to_start_the_command_calls_it_bertpool(
    shell: Shell, folder: Path, command: str
) -> None:
    finished = shell(f"{command} embed --help", cwd=folder)
    assert finished.returncode == 0
    assert "Usage: bertpool embed" in finished.stdout
    assert finished.stderr == ""


def test_a_usage_error_says_nothing_on_stdout(shell: Shell, folder: Path) -> None:
    finished = shell("bertpool embed notes.txt --strategy typo", cwd=folder)
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
