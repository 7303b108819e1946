"""docs/pooling.md shows what its commands and its code print, and figures that are right."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import readme
from bertpool.pooling import STRATEGIES

PAGE = readme.ROOT / "docs" / "pooling.md"
PICTURE = readme.ROOT / "docs" / "pictures" / "weights.png"
TEXT = PAGE.read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PROSE, LISTED = FENCED.sub("", TEXT).split("## References")
COMMANDS = [content for language, content in BLOCKS if language == "console"]
BY_HAND = [content for language, content in BLOCKS if language == ""]

DECIMAL = re.compile(r"-?\d*\.\d+")
# The worked example's published figures, which the page sets beside its own.
PUBLISHED = {0.659, 0.226, 0.72, 0.94, 1.10, 0.885}


def unit(decimal: str) -> float:
    """Return one in the last place of a decimal."""
    return float(10.0 ** -len(decimal.partition(".")[2]))


def same(shown: str, printed: str) -> bool:
    """Compare texts: decimals to one in the last place, since machines round in different ways."""
    pairs = list(zip(DECIMAL.findall(shown), DECIMAL.findall(printed), strict=False))
    words = [re.sub(" +", " ", DECIMAL.sub("#", text)) for text in (shown, printed)]
    return words[0] == words[1] and all(
        abs(float(one) - float(other)) < 1.01 * unit(one) for one, other in pairs
    )


def test_decimals_may_differ_by_one_in_the_last_place() -> None:
    assert same("a 0.125  [-.044,.5]", "a 0.126 [-.045,.5]")
    assert not same("a 0.125", "a 0.127")
    assert not same("a 0.125", "b 0.125")


@pytest.fixture
def sample_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that holds a copy of the inputs."""
    shutil.copytree(readme.ROOT / "sample_data", tmp_path / "sample_data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERTPOOL_DEVICE", "cpu")


@pytest.mark.usefixtures("sample_data")
@pytest.mark.parametrize("block", COMMANDS, ids=[block.split("\n")[0] for block in COMMANDS])
def test_a_command_prints_what_the_page_shows(bertpool: Callable[..., Any], block: str) -> None:
    command, shown = block.split("\n", 1)
    prompt, name, *arguments = shlex.split(command)
    assert (prompt, name) == ("$", "bertpool")
    finished = bertpool(*arguments)
    assert finished.code == 0, finished.err
    assert same(shown, finished.out), finished.out


def test_the_code_prints_what_stands_after_it() -> None:
    names: dict[str, Any] = {}
    for place, (language, content) in enumerate(BLOCKS):
        if language != "python":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(content, str(PAGE), "exec"), names)
        follows, shown = BLOCKS[place + 1]
        assert follows == "text"
        assert same(shown, printed.getvalue()), printed.getvalue()


def equations(block: str) -> list[list[str]]:
    """Split a calculation into equations, and those into what is said to be equal."""
    joined = re.sub(r"\n +=", " =", block)
    return [line.split(" = ") for line in joined.splitlines()]


def test_every_step_of_the_calculation_by_hand_holds() -> None:
    names = {"e": math.e, "tanh": math.tanh}
    for sides in [equation for block in BY_HAND for equation in equations(block)]:
        name, *steps = sides
        result = steps[-1]
        for step in steps:
            value = eval(step.replace("^", "**"), dict(names))
            assert value == pytest.approx(float(result), abs=1.5 * unit(result)), sides
        names[name] = float(result)
    assert set(names) >= {"z_3", "p_3", "l_1", "P"}


def test_every_figure_in_the_text_stands_in_a_block_too() -> None:
    blocks = "\n".join(content for _, content in BLOCKS)
    shown = {abs(float(one)) for one in DECIMAL.findall(blocks)} | PUBLISHED
    figures = {abs(float(one)) for one in DECIMAL.findall(PROSE)}
    assert figures - shown == set()


def test_every_reference_is_used_and_listed() -> None:
    used = {n for group in re.findall(r"\[(\d+(?:, \d+)*)\]", PROSE) for n in group.split(", ")}
    assert used == set(re.findall(r"^(\d+)\. ", LISTED, re.MULTILINE))


@pytest.mark.parametrize("name", ["auto", *STRATEGIES, "tokens"])
def test_every_strategy_is_defined_and_its_windows_are_explained(name: str) -> None:
    rows = re.findall(rf"^\|.*`{name}`.*\|$", TEXT, re.MULTILINE)
    assert len(rows) >= 2
    assert f"- **{name}** " in TEXT


def test_the_picture_is_drawn_by_its_command(bertpool: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (script,) = [text for language, text in BLOCKS if language == "sh" and "weights.py" in text]
    command, _, drawing = script.replace("\\\n", "").partition("|")
    explained = bertpool(*shlex.split(command)[1:]).out
    assert set(json.loads(explained)["strategies"]) == set(STRATEGIES)
    _, program, name = shlex.split(drawing)
    assert PICTURE == readme.ROOT / name
    made = tmp_path / "weights.png"
    subprocess.run(
        [sys.executable, readme.ROOT / program, made], input=explained, text=True, check=True
    )
    header = slice(24)  # signature, width and height; fonts differ between machines
    assert made.read_bytes()[header] == PICTURE.read_bytes()[header]
