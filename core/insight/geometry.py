"""How vectors of texts lie in their space, without any label.

Shapes: ``vectors (texts, hidden)``; ``neighbours (texts, k)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Neighbours = npt.NDArray[np.int64]

NEIGHBOURS = 10
BLOCK = 512  # texts whose cosines to all others are in memory at once
TEMPERATURE = 2.0  # of the uniformity: exp(-2 |u - v|^2)


@dataclass(frozen=True)
class Geometry:
    """Figures of one strategy's vectors.

    Attributes:
        anisotropy: mean cosine of two texts: 0 where directions are used evenly, near 1 in a cone.
        uniformity: log of the mean Gaussian potential; lower is more even, -4 about the lowest.
        effective_rank: how many directions carry the vectors, 1 to the width.
        hubness: skewness of how often a text is among others' nearest; above 1 some always are.
        norm_spread: standard deviation of the lengths over their mean.
    """

    anisotropy: float
    uniformity: float
    effective_rank: float
    hubness: float
    norm_spread: float


def measure(vectors: Vectors, neighbours: Neighbours) -> Geometry:
    """Measure vectors whose nearest neighbours are known already."""
    return Geometry(
        anisotropy(vectors),
        uniformity(vectors),
        effective_rank(vectors),
        hubness(neighbours),
        norm_spread(vectors),
    )


def directions(vectors: Vectors) -> Floats:
    """Scale vectors to unit length; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0.0, 1.0, lengths), dtype=np.float64)


def anisotropy(vectors: Vectors) -> float:
    """Average the cosine over all pairs of different texts.

    Source: Ethayarajh 2019, How Contextual are Contextualized Word Representations?, section 3.

    >>> anisotropy(np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]))
    0.3333333333333333
    """
    units = directions(vectors)
    # The square of the sum holds every pair twice, and each text with itself.
    own = float((units * units).sum())
    pairs = len(units) * (len(units) - 1)
    return (float(np.square(units.sum(axis=0)).sum()) - own) / pairs


def uniformity(vectors: Vectors) -> float:
    """Return the log of the mean of ``exp(-2 |u - v|^2)`` over all pairs of directions.

    Source: Wang and Isola 2020, Understanding Contrastive Representation Learning through Alignment
    and Uniformity on the Hypersphere, section 4.1.2.
    """
    units = directions(vectors)
    squares = np.square(units).sum(axis=1)
    total = 0.0
    for start, cosines in _blocks(units):
        rows = squares[start : start + len(cosines), None]
        total += float(np.exp(-TEMPERATURE * (rows + squares - 2 * cosines)).sum())
    count = len(units)
    return float(np.log((total - count) / (count * (count - 1))))  # a text with itself counts 1


def effective_rank(vectors: Vectors) -> float:
    """Return the exponential of the entropy of the singular values' shares.

    Source: Roy and Vetterli 2007, The Effective Rank, section 2.

    >>> round(effective_rank(np.eye(3)), 6), effective_rank(np.ones((3, 3))) < 1.001
    (3.0, True)
    """
    singular = np.linalg.svd(np.asarray(vectors, dtype=np.float64), compute_uv=False)
    if singular.sum() == 0.0:
        return 0.0
    shares = singular / singular.sum()
    shares = shares[shares > 0.0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def nearest(vectors: Vectors, k: int = NEIGHBOURS) -> Neighbours:
    """Find each text's nearest others by cosine, ``(texts, k)``, in no particular order."""
    units = directions(vectors)
    k = min(k, len(units) - 1)
    found = []
    for start, cosines in _blocks(units):
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        found.append(np.argpartition(-cosines, k - 1, axis=1)[:, :k])
    return np.concatenate(found)


def hubness(neighbours: Neighbours) -> float:
    """Return the skewness of how often each text is among the nearest of others.

    Source: Radovanovic et al. 2010, Hubs in Space, section 3.
    """
    occurrences = np.bincount(neighbours.ravel(), minlength=len(neighbours)).astype(np.float64)
    deviations = occurrences - occurrences.mean()
    spread = float(np.sqrt(np.square(deviations).mean()))
    return float((deviations**3).mean() / spread**3) if spread else 0.0


def norm_spread(vectors: Vectors) -> float:
    """Return the standard deviation of the vectors' lengths over their mean."""
    lengths = np.linalg.norm(np.asarray(vectors, dtype=np.float64), axis=1)
    return float(lengths.std() / lengths.mean()) if lengths.any() else 0.0


def overlap(one: Neighbours, other: Neighbours) -> float:
    """Return the share of nearest neighbours that two strategies have in common.

    >>> overlap(np.array([[1, 2]]), np.array([[2, 3]]))
    0.5
    """
    return float((one[:, :, None] == other[:, None, :]).any(axis=2).mean())


def _blocks(units: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield where each block of texts starts, and its cosines to all, ``(block, texts)``."""
    for start in range(0, len(units), BLOCK):
        yield start, units[start : start + BLOCK] @ units.T
