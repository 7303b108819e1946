"""Strategies side by side: what was measured of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from bertpool.insight.geometry import Geometry
from bertpool.insight.similarity import Separation

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Contender:
    """A strategy on a layer.

    Attributes:
        strategy: its name.
        layer: the layer's label.
        geometry: how its vectors lie.
        separation: how it does on labelled pairs, where there are any.
        declared: it is what the checkpoint declares, on the last layer.
    """

    strategy: str
    layer: str
    geometry: Geometry
    separation: Separation | None = None
    declared: bool = False


@dataclass(frozen=True)
class Comparison:
    """What :func:`bertpool.insight.compare.compare` found.

    Attributes:
        model: the checkpoint's name.
        texts: how many different texts were encoded.
        contenders: by name, in the order asked for.
        agreement: ``(contenders, contenders)``, the share of 10 nearest neighbours in common.
        main: the statistic that ranks them, ``auc`` or ``spearman``; None without labels.
        special_share: the weight of special tokens in attention pooling, where that is compared.
        labels: ``(pairs)``, empty without labels.
        cosines: of each contender, ``(pairs)``.
    """

    model: str
    texts: int
    contenders: Mapping[str, Contender]
    agreement: Floats
    main: str | None = None
    special_share: float | None = None
    labels: Floats = field(default_factory=lambda: np.zeros(0))
    cosines: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def declared(self) -> str | None:
        """Name the contender that the checkpoint declares, if it is among them."""
        return next((name for name, one in self.contenders.items() if one.declared), None)

    @property
    def best(self) -> str | None:
        """Name the contender that nobody is ahead of; None without labels."""
        for name, one in self.contenders.items():
            if one.separation is not None and one.separation.behind.value <= 0.0:
                return name
        return None

    def main_value(self, name: str) -> float:
        """Return a contender's main statistic."""
        separation = self.contenders[name].separation
        assert separation is not None
        assert self.main is not None
        return separation.figures[self.main].value
