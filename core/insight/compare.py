"""Compare strategies, and layers, on one's own texts or labelled pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.declared import read_declared
from bertpool.encoder.recipe import Named, split_names
from bertpool.errors import PoolingError
from bertpool.insight.comparison import Comparison, Contender
from bertpool.insight.explain import special_share
from bertpool.insight.extras import check_extra
from bertpool.insight.geometry import Neighbours, measure, nearest, overlap
from bertpool.insight.pooled_layer import (
    PooledLayer,
    choose_strategies,
    find_layers,
    load_layer,
    only_layer,
)
from bertpool.insight.sample import draw_rows
from bertpool.insight.similarity import (
    RESAMPLES,
    cosine_of_pairs,
    main_statistic,
    separate,
)
from bertpool.insight.texts import Pairs
from bertpool.model import Model, embed_all

DEFAULT_STRATEGIES = ("cls", "mean", "max", "mean_sqrt_len", "attention", "pooler")
SAMPLE = 2000
WEIGHED_TEXTS = 200  # texts whose attention on special tokens is averaged

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def compare(
    model: Model,
    texts: Sequence[str] | Pairs,
    *,
    strategy: Named | None = None,
    layer: Named = -1,
    exclude_special: bool = False,
    max_length: int | None = None,
    prompt: str | None = None,
    sample: int = SAMPLE,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Measure strategies side by side.

    With pairs, each figure has a 95% bootstrap interval, and each difference to the best strategy
    one that holds for all such differences at once; where that excludes 0, the difference is real.

    Args:
        model: loaded by :func:`bertpool.load`.
        texts: different texts, three or more, or labelled pairs.
        strategy: one or several; None takes all of cls, mean, max, mean_sqrt_len, attention and
            pooler that the checkpoint and the layer have.
        layer: one or several.
        exclude_special: pool without special tokens.
        max_length: tokens kept of a text.
        prompt: text put before each.
        sample: texts at most whose geometry is measured, each being compared with all others.
        resamples: of the bootstrap.

    Raises:
        BertpoolError: a subclass says what is wrong.
    """
    pairs = texts if isinstance(texts, Pairs) else None
    if pairs is not None:
        check_extra("stats", "scipy", "sklearn")
    distinct = texts.distinct if isinstance(texts, Pairs) else list(dict.fromkeys(texts))
    options = {"exclude_special": exclude_special, "max_length": max_length, "prompt": prompt}
    pooled: dict[str, _Pooled] = {}
    share = None
    for loaded in _load_layers(model, strategy, layer, options):
        several = len(find_layers(model.checkpoint, layer)) > 1
        pooled |= _pool(model.checkpoint, loaded, distinct, several=several)
        if share is None and "attention" in loaded.strategies:
            share = special_share(loaded, distinct[:WEIGHED_TEXTS], "attention")
    unlabelled = _unlabelled(model.checkpoint.name, pooled, draw_rows(len(distinct), sample))
    found = replace(unlabelled, special_share=share)
    if pairs is None:
        return found
    return _with_labels(found, pairs, _cosines(pooled, distinct, pairs), resamples)


@dataclass(frozen=True)
class _Pooled:
    """The vectors of one contender, ``(texts, hidden)``."""

    strategy: str
    layer: str
    declared: bool
    vectors: Vectors


def _load_layers(
    model: Model, strategy: Named | None, layer: Named, options: dict[str, Any]
) -> Iterator[PooledLayer]:
    """Load one layer after another, each with the strategies that it has."""
    by_layers = {only_layer(model.checkpoint, one): one for one in split_names(layer)}
    for layers, one in by_layers.items():
        strategies = choose_strategies(model.checkpoint, strategy, DEFAULT_STRATEGIES, layers)
        try:
            yield load_layer(model, strategies, layer=one, **options)
        except PoolingError:
            # Whether a checkpoint has a pooler is known when its weights are read.
            if strategy is not None or "pooler" not in strategies:
                raise
            without = tuple(name for name in strategies if name != "pooler")
            yield load_layer(model, without, layer=one, **options)


def _pool(
    checkpoint: Checkpoint, loaded: PooledLayer, texts: list[str], *, several: bool
) -> dict[str, _Pooled]:
    """Encode the texts once, and pool them by every strategy of the layer."""
    declared = read_declared(checkpoint)
    whole = loaded.layers == (checkpoint.num_layers,) and not (declared.dense or declared.unknown)
    vectors = embed_all(loaded.embedder, texts)
    return {
        f"{name}_{loaded.label}" if several else name: _Pooled(
            name, loaded.label, whole and declared.strategies == (name,), vectors[name]
        )
        for name in loaded.strategies
    }


def _unlabelled(
    model: str, pooled: Mapping[str, _Pooled], rows: npt.NDArray[np.int64]
) -> Comparison:
    """Measure how the vectors of some texts lie."""
    vectors = {name: one.vectors[rows] for name, one in pooled.items()}
    neighbours = {name: nearest(some) for name, some in vectors.items()}
    return Comparison(
        model=model,
        texts=len(rows),
        contenders={
            name: Contender(
                one.strategy,
                one.layer,
                measure(vectors[name], neighbours[name]),
                declared=one.declared,
            )
            for name, one in pooled.items()
        },
        agreement=_agreement(list(neighbours.values())),
    )


def _with_labels(
    found: Comparison, pairs: Pairs, cosines: dict[str, Floats], resamples: int
) -> Comparison:
    """Add how cosines agree with labels."""
    separations = separate(cosines, pairs.labels, binary=pairs.binary, resamples=resamples)
    return replace(
        found,
        contenders={
            name: replace(one, separation=separations[name])
            for name, one in found.contenders.items()
        },
        main=main_statistic(pairs.binary),
        labels=pairs.labels,
        cosines=cosines,
    )


def _cosines(pooled: Mapping[str, _Pooled], texts: list[str], pairs: Pairs) -> dict[str, Floats]:
    """Compute the cosine of each pair by each contender, ``(pairs)``."""
    place = {text: index for index, text in enumerate(texts)}
    first, second = ([place[text] for text in side] for side in (pairs.texts, pairs.pairs))
    return {
        name: cosine_of_pairs(one.vectors[first], one.vectors[second])
        for name, one in pooled.items()
    }


def _agreement(neighbours: list[Neighbours]) -> Floats:
    return np.array([[overlap(one, other) for other in neighbours] for one in neighbours])
