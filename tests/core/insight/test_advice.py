from __future__ import annotations

import numpy as np
import pytest
from bertpool.insight.advice import ADVICE, WARNINGS, advise, warn
from bertpool.insight.comparison import Comparison, Contender
from bertpool.insight.geometry import Geometry
from bertpool.insight.similarity import Estimate, Separation

AHEAD = 0.1  # of an interval's end from the figure, where it doesn't matter


def contender(
    strategy: str,
    *,
    anisotropy: float = 0.1,
    auc: float | None = None,
    behind: tuple[float, float, float] = (0.0, 0.0, 0.0),
    declared: bool = False,
) -> Contender:
    separation = None
    if auc is not None:
        figures = {"auc": Estimate(auc, auc - AHEAD, auc + AHEAD)}
        separation = Separation(figures, 0.8, 0.3, Estimate(*behind))
    geometry = Geometry(anisotropy, -3.0, 50.0, 1.0, 0.1)
    return Contender(strategy, "layer6", geometry, separation, declared)


def comparison(*contenders: Contender, special_share: float | None = None) -> Comparison:
    labelled = contenders[0].separation is not None
    return Comparison(
        model="m",
        texts=10,
        contenders={one.strategy: one for one in contenders},
        agreement=np.eye(len(contenders)),
        main="auc" if labelled else None,
        special_share=special_share,
    )


REAL, CHANCE = (0.05, 0.02, 0.08), (0.05, -0.02, 0.12)
BEST = contender("max", auc=0.95)


def test_the_declared_strategy_is_kept_where_it_is_the_best() -> None:
    found = comparison(contender("mean", auc=0.95, declared=True), contender("cls", auc=0.9))
    assert advise(found).startswith("keep mean")
    assert "nothing here has a higher AUC" in advise(found)


def test_the_declared_strategy_is_kept_where_the_best_may_be_ahead_by_chance() -> None:
    found = comparison(contender("mean", auc=0.9, behind=CHANCE, declared=True), BEST)
    assert advise(found).startswith("keep mean")
    assert "max is ahead by 0.050" in advise(found)
    assert "-0.020 to 0.120, includes 0" in advise(found)


def test_the_declared_strategy_is_left_where_the_best_is_ahead_beyond_chance() -> None:
    found = comparison(contender("mean", auc=0.9, behind=REAL, declared=True), BEST)
    assert advise(found).startswith("take max instead of the declared mean")


def test_the_best_is_taken_where_nothing_is_declared() -> None:
    found = comparison(contender("mean", auc=0.9, behind=REAL), BEST)
    assert advise(found) == "take max: the highest AUC, 0.950"


def test_what_cannot_be_told_from_the_best_is_named() -> None:
    found = comparison(contender("mean", auc=0.9, behind=CHANCE), BEST)
    assert "mean can't be told from it" in advise(found)


def test_without_labels_the_declared_strategy_is_kept() -> None:
    found = comparison(contender("cls"), contender("mean", declared=True))
    assert advise(found).startswith("keep mean")
    assert "give labelled pairs" in advise(found)


def test_without_labels_and_declaration_the_least_anisotropic_is_the_start() -> None:
    found = comparison(contender("cls", anisotropy=0.9), contender("mean", anisotropy=0.2))
    assert advise(found).startswith("start with mean")
    other = comparison(contender("cls", anisotropy=0.1), contender("mean", anisotropy=0.2))
    assert advise(other).startswith("start with cls")


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("behind", [REAL, CHANCE])
def test_exactly_one_advice_fits_any_figures(
    labelled: bool, declared: bool, behind: tuple[float, float, float]
) -> None:
    auc = 0.9 if labelled else None
    best = contender("max", auc=0.95 if labelled else None)
    found = comparison(contender("mean", auc=auc, behind=behind, declared=declared), best)
    assert sum(rule(found) is not None for rule in ADVICE) == 1


def test_figures_without_a_flaw_give_no_warning() -> None:
    found = comparison(
        contender("cls", auc=0.9, anisotropy=0.3), contender("pooler", auc=0.95), special_share=0.3
    )
    assert warn(found) == ()
    assert len(WARNINGS) == 3


def test_raw_cls_in_a_cone_is_warned_of_unless_it_is_declared() -> None:
    (sentence,) = warn(comparison(contender("cls", anisotropy=0.85), contender("mean")))
    assert "don't compare raw cls" in sentence
    assert "0.85" in sentence
    assert warn(comparison(contender("cls", anisotropy=0.85, declared=True))) == ()


def test_a_pooler_that_separates_worst_beyond_chance_is_warned_of() -> None:
    (sentence,) = warn(comparison(BEST, contender("pooler", auc=0.6, behind=REAL)))
    assert "leave pooler out" in sentence
    assert warn(comparison(BEST, contender("pooler", auc=0.6, behind=CHANCE))) == ()
    assert warn(comparison(BEST, contender("cls", auc=0.6, behind=REAL))) == ()


def test_special_tokens_with_most_of_the_attention_are_warned_of() -> None:
    (sentence,) = warn(comparison(contender("attention"), special_share=0.63))
    assert "--exclude-special: 63% of its weight" in sentence
    assert warn(comparison(contender("attention"), special_share=0.4)) == ()
