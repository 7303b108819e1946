"""Draw docs/pictures/weights.png from what ``bertpool explain --json`` writes; see docs/pooling.md.

bertpool explain TEXT -s cls,mean --json | python docs/pictures/weights.py weights.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bertpool.insight.figure import INK, PALE, make_figure, plain_text, render_png

WORD, SPECIAL = "#0072B2", "#E69F00"  # Okabe and Ito 2008
COLUMNS = 4
MEANING = {"max": "share of dimensions won", "pooler": "then tanh(W h + b)"}  # not linear


def draw(explained: dict[str, Any]) -> bytes:
    """Draw a panel a strategy, a bar a token, all on the same scale; return the PNG."""
    tokens, names = explained["tokens"], list(explained["strategies"])
    rows = -(-len(names) // COLUMNS)
    height = 0.8 + rows * (0.6 + 0.27 * len(tokens))
    figure = make_figure(12.0, height)
    grid = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    for axes, name in zip(grid.flat, names, strict=False):
        _panel(axes, tokens, name)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    figure.subplots_adjust(
        left=0.075,
        right=0.985,
        bottom=0.35 / height,
        top=1 - 0.95 / height,
        wspace=0.14,
        hspace=0.2,
    )
    _heading(figure, height, f"The weight of each token, {explained['model']}")
    return render_png(figure)


def _panel(axes: Any, tokens: list[dict[str, Any]], name: str) -> None:
    weights = [token["weights"][name] for token in tokens]
    colours = [SPECIAL if token["special"] else WORD for token in tokens]
    axes.barh(range(len(tokens)), weights, height=0.72, color=colours)
    for place, weight in enumerate(weights):
        inside = weight > 0.8
        axes.text(
            weight + (-0.02 if inside else 0.02), place, f"{weight:.3f}" if weight else "0",
            va="center", ha="right" if inside else "left", fontsize=9,
            color=INK if weight else "#888888",
        )  # fmt: skip
    axes.set_xlim(0, 1)
    axes.set_ylim(len(tokens) - 0.5, -0.5)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks(range(len(tokens)), [token["token"] for token in tokens])
    axes.tick_params(colors=INK, labelsize=10, length=0)
    for label in axes.get_yticklabels():
        plain_text(label)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(PALE)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#eeeeee")
    axes.text(0, 1.025, name, transform=axes.transAxes, fontsize=11, fontweight="bold", color=INK)
    axes.text(1, 1.025, MEANING.get(name, f"sum {sum(weights):.2f}"), transform=axes.transAxes,
              fontsize=8.5, color="#555555", ha="right")  # fmt: skip


def _heading(figure: Any, height: float, title: str) -> None:
    line = 1 - 0.36 / height
    figure.text(0.012, line, title, fontsize=13, fontweight="bold", color=INK, parse_math=False)
    legend = ((0.985, "■ token of the text", WORD), (0.835, "■ special token", SPECIAL))
    for x, text, colour in legend:
        figure.text(x, line, text, fontsize=10.5, fontweight="bold", color=colour, ha="right")


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(draw(json.load(sys.stdin)))
