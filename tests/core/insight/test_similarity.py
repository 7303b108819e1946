from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from bertpool.errors import BertpoolError
from bertpool.insight.similarity import (
    STATISTICS,
    Estimate,
    cosine_of_pairs,
    draw,
    resampled_auc,
    resampled_spearman,
    separate,
)
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score


def noisy(labels: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """Return cosines that follow labels but for some noise, a few of them equal."""
    generator = np.random.default_rng(seed)
    return np.round(labels * 0.3 + generator.normal(0, noise, len(labels)), 2)


BINARY = np.array([0.0, 1.0] * 30)
SCORES = np.random.default_rng(7).integers(0, 11, 60) / 2


def test_the_cosine_of_pairs_is_that_of_each_two_rows() -> None:
    cosines = cosine_of_pairs([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]], [[5.0, 0.0], [1, 1], [1, 1]])
    assert cosines.tolist() == pytest.approx([1.0, np.sqrt(0.5), 0.0])


def test_a_resample_draws_as_many_pairs_of_each_label_as_there_are() -> None:
    (counts,) = draw(BINARY, resamples=50)
    assert counts.shape == (50, 60)
    assert (counts[:, BINARY == 1].sum(axis=1) == 30).all()
    assert (counts[:, BINARY == 0].sum(axis=1) == 30).all()


def test_the_same_seed_draws_the_same_pairs() -> None:
    first, second = (next(draw(BINARY, resamples=20, seed=3)) for _ in range(2))
    assert (first == second).all()
    assert (first != next(draw(BINARY, resamples=20, seed=4))).any()


def test_auc_of_each_resample_equals_scikit_learns() -> None:
    cosines = noisy(BINARY, 0.3, 1)
    (counts,) = draw(BINARY, resamples=40)
    expected = [
        roc_auc_score(np.repeat(BINARY, drawn), np.repeat(cosines, drawn)) for drawn in counts
    ]
    np.testing.assert_allclose(resampled_auc(cosines, BINARY, counts), expected, atol=1e-12)


@pytest.mark.parametrize("labels", [BINARY, SCORES], ids=["binary", "scores"])
def test_spearman_of_each_resample_equals_scipys(labels: np.ndarray) -> None:
    cosines = noisy(labels, 0.3, 2)
    (counts,) = draw(np.zeros(60), resamples=40)
    expected = []
    for drawn in counts:
        of_one: Any = spearmanr(np.repeat(cosines, drawn), np.repeat(labels, drawn))
        expected.append(of_one.statistic)
    np.testing.assert_allclose(resampled_spearman(cosines, labels, counts), expected, atol=1e-12)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_resample_of_every_pair_once_is_the_figure_itself(name: str) -> None:
    cosines, statistic = noisy(BINARY, 0.3, 5), STATISTICS[name]
    once = np.ones((1, 60), dtype=np.int64)
    whole = statistic.resampled(cosines, BINARY, once)
    assert whole[0] == pytest.approx(statistic.value(cosines, BINARY), abs=1e-12)


def test_a_clear_difference_is_real_and_a_small_one_is_not() -> None:
    cosines = {
        "good": noisy(BINARY, 0.05, 1),
        "nearly": noisy(BINARY, 0.05, 2),
        "random": noisy(BINARY * 0, 0.3, 3),
    }
    found = separate(cosines, BINARY, binary=True, resamples=500)
    assert found["random"].clearly_behind
    assert not found["nearly"].clearly_behind
    assert found["good"].behind == Estimate(0.0, 0.0, 0.0)
    assert found["good"].figures["gap"].low < 0.3 < found["good"].figures["gap"].high


def test_equal_strategies_are_not_apart() -> None:
    cosines = noisy(BINARY, 0.3, 1)
    found = separate({"one": cosines, "other": cosines * 2}, BINARY, binary=True, resamples=100)
    assert not found["other"].clearly_behind


@pytest.mark.parametrize("strategies", [2, 6])
@pytest.mark.parametrize("labels", [BINARY, SCORES], ids=["binary", "scores"])
def test_among_equal_strategies_hardly_any_is_called_behind(
    labels: np.ndarray, strategies: int
) -> None:
    binary = labels is BINARY
    wrong = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        # Texts, which all strategies share, are as much of the noise as what sets them apart.
        shared = labels / labels.max() + generator.normal(0, 0.5, 60)
        cosines = {str(i): shared + generator.normal(0, 0.5, 60) for i in range(strategies)}
        found = separate(cosines, labels, binary=binary, resamples=200)
        wrong += any(one.clearly_behind for one in found.values())
    assert wrong <= 8  # of 100, where 5 are expected; more than 8 come by chance in 6%


def test_cosines_that_are_all_equal_have_no_correlation_and_no_nan() -> None:
    cosines = {"constant": np.ones(60), "good": noisy(SCORES, 0.1, 1)}
    found = separate(cosines, SCORES, binary=False, resamples=100)
    assert found["constant"].figures["spearman"] == Estimate(0.0, 0.0, 0.0)
    assert found["constant"].clearly_behind
    assert np.isfinite(found["constant"].behind.low)


def test_scores_have_a_rank_correlation_and_no_gap() -> None:
    found = separate({"one": noisy(SCORES, 0.3, 1)}, SCORES, binary=False, resamples=100)
    assert set(found["one"].figures) == {"spearman"}
    assert found["one"].similar is None


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", not_found)
    with pytest.raises(BertpoolError, match=r"pip install 'bertpool\[stats\]'"):
        separate({"one": noisy(BINARY, 0.3, 1)}, BINARY, binary=True)
