"""Draw a comparison as a page: the figure as SVG, and the advice."""

from __future__ import annotations

import html

from bertpool.insight.advice import advise, warn
from bertpool.insight.comparison import Comparison
from bertpool.insight.comparison_figure import comparison_figure
from bertpool.insight.comparison_png import heading
from bertpool.insight.figure import render_svg
from bertpool.insight.page import make_page

STYLE = """
main { padding: 0 16px 24px; max-width: 1280px; }
svg { width: 100%; height: auto; }
ul { margin: 8px 8px 0; padding-left: 20px; }
"""


def draw(found: Comparison) -> bytes:
    """Write the page."""
    lines = "".join(f"<li>beware: {html.escape(line)}</li>" for line in warn(found))
    advice = f"<ul><li><b>advice: {html.escape(advise(found))}</b></li>{lines}</ul>"
    body = f"<main>{render_svg(comparison_figure(found))}{advice}</main>"
    return make_page(heading(found), "made by bertpool compare", body, style=STYLE)
