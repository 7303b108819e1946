from __future__ import annotations

import io

import pytest
from bertpool.cli import tables
from bertpool.cli.tables import Cell, bar, show_json, show_table
from rich.console import Console

HEADERS = ["token", "mean", "max", "attention", "mean_sqrt_len", "last"]
ROWS = [
    [Cell("[bold]"), *(Cell(f"0.{i}2{j}", "#0072B2", i / 9) for j in range(5))] for i in range(9)
]
FIGURES = [cell.text for row in ROWS for cell in row[1:]]


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int, *, colours: bool = False) -> str:
    """Show the table on a terminal of a width, and return what it got."""
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, width=width, no_color=not colours, markup=False,
        color_system="truecolor", legacy_windows=False,
    )  # fmt: skip
    monkeypatch.setattr(tables, "stdout", console)
    show_table("weights", HEADERS, ROWS)
    return stream.getvalue()


@pytest.mark.parametrize("width", [30, 50, 70, 80, 100, 160])
def test_every_figure_is_whole_on_a_terminal_of_any_width(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    shown = on_terminal(monkeypatch, width)
    assert all(figure in shown for figure in FIGURES)
    assert all(name in shown for name in HEADERS)
    assert "…" not in shown


def test_a_terminal_gets_bars_in_the_colour_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch, 120, colours=True)
    assert "█" in shown
    assert "38;2;0;114;178" in shown


def test_without_colours_bars_and_figures_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(monkeypatch, 120)
    assert "█" in shown
    assert "38;2" not in shown


def test_text_that_looks_like_markup_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(monkeypatch, 120).count("[bold]") == 9


def test_plain_text_is_aligned_by_what_characters_take_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_table("t", ["token", "x"], [[Cell("\u4e2d\u6587"), Cell("1.0")], [Cell("a"), Cell("22")]])
    assert capsys.readouterr().out == "t\ntoken    x\n\u4e2d\u6587   1.0\na       22\n\n"


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("t", ["token"], [[Cell("a\x1b[31m\tb")]])
    assert "a\\x1b[31m\\tb" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, "    "), (1.0, "████"), (0.5, "██  "), (0.53, "██▏ "), (7.0, "████")]
)
def test_a_bar_is_as_long_as_its_share(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_null_where_a_number_is_not_finite(
    capsys: pytest.CaptureFixture[str], value: float
) -> None:
    show_json({"a": [1.5, value], "b": {"c": value}})
    assert capsys.readouterr().out == '{"a": [1.5, null], "b": {"c": null}}\n'
