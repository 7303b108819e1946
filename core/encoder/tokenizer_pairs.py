"""Pairs of texts -> token ids, as the model's own tokenizer frames and truncates a pair."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
from bertpool.encoder.tokenizer_json import OwnTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = list[int]
Pair = tuple[str, str]
PairTokens = tuple[Ids, "Ids | None", int]  # ids and types after truncation, tokens before it
EncodePairs = Callable[[list[Pair]], list[PairTokens]]


def longest_first(lengths: tuple[int, int], room: int) -> tuple[int, int]:
    """Return how many tokens of each text stay where both together exceed ``room``.

    The longer text is cut to the length of the shorter one, and then both are, as the
    ``tokenizers`` library does; an odd token goes to the longer one, of two equals to the second.

    >>> longest_first((9, 2), 6), longest_first((9, 8), 7), longest_first((8, 8), 7)
    ((4, 2), (4, 3), (3, 4))
    """
    short = min(*lengths, room // 2)
    return (room - short, short) if lengths[0] > lengths[1] else (short, room - short)


def fast_pairs(own: OwnTokenizer, limit: int) -> EncodePairs:
    """Return what encodes pairs with a fast tokenizer, each in ``limit`` tokens."""

    def encode(pairs: list[Pair]) -> list[PairTokens]:
        # Encoded together: a tokenizer may read the second text otherwise than it would alone.
        encodings = own.backend.encode_batch_fast(pairs)
        return [_cut(encoding, own, limit) for encoding in encodings]

    return encode


def slow_pairs(own: PreTrainedTokenizerBase, limit: int) -> EncodePairs:
    """Return what encodes pairs by the tokenizer's own call, each in ``limit`` tokens."""
    logging.getLogger(own.truncate_sequences.__module__).addFilter(_is_no_note_of_overflow)

    def encode(pairs: list[Pair]) -> list[PairTokens]:
        whole = [(ids, types, len(ids)) for ids, types in _call(own, pairs, truncation=False)]
        long = [i for i, (_, _, n_tokens) in enumerate(whole) if n_tokens > limit]
        # Once more, as the call that cuts doesn't say how many tokens there were.
        exceeding = [pairs[i] for i in long]
        cut = _call(own, exceeding, truncation="longest_first", max_length=limit)
        for i, (ids, types) in zip(long, cut, strict=True):
            whole[i] = (ids, types, whole[i][2])
        return whole

    return encode


def _cut(encoding: tokenizers.Encoding, own: OwnTokenizer, limit: int) -> PairTokens:
    n_tokens = len(encoding.ids)
    types = encoding.type_ids if own.emits_types else None
    if n_tokens <= limit:
        return encoding.ids, types, n_tokens
    kept = np.ones(n_tokens, dtype=bool)
    text_of = np.array([-1 if text is None else text for text in encoding.sequence_ids])
    places = [np.flatnonzero(text_of == text) for text in (0, 1)]
    specials = n_tokens - len(places[0]) - len(places[1])
    stay = longest_first((len(places[0]), len(places[1])), limit - specials)
    for own_places, count in zip(places, stay, strict=True):
        excess = len(own_places) - count
        kept[own_places[:excess] if own.truncate_left else own_places[count:]] = False
    return _chosen(encoding.ids, kept), None if types is None else _chosen(types, kept), n_tokens


def _chosen(values: Ids, kept: Any) -> Ids:
    chosen: Ids = np.asarray(values)[kept].tolist()
    return chosen


def _is_no_note_of_overflow(record: logging.LogRecord) -> bool:
    """Keep a warning off the terminal that comes with every pair that is cut."""
    return "overflowing tokens are not returned" not in record.getMessage()


def _call(
    own: PreTrainedTokenizerBase, pairs: list[Pair], **truncation: Any
) -> list[tuple[Ids, Ids | None]]:
    if not pairs:
        return []
    firsts, seconds = (list(texts) for texts in zip(*pairs, strict=True))
    batch = own(firsts, seconds, padding=False, verbose=False, **truncation)
    types = batch.get("token_type_ids") or [None] * len(pairs)
    return list(zip(batch["input_ids"], types, strict=True))
