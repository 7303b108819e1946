"""The recipe of a vector, decided before anything loads: strategies, and what follows them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.declared import Declared, Dense, Normalize, read_declared
from bertpool.encoder.layers import LAST, Layers, parse_layers
from bertpool.errors import ModelError, PoolingError
from bertpool.pooling.sentence_embedding import ACTIVATIONS
from bertpool.pooling.strategies import AUTO, STRATEGIES

ONE_TOKEN = ("cls", "pooler", "last")
SINGLE_COLUMN = "embedding"
TOKENS = "tokens"  # no pooling: every token's own vector
HIDDEN_SIZE_KEYS = ("hidden_size", "dim", "d_model", "n_embd")

_log = logging.getLogger("bertpool")


@dataclass(frozen=True)
class Reading:
    """How texts become tokens, and which of those are pooled."""

    prompt: str = ""
    lower_case: bool = False
    include_prompt: bool = True
    exclude_special: bool = False


@dataclass(frozen=True)
class Cut:
    """A stage: the first ``dimensions`` only."""

    dimensions: int

    def __str__(self) -> str:
        return f"first {self.dimensions} dimensions"


Stage = Dense | Cut | Normalize
Named = str | int | Sequence[str | int]


@dataclass(frozen=True)
class Column:
    """A column before its stages: the strategies it concatenates, and the layers they pool."""

    strategies: tuple[str, ...]
    layers: Layers


@dataclass(frozen=True)
class Recipe:
    """How token vectors become the output's columns.

    ``stages`` follow the pooling in their order. ``width`` is the dimension of each column.
    ``tokens`` are the layers whose token vectors are wanted themselves, if any.
    """

    columns: dict[str, Column]
    width: int
    stages: tuple[Stage, ...] = ()
    tokens: Layers | None = None

    @property
    def strategies(self) -> tuple[str, ...]:
        """List every strategy needed, each once, and ``tokens`` where those are wanted."""
        columns = self.columns.values()
        names = [name for column in columns for name in column.strategies]
        return tuple(dict.fromkeys([*names, *([TOKENS] if self.tokens else [])]))

    @property
    def layers(self) -> tuple[Layers, ...]:
        """List what the encoder must give token vectors of, each once."""
        layers = [column.layers for column in self.columns.values()]
        return tuple(dict.fromkeys([*layers, *([self.tokens] if self.tokens else [])]))

    def strategies_of(self, layers: Layers) -> tuple[str, ...]:
        """List the strategies that pool these layers, each once."""
        columns = [column for column in self.columns.values() if column.layers == layers]
        return tuple(dict.fromkeys(name for column in columns for name in column.strategies))

    @property
    def normalize(self) -> bool:
        """Tell whether the vectors have unit length."""
        return self.stages[-1:] == (Normalize(),)

    @property
    def folders(self) -> list[str]:
        """List the folders of the stages that have weights."""
        return [stage.folder for stage in self.stages if isinstance(stage, Dense)]

    def describe(self) -> str:
        """Name all of it in a phrase: ``mean pooling + normalization``."""
        names = [name for name in self.strategies if name != TOKENS]
        pooled = ", ".join(self.columns) if len(self.columns) > 1 else "+".join(names)
        what = [f"{pooled} pooling"] if self.columns else []
        what += ["token vectors"] if self.tokens else []
        return " + ".join([*what, *map(str, self.stages)])

    @property
    def needs(self) -> frozenset[str]:
        """Name what the encoder must provide beside token vectors."""
        pooled = [STRATEGIES[name] for name in self.strategies if name != TOKENS]
        return frozenset(strategy.needs for strategy in pooled if strategy.needs)


def split_names(names: Named) -> tuple[str, ...]:
    """List what one option names: several with commas between, or a sequence of such.

    >>> split_names("cls,mean"), split_names(["cls", -1])
    (('cls', 'mean'), ('cls', '-1'))
    """
    several = [names] if isinstance(names, str | int) else names
    return tuple(dict.fromkeys(name.strip() for one in several for name in str(one).split(",")))


def check_strategies(strategy: Named) -> tuple[str, ...]:
    """Check that strategies exist, and list them.

    Raises:
        PoolingError: one doesn't, and the message lists those that do; or ``auto`` has company.
    """
    names = split_names(strategy)
    for name in names:
        if name not in (AUTO, TOKENS, *STRATEGIES):
            known = ", ".join((AUTO, *STRATEGIES, TOKENS))
            raise PoolingError(f"--strategy {name}: unknown; choose one of {known}", usage=True)
    if AUTO in names and len(names) > 1:
        raise PoolingError("--strategy auto stands alone: leave it out, or the others", usage=True)
    return names


def make_recipe(
    checkpoint: Checkpoint,
    *,
    strategy: Named,
    layer: Named = LAST,
    exclude_special: bool,
    prompt: str | None,
    normalize: bool | None,
    dimensions: int | None,
    note: bool = True,
) -> tuple[Recipe, Reading]:
    """Decide strategy, stages and reading from the options and what the checkpoint declares.

    ``auto`` takes all that is declared: pooling, Dense, normalization, prompt, lower-casing. An
    explicit strategy gives the raw pooled vector, and what it leaves out is noted (``note``).

    Raises:
        PoolingError: a strategy is unknown or not of that layer, or a declared module can't be
            applied.
        ModelError: there is no such layer, or ``dimensions`` is more than there are.
    """
    named = check_strategies(strategy)
    prompt = _decoded(prompt)
    declared = read_declared(checkpoint)
    auto = named == (AUTO,)
    followed = declared if auto else Declared()
    if auto:
        _check_applicable(declared)
    pooled: list[tuple[str, ...]] = [(name,) for name in named if name != TOKENS]
    if auto:
        pooled = [followed.strategies or ("mean",)]
    strategies = tuple(name for names in pooled for name in names)
    if note and exclude_special and (whole := [name for name in strategies if name in ONE_TOKEN]):
        _log.warning("--exclude-special has no effect on %s: it takes one token", whole[0])
    layers = parse_layers(split_names(layer), checkpoint.num_layers)
    _check_layers(layers, strategies, checkpoint.num_layers)
    tokens = _token_layers(layers) if TOKENS in named else None
    if note and strategies and not auto:
        _note_difference(checkpoint, declared, named, normalize=normalize, prompt=prompt)
    full = _full_width(checkpoint, pooled[0] if pooled else ("",), followed.dense)
    recipe = Recipe(
        columns=_columns(pooled, layers),
        width=_cut_width(full, followed.truncate_dim if dimensions is None else dimensions),
        stages=_stages(followed, normalize=normalize, dimensions=dimensions),
        tokens=tokens,
    )
    reading = Reading(
        prompt=followed.prompt if prompt is None else prompt,
        lower_case=followed.lower_case,
        include_prompt=followed.include_prompt,
        exclude_special=exclude_special,
    )
    return recipe, reading


def _columns(pooled: Sequence[tuple[str, ...]], layers: dict[str, Layers]) -> dict[str, Column]:
    """Name a column for each strategy and layer by what there are several of."""
    columns = {}
    for label, indices in layers.items():
        for strategies in pooled:
            name = "+".join(strategies) if len(pooled) > 1 else ""
            if len(layers) > 1:
                name = f"{name or '+'.join(strategies)}_{label}"
            columns[name or SINGLE_COLUMN] = Column(strategies, indices)
    return columns


def _token_layers(layers: dict[str, Layers]) -> Layers:
    """Return the one layer of the token vectors.

    Raises:
        PoolingError: there are several.
    """
    if len(layers) > 1:
        raise PoolingError("--strategy tokens: is of one --layer", usage=True)
    return next(iter(layers.values()))


def _check_layers(layers: dict[str, Layers], strategies: Sequence[str], num_layers: int) -> None:
    """Refuse strategies that need what a layer doesn't have."""
    for indices in layers.values():
        for name in strategies:
            if reason := unavailable(name, indices, num_layers):
                raise PoolingError(f"--strategy {name}: {reason}", usage=True)


def unavailable(strategy: str, layers: Layers, num_layers: int) -> str | None:
    """Say why a strategy has nothing to pool in these layers, None where it has."""
    needs = STRATEGIES[strategy].needs
    if needs == "pooler" and layers != (num_layers,):
        return "is of the last layer only"
    if needs == "attention" and (len(layers) > 1 or layers == (0,)):
        what = "layer 0, the embeddings," if layers == (0,) else "an average of layers"
        return f"{what} has no attention"
    return None


def hidden_size(checkpoint: Checkpoint) -> int:
    """Read the width of the token vectors from config.json.

    Raises:
        ModelError: it isn't there.
    """
    size = next((checkpoint.config[k] for k in HIDDEN_SIZE_KEYS if checkpoint.config.get(k)), None)
    if not isinstance(size, int):
        keys = ", ".join(HIDDEN_SIZE_KEYS)
        raise ModelError(f"{checkpoint.name}: config.json has none of {keys}: not a text encoder")
    return size


def _stages(
    declared: Declared, *, normalize: bool | None, dimensions: int | None
) -> tuple[Stage, ...]:
    """Put the options' stages among the declared ones; a cut comes before a last normalization."""
    stages: list[Stage] = list(declared.stages)
    ends_normalized = stages[-1:] == [Normalize()]
    if normalize is False:
        stages = [stage for stage in stages if not isinstance(stage, Normalize)]
    elif normalize and not ends_normalized:
        stages.append(Normalize())
    if dimensions is not None:
        before_last = len(stages) - (stages[-1:] == [Normalize()])
        stages.insert(before_last, Cut(dimensions))
    elif declared.truncate_dim is not None:
        stages.append(Cut(declared.truncate_dim))  # where sentence-transformers cuts: at the end
    return tuple(stages)


def _decoded(prompt: str | None) -> str | None:
    """Read an argument's bytes as UTF-8, whatever the locale made of them."""
    try:
        return None if prompt is None else os.fsencode(prompt).decode()
    except UnicodeError as error:
        raise ModelError("--prompt: not UTF-8", usage=True) from error


def _check_applicable(declared: Declared) -> None:
    unknown = [*declared.unknown]
    unknown += [
        f"Dense with {d.activation}" for d in declared.dense if d.activation not in ACTIVATIONS
    ]
    unprompted = declared.prompt and not declared.include_prompt
    if unprompted and "weighted_mean" in declared.strategies:
        unknown.append("weighted_mean pooling without the prompt")
    if unknown:
        raise PoolingError(
            f"the checkpoint declares {', '.join(unknown)}, which bertpool can't apply; "
            "name a strategy with --strategy to get raw pooled vectors"
        )


def _note_difference(
    checkpoint: Checkpoint,
    declared: Declared,
    named: tuple[str, ...],
    *,
    normalize: bool | None,
    prompt: str | None,
) -> None:
    """Say once what the checkpoint's own sentence vectors have that these don't."""
    left_out = (
        declared.strategies not in ((), named),
        declared.normalize and not normalize,
        declared.prompt and prompt is None,
        declared.dense or declared.unknown or declared.lower_case,
    )
    if not any(left_out):
        return
    width = hidden_size(checkpoint)
    own = declared.dense[-1].out_features if declared.dense else width
    sizes = "" if own == width else f": {width}-d encoder pooling, not the model's {own}-d vectors"
    _log.warning(
        "%s declares %s; --strategy %s gives pooled vectors without that%s (auto follows it)",
        checkpoint.name,
        declared.describe(),
        ",".join(named),
        sizes,
    )


def _full_width(
    checkpoint: Checkpoint, strategies: tuple[str, ...], dense: tuple[Dense, ...]
) -> int:
    width = hidden_size(checkpoint) * len(strategies)
    for layer in dense:
        if layer.in_features != width:
            raise PoolingError(
                f"the checkpoint declares Dense {layer.in_features}->{layer.out_features} after "
                f"{width} dimensions; name a strategy with --strategy to do without"
            )
        width = layer.out_features
    return width


def _cut_width(full: int, dimensions: int | None) -> int:
    if dimensions is None:
        return full
    if not 1 <= dimensions <= full:
        raise ModelError(f"--dimensions {dimensions}: give 1 to {full}", usage=True)
    return dimensions
