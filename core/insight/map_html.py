"""Draw a map of vectors as a page: the text under the pointer, zoom, search, groups to hide."""

from __future__ import annotations

from typing import Any

import numpy as np
from bertpool.insight.colours import OKABE_ITO, OTHER_COLOUR, VIRIDIS, Categories, Numbers
from bertpool.insight.map_script import BODY, MAP_STYLE, SCRIPT
from bertpool.insight.page import embedded_json, make_page
from bertpool.insight.vector_map import VectorMap

TEXT_LENGTH = 400  # characters of a text that are shown under the pointer
DIGITS = 5  # of a coordinate


def draw(drawn: VectorMap) -> bytes:
    """Write the page."""
    content = f'<script type="application/json" id="data">{embedded_json(_data(drawn))}</script>'
    body = f"{BODY}\n{content}\n<script>{SCRIPT}</script>"
    return make_page(drawn.title, drawn.subtitle, body, style=MAP_STYLE)


def _data(drawn: VectorMap) -> dict[str, Any]:
    points = drawn.projection.points
    return {
        "x": [_rounded(value) for value in points[:, 0]],
        "y": [_rounded(value) for value in points[:, 1]],
        "axes": list(drawn.projection.axes),
        "texts": [_cut(text) for text in drawn.texts],
        **_colours(drawn),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 1] + "…"


def _colours(drawn: VectorMap) -> dict[str, Any]:
    colouring = drawn.colouring
    if isinstance(colouring, Numbers):
        values = [None if np.isnan(v) else _rounded(v) for v in colouring.values.tolist()]
        low, high = colouring.scale
        scale = {"low": low, "high": high, "steps": VIRIDIS}
        return {"color": colouring.name, "values": values, "scale": scale, "none": OTHER_COLOUR}
    if isinstance(colouring, Categories):
        counts = np.bincount(colouring.places, minlength=len(colouring.names)).tolist()
        groups = zip(colouring.names, colouring.colours, counts, strict=True)
        return {
            "color": colouring.name,
            "places": colouring.places.tolist(),
            "groups": [{"name": n, "colour": c, "count": k} for n, c, k in groups],
        }
    return {"plain": OKABE_ITO[0]}
