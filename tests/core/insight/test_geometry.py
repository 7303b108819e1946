from __future__ import annotations

import numpy as np
import pytest
from bertpool.insight.geometry import (
    anisotropy,
    effective_rank,
    hubness,
    nearest,
    norm_spread,
    overlap,
    uniformity,
)
from scipy.spatial.distance import pdist
from scipy.stats import entropy, skew

RANDOM = np.random.default_rng(0).normal(size=(700, 16))  # more than a block of texts
CONE = RANDOM + 8.0


@pytest.mark.parametrize("vectors", [RANDOM, CONE], ids=["even", "cone"])
def test_anisotropy_is_the_mean_cosine_of_all_pairs(vectors: np.ndarray) -> None:
    assert anisotropy(vectors) == pytest.approx(np.mean(1 - pdist(vectors, "cosine")), abs=1e-9)


@pytest.mark.parametrize("vectors", [RANDOM, CONE], ids=["even", "cone"])
def test_uniformity_is_the_log_of_the_mean_potential(vectors: np.ndarray) -> None:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.log(np.exp(-2 * pdist(units, "sqeuclidean")).mean())
    assert uniformity(vectors) == pytest.approx(expected, abs=1e-9)


def test_effective_rank_is_the_exponential_of_the_entropy_of_singular_values() -> None:
    singular = np.linalg.svd(RANDOM, compute_uv=False)
    assert effective_rank(RANDOM) == pytest.approx(np.exp(entropy(singular)))


def test_vectors_along_one_direction_have_an_effective_rank_of_one() -> None:
    assert effective_rank(np.outer(np.arange(1.0, 9.0), np.ones(4))) == pytest.approx(1.0)


def test_nearest_are_the_highest_cosines_without_the_text_itself() -> None:
    units = RANDOM / np.linalg.norm(RANDOM, axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    expected = np.argsort(-cosines, axis=1)[:, :10]
    assert (np.sort(nearest(RANDOM), axis=1) == np.sort(expected, axis=1)).all()


def test_few_texts_have_fewer_neighbours() -> None:
    assert nearest(RANDOM[:4]).shape == (4, 3)


def test_hubness_is_the_skewness_of_the_occurrences() -> None:
    neighbours = nearest(RANDOM)
    occurrences = np.bincount(neighbours.ravel(), minlength=len(RANDOM))
    assert hubness(neighbours) == pytest.approx(skew(occurrences))


def test_norm_spread_is_a_share_of_the_mean_length() -> None:
    assert norm_spread(np.array([[1.0, 0.0], [3.0, 0.0]])) == 0.5


def test_a_strategy_agrees_with_itself_and_with_scaled_vectors() -> None:
    neighbours = nearest(RANDOM)
    assert overlap(neighbours, neighbours) == 1.0
    assert overlap(neighbours, nearest(RANDOM * 3.0)) == 1.0


def test_zero_vectors_have_figures() -> None:
    zeros = np.zeros((5, 4))
    assert anisotropy(zeros) == 0.0
    assert effective_rank(zeros) == 0.0
    assert norm_spread(zeros) == 0.0
    assert np.isfinite(uniformity(zeros))
