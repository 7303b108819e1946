"""Explain a vector: the weight that each token of a text has in it, strategy by strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from bertpool.encoder.encoder import Encoder
from bertpool.encoder.recipe import Named
from bertpool.encoder.tokenizer import TokenizedText
from bertpool.errors import ModelError
from bertpool.insight.pooled_layer import (
    PooledLayer,
    choose_strategies,
    load_layer,
    only_layer,
)
from bertpool.model import Model
from bertpool.pooling import STRATEGIES, TokenEmbeddings

DEFAULT_STRATEGIES = ("cls", "mean", "max", "attention")

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Token:
    """A token of a text.

    Attributes:
        position: its place in the whole text, from 0, specials included.
        id: its id.
        text: as the vocabulary spells it.
        special: it is one of the tokenizer's special tokens.
        pooled: it is in S, the tokens that most strategies pool.
        cut: it is beyond the limit, and the model never sees it.
    """

    position: int
    id: int
    text: str
    special: bool
    pooled: bool
    cut: bool


@dataclass(frozen=True)
class Explanation:
    """What becomes of a text's tokens.

    Attributes:
        model: the checkpoint's name.
        layer: the layer's label.
        head: the attention head, None for the average of all.
        limit: the most tokens that the model is given.
        tokens: all tokens of the text, those that were cut among them.
        weights: by strategy, ``(tokens)`` float32, 0 where a token is cut. The vector of a linear
            strategy is ``weights[kept] @ token_embeddings``.
        token_embeddings: ``(kept, hidden)`` float32, of the tokens that aren't cut.
    """

    model: str
    layer: str
    head: int | None
    limit: int
    tokens: tuple[Token, ...]
    weights: Mapping[str, Weights]
    token_embeddings: npt.NDArray[np.float32]

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Mark the tokens that the model sees, ``(tokens)``."""
        return np.array([not token.cut for token in self.tokens], dtype=bool)

    def linear(self, strategy: str) -> bool:
        """Tell whether a strategy's vector is the token vectors summed by its weights."""
        return STRATEGIES[strategy].linear


def explain(
    model: Model,
    text: str,
    *,
    strategy: Named | None = None,
    layer: Named = -1,
    head: int | None = None,
    exclude_special: bool = False,
    max_length: int | None = None,
    prompt: str | None = None,
) -> Explanation:
    """Weigh each token of a text in the vector of each strategy.

    Args:
        model: loaded by :func:`bertpool.load`.
        text: the text.
        strategy: one or several; None takes those of cls, mean, max and attention that ``layer``
            has, ``auto`` those that the checkpoint declares.
        layer: one layer, or one average of layers.
        head: an attention head, from 0; None averages over all.
        exclude_special: pool without special tokens.
        max_length: tokens kept of the text.
        prompt: text put before it.

    Raises:
        BertpoolError: a subclass says what is wrong.
    """
    layers = only_layer(model.checkpoint, layer)
    loaded = load_layer(
        model,
        choose_strategies(model.checkpoint, strategy, DEFAULT_STRATEGIES, layers),
        layer=layer,
        exclude_special=exclude_special,
        max_length=max_length,
        prompt=prompt,
        all_tokens=True,
    )
    _check_head(head, loaded)
    return _explanation(model.checkpoint.name, loaded, text, head)


def _check_head(head: int | None, loaded: PooledLayer) -> None:
    if head is None:
        return
    if not any(STRATEGIES[name].needs == "attention" for name in loaded.strategies):
        raise ModelError("--head: has an effect on --strategy attention only", usage=True)
    heads = loaded.embedder.encoder.num_heads
    if not 0 <= head < heads:
        raise ModelError(f"--head {head}: give 0 to {heads - 1}", usage=True)


def _explanation(model: str, loaded: PooledLayer, text: str, head: int | None) -> Explanation:
    tokenizer, encoder = loaded.embedder.tokenizer, loaded.embedder.encoder
    (tokenized,) = tokenizer.encode([text])
    if not tokenized.input_ids:
        raise ModelError("the text has no token; its vector is zero")
    block = token_embeddings(encoder if head is None else encoder.of_head(head), tokenized)
    ids, kept = tokenizer.read_whole(text)
    pooled = set(np.array(kept)[block.pooled_mask[0].cpu().numpy()].tolist())
    cut = set(range(len(ids))) - set(kept)
    return Explanation(
        model=model,
        layer=loaded.label,
        head=head,
        limit=tokenizer.limit.tokens,
        tokens=tuple(
            Token(place, i, word, i in tokenizer.special_ids, place in pooled, place in cut)
            for place, (i, word) in enumerate(zip(ids, tokenizer.spell(ids), strict=True))
        ),
        weights={
            name: _spread(STRATEGIES[name].token_weights(block), kept, len(ids))
            for name in loaded.strategies
        },
        token_embeddings=block.hidden_states[0].float().cpu().numpy(),
    )


def _spread(weights: torch.Tensor, kept: list[int], count: int) -> Weights:
    """Put the weights of the tokens kept, ``(1, kept)``, at their places among all tokens."""
    spread = np.zeros(count, dtype=np.float32)
    spread[kept] = weights[0].cpu().numpy()
    return spread


@torch.inference_mode()
def token_embeddings(encoder: Encoder, text: TokenizedText) -> TokenEmbeddings:
    """Encode one text alone: a batch of one, of the first layer that the encoder gives."""
    _, block = next(encoder.encode([text]))
    return block


@torch.inference_mode()
def special_share(loaded: PooledLayer, texts: list[str], strategy: str) -> float:
    """Average the weight that special tokens have together in the vectors of some texts."""
    tokenizer = loaded.embedder.tokenizer
    shares = []
    for text in tokenizer.encode(texts):
        if text.input_ids:
            weights = STRATEGIES[strategy].token_weights(
                token_embeddings(loaded.embedder.encoder, text)
            )
            special = np.isin(text.input_ids, list(tokenizer.special_ids))
            shares.append(float(weights[0].cpu().numpy()[special].sum()))
    return float(np.mean(shares)) if shares else 0.0
