"""A window of texts, tokenized: each distinct text once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bertpool.encoder.tokenizer import TokenizedText, Tokenizer


@dataclass(frozen=True)
class Tokenized:
    """Texts ready for the encoder: the distinct ones, and which of them each text is.

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


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokenized:
    """Tokenize each distinct text once."""
    index: dict[str, int] = {}
    places = [index.setdefault(text, len(index)) for text in texts]
    tokenized = tokenizer.encode(list(index))
    unknown_only = [tokenizer.unknown_only(text) for text in tokenized]
    return Tokenized(
        tokenized, np.array(unknown_only, dtype=bool), np.array(places, dtype=np.int64)
    )
