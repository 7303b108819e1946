"""One layer, pooled by several strategies in one pass, with the token vectors at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bertpool.embedder import Embedder
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.layers import Layers, parse_layers
from bertpool.encoder.limits import length_limit
from bertpool.encoder.recipe import (
    TOKENS,
    Column,
    Named,
    check_strategies,
    hidden_size,
    make_recipe,
    split_names,
    unavailable,
)
from bertpool.errors import ModelError, PoolingError
from bertpool.model import Model

ALL_TOKENS = "all tokens"  # a column that makes the encoder give more than the first token


@dataclass(frozen=True)
class PooledLayer:
    """A layer, the strategies that pool it, and what does.

    Attributes:
        label: the layer's name, as in the columns of a file: ``layer6``, ``last_4``.
        layers: the hidden states that are averaged, one in most cases.
        strategies: those asked for that this layer has.
        embedder: gives a column by each strategy, and token vectors.
    """

    label: str
    layers: Layers
    strategies: tuple[str, ...]
    embedder: Embedder


def find_layers(checkpoint: Checkpoint, layer: Named) -> dict[str, Layers]:
    """Read what ``--layer`` names.

    Raises:
        ModelError: it names no layer of this model.
    """
    return parse_layers(split_names(layer), checkpoint.num_layers)


def only_layer(checkpoint: Checkpoint, layer: Named) -> Layers:
    """Read a ``--layer`` that names one.

    Raises:
        ModelError: it names no layer of this model, or several.
    """
    parsed = find_layers(checkpoint, layer)
    if len(parsed) != 1:
        raise ModelError(f"--layer {','.join(parsed)}: name one layer", usage=True)
    return next(iter(parsed.values()))


def choose_strategies(
    checkpoint: Checkpoint, named: Named | None, default: Sequence[str], layers: Layers
) -> tuple[str, ...]:
    """List the strategies asked for, or those of the default ones that a layer has.

    Raises:
        PoolingError: one is unknown, or pools nothing.
    """
    if named is not None:
        strategies = check_strategies(named)
        if TOKENS in strategies:
            raise PoolingError(f"--strategy {TOKENS}: pools nothing; leave it out", usage=True)
        return strategies
    count = checkpoint.num_layers
    return tuple(name for name in default if unavailable(name, layers, count) is None)


def load_layer(
    model: Model,
    strategies: tuple[str, ...],
    *,
    layer: Named,
    exclude_special: bool = False,
    max_length: int | None = None,
    prompt: str | None = None,
    all_tokens: bool = False,
) -> PooledLayer:
    """Load what pools one layer, without the stages that a checkpoint declares after it.

    ``auto`` stands for the declared strategies, read with the declared prompt. ``all_tokens`` makes
    the encoder give every token's vector, also where the strategies read the first one only.

    Raises:
        ModelError: there is no such layer, or ``layer`` names several.
        PoolingError: a strategy can't pool it, or the checkpoint can't provide it.
    """
    layers = only_layer(model.checkpoint, layer)
    (label,) = find_layers(model.checkpoint, layer)
    recipe, reading = make_recipe(
        model.checkpoint,
        strategy=strategies,
        layer=layer,
        exclude_special=exclude_special,
        prompt=prompt,
        normalize=None,
        dimensions=None,
        note=False,
    )
    names = recipe.strategies
    columns = {name: Column((name,), layers) for name in names}
    if all_tokens:
        columns[ALL_TOKENS] = Column(("mean",), layers)
    recipe = replace(recipe, columns=columns, width=hidden_size(model.checkpoint), stages=())
    embedder = model.embedder_for(recipe, reading, length_limit(model.checkpoint, max_length))
    return PooledLayer(label, layers, names, embedder)
