"""Texts -> vectors in memory: tokenize, batch, encode, pool, restore the order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.declared import Dense, Normalize
from bertpool.encoder.dense import load_dense
from bertpool.encoder.device import Dtype
from bertpool.encoder.encoder import Encoder
from bertpool.encoder.limits import LengthLimit
from bertpool.encoder.padded import load_padded
from bertpool.encoder.recipe import Cut, Reading, Recipe, Stage
from bertpool.encoder.tokenizer import TokenizedText, Tokenizer, load_tokenizer
from bertpool.output.rows import finite_rows
from bertpool.pooling import TokenEmbeddings, pool
from bertpool.pooling.sentence_embedding import l2_normalize
from torch import Tensor

OnBatch = Callable[[int, int], None]


def _ignore(rows: int, tokens: int) -> None:
    """Take progress and do nothing with it."""


@dataclass(frozen=True)
class Embedded:
    """Vectors of some texts, in their order.

    Attributes:
        vectors: each column's ``(texts, width)`` float32.
        n_tokens: ``(texts)`` int32, tokens before truncation, specials included.
        truncated: ``(texts)`` bool.
        encoded_tokens: ``(texts)`` int32, tokens that the model saw.
        unknown_only: ``(texts)`` bool, texts of which the model sees the unknown token only.
        slots: token slots that the batches took up, padding included.
    """

    vectors: dict[str, npt.NDArray[np.float32]]
    n_tokens: npt.NDArray[np.int32]
    truncated: npt.NDArray[np.bool_]
    encoded_tokens: npt.NDArray[np.int32]
    unknown_only: npt.NDArray[np.bool_]
    slots: int

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        """Tell for each text whether its vectors hold no NaN and no infinity."""
        return finite_rows(self.vectors.values(), len(self.n_tokens))

    @property
    def zero(self) -> npt.NDArray[np.bool_]:
        """Tell for each text whether one of its vectors is zero."""
        zero = np.zeros(len(self.n_tokens), dtype=bool)
        for column in self.vectors.values():
            zero |= ~column.any(axis=1)
        return zero


@dataclass(frozen=True)
class Embedder:
    """A loaded model with a recipe: the same texts give the same vectors."""

    tokenizer: Tokenizer
    encoder: Encoder
    recipe: Recipe
    stages: Sequence[Callable[[Tensor], Tensor]] = ()

    def embed(self, texts: Sequence[str], *, on_batch: OnBatch = _ignore) -> Embedded:
        """Embed texts; one without any token (possible where a tokenizer adds none) gets zeros.

        Args:
            texts: any number; they are sorted by length, so many at once run faster.
            on_batch: called after each batch with its number of texts and tokens.
        """
        tokenized = self.tokenizer.encode(texts)
        shape = (len(texts), self.recipe.width)
        vectors = {name: np.zeros(shape, dtype=np.float32) for name in self.recipe.columns}
        present = [i for i, text in enumerate(tokenized) if text.input_ids]
        slots = 0
        on_batch(len(texts) - len(present), 0)
        for batch in self.encoder.batches([tokenized[i] for i in present]):
            rows = [present[i] for i in batch]
            members = [tokenized[i] for i in rows]
            slots += self.encoder.slots(members)
            self._encode_batch(members, rows, vectors)
            on_batch(len(rows), sum(len(text.input_ids) for text in members))
        return self._embedded(tokenized, vectors, slots)

    def _encode_batch(
        self,
        texts: list[TokenizedText],
        rows: list[int],
        vectors: dict[str, npt.NDArray[np.float32]],
    ) -> None:
        """Encode one batch and put its vectors into their rows."""
        start = 0
        for block in self.encoder.encode(texts):
            end = start + len(block.hidden_states)
            for name, column in self._pool(block).items():
                vectors[name][rows[start:end]] = column.cpu().numpy()
            start = end

    @torch.inference_mode()
    def _pool(self, block: TokenEmbeddings) -> dict[str, Tensor]:
        pooled = pool(block, self.recipe.strategies)
        return {
            name: self._finish(torch.cat([pooled[strategy] for strategy in strategies], dim=1))
            for name, strategies in self.recipe.columns.items()
        }

    def _finish(self, vectors: Tensor) -> Tensor:
        for stage in self.stages:
            vectors = stage(vectors)
        return vectors

    def _embedded(
        self,
        tokenized: list[TokenizedText],
        vectors: dict[str, npt.NDArray[np.float32]],
        slots: int,
    ) -> Embedded:
        n_tokens = np.array([text.n_tokens for text in tokenized], dtype=np.int32)
        encoded = np.array([len(text.input_ids) for text in tokenized], dtype=np.int32)
        unknown_only = [self.tokenizer.unknown_only(text) for text in tokenized]
        return Embedded(
            vectors=vectors,
            n_tokens=n_tokens,
            truncated=n_tokens > encoded,
            encoded_tokens=encoded,
            unknown_only=np.array(unknown_only, dtype=bool),
            slots=slots,
        )


def load_embedder(
    checkpoint: Checkpoint,
    recipe: Recipe,
    reading: Reading,
    *,
    limit: LengthLimit,
    device: torch.device,
    dtype: Dtype,
    batch_tokens: int,
) -> Embedder:
    """Load tokenizer, encoder and Dense layers.

    Raises:
        ModelError: something of the checkpoint is missing or broken.
        PoolingError: the checkpoint can't provide a strategy of the recipe.
    """
    tokenizer = load_tokenizer(checkpoint, limit, reading)
    encoder = load_padded(
        checkpoint,
        tokenizer,
        needs=recipe.needs,
        device=device,
        dtype=dtype,
        batch_tokens=batch_tokens,
    )
    stages = [_load_stage(stage, checkpoint, device) for stage in recipe.stages]
    return Embedder(tokenizer, encoder, recipe, stages)


def _load_stage(
    stage: Stage, checkpoint: Checkpoint, device: torch.device
) -> Callable[[Tensor], Tensor]:
    match stage:
        case Normalize():
            return l2_normalize
        case Cut(dimensions):
            return lambda vectors: vectors[:, :dimensions]
        case Dense():
            return load_dense(checkpoint, stage, device)
