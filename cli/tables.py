"""What stdout shows: a table on a terminal, aligned text elsewhere, JSON where asked for."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from bertpool.cli.messages import escaped
from bertpool.errors import OutputError
from bertpool.output.atomic import mapped_errors
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?")
EIGHTHS = " ▏▎▍▌▋▊▉"
NARROWEST_BAR, WIDEST_BAR = 3, 16  # cells
NARROWEST = 10  # cells that a terminal leaves to a last column that is cut
EDGES = 2  # cells that a table's box takes
GAP = "  "  # between columns

stdout = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)

Row = Mapping[str, object]


@dataclass(frozen=True)
class Cell:
    """A cell of a table; ``share``, 0 to 1, draws a bar before its text on a terminal."""

    text: str
    style: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Column:
    """A column: nothing in it can move the cursor or end the line."""

    name: str
    cells: Sequence[Cell]
    right: bool

    @property
    def has_bar(self) -> bool:
        """Tell whether it has bars on a terminal."""
        return any(cell.share is not None for cell in self.cells)

    def width(self, bar_width: int = 0) -> int:
        """Return what it takes with bars of a width, the gap at its right included."""
        beside = bar_width + 1 if self.has_bar else 0
        cells = (cell_len(cell.text) + beside for cell in self.cells)
        return max([cell_len(self.name), *cells]) + len(GAP)


def check_stdout() -> None:
    """Check, before there is anything to show, that it can be shown.

    Raises:
        OutputError: stdout is closed.
    """
    if sys.stdout is None:
        raise OutputError("stdout is closed", usage=True)


def show_json(*objects: object) -> None:
    """Write objects as JSON, one a line.

    Raises:
        OutputError: stdout can't be written.
    """
    with _writing():
        lines = "".join(f"{_as_json(one)}\n" for one in objects)
        typer.echo(lines.encode("utf-8", "backslashreplace"), nl=False)


def show_rows(
    rows: Sequence[Row], *, json: Iterable[object] | None = None, shorten: bool = False
) -> None:
    """Show rows under the names of their columns, numbers on the right.

    Args:
        rows: cells by column, all of the same columns.
        json: objects to show in their stead, one a line.
        shorten: cut the last column to a terminal's width, instead of folding it.

    Raises:
        OutputError: stdout can't be written.
    """
    if json is not None:
        show_json(*json)
        return
    columns = []
    for name in rows[0] if rows else ():
        texts = ["" if row[name] is None else escaped(str(row[name])) for row in rows]
        columns.append(Column(escaped(name), [*map(Cell, texts)], _are_numbers(texts)))
    with _writing():
        if columns and stdout.is_terminal:
            _show_rich(columns, shorten=shorten)
        elif columns:
            _show_plain(columns)


def show_table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1
) -> None:
    """Show a table under a title; the first ``left`` columns are aligned left, the others right.

    Raises:
        OutputError: stdout can't be written.
    """
    columns = [
        Column(
            escaped(header),
            [Cell(escaped(row[i].text), row[i].style, row[i].share) for row in rows],
            right=i >= left,
        )
        for i, header in enumerate(headers)
    ]
    show_line(title, "bold")
    with _writing():
        if not stdout.is_terminal:
            _show_plain(columns)
            typer.echo()
            return
        for some in _fitting(columns, left):
            _show_rich(some, whole=left)


def show_line(text: str, style: str = "") -> None:
    """Show a line of text that is never wrapped in the midst of a word elsewhere.

    Raises:
        OutputError: stdout can't be written.
    """
    with _writing():
        stdout.print(Text(escaped(text), style), soft_wrap=not stdout.is_terminal)


def bar(share: float, width: int) -> str:
    """Draw a share of a width in blocks, to an eighth of a cell.

    >>> bar(0.5, 3)
    '█▌ '
    """
    whole, eighths = divmod(round(min(max(share, 0.0), 1.0) * width * 8), 8)
    drawn = "█" * whole + (EIGHTHS[eighths] if eighths else "")
    return drawn.ljust(width)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Turn what keeps stdout from being written into one line."""
    check_stdout()
    with mapped_errors(Path("stdout")):
        yield


def _as_json(content: object) -> str:
    """Write one line; what JSON has no type for (dates, decimals) is written as its text."""
    return json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, default=str)


def _finite(content: object) -> object:
    """Put null where a number isn't finite: JSON has no NaN."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content


def _are_numbers(texts: Sequence[str]) -> bool:
    return all(NUMBER.fullmatch(text) for text in texts if text)


def _show_plain(columns: Sequence[Column]) -> None:
    padded = []
    for column in columns:
        texts = [column.name, *(cell.text for cell in column.cells)]
        width = max(map(cell_len, texts))
        padded.append([_padded(text, width, right=column.right) for text in texts])
    typer.echo("\n".join(GAP.join(line).rstrip() for line in zip(*padded, strict=True)))


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _fitting(columns: Sequence[Column], left: int) -> Iterator[list[Column]]:
    """Yield the columns of one table, or of several where more bars don't fit side by side."""
    first = list(columns[:left])
    chosen, base = list(first), EDGES + sum(column.width() for column in first)
    used = base
    for column in columns[left:]:
        width = column.width(NARROWEST_BAR)
        if column.has_bar and len(chosen) > left and used + width > stdout.width:
            yield chosen
            chosen, used = list(first), base
        chosen.append(column)
        used += width
    yield chosen


def _show_rich(columns: Sequence[Column], *, whole: int = 0, shorten: bool = False) -> None:
    """Show a table; cells of the first ``whole`` columns take one line each."""
    # A space at the right of each column, and the box's own between: two, as in plain text.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    width = _bar_width(columns)
    for index, column in enumerate(columns):
        # Figures with an interval may take two lines on a narrow terminal; names and bars may not.
        table.add_column(
            Text(column.name), justify="right" if column.right else "left", overflow="fold",
            no_wrap=index < whole or (width > 0 and column.has_bar),
        )  # fmt: skip
    if shorten:
        rest = stdout.width - EDGES - sum(column.width() for column in columns[:-1])
        last = table.columns[-1]
        last.no_wrap, last.overflow, last.max_width = True, "ellipsis", max(NARROWEST, rest)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(_rich_cell(cell, width) for cell in cells))
    stdout.print(table, soft_wrap=False)


def _rich_cell(cell: Cell, width: int) -> Text:
    if cell.share is None or not width:
        return Text(cell.text, cell.style)
    return Text.assemble((bar(cell.share, width), cell.style), " ", cell.text)


def _bar_width(columns: Sequence[Column]) -> int:
    """Return the widest bars that fit the terminal; 0 where none do."""
    for width in range(WIDEST_BAR, NARROWEST_BAR - 1, -1):
        if EDGES + sum(column.width(width) for column in columns) <= stdout.width:
            return width
    return 0
