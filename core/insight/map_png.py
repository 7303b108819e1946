"""Draw a map of vectors as PNG, with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from bertpool.insight.colours import OKABE_ITO, OTHER_COLOUR, Categories, Numbers
from bertpool.insight.figure import INK, PALE, has_glyphs, make_figure, plain_text, render_png
from bertpool.insight.vector_map import VectorMap

SIZE = (8.0, 6.0)  # inches
WIDTH = 0.87  # of the map, as a share of the figure's
WIDTH_BESIDE = {Categories: 0.65, Numbers: 0.76}  # with a legend or a scale at its right
NAME_HEIGHT = 0.035  # as a share of the map's
NAMED = 24  # points: so few are named beside their mark
NAME_LENGTH = 34  # characters of a name


def draw(drawn: VectorMap) -> bytes:
    """Draw the points, with a legend or a scale beside them where they have colours."""
    figure = make_figure(*SIZE)
    width = WIDTH if drawn.colouring is None else WIDTH_BESIDE[type(drawn.colouring)]
    axes = figure.add_axes((0.09, 0.1, width, 0.76))
    if isinstance(drawn.colouring, Numbers):
        _scatter_numbers(figure, axes, drawn, drawn.colouring)
    else:
        _scatter(axes, drawn)
    _frame(axes, drawn)
    if len(drawn.texts) <= NAMED:
        _name_points(axes, drawn)
    figure.text(0.09, 0.945, drawn.title, fontsize=15, fontweight="bold", color=INK,
                parse_math=False)  # fmt: skip
    figure.text(0.09, 0.9, drawn.subtitle, fontsize=10, color="#555555", parse_math=False)
    if isinstance(drawn.colouring, Categories):
        _legend(axes, drawn.colouring)
    return render_png(figure)


def _look(count: int) -> dict[str, Any]:
    """Make marks smaller and paler, the more there are; ``s`` is an area in square points."""
    area = float(np.clip(12_000 / count, 5.0, 70.0))
    return {"s": area, "alpha": float(np.clip(1.15 - 0.2 * np.log10(count), 0.3, 0.9)),
            "linewidths": 0}  # fmt: skip


def _scatter(axes: Any, drawn: VectorMap) -> None:
    points, colours = drawn.projection.points, np.full(len(drawn.projection.points), OKABE_ITO[0])
    if isinstance(drawn.colouring, Categories):
        colours = np.array(drawn.colouring.colours)[drawn.colouring.places]
    # In a random order, or the last group would hide the others.
    order = np.random.default_rng(0).permutation(len(points))
    axes.scatter(*points[order].T, c=colours[order], **_look(len(points)))


def _scatter_numbers(figure: Any, axes: Any, drawn: VectorMap, numbers: Numbers) -> None:
    points, known = drawn.projection.points, np.isfinite(numbers.values)
    look, (low, high) = _look(len(points)), numbers.scale
    axes.scatter(*points[~known].T, c=OTHER_COLOUR, **look)
    marks = axes.scatter(
        *points[known].T, c=numbers.values[known], cmap="viridis", vmin=low, vmax=high, **look
    )
    beside = figure.add_axes((0.09 + WIDTH_BESIDE[Numbers] + 0.02, 0.1, 0.025, 0.7))
    scale = figure.colorbar(marks, cax=beside, extend="both", extendfrac=0.03)
    scale.solids.set_alpha(1.0)
    scale.outline.set_visible(False)
    beside.tick_params(colors="#555555", labelsize=9, length=0)
    title = beside.set_title(shortened(numbers.name, 14), fontsize=10, color=INK, loc="left")
    plain_text(title)


def _frame(axes: Any, drawn: VectorMap) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    axes.grid(True, color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors="#777777", labelsize=9, length=0)
    axes.margins(0.06)
    axes.set_xlabel(drawn.projection.axes[0], fontsize=10, color=INK)
    axes.set_ylabel(drawn.projection.axes[1], fontsize=10, color=INK)


def _name_points(axes: Any, drawn: VectorMap) -> None:
    """Write the text beside each point, towards the middle, and above one that is in the way."""
    points = drawn.projection.points
    spread = np.ptp(points, axis=0) + 1e-12
    middle = float(np.median(points[:, 0]))
    taken: list[tuple[float, float]] = []
    for place in np.argsort(points[:, 1]).tolist():
        x, y = (points[place] / spread).tolist()
        while any(abs(y - other) < NAME_HEIGHT and abs(x - at) < 0.5 for at, other in taken):
            y += NAME_HEIGHT / 4
        taken.append((x, y))
        _name_point(axes, points[place], y * spread[1], _drawable(drawn.texts, place),
                    right=points[place, 0] <= middle)  # fmt: skip


def _name_point(axes: Any, point: Any, y: float, name: str, *, right: bool) -> None:
    side, sign = ("left", 1) if right else ("right", -1)
    axes.annotate(
        name, (point[0], y), xytext=(7 * sign, 0), textcoords="offset points", ha=side,
        va="center", fontsize=8, color="#444444", parse_math=False,
    )  # fmt: skip


def _drawable(texts: list[str], place: int) -> str:
    """Shorten a text; one in a script that the font lacks goes by its row."""
    name = shortened(texts[place]) if texts else ""  # .npy holds no texts
    return name if name and has_glyphs(name) else f"row {place + 1}"


def shortened(text: str, length: int = NAME_LENGTH) -> str:
    """Cut a text to a name of one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _legend(axes: Any, colouring: Categories) -> None:
    from matplotlib.lines import Line2D

    counts = np.bincount(colouring.places, minlength=len(colouring.names))
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=7, color=colour)
        for colour in colouring.colours
    ]
    # A label that starts with an underscore would be left out.
    names = [f" {shortened(n, 18)} ({c:,})" for n, c in zip(colouring.names, counts, strict=True)]
    legend = axes.legend(
        handles, names, title=shortened(colouring.name, 24), fontsize=9, title_fontsize=10,
        frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0), handletextpad=0.1,
        alignment="left",
    )  # fmt: skip
    for text in [*legend.get_texts(), legend.get_title()]:
        plain_text(text)
