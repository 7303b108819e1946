"""The packed encoder: a batch's tokens as one matrix ``(packed, hidden)`` through every layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from bertpool.encoder.batches import make_packed_batches
from bertpool.encoder.layers import Layers
from bertpool.encoder.packed.attention import Run, SelfAttention, relative_position_bias
from bertpool.encoder.packed.families import Family, Shape
from bertpool.encoder.packed.linear import Linear, fill_rows
from bertpool.encoder.tokenizer import TokenizedText
from bertpool.pooling import TokenEmbeddings
from bertpool.pooling.masks import without
from torch import Tensor

SLICE = 768  # columns of the feed-forward layer between its two products, float32
FIRST_TOKEN = frozenset({"cls", "pooler"})  # strategies that read nothing but the first token


@dataclass(frozen=True)
class Norm:
    """Layer normalization; weights stay float32, so that a half dtype keeps its statistics."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize the rows of ``(rows, hidden)``."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class Layer:
    """One Transformer encoder layer, post-norm, as in Devlin et al. 2019."""

    query_key_value: Linear
    attention_output: Linear
    attention_norm: Norm
    feed_forward: Sequence[tuple[Linear, Linear]]
    output_norm: Norm

    def __call__(self, x: Tensor, runs: list[Run], attention: SelfAttention) -> Tensor:
        """Run the layer on ``(packed, hidden)``."""
        return self.after_attention(attention(self.query_key_value(x), runs), x)

    def with_received(
        self, x: Tensor, runs: list[Run], attention: SelfAttention
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the layer and return what attention each token received, run by run."""
        context, received = attention.with_received(self.query_key_value(x), runs)
        return self.after_attention(context, x), received

    def after_attention(self, context: Tensor, x: Tensor) -> Tensor:
        """Project, add, normalize, feed forward: row by row, ``(rows, hidden)``."""
        x = self.attention_norm(self.attention_output(context, x))
        summed = x
        for up, down in self.feed_forward:
            summed = down(up(x), summed)
        return self.output_norm(summed)


@dataclass(frozen=True)
class FirstTokenLayer:
    """The last layer, run for each text's first token only.

    Keys and values need every token; everything else is one row a text.
    """

    query: Linear
    key_value: Linear
    layer: Layer

    def __call__(self, x: Tensor, runs: list[Run], attention: SelfAttention) -> Tensor:
        """Run the layer: ``(packed, hidden)`` -> ``(texts, hidden)``."""
        first = x[first_rows(runs, x.device)]
        context = attention.of_first(self.query(first), self.key_value(x), runs)
        return self.layer.after_attention(context, first)


def first_rows(runs: list[Run], device: torch.device) -> Tensor:
    """Return the row of each text's first token, ``(texts)``."""
    rows = [torch.arange(run.start, run.end, run.length) for run in runs]
    return torch.cat(rows).to(device)


@dataclass(frozen=True)
class Embeddings:
    """Word, position and token type embeddings, normalized, and projected where ELECTRA asks."""

    words: Tensor
    positions: Tensor
    types: Tensor | None
    norm: Norm
    projection: Linear | None
    dtype: torch.dtype

    def __call__(self, ids: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        """Embed ``(packed)`` ids at their positions: ``(packed, hidden)`` in the compute dtype."""
        x = F.embedding(ids, self.words).float() + F.embedding(positions, self.positions)
        if self.types is not None:
            x = x + (self.types[0] if types is None else F.embedding(types, self.types))
        x = fill_rows(self.norm(x).to(self.dtype))  # once here, not in every layer
        return x if self.projection is None else self.projection(x)


@dataclass(frozen=True)
class PackedEncoder:
    """Runs a BERT-like encoder on batches without padding.

    A text's vectors are the same bits whatever else is in the batch: every kernel is chosen by the
    text's own length and the model.

    ``wanted`` names the layers whose hidden states are pooled; those beyond aren't run.
    """

    shape: Shape
    embeddings: Embeddings
    layers: Sequence[Layer]
    attention: SelfAttention
    first_token_layer: FirstTokenLayer | None
    pooler: Linear | None
    batch_tokens: int
    strategies: frozenset[str]
    wanted: Sequence[Layers]
    device: torch.device
    workers: int

    @property
    def num_heads(self) -> int:
        """How many attention heads each layer has."""
        return self.shape.num_heads

    def of_head(self, head: int) -> PackedEncoder:
        """Give the same encoder with the attention received from one head alone."""
        return replace(self, attention=replace(self.attention, head=head))

    def batches(self, texts: Sequence[TokenizedText]) -> Iterator[list[int]]:
        """Yield the indices of each batch, longest first, within the budget of real tokens.

        Few texts make smaller batches, so that every worker has one.
        """
        lengths = [len(text.input_ids) for text in texts]
        share = -(-sum(lengths) // self.workers)
        yield from make_packed_batches(lengths, min(self.batch_tokens, share))

    def slots(self, texts: Sequence[TokenizedText]) -> int:
        """Count the token slots of a batch: its tokens, and nothing else."""
        return sum(len(text.input_ids) for text in texts)

    @torch.inference_mode()
    def encode(self, texts: Sequence[TokenizedText]) -> Iterator[tuple[Layers, TokenEmbeddings]]:
        """Run one batch, texts in order of falling length; a block for each layer and run."""
        runs = make_runs([len(text.input_ids) for text in texts])
        sums: dict[Layers, Tensor] = {}
        if self.first_token_layer and not any(text.prompt_tokens for text in texts):
            for index, first in enumerate(self._first_states(texts, runs)):
                for layers, hidden_states in self._finished(index, first, sums):
                    yield layers, self._first_block(hidden_states)
            return
        for index, (x, received) in enumerate(self._states(texts, runs)):
            for layers, hidden_states in self._finished(index, x, sums):
                for block in self._blocks(hidden_states, runs, texts, received):
                    yield layers, block

    def _states(
        self, texts: Sequence[TokenizedText], runs: list[Run]
    ) -> Iterator[tuple[Tensor, Sequence[Tensor | None]]]:
        """Yield ``hidden_states[0]``, ``[1]``, ..., ``(packed, hidden)``, with attention received.

        The attention of a layer is there, run by run, where a strategy wants that layer's.
        """
        nothing: Sequence[Tensor | None] = [None] * len(runs)
        x = self._embed(texts)
        yield x, nothing
        for index, layer in enumerate(self.layers, start=1):
            received = nothing
            if "attention" in self.strategies and (index,) in self.wanted:
                x, received = layer.with_received(x, runs, self.attention)
            else:
                x = layer(x, runs, self.attention)
            yield x, received

    def _first_states(self, texts: Sequence[TokenizedText], runs: list[Run]) -> Iterator[Tensor]:
        """Yield each layer's hidden states of the first tokens, ``(texts, hidden)``."""
        assert self.first_token_layer is not None
        rows = first_rows(runs, self.device)
        x = self._embed(texts)
        yield x[rows]
        for layer in self.layers[:-1]:
            x = layer(x, runs, self.attention)
            yield x[rows]
        yield self.first_token_layer(x, runs, self.attention)

    def _finished(
        self, index: int, x: Tensor, sums: dict[Layers, Tensor]
    ) -> Iterator[tuple[Layers, Tensor]]:
        """Yield what is wanted and ends at this layer, averaged where it is several layers."""
        for layers in self.wanted:
            if layers == (index,):
                yield layers, x
            elif index in layers:
                sums[layers] = sums[layers] + x if layers in sums else x.float()
                if index == layers[-1]:
                    yield layers, sums.pop(layers) / len(layers)

    def _first_block(self, first: Tensor) -> TokenEmbeddings:
        """Make first tokens, ``(texts, hidden)``, texts of one token."""
        only = torch.ones(len(first), 1, dtype=torch.bool, device=self.device)
        return TokenEmbeddings(first.unsqueeze(1), only, only, None, self._pool(first))

    def _blocks(
        self,
        x: Tensor,
        runs: list[Run],
        texts: Sequence[TokenizedText],
        received: Sequence[Tensor | None],
    ) -> Iterator[TokenEmbeddings]:
        done = 0
        for run, weights in zip(runs, received, strict=True):
            hidden_states = x[run.start : run.end].view(run.texts, run.length, -1)
            yield self._block(hidden_states, texts[done : done + run.texts], weights)
            done += run.texts

    def _block(
        self,
        hidden_states: Tensor,
        texts: Sequence[TokenizedText],
        received: Tensor | None,
    ) -> TokenEmbeddings:
        real = torch.ones(hidden_states.shape[:2], dtype=torch.bool, device=self.device)
        if any(text.prompt_tokens for text in texts):
            positions = torch.arange(hidden_states.shape[1], device=self.device)
            prompt = torch.tensor([text.prompt_tokens for text in texts], device=self.device)
            real = without(real, positions[None, :] < prompt[:, None])
        pooled = real
        excluded = [text.excluded for text in texts if text.excluded is not None]
        if excluded:  # of all texts or of none: it is an option of the run
            pooled = without(real, torch.from_numpy(np.stack(excluded)).to(self.device))
        return TokenEmbeddings(
            hidden_states, real, pooled, received, self._pool(hidden_states[:, 0])
        )

    def _pool(self, first: Tensor) -> Tensor | None:
        if self.pooler is None:
            return None
        return self.pooler(first.float().contiguous()).tanh()

    def _embed(self, texts: Sequence[TokenizedText]) -> Tensor:
        ids = np.concatenate([np.asarray(text.input_ids, dtype=np.int64) for text in texts])
        positions = np.concatenate([self._positions(text.input_ids) for text in texts])
        types = self._types(texts)
        return self.embeddings(
            self._moved(ids), self._moved(positions), None if types is None else self._moved(types)
        )

    def _positions(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return positions; a typed padding token takes the padding's, and none of the count."""
        pad = self.shape.padding_position
        if pad is None or pad not in ids:
            return np.arange(len(ids), dtype=np.int64) + self.shape.first_position
        real = np.asarray(ids) != pad
        counted: npt.NDArray[np.int64] = np.cumsum(real) * real + pad
        return counted

    def _types(self, texts: Sequence[TokenizedText]) -> npt.NDArray[np.int64] | None:
        """Return token types, or None where all are 0 or the model has no more than one."""
        if self.shape.num_token_types < 2:
            return None
        if not any(text.token_type_ids and any(text.token_type_ids) for text in texts):
            return None
        rows = [text.token_type_ids or [0] * len(text.input_ids) for text in texts]
        return np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])

    def _moved(self, values: npt.NDArray[np.int64]) -> Tensor:
        tensor = torch.from_numpy(values)
        if self.device.type == "cpu":
            return tensor
        # Pinned, so that the copy runs beside the kernels before it.
        return tensor.pin_memory().to(self.device, non_blocking=True)


def make_runs(lengths: Sequence[int]) -> list[Run]:
    """Group equal lengths that follow one another.

    >>> make_runs([3, 3, 2])
    [Run(start=0, texts=2, length=3), Run(start=6, texts=1, length=2)]
    """
    runs, start = [], 0
    for length, group in groupby(lengths):
        run = Run(start, len(list(group)), length)
        runs.append(run)
        start = run.end
    return runs


def build_encoder(
    weights: Mapping[str, Tensor],
    family: Family,
    shape: Shape,
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_tokens: int,
    strategies: frozenset[str],
    workers: int = 1,
    wanted: Sequence[Layers] | None = None,
) -> PackedEncoder:
    """Put an encoder together from its weights, prepacked for the device.

    ``wanted`` is what to give token vectors of, by default the last layer; layers beyond it are
    neither built nor run.
    """
    build = _Builder(weights, family, shape, device, dtype)
    wanted = ((shape.num_layers,),) if wanted is None else wanted
    layers = [build.layer(index) for index in range(max(layers[-1] for layers in wanted))]
    only_first = strategies <= FIRST_TOKEN and bool(layers)
    return PackedEncoder(
        shape=shape,
        embeddings=build.embeddings(),
        layers=layers,
        first_token_layer=build.first_token_layer(layers) if only_first else None,
        attention=SelfAttention(shape.num_heads, shape.head_size, build.position_bias()),
        pooler=build.pooler() if "pooler" in strategies else None,
        batch_tokens=batch_tokens,
        strategies=strategies,
        wanted=wanted,
        device=device,
        workers=workers,
    )


@dataclass(frozen=True)
class _Builder:
    """Takes weights by name and makes the encoder's parts of them."""

    weights: Mapping[str, Tensor]
    family: Family
    shape: Shape
    device: torch.device
    dtype: torch.dtype

    def embeddings(self) -> Embeddings:
        types = self.weights.get("embeddings.token_type_embeddings.weight")
        projected = "embeddings_project.weight" in self.weights
        return Embeddings(
            # Stored dtype: rows are converted as they are looked up, the table is never copied.
            words=self.weights["embeddings.word_embeddings.weight"].to(self.device),
            positions=self._float32("embeddings.position_embeddings.weight"),
            types=None if types is None else types.float().to(self.device),
            norm=self._norm("embeddings.LayerNorm"),
            projection=self._linear("embeddings_project") if projected else None,
            dtype=self.dtype,
        )

    def layer(self, index: int) -> Layer:
        names, prefix = self.family.layer, self.family.layer.prefix.format(index)
        qkv = [prefix + name for name in (names.query, names.key, names.value)]
        return Layer(
            query_key_value=self._linear(*qkv),
            attention_output=self._linear(prefix + names.attention_output),
            attention_norm=self._norm(prefix + names.attention_norm),
            feed_forward=self._feed_forward(prefix + names.up, prefix + names.down),
            output_norm=self._norm(prefix + names.output_norm),
        )

    def first_token_layer(self, layers: Sequence[Layer]) -> FirstTokenLayer:
        names = self.family.layer
        prefix = names.prefix.format(len(layers) - 1)
        return FirstTokenLayer(
            query=self._linear(prefix + names.query),
            key_value=self._linear(prefix + names.key, prefix + names.value),
            layer=layers[-1],
        )

    def pooler(self) -> Linear:
        return Linear(self._float32("pooler.dense.weight"), self._float32("pooler.dense.bias"))

    def position_bias(self) -> _PositionBias | None:
        table = self.weights.get("encoder.relative_attention_bias.weight")
        if table is None:
            return None
        return _PositionBias(table.to(device=self.device, dtype=self.dtype))

    def _linear(self, *names: str, activation: str | None = None) -> Linear:
        """Make one layer of several that read the same input, side by side."""
        weight = torch.cat([self._cast(f"{name}.weight") for name in names])
        return Linear(weight, torch.cat([self._cast(f"{name}.bias") for name in names]), activation)

    def _feed_forward(self, up: str, down: str) -> list[tuple[Linear, Linear]]:
        """Slice the wide layer between the two: shorter sums in ``down`` round less.

        Not in a half dtype, whose partial sums would be rounded to it.
        """
        slices = -(-self.shape.intermediate_size // SLICE) if self.dtype == torch.float32 else 1
        up_weights = self._cast(f"{up}.weight").chunk(slices)
        up_biases = self._cast(f"{up}.bias").chunk(slices)
        down_weights = self._cast(f"{down}.weight").chunk(slices, dim=1)
        bias = self._cast(f"{down}.bias")
        down_biases = [bias, *[torch.zeros_like(bias)] * (slices - 1)]
        return [
            (Linear(weight, bias, self.shape.activation), Linear(back.contiguous(), back_bias))
            for weight, bias, back, back_bias in zip(
                up_weights, up_biases, down_weights, down_biases, strict=True
            )
        ]

    def _norm(self, name: str) -> Norm:
        weight, bias = self._float32(f"{name}.weight"), self._float32(f"{name}.bias")
        return Norm(weight, bias, self.shape.layer_norm_eps)

    def _cast(self, name: str) -> Tensor:
        return self.weights[name].to(device=self.device, dtype=self.dtype)

    def _float32(self, name: str) -> Tensor:
        return self.weights[name].float().to(self.device)


@dataclass(frozen=True)
class _PositionBias:
    """Position bias by length, from a table ``(buckets, heads)``."""

    table: Tensor

    def __call__(self, length: int) -> Tensor:
        return relative_position_bias(self.table, length)
