"""Tables and JSON on stdout: Rich on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    show = _show_rich if stdout.is_terminal else _show_plain
    show(title, headers, rows, left)


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


def _show_rich(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]], left: int
) -> None:
    table = Table(box=SIMPLE_HEAD, title=Text(title, "bold"), title_justify="left", pad_edge=False)
    for index, header in enumerate(headers):
        # Figures with an interval may take two lines on a narrow terminal; names and bars may not.
        wraps = index >= left and all(row[index].share is None for row in rows)
        side: Side = "left" if index < left else "right"
        table.add_column(Text(header), justify=side, no_wrap=not wraps, overflow="ellipsis")
    width = _bar_width(headers, rows)
    for row in rows:
        table.add_row(*(_rich_cell(cell, width) for cell in row))
    stdout.print(table, soft_wrap=False)


def _rich_cell(cell: Cell, width: int) -> Text:
    text = Text(escaped(cell.text), cell.style)
    if cell.share is None:
        return text
    return Text.assemble((bar(cell.share, width), cell.style), " ", escaped(cell.text))


def _bar_width(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> int:
    """Give the bars of a row what the terminal leaves beside the text, 4 to 16 cells each."""
    texts = [[header, *(row[i].text for row in rows)] for i, header in enumerate(headers)]
    used = sum(max(map(cell_len, column)) + 3 for column in texts)
    bars = max((sum(cell.share is not None for cell in row) for row in rows), default=0)
    return min(16, max(4, (stdout.width - used) // max(1, bars)))


def figures(**named: Any) -> dict[str, Any]:
    """Round floats for JSON to 6 significant digits, and leave out what is None."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in named.items()
        if value is not None
    }
