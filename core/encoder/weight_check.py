"""Refuse checkpoints that aren't whole: no weight of the encoder may be missing, odd or random."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bertpool.encoder.checkpoint import Checkpoint
from bertpool.errors import ModelError, PoolingError
from bertpool.pooling import STRATEGIES

POOLER = "pooler"
BUFFERS = ("position_ids", "token_type_ids")  # persisted by old releases, computed by new ones


@dataclass(frozen=True)
class Misshapen:
    """A weight with another shape than the configuration asks for."""

    name: str
    found: Sequence[int]
    wanted: Sequence[int]


def check_weights(
    checkpoint: Checkpoint,
    *,
    misshapen: Collection[Misshapen],
    missing: Collection[str],
    others: Collection[str],
    own_modules: Collection[str],
    prefix: str,
) -> None:
    """Check that a checkpoint holds an encoder's weights, and no other encoder's.

    Args:
        checkpoint: for the message.
        misshapen: weights of another shape.
        missing: encoder weights that weren't found.
        others: keys that were found and aren't used; those of heads are normal.
        own_modules: first parts of the encoder's own names.
        prefix: what a checkpoint with a head puts before the encoder's names.

    Raises:
        ModelError: naming the first such weight.
    """
    for weight in misshapen:
        raise ModelError(
            f"{checkpoint.name}: weight {weight.name} has shape {list(weight.found)}, and "
            f"config.json asks for {list(weight.wanted)}{_and_more(misshapen)}"
        )
    if missing:
        instead = f"; it holds {min(others)}{_and_more(others)} instead" if others else ""
        raise ModelError(
            f"{checkpoint.name}: encoder weights are missing: "
            f"{min(missing)}{_and_more(missing)}{instead}"
        )
    unknown = [key for key in others if _is_own(key, own_modules, prefix)]
    if unknown:
        raise ModelError(
            f"{checkpoint.name}: encoder weights that config.json has no place for: "
            f"{min(unknown)}{_and_more(unknown)}"
        )


def check_pooler(checkpoint: Checkpoint, *, exists: bool, missing: Collection[str]) -> None:
    """Refuse a pooler that isn't there, or whose weights would be random.

    Raises:
        PoolingError: naming what is missing, and the strategies that work.
    """
    usable = ", ".join(name for name, s in STRATEGIES.items() if s.needs != POOLER)
    if not exists:
        kind = checkpoint.config.get("model_type")
        raise PoolingError(
            f"{checkpoint.name}: {kind} models have no pooler; strategies it supports: {usable}"
        )
    if missing:
        raise PoolingError(
            f"{checkpoint.name}: the checkpoint has no pooler weights "
            f"({', '.join(sorted(missing))}), and random ones would give random vectors; "
            f"strategies it supports: {usable}"
        )


def _is_own(key: str, own_modules: Collection[str], prefix: str) -> bool:
    """Tell an encoder's weight from a head's: it lies in one of the encoder's own modules."""
    return key.removeprefix(prefix).split(".")[0] in own_modules and not key.endswith(BUFFERS)


def _and_more(keys: Collection[object]) -> str:
    return f" and {len(keys) - 1} more" if len(keys) > 1 else ""
