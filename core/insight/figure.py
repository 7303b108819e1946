"""Figures of matplotlib, without its global state: nothing is shown, and a run changes no other."""

from __future__ import annotations

import io
import warnings
from typing import Any

INK, PALE = "#222222", "#cccccc"
DOTS_PER_INCH = 150


def make_figure(width: float, height: float) -> Any:
    """Make an empty white figure, its size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")


def plain_text(text: Any) -> None:
    """Show a text as it is: a dollar sign starts no formula."""
    text.set_parse_math(False)


def has_glyphs(text: str) -> bool:
    """Tell whether the font can draw a text."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    glyphs = get_font(findfont(FontProperties())).get_charmap()
    return all(ord(character) in glyphs for character in text)


def render_png(figure: Any) -> bytes:
    """Render a figure; the same figure gives the same bytes."""
    return _render(figure, format="png", metadata={"Software": None})


def render_svg(figure: Any) -> str:
    """Render a figure as an ``<svg>`` element, its text as text."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "bertpool"}):
        whole = _render(figure, format="svg", metadata={"Date": None}).decode()
    return whole[whole.index("<svg") :]


def _render(figure: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        # Of a script that the font lacks a box is drawn: it needn't be said for each character.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(stream, **options)
    return stream.getvalue()
