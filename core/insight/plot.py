"""A map of a vector file: its rows as points in the plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bertpool.insight import comparison_html, comparison_png, map_html, map_png
from bertpool.insight.comparison import Comparison
from bertpool.insight.extras import check_extra
from bertpool.insight.picture_path import check_picture, picture_of
from bertpool.insight.projection import check_method
from bertpool.insight.vector_map import VectorMap, make_map
from bertpool.output.atomic import write_atomic
from bertpool.output.vector_file import open_vectors

SAMPLE = 20_000  # points: more hide one another


@dataclass(frozen=True)
class Picture:
    """A row of the table of formats: what draws a map, and a comparison.

    ``needs_matplotlib`` says whether the map does; a comparison is always drawn by it.
    """

    draw_map: Callable[[VectorMap], bytes]
    draw_comparison: Callable[[Comparison], bytes]
    needs_matplotlib: bool


PICTURES = {
    ".png": Picture(map_png.draw, comparison_png.draw, needs_matplotlib=True),
    ".html": Picture(map_html.draw, comparison_html.draw, needs_matplotlib=False),
}


def plot(
    file: str,
    *,
    output: str | None = None,
    color: str | None = None,
    column: str | None = None,
    method: str = "pca",
    sample: int = SAMPLE,
    force: bool = False,
) -> Path:
    """Draw a map of a vector file, and return where it is.

    Args:
        file: written by bertpool.
        output: ``.png`` or ``.html``; None is the file's name with ``.png``.
        color: the column that colours the points.
        column: of vectors, where there are several; None is the first.
        method: ``pca`` or ``umap``.
        sample: points at most; of more rows a seeded sample is drawn.
        force: an existing picture may be replaced.

    Raises:
        BertpoolError: a subclass says what is wrong.
    """
    path = picture_of(file, output)
    check_picture(path, [file], force=force)
    picture = PICTURES[path.suffix.lower()]
    if picture.needs_matplotlib:
        check_extra("plot", "matplotlib")
    check_method(method)
    drawn = make_map(open_vectors(Path(file)), color=color, column=column, method=method,
                     sample=sample)  # fmt: skip
    write_atomic(path, picture.draw_map(drawn))
    return path


def plot_comparison(found: Comparison, output: str | None) -> None:
    """Draw how strategies separate pairs, and how far their nearest neighbours agree."""
    if output is not None:
        path = Path(output)
        write_atomic(path, PICTURES[path.suffix.lower()].draw_comparison(found))
