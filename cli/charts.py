"""Tables and JSON on stdout: Rich on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Side = Literal["left", "right"]
EIGHTHS = " ▏▎▍▌▋▊▉"
NARROWEST_BAR, WIDEST_BAR = 3, 16  # cells
EDGES = 2  # cells that a table's box takes
GAP = "  "  # between the columns of plain text

stdout = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


@dataclass(frozen=True)
class Cell:
    """A cell of a table; ``share``, 0 to 1, draws a bar before its text on a terminal."""

    text: str
    style: str = ""
    share: float | None = None


def escaped(text: str) -> str:
    r"""Return text with control characters escaped: a token or a name can hold any.

    >>> print(escaped("a\tb"))
    a\tb
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def bar(share: float, width: int) -> str:
    """Draw a share of a width in blocks, to an eighth of a cell.

    >>> bar(0.5, 3)
    '█▌ '
    """
    whole, eighths = divmod(round(min(max(share, 0.0), 1.0) * width * 8), 8)
    drawn = "█" * whole + (EIGHTHS[eighths] if eighths else "")
    return drawn.ljust(width)


def show_table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1
) -> None:
    """Show a table; the first ``left`` columns are aligned left, the others right."""
    if not stdout.is_terminal:
        _show_plain(title, headers, rows, left)
        return
    show_line(title, "bold")
    for chosen in _fitting(headers, rows, left):
        _show_rich([headers[i] for i in chosen], [[row[i] for i in chosen] for row in rows], left)


def show_line(text: str, style: str = "") -> None:
    """Show a line of text that is never wrapped in the midst of a word elsewhere."""
    stdout.print(Text(escaped(text), style), soft_wrap=not stdout.is_terminal)


def show_json(content: object) -> None:
    """Write JSON."""
    text = json.dumps(content, ensure_ascii=False, indent=2)
    typer.echo(text.encode("utf-8", "backslashreplace"))


def _show_plain(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]], left: int
) -> None:
    lines = [list(headers), *([escaped(cell.text) for cell in row] for row in rows)]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(headers))]
    print(escaped(title))
    for line in lines:
        padded = [_padded(text, widths[i], i < left) for i, text in enumerate(line)]
        print(GAP.join(padded).rstrip())
    print()


def _padded(text: str, width: int, left: bool) -> str:
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


def _fitting(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], left: int
) -> Iterator[list[int]]:
    """Yield the columns of one table, or of several where more bars don't fit side by side."""
    first, chosen = list(range(left)), list(range(left))
    used = base = EDGES + sum(_width(headers, rows, i) for i in first)
    for index in range(left, len(headers)):
        width = _width(headers, rows, index)
        if _has_bar(rows, index) and len(chosen) > left and used + width > stdout.width:
            yield chosen
            chosen, used = list(first), base
        chosen.append(index)
        used += width
    yield chosen


def _width(
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    index: int,
    bar_width: int = NARROWEST_BAR,
) -> int:
    """Return what a column takes with bars of a width, the space at its right included."""
    beside = bar_width + 1 if _has_bar(rows, index) else 0
    cells = (cell_len(row[index].text) + beside for row in rows)
    return max([cell_len(headers[index]), *cells]) + len(GAP)


def _has_bar(rows: Sequence[Sequence[Cell]], index: int) -> bool:
    return any(row[index].share is not None for row in rows)


def _show_rich(headers: Sequence[str], rows: Sequence[Sequence[Cell]], left: int) -> None:
    # A space at the right of each column, and the box's own between: two, as in plain text.
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    width = _bar_width(headers, rows)
    for index, header in enumerate(headers):
        # Figures with an interval may take two lines on a narrow terminal; names and bars may not.
        whole = index < left or (width > 0 and _has_bar(rows, index))
        side: Side = "left" if index < left else "right"
        table.add_column(Text(header), justify=side, no_wrap=whole, overflow="fold")
    for row in rows:
        table.add_row(*(_rich_cell(cell, width) for cell in row))
    stdout.print(table, soft_wrap=False)


def _rich_cell(cell: Cell, width: int) -> Text:
    text = Text(escaped(cell.text), cell.style)
    if cell.share is None or not width:
        return text
    return Text.assemble((bar(cell.share, width), cell.style), " ", escaped(cell.text))


def _bar_width(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> int:
    """Return the widest bars that fit the terminal; 0 where none do."""
    for width in range(WIDEST_BAR, NARROWEST_BAR - 1, -1):
        used = sum(_width(headers, rows, index, width) for index in range(len(headers)))
        if EDGES + used <= stdout.width:
            return width
    return 0


def figures(**named: Any) -> dict[str, Any]:
    """Round floats for JSON to 6 significant digits, and leave out what is None."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in named.items()
        if value is not None
    }
