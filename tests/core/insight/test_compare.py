from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bertpool.corpus import CorpusOptions
from bertpool.errors import PoolingError
from bertpool.insight.compare import compare
from bertpool.insight.geometry import anisotropy, nearest, overlap
from bertpool.insight.texts import Pairs, find_pair_columns, read_pairs
from bertpool.model import Model, load
from embedding import embed
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from tiny_models import sentences

Tiny = Callable[[str], Path]

PAIRS = Path(__file__).parents[3] / "sample_data" / "pairs.csv"
NAMES = ["cls", "mean", "max", "mean_sqrt_len", "attention", "pooler"]
TEXTS = list(dict.fromkeys(sentences(40, 1, 12)))


@pytest.fixture
def model(tiny: Tiny) -> Model:
    return load(str(tiny("tiny-bert")), threads=1)


@pytest.fixture
def pairs() -> Pairs:
    first, second = sentences(30, 2, 10), sentences(30, 3, 10)
    return Pairs(first, second, np.array([0.0, 1.0] * 15))


def cosines_of(directory: Path, pairs: Pairs, strategy: str) -> np.ndarray:
    """Embed both sides as `bertpool embed` does, and compare by cosine."""
    first, second = (
        embed(directory, texts, strategy=strategy).astype(np.float64)
        for texts in (pairs.texts, pairs.pairs)
    )
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / lengths


@pytest.mark.parametrize("strategy", NAMES)
def test_auc_and_spearman_are_scikit_learns_and_scipys_on_the_vectors_of_embed(
    tiny: Tiny, model: Model, pairs: Pairs, strategy: str
) -> None:
    found = compare(model, pairs, strategy=strategy, resamples=10)
    separation = found.contenders[strategy].separation
    assert separation is not None
    cosines = cosines_of(tiny("tiny-bert"), pairs, strategy)
    expected = roc_auc_score(pairs.labels, cosines)
    assert separation.figures["auc"].value == pytest.approx(expected, abs=1e-9)
    expected = spearmanr(cosines, pairs.labels)[0]
    assert separation.figures["spearman"].value == pytest.approx(expected, abs=1e-9)


def test_the_sample_pairs_give_scikit_learns_auc_on_the_real_model(minilm: Path) -> None:
    columns = find_pair_columns(str(PAIRS), CorpusOptions(), None)
    assert columns is not None
    pairs = read_pairs(str(PAIRS), *columns)
    found = compare(load(str(minilm)), pairs, strategy="mean", resamples=100)
    separation = found.contenders["mean"].separation
    assert separation is not None
    cosines = cosines_of(minilm, pairs, "mean")
    assert separation.figures["auc"].value == pytest.approx(roc_auc_score(pairs.labels, cosines))
    assert separation.figures["spearman"].value == pytest.approx(
        spearmanr(cosines, pairs.labels)[0]
    )
    assert separation.similar == pytest.approx(cosines[pairs.labels == 1].mean(), abs=1e-6)


def test_every_default_strategy_is_compared_in_order(model: Model, pairs: Pairs) -> None:
    assert list(compare(model, pairs, resamples=10).contenders) == NAMES


def test_a_checkpoint_without_a_pooler_is_compared_without_it(tiny: Tiny) -> None:
    found = compare(load(str(tiny("tiny-nopool")), threads=1), TEXTS)
    assert list(found.contenders) == NAMES[:-1]


def test_a_pooler_that_was_asked_for_must_be_there(tiny: Tiny) -> None:
    with pytest.raises(PoolingError, match="no pooler weights"):
        compare(load(str(tiny("tiny-nopool")), threads=1), TEXTS, strategy="pooler,mean")


def test_layers_are_compared_side_by_side_each_with_what_it_has(model: Model) -> None:
    found = compare(model, TEXTS, strategy=None, layer="-1,0")
    assert [name for name in found.contenders if name.endswith("layer0")] == [
        "cls_layer0",
        "mean_layer0",
        "max_layer0",
        "mean_sqrt_len_layer0",
    ]
    assert "attention_layer2" in found.contenders


def test_figures_without_labels_are_of_the_vectors_of_embed(tiny: Tiny, model: Model) -> None:
    found = compare(model, TEXTS, strategy="mean,max")
    vectors = {name: embed(tiny("tiny-bert"), TEXTS, strategy=name) for name in ("mean", "max")}
    for name, one in vectors.items():
        assert found.contenders[name].geometry.anisotropy == pytest.approx(anisotropy(one))
    expected = overlap(nearest(vectors["mean"]), nearest(vectors["max"]))
    assert found.agreement.tolist() == pytest.approx(np.array([[1, expected], [expected, 1]]))
    assert found.main is None


def test_what_the_checkpoint_declares_is_marked(tiny: Tiny) -> None:
    found = compare(load(str(tiny("tiny-st-cls")), threads=1), TEXTS, strategy="mean,cls")
    assert found.declared == "cls"
    assert compare(load(str(tiny("tiny-bert")), threads=1), TEXTS, strategy="mean").declared is None


def test_the_share_of_special_tokens_is_that_of_attention_only(model: Model) -> None:
    assert compare(model, TEXTS, strategy="mean").special_share is None
    share = compare(model, TEXTS, strategy="attention").special_share
    assert share is not None
    assert 0 < share < 1
    without = compare(model, TEXTS, strategy="attention", exclude_special=True)
    assert without.special_share == 0.0


def test_geometry_is_measured_on_a_sample_of_many_texts(model: Model, pairs: Pairs) -> None:
    few = compare(model, pairs, strategy="mean", sample=12, resamples=10)
    all_of_them = compare(model, pairs, strategy="mean", resamples=10)
    assert (few.texts, all_of_them.texts) == (12, len(pairs.distinct))
    assert few.cosines["mean"].tolist() == all_of_them.cosines["mean"].tolist()
