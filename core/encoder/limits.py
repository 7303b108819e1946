"""How many tokens of a text a checkpoint can take, and where that limit comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertpool.encoder.checkpoint import Checkpoint, read_object
from bertpool.encoder.declared import transformer_config
from bertpool.errors import ModelError

# Their positions start at pad_id + 1, so that many of the table's rows are never used.
POSITIONS_AFTER_PAD = frozenset({
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
})  # fmt: skip
# Their positions are relative: a text may be of any length. Saved as an encoder alone, their
# configuration doesn't say that there was a decoder.
ENCODER_DECODERS = ("t5", "mt5", "umt5")
POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length")
SANE_LIMIT = 1_000_000  # tokens; tokenizers without a limit declare 1e30
FALLBACK_LIMIT = 512  # tokens; for models that declare none at all (relative positions)


@dataclass(frozen=True)
class LengthLimit:
    """A limit in tokens, specials included, and the file or option that set it."""

    tokens: int
    origin: str


def position_limit(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens the position embeddings allow, or None where they set no bound.

    >>> position_limit({"model_type": "bert", "max_position_embeddings": 512})
    512
    >>> position_limit({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    512
    """
    if config.get("model_type") in ENCODER_DECODERS:
        return None
    positions = next((config[key] for key in POSITION_KEYS if config.get(key)), None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    if config.get("model_type") in POSITIONS_AFTER_PAD:
        pad = config.get("pad_token_id")
        return positions - (1 if pad is None else pad) - 1
    return positions


def length_limit(checkpoint: Checkpoint, max_length: int | None = None) -> LengthLimit:
    """Choose the limit: ``max_length`` where given, else the smallest that the checkpoint sets.

    A ``max_length`` above the checkpoint's own habit is the user's choice; above what its
    positions allow it is an error. Truncation baked into ``tokenizer.json`` counts for nothing.

    Raises:
        ModelError: ``max_length`` is under 1, or above what positions allow.
    """
    positions = position_limit(checkpoint.config)
    if max_length is not None:
        return _explicit_limit(checkpoint, max_length, positions)
    tokenizer_config = checkpoint.directory / "tokenizer_config.json"
    tokenizer = read_object(tokenizer_config) if tokenizer_config.is_file() else {}
    name, sentence_config = transformer_config(checkpoint)
    declared = {
        name: sentence_config.get("max_seq_length"),
        "tokenizer_config.json": tokenizer.get("model_max_length"),
        "the positions in config.json": positions,
    }
    numbers = {k: v for k, v in declared.items() if isinstance(v, int | float)}
    sane = {k: int(v) for k, v in numbers.items() if 0 < v < SANE_LIMIT}
    if not sane:
        return LengthLimit(FALLBACK_LIMIT, "no file sets one; pass --max-length for another")
    origin = min(sane, key=lambda key: sane[key])
    return LengthLimit(sane[origin], origin)


def _explicit_limit(checkpoint: Checkpoint, max_length: int, positions: int | None) -> LengthLimit:
    if max_length < 1:
        raise ModelError(f"--max-length {max_length}: no room for a token", usage=True)
    if positions is not None and max_length > positions:
        message = (
            f"--max-length {max_length}: {checkpoint.name} has positions for {positions} tokens"
        )
        raise ModelError(message, usage=True)
    return LengthLimit(max_length, "--max-length")
