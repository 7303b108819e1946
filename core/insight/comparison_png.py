"""Draw a comparison as PNG."""

from __future__ import annotations

from bertpool.insight.comparison import Comparison
from bertpool.insight.comparison_figure import comparison_figure
from bertpool.insight.figure import INK, render_png


def draw(found: Comparison) -> bytes:
    """Draw the figure under the model's name."""
    figure = comparison_figure(found)
    height = figure.get_figheight()
    figure.text(0.015, 1 - 0.3 / height, heading(found), fontsize=13, fontweight="bold", color=INK,
                parse_math=False)  # fmt: skip
    return render_png(figure)


def heading(found: Comparison) -> str:
    """Say what was compared on what."""
    what = f"{len(found.labels):,} labelled pairs" if found.main else f"{found.texts:,} texts"
    return f"{found.model}: {len(found.contenders)} strategies on {what}"
