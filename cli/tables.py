"""What stdout shows: a table on a terminal, aligned text elsewhere, JSON where asked for."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import typer
from bertpool.cli.messages import escaped
from bertpool.errors import OutputError
from bertpool.output.atomic import mapped_errors
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?")
GAP = "  "  # between columns of aligned text
NARROWEST = 10  # cells that a terminal leaves to the last column

Row = Mapping[str, object]


def show_rows(
    rows: Sequence[Row], *, json: Iterable[object] | None = None, shorten: bool = False
) -> None:
    """Show rows under the names of their columns.

    Args:
        rows: cells by column, all of the same columns.
        json: objects to show in their stead, one a line.
        shorten: cut the last column to a terminal's width, instead of folding it.

    Raises:
        OutputError: stdout can't be written.
    """
    if sys.stdout is None:
        raise OutputError("stdout is closed", usage=True)
    with mapped_errors(Path("stdout")):
        if json is not None:
            typer.echo("".join(f"{_as_json(one)}\n" for one in json), nl=False)
        elif rows and sys.stdout.isatty():
            _show_table(_cells(rows), shorten=shorten)
        elif rows:
            typer.echo("\n".join(_aligned(_cells(rows))))


def _as_json(content: object) -> str:
    """Write one line; what JSON has no type for (dates, decimals) is written as its text."""
    return json.dumps(content, ensure_ascii=False, default=str)


def _cells(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return each column's cells, in which nothing can move the cursor or end the line."""
    shown = ((name, [row[name] for row in rows]) for name in rows[0])
    return {
        escaped(name): ["" if cell is None else escaped(str(cell)) for cell in cells]
        for name, cells in shown
    }


def _is_number(cells: Sequence[str]) -> bool:
    return all(NUMBER.fullmatch(cell) for cell in cells if cell)


def _aligned(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    padded = []
    for name, cells in columns.items():
        width = max(map(cell_len, (name, *cells)))
        right = _is_number(cells)
        spaces = (" " * (width - cell_len(cell)) for cell in (name, *cells))
        both = zip((name, *cells), spaces, strict=True)
        padded.append([space + cell if right else cell + space for cell, space in both])
    for line in zip(*padded, strict=True):
        yield GAP.join(line).rstrip()


def _show_table(columns: Mapping[str, Sequence[str]], *, shorten: bool) -> None:
    console = Console(markup=False, highlight=False, emoji=False)
    table = Table(box=box.SIMPLE_HEAD)
    widths = [max(map(cell_len, (name, *cells))) for name, cells in columns.items()]
    # Each column has a margin on either side, and an edge before and after it.
    rest = console.width - sum(widths[:-1]) - 3 * len(widths) - 1
    for name, cells in columns.items():
        table.add_column(
            Text(name), justify="right" if _is_number(cells) else "left", overflow="fold"
        )
    if shorten:
        last = table.columns[-1]
        last.no_wrap, last.overflow, last.max_width = True, "ellipsis", max(NARROWEST, rest)
    for line in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, line))
    console.print(table)
