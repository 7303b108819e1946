"""Vectors -> points in the plane: ``(rows, hidden)`` -> ``(rows, 2)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bertpool.insight.extras import check_extra
from bertpool.insight.sample import SEED

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Projection:
    """Points ``(rows, 2)`` and what their two axes are called."""

    points: Floats
    axes: tuple[str, str]


def pca(vectors: Vectors) -> Projection:
    """Project onto the two directions of most variance.

    A direction's sign is free; it is chosen so that its largest loading is positive.

    Source: Pearson 1901, On Lines and Planes of Closest Fit.
    """
    centred = np.asarray(vectors, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    # Of the small (hidden, hidden) matrix, not of all rows: the same directions, in less time.
    _, variances, directions = np.linalg.svd(centred.T @ centred)
    two = directions[:2]
    largest = np.abs(two).argmax(axis=1)
    two = two * np.sign(two[np.arange(len(two)), largest])[:, None]
    points = np.zeros((len(centred), 2))
    points[:, : len(two)] = centred @ two.T
    shares = [*(variances / (variances.sum() or 1.0)), 0.0][:2]
    first, second = (f"PC {i} ({share:.1%} of variance)" for i, share in enumerate(shares, start=1))
    return Projection(points, (first, second))


def umap(vectors: Vectors) -> Projection:
    """Lay out so that neighbours by cosine stay neighbours; distances mean little.

    Source: McInnes et al. 2018, UMAP: Uniform Manifold Approximation and Projection.
    """
    from umap import UMAP

    neighbours = min(15, len(vectors) - 1)
    layout = UMAP(n_components=2, metric="cosine", random_state=SEED, n_neighbors=neighbours)
    points = np.asarray(layout.fit_transform(vectors), dtype=np.float64)
    return Projection(points, ("UMAP 1", "UMAP 2"))


@dataclass(frozen=True)
class Method:
    """A row of the table: the projection, and the module of an extra that it needs."""

    project: Callable[[Vectors], Projection]
    extra: str | None = None
    module: str = ""


METHODS = {"pca": Method(pca), "umap": Method(umap, "umap", "umap")}


def check_method(name: str) -> None:
    """Check that what a method needs is installed.

    Raises:
        BertpoolError: it isn't.
    """
    method = METHODS[name]
    if method.extra is not None:
        check_extra(method.extra, method.module)
