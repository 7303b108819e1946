"""What every encoder does, padded or packed: token ids in, token vectors out, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from bertpool.encoder.layers import Layers
from bertpool.encoder.tokenizer import TokenizedText
from bertpool.pooling import TokenEmbeddings

if TYPE_CHECKING:
    import torch


class Encoder(Protocol):
    """A loaded model that knows how to batch its own input."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""

    @property
    def workers(self) -> int:
        """How many batches may run at once, each in a thread of its own."""

    @property
    def num_heads(self) -> int:
        """How many attention heads each layer has."""

    def of_head(self, head: int) -> Encoder:
        """Give the same encoder with the attention received from one head alone."""

    def batches(self, texts: Sequence[TokenizedText]) -> Iterator[list[int]]:
        """Yield the indices of each batch, longest texts first; every text has a token."""

    def slots(self, texts: Sequence[TokenizedText]) -> int:
        """Count the token slots that a batch takes up, padding included."""

    def encode(self, texts: Sequence[TokenizedText]) -> Iterator[tuple[Layers, TokenEmbeddings]]:
        """Run one batch; for each of the layers its texts come in order, in blocks."""
