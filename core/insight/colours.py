"""Colours of points, told apart by colour-blind eyes: categories, or numbers on a scale."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Source: Okabe and Ito 2008, Color Universal Design; the darkest of them first.
OKABE_ITO = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000",
)  # fmt: skip
OTHER_COLOUR = "#999999"
OTHER, MISSING = "other", "(none)"
SCALE_ENDS = (2.0, 98.0)  # percentiles
# Nine steps of matplotlib's viridis, for pages that are drawn without it.
VIRIDIS = (
    "#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30",
    "#fde725",
)  # fmt: skip


@dataclass(frozen=True)
class Categories:
    """Points in a few groups.

    Attributes:
        name: of the column.
        names: of the groups, the largest first; the rest of many are together, the last.
        places: ``(rows)`` int64, each point's group.
    """

    name: str
    names: tuple[str, ...]
    places: npt.NDArray[np.int64]

    @property
    def colours(self) -> tuple[str, ...]:
        """Give each group its colour."""
        rest = {OTHER: OTHER_COLOUR, MISSING: OTHER_COLOUR}
        return tuple(rest.get(n, OKABE_ITO[i]) for i, n in enumerate(self.names))


@dataclass(frozen=True)
class Numbers:
    """Points with a number each, ``(rows)`` float64, NaN where there is none."""

    name: str
    values: npt.NDArray[np.float64]

    @property
    def scale(self) -> tuple[float, float]:
        """Return the ends of the scale: 96% of the values lie between, and few stretch it."""
        low, high = np.nanpercentile(self.values, SCALE_ENDS)
        return float(low), float(high)


Colouring = Categories | Numbers


def colour_by(name: str, values: Sequence[object]) -> Colouring:
    """Choose a scale for a column of more numbers than there are colours, else categories."""
    numbers = [_number(value) for value in values]
    distinct = {number for number in numbers if number is not None and not math.isnan(number)}
    if None not in numbers and len(distinct) > len(OKABE_ITO):
        return Numbers(name, np.array(numbers, dtype=np.float64))
    return _categories(name, [MISSING if v is None or v == "" else str(v) for v in values])


def _number(value: object) -> float | None:
    """Read a value as a number: NaN where there is none, None where it is something else."""
    if value is None or value == "":
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else math.nan


def _categories(name: str, labels: list[str]) -> Categories:
    counts = Counter(labels)
    names = [label for label, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
    if len(names) > len(OKABE_ITO):
        names = [*names[: len(OKABE_ITO) - 1], OTHER]
    place = {label: index for index, label in enumerate(names)}
    rest = len(names) - 1
    places = np.array([place.get(label, rest) for label in labels], dtype=np.int64)
    return Categories(name, tuple(names), places)
