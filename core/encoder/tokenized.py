"""A window of texts or pairs, tokenized: each distinct one once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bertpool.encoder.tokenizer import TokenizedText, Tokenizer


@dataclass(frozen=True)
class Tokenized:
    """Texts or pairs ready for the encoder: the distinct ones, and which of them each one is.

    Attributes:
        texts: the distinct texts, which are encoded once.
        unknown_only: ``(distinct)`` bool, texts of nothing but unknown tokens.
        places: ``(texts)`` int64, the index of each given text among ``texts``.
    """

    texts: list[TokenizedText]
    unknown_only: npt.NDArray[np.bool_]
    places: npt.NDArray[np.int64]

    def only(self, chosen: npt.NDArray[np.int64]) -> Tokenized:
        """Take some of the distinct texts, each once."""
        texts = [self.texts[i] for i in chosen.tolist()]
        return Tokenized(texts, self.unknown_only[chosen], np.arange(len(texts)))


def tokenize(
    tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None = None
) -> Tokenized:
    """Tokenize each distinct text once, or each distinct pair of a text and its pair."""
    index: dict[tuple[str, str], int] = {}
    seconds = [""] * len(texts) if pairs is None else pairs
    rows = zip(texts, seconds, strict=True)
    places = [index.setdefault(row, len(index)) for row in rows]
    tokenized = tokenizer.encode(
        [text for text, _ in index], None if pairs is None else [pair for _, pair in index]
    )
    unknown_only = [tokenizer.unknown_only(text) for text in tokenized]
    return Tokenized(
        tokenized, np.array(unknown_only, dtype=bool), np.array(places, dtype=np.int64)
    )
