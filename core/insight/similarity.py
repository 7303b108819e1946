"""How well cosines of pairs agree with labels, with bootstrap intervals.

The figures themselves are scikit-learn's and SciPy's. Their bootstrap isn't: thousands of calls on
small arrays would take minutes, where the functions below take all resamples at once; tests compare
them with the two libraries, resample by resample.

Shapes: ``pairs``; ``resamples``. A resample is ``counts (resamples, pairs)``: how often each pair
was drawn. All strategies share the same resamples, so that their differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bertpool.insight.extras import check_extra
from bertpool.insight.sample import SEED

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)  # percentiles: 95% of the resamples lie between
VALUES_AT_ONCE = 1 << 22  # of an array (resamples, pairs), 32 MiB
TIE = 1e-9  # figures closer than this differ by rounding alone


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95% bootstrap interval.

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    """

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Tell whether the interval lies on one side of 0."""
        return self.low > TIE or self.high < -TIE


def gap(cosines: Floats, labels: Floats) -> float:
    """Return the mean cosine of similar pairs less that of dissimilar ones."""
    return float(cosines[labels == 1].mean() - cosines[labels == 0].mean())


def auc(cosines: Floats, labels: Floats) -> float:
    """Return the probability that a similar pair has the higher cosine of two."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, cosines))


def spearman(cosines: Floats, labels: Floats) -> float:
    """Return the rank correlation of cosines and labels; 0 where cosines are all equal."""
    from scipy.stats import spearmanr

    if np.ptp(cosines) == 0.0:
        return 0.0
    return float(spearmanr(cosines, labels).statistic)


def resampled_gap(cosines: Floats, labels: Floats, counts: Counts) -> Floats:
    """Return each resample's gap, ``(resamples)``."""
    means = []
    for label in (1, 0):
        chosen = counts[:, labels == label]
        means.append(chosen @ cosines[labels == label] / chosen.sum(axis=1))
    return np.asarray(means[0] - means[1])


def resampled_auc(cosines: Floats, labels: Floats, counts: Counts) -> Floats:
    """Return each resample's AUC, ``(resamples)``: the Mann-Whitney statistic, ties half."""
    order, starts = _ties(cosines)
    drawn, similar = counts[:, order], (labels == 1)[order]
    positive = np.add.reduceat(drawn * similar, starts, axis=1)  # (resamples, distinct cosines)
    negative = np.add.reduceat(drawn * ~similar, starts, axis=1)
    below = negative.cumsum(axis=1) - negative / 2
    total = positive.sum(axis=1) * negative.sum(axis=1)
    return np.asarray((positive * below).sum(axis=1) / total)


def resampled_spearman(cosines: Floats, labels: Floats, counts: Counts) -> Floats:
    """Return each resample's rank correlation, ``(resamples)``.

    It is 0 where cosines are all equal, as of the pairs themselves, and NaN where labels are.
    """
    x, y = resampled_ranks(cosines, counts), resampled_ranks(labels, counts)
    total = counts.sum(axis=1, keepdims=True)
    x = x - (counts * x).sum(axis=1, keepdims=True) / total
    y = y - (counts * y).sum(axis=1, keepdims=True) / total
    covariance = (counts * x * y).sum(axis=1)
    of_cosines, of_labels = ((counts * side * side).sum(axis=1) for side in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = covariance / np.sqrt(of_cosines * of_labels)
    return np.where((of_cosines == 0.0) & (of_labels > 0.0), 0.0, correlation)


def resampled_ranks(values: Floats, counts: Counts) -> Floats:
    """Return the rank of each pair in each resample, ties averaged, ``(resamples, pairs)``."""
    order, starts = _ties(values)
    drawn = np.add.reduceat(counts[:, order], starts, axis=1)
    ranks = drawn.cumsum(axis=1) - (drawn - 1) / 2
    group = np.zeros(len(values), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(values)]))
    return np.asarray(ranks[:, group], dtype=np.float64)


def _ties(values: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sort: the order, and where in it each distinct value starts."""
    order = np.argsort(values, kind="stable")
    changes = np.flatnonzero(np.diff(values[order])) + 1
    return order, np.concatenate([[0], changes])


@dataclass(frozen=True)
class Statistic:
    """A row of the table: a figure, all resamples of it, and whether it needs labels 0 and 1."""

    title: str
    value: Callable[[Floats, Floats], float]
    resampled: Callable[[Floats, Floats, Counts], Floats]
    binary: bool = False


STATISTICS = {
    "gap": Statistic("gap", gap, resampled_gap, binary=True),
    "auc": Statistic("AUC", auc, resampled_auc, binary=True),
    "spearman": Statistic("Spearman", spearman, resampled_spearman),
}


@dataclass(frozen=True)
class Separation:
    """How well one strategy's cosines tell similar pairs from others.

    Attributes:
        figures: by statistic; gap and AUC where labels are 0 and 1.
        similar: mean cosine of similar pairs, None where labels are scores.
        dissimilar: mean cosine of the others, likewise.
        behind: how much the best strategy's main statistic is ahead, see :func:`behind_best`.
    """

    figures: Mapping[str, Estimate]
    similar: float | None
    dissimilar: float | None
    behind: Estimate

    @property
    def clearly_behind(self) -> bool:
        """Tell whether the difference to the best is real: its interval excludes 0.

        Of strategies that are all alike, any is called so in some 5% of samples of pairs.
        """
        return self.behind.excludes_zero


def cosine_of_pairs(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """Return the cosine of each two rows, ``(pairs)``; 0 where one is zero."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(axis=1) / np.where(lengths == 0.0, 1.0, lengths))


def draw(strata: Floats, *, resamples: int, seed: int = SEED) -> Iterator[Counts]:
    """Draw pairs with replacement within each stratum, in pieces of bounded size."""
    generator = np.random.default_rng(seed)
    groups = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    step = max(1, VALUES_AT_ONCE // len(strata))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        counts = np.zeros((rows, len(strata)), dtype=np.int64)
        for group in groups:
            drawn = generator.integers(0, len(group), (rows, len(group)))
            flat = (drawn + np.arange(rows)[:, None] * len(group)).ravel()
            counts[:, group] = np.bincount(flat, minlength=rows * len(group)).reshape(rows, -1)
        yield counts


def main_statistic(binary: bool) -> str:
    """Name what strategies are ranked by."""
    return "auc" if binary else "spearman"


def separate(
    cosines: Mapping[str, Floats], labels: Floats, *, binary: bool, resamples: int = RESAMPLES
) -> dict[str, Separation]:
    """Compare strategies on labelled pairs.

    Args:
        cosines: by strategy, ``(pairs)``.
        labels: ``(pairs)``, 0 and 1 where ``binary``, else scores.
        binary: resample similar and dissimilar pairs apart, so that no resample lacks one of them.
        resamples: of the bootstrap.

    Raises:
        BertpoolError: the extra ``stats`` isn't installed.
    """
    check_extra("stats", "scipy", "sklearn")
    names = [name for name, statistic in STATISTICS.items() if binary or not statistic.binary]
    values = {s: {n: STATISTICS[n].value(c, labels) for n in names} for s, c in cosines.items()}
    drawn = _resampled(cosines, labels, names, binary=binary, resamples=resamples)
    main = main_statistic(binary)
    behind = behind_best(
        {strategy: figures[main] for strategy, figures in values.items()},
        {strategy: figures[main] for strategy, figures in drawn.items()},
    )
    return {
        strategy: Separation(
            figures={n: estimate(values[strategy][n], drawn[strategy][n]) for n in names},
            similar=float(of_one[labels == 1].mean()) if binary else None,
            dissimilar=float(of_one[labels == 0].mean()) if binary else None,
            behind=behind[strategy],
        )
        for strategy, of_one in cosines.items()
    }


def _resampled(
    cosines: Mapping[str, Floats],
    labels: Floats,
    names: list[str],
    *,
    binary: bool,
    resamples: int,
) -> dict[str, dict[str, Floats]]:
    """Compute every statistic of every strategy on the same resamples, each ``(resamples)``."""
    pieces: dict[str, dict[str, list[Floats]]] = {s: {n: [] for n in names} for s in cosines}
    for counts in draw(labels if binary else np.zeros_like(labels), resamples=resamples):
        for strategy, of_one in cosines.items():
            for name in names:
                drawn = STATISTICS[name].resampled(of_one, labels, counts)
                pieces[strategy][name].append(drawn)
    return {s: {n: np.concatenate(p) for n, p in by.items()} for s, by in pieces.items()}


def best_of(values: Mapping[str, float]) -> str:
    """Name the highest; of those that differ by rounding alone, the first."""
    highest = max(values.values())
    return next(name for name, value in values.items() if value >= highest - TIE)


def behind_best(
    values: Mapping[str, float], resampled: Mapping[str, Floats]
) -> dict[str, Estimate]:
    """Estimate how much the best strategy is ahead of each, with simultaneous 95% intervals.

    The best is chosen on the same pairs, and several are compared with it: intervals of one
    difference each would exclude 0 by chance too often. These are of all differences of any two
    strategies at once. Their half-width is a multiple of the difference's standard error, which in
    95% of the resamples no difference of two is further off by.

    Args:
        values: by strategy.
        resampled: by strategy, ``(resamples)``, all of the same resamples.

    Source: Westfall and Young 1993, Resampling-Based Multiple Testing (the maximum statistic);
    Hsu 1996, Multiple Comparisons, chapter 5 (all pairwise differences).
    """
    figures = np.array(list(values.values()))
    drawn = np.stack([resampled[name] for name in values])  # (strategies, resamples)
    drawn = drawn[:, np.isfinite(drawn).all(axis=0)]
    best = list(values).index(best_of(values))
    ahead = figures[best] - figures
    if not drawn.size:
        return {n: Estimate(float(a), np.nan, np.nan) for n, a in zip(values, ahead, strict=True)}
    margins = _largest_multiple(figures, drawn) * (drawn[best] - drawn).std(axis=1)
    bounds = zip(values, ahead.tolist(), margins.tolist(), strict=True)
    return {name: Estimate(value, value - margin, value + margin) for name, value, margin in bounds}


def _largest_multiple(figures: Floats, drawn: Floats) -> float:
    """Return how many standard errors off the furthest difference is in 95% of the resamples."""
    furthest = np.zeros(drawn.shape[1])
    for figure, of_one in zip(figures, drawn, strict=True):
        differences = of_one - drawn  # (strategies, resamples)
        errors = differences.std(axis=1, keepdims=True)
        off = np.abs(differences - (figure - figures)[:, None])
        multiples = np.divide(off, errors, out=np.zeros_like(off), where=errors > TIE)
        furthest = np.maximum(furthest, multiples.max(axis=0))
    return float(np.percentile(furthest, 95))


def estimate(value: float, resampled: Floats) -> Estimate:
    """Put a figure and its percentile interval together."""
    finite = resampled[np.isfinite(resampled)]
    if not len(finite):
        return Estimate(value, float("nan"), float("nan"))
    low, high = np.percentile(finite, INTERVAL)
    return Estimate(value, float(low), float(high))
