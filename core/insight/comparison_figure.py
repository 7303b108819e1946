"""The figure of a comparison: how cosines separate pairs, and how far neighbours agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from bertpool.insight.comparison import Comparison, Contender
from bertpool.insight.figure import INK, PALE, make_figure
from bertpool.insight.similarity import STATISTICS

Floats = npt.NDArray[np.float64]

SIMILAR, DISSIMILAR = "#0072B2", "#D55E00"  # Okabe and Ito 2008
ROW = 0.62  # inches of height of a strategy
BINS = (12, 40)  # of a histogram, by the number of pairs
POINT_ALPHA = 0.5


def comparison_figure(found: Comparison) -> Any:
    """Draw a panel of cosines, where there are labels, or else of anisotropy; and a heat map."""
    count = len(found.contenders)
    height = max(3.6, 1.9 + ROW * count)
    figure = make_figure(12.0, height)
    upper, lower = 1 - 0.95 / height, 0.72 / height
    left = figure.add_axes((0.115, lower, 0.385, upper - lower))
    right = figure.add_axes((0.7, lower, 0.28, upper - lower))
    _left_panel(found)(left, found)
    _agreement(right, found)
    return figure


def _left_panel(found: Comparison) -> Any:
    if found.main is None:
        return _anisotropy
    return _distributions if found.main == "auc" else _scores


def _distributions(axes: Any, found: Comparison) -> None:
    """Draw a row a strategy: similar pairs upwards, dissimilar ones downwards."""
    similar = found.labels == 1
    _rows(axes, found, _separation_titles(found))
    bins = np.linspace(*_span(found), int(np.clip(len(similar) / 4, *BINS)) + 1)
    for place, cosines in enumerate(found.cosines.values()):
        sides = ((similar, SIMILAR, -1), (~similar, DISSIMILAR, 1))
        shares = [np.histogram(cosines[chosen], bins)[0] / chosen.sum() for chosen, _, _ in sides]
        # Each row has its own scale: one narrow strategy would flatten all the others.
        tallest = max(float(one.max()) for one in shares)
        for one, (chosen, colour, side) in zip(shares, sides, strict=True):
            _half(axes, bins, place, side * one / tallest * 0.4, colour)
            mean = float(cosines[chosen].mean())
            axes.plot([mean, mean], [place, place + side * 0.44], color=colour, linewidth=2.2)
    axes.set_xlim(bins[0], bins[-1])
    axes.set_xlabel("cosine of a pair", fontsize=10, color=INK)
    _title(axes, "Share of pairs by cosine; a line at each mean")
    for x, text, colour in ((0.0, "▲ similar", SIMILAR), (0.17, "▼ dissimilar", DISSIMILAR)):
        axes.text(x, 1.015, text, transform=axes.transAxes, color=colour, fontsize=10,
                  fontweight="bold")  # fmt: skip


def _half(axes: Any, bins: Floats, place: int, heights: Floats, colour: str) -> None:
    axes.bar(
        bins[:-1], heights, width=np.diff(bins), bottom=place, align="edge", color=colour,
        alpha=0.55, linewidth=0,
    )  # fmt: skip


def _scores(axes: Any, found: Comparison) -> None:
    """Draw a row a strategy: each pair at its cosine, higher in the row by its score."""
    low, high = float(found.labels.min()), float(found.labels.max())
    heights = 0.4 - 0.8 * (found.labels - low) / (high - low)
    _rows(axes, found, _separation_titles(found))
    for place, cosines in enumerate(found.cosines.values()):
        axes.scatter(cosines, place + heights, s=9, color=SIMILAR, alpha=POINT_ALPHA, linewidths=0)
    axes.set_xlim(*_span(found))
    axes.set_xlabel("cosine of a pair", fontsize=10, color=INK)
    _title(axes, f"Pairs by cosine; in each row upwards from score {low:g} to {high:g}")


def _anisotropy(axes: Any, found: Comparison) -> None:
    values = [one.geometry.anisotropy for one in found.contenders.values()]
    _rows(axes, found, [f"{value:.3f}" for value in values])
    axes.barh(range(len(values)), values, height=0.55, color=SIMILAR, alpha=0.8)
    axes.set_xlim(min(0.0, *values), 1.0)
    axes.set_xlabel("mean cosine of two random texts", fontsize=10, color=INK)
    _title(axes, "Anisotropy: 0 uses all directions, 1 is a single one")


def _rows(axes: Any, found: Comparison, beside: list[str]) -> None:
    """Set up a row for each strategy, the first on top, with a figure at the right end."""
    axes.set_ylim(len(found.contenders) - 0.5, -0.5)
    axes.set_yticks(
        range(len(found.contenders)), [_label(*one) for one in found.contenders.items()]
    )
    axes.tick_params(colors=INK, labelsize=10, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    for place, text in enumerate(beside):
        axes.axhline(place, color=PALE, linewidth=0.8, zorder=0)
        axes.text(1.02, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9,
                  color=INK)  # fmt: skip


def _label(name: str, one: Contender) -> str:
    return f"{name}\n(declared)" if one.declared else name


def _separation_titles(found: Comparison) -> list[str]:
    titles = []
    assert found.main is not None
    for one in found.contenders.values():
        assert one.separation is not None
        figure = one.separation.figures[found.main]
        title = STATISTICS[found.main].title
        titles.append(f"{title} {figure.value:.3f}\n{figure.low:.2f} to {figure.high:.2f}")
    return titles


def _span(found: Comparison) -> tuple[float, float]:
    """Return the range of all cosines, with a margin."""
    values = np.concatenate(list(found.cosines.values()))
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * ((high - low) or 1.0)
    return low - margin, high + margin


def _agreement(axes: Any, found: Comparison) -> None:
    """Draw the share of nearest neighbours that each two strategies have in common."""
    names = list(found.contenders)
    axes.imshow(found.agreement, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for (row, column), share in np.ndenumerate(found.agreement):
        ink = "white" if share > 0.6 else INK
        axes.text(column, row, f"{share:.2f}", ha="center", va="center", color=ink, fontsize=9)
    _title(axes, "Nearest neighbours in common, share of 10")


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=11, color=INK, loc="left", pad=24)
