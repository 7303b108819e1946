"""README.md says what the command does today."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import readme
from bertpool.pooling import STRATEGIES

TEXT = readme.README.read_text()
ROOT = readme.README.parent


def copy_sample_data(folder: Path) -> None:
    """Copy the inputs, without what `make demo` may have made of them."""
    made = shutil.ignore_patterns("*.parquet")
    shutil.copytree(ROOT / "sample_data", folder / "sample_data", ignore=made)


def _without_timings(text: str) -> str:
    """Blank out seconds, rates, and what depends on the machine."""
    text = re.sub(r"\d+\.\d s, embedding at [\d,]+", "? s, embedding at ?", text)
    return re.sub(r"\d+ threads", "? threads", text)


def test_help_and_report_keys_are_the_ones_of_the_code() -> None:
    assert readme.render(TEXT) == TEXT


def test_the_page_of_commands_is_the_help_of_each() -> None:
    assert readme.COMMANDS.read_text() == readme.render_commands()


def test_it_stays_under_150_lines() -> None:
    assert len(TEXT.splitlines()) < 150


@pytest.mark.parametrize("strategy", ["auto", *STRATEGIES])
def test_every_strategy_has_its_row(strategy: str) -> None:
    assert re.search(rf"^\| `{strategy}` \|", TEXT, re.MULTILINE)


def test_the_example_run_shows_its_true_output(
    shell: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    copy_sample_data(tmp_path)
    (block,) = re.findall(r"```console\n\$ (.*?)```", TEXT, re.DOTALL)
    command, expected = block.split("\n", 1)
    finished = shell(command, cwd=tmp_path, BERTPOOL_DEVICE="cpu")
    assert _without_timings(finished.stderr) == _without_timings(expected)
    assert (finished.returncode, finished.stdout) == (0, "")


def test_the_python_example_reads_the_vectors(
    shell: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    copy_sample_data(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "example.py").write_text(code.replace("vectors.shape", "print(vectors.shape)"))
    finished = shell(
        "bertpool embed -q --strategy mean sample_data/corpus.txt && python example.py",
        cwd=tmp_path,
    )
    shape = re.findall(r"# (\(.*\))", code)[0]
    assert (finished.returncode, finished.stdout) == (0, shape + "\n")
