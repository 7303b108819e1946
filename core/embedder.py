"""Texts -> vectors in memory: tokenize, batch, encode, pool, restore the order."""

from __future__ import annotations

import functools
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from bertpool.encoder.batches import PADDED_BATCH_TOKENS
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.declared import Dense, Normalize
from bertpool.encoder.dense import load_dense
from bertpool.encoder.device import Dtype
from bertpool.encoder.encoder import Encoder
from bertpool.encoder.layers import Layers
from bertpool.encoder.packed.families import unsupported
from bertpool.encoder.packed.load import load_packed
from bertpool.encoder.recipe import Cut, Recipe, Stage
from bertpool.encoder.tokenized import Tokenized, tokenize
from bertpool.encoder.tokenizer import TokenizedText, Tokenizer
from bertpool.errors import TextTooLarge
from bertpool.output.rows import finite_rows, zero_rows
from bertpool.pooling import STRATEGIES, pool, pool_windows
from bertpool.pooling.sentence_embedding import l2_normalize
from torch import Tensor

OnBatch = Callable[[int, int], None]
Pooled = tuple[Layers, str]  # which layers' token vectors, pooled by which strategy
TOKEN_KEYS = ("token vectors", "token ids", "token counts")  # in a batch's results
K = TypeVar("K")
A = TypeVar("A", npt.NDArray[Any], Tensor)
Run = Callable[[list[TokenizedText]], dict[K, A]]  # of one batch

_log = logging.getLogger("bertpool")


def _ignore_batch(rows: int, tokens: int) -> None:
    """Take progress and do nothing with it."""


@dataclass(frozen=True)
class TokenVectors:
    """Vectors of one text's tokens: ``names`` as in the vocabulary, ``(tokens, width)`` float32."""

    names: list[str]
    vectors: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Embedded:
    """Vectors of some texts, in their order.

    Attributes:
        vectors: each column's ``(texts, width)`` float32.
        n_tokens: ``(texts)`` int32, tokens before truncation, specials included.
        truncated: ``(texts)`` bool.
        encoded_tokens: ``(texts)`` int32, tokens that the model saw.
        unknown_only: ``(texts)`` bool, texts of which the model sees the unknown token only.
        distinct: how many different texts there were, each encoded once.
        distinct_tokens: tokens of those.
        distinct_pairs: pairs of tokens that attend to one another in those.
        slots: token slots that the batches took up, padding included.
        redone: how many texts overflowed and were encoded again in float32.
        tokens: of each text the tokens that a strategy would pool, where the recipe wants them.
    """

    vectors: dict[str, npt.NDArray[np.float32]]
    n_tokens: npt.NDArray[np.int32]
    truncated: npt.NDArray[np.bool_]
    encoded_tokens: npt.NDArray[np.int32]
    unknown_only: npt.NDArray[np.bool_]
    distinct: int
    distinct_tokens: int
    distinct_pairs: int
    slots: int
    redone: int
    tokens: list[TokenVectors] | None = None

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        """Tell for each text whether its vectors hold no NaN and no infinity."""
        finite = finite_rows(self.vectors.values(), len(self.n_tokens))
        if self.tokens is not None:
            finite &= [bool(np.isfinite(one.vectors).all()) for one in self.tokens]
        return finite

    @property
    def zero(self) -> npt.NDArray[np.bool_]:
        """Tell for each text whether one of its vectors is zero."""
        return zero_rows(self.vectors.values(), len(self.n_tokens))


@dataclass(frozen=True)
class Embedder:
    """A loaded model with a recipe: the same texts give the same vectors.

    Attributes:
        tokenizer: texts -> tokens.
        encoder: tokens -> token vectors.
        recipe: token vectors -> vectors.
        stages: what follows the pooling, as functions.
        in_float32: loads the same model in float32, for texts that overflow in a half dtype.
        memory: what was learnt of how much fits.
    """

    tokenizer: Tokenizer
    encoder: Encoder
    recipe: Recipe
    stages: Sequence[Callable[[Tensor], Tensor]] = ()
    in_float32: Callable[[], Embedder] | None = None
    memory: Memory = field(default_factory=lambda: Memory())

    def embed(self, texts: Sequence[str], *, on_batch: OnBatch = _ignore_batch) -> Embedded:
        """Embed texts; one without any token (possible where a tokenizer adds none) gets zeros.

        Args:
            texts: any number; they are sorted by length, so many at once run faster.
            on_batch: called after each batch with its number of texts and tokens.
        """
        return self.encode(tokenize(self.tokenizer, texts), on_batch=on_batch)

    def encode(self, tokenized: Tokenized, *, on_batch: OnBatch = _ignore_batch) -> Embedded:
        """Encode and pool texts that are tokenized, as :meth:`embed` does.

        Raises:
            TextTooLarge: memory doesn't suffice for one text alone.
        """
        texts = tokenized.texts
        counts = np.bincount(tokenized.places, minlength=len(texts))
        shape = (len(texts), self.recipe.width)
        vectors = {name: np.zeros(shape, dtype=np.float32) for name in self.recipe.columns}
        tokens: list[TokenVectors] | None = None
        if self.recipe.tokens is not None:
            nothing = TokenVectors([], np.zeros((0, self.recipe.width), dtype=np.float32))
            tokens = [nothing] * len(texts)
        slots = 0
        whole = [i for i, text in enumerate(texts) if text.input_ids and not text.windows]
        for batch, columns in self._batches(self._encode_batch, texts, whole):
            if tokens is not None:
                for index, one in zip(batch, self._take_tokens(columns), strict=True):
                    tokens[index] = one
            for name, column in columns.items():
                vectors[name][batch] = column
            members = [texts[i] for i in batch]
            slots += self.encoder.slots(members)
            on_batch(int(counts[batch].sum()), int(lengths_of(members) @ counts[batch]))
        split = [i for i, text in enumerate(texts) if text.windows]
        if split:
            slots += self._encode_split(texts, split, vectors, on_batch)
            on_batch(int(counts[split].sum()), 0)
        redone = self._redo_overflowed(tokenized, vectors)
        return _embedded(tokenized, vectors, tokens, slots=slots, redone=redone)

    def _take_tokens(self, columns: dict[str, npt.NDArray[Any]]) -> Iterator[TokenVectors]:
        """Take the token vectors out of a batch's results, text by text."""
        flat, ids, counts = (columns.pop(key) for key in TOKEN_KEYS)
        ends = np.cumsum(counts)
        names = self.tokenizer.spell(ids.tolist())
        for start, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
            yield TokenVectors(names[start:end], flat[start:end])

    def _encode_split(
        self,
        texts: list[TokenizedText],
        split: list[int],
        vectors: dict[str, npt.NDArray[np.float32]],
        on_batch: OnBatch,
    ) -> int:
        """Encode the windows of the texts that are split, and combine them; return the slots."""
        windows = [window for i in split for window in texts[i].windows]
        owners = [i for i in split for _ in texts[i].windows]
        pooled: dict[Pooled, list[Tensor]] = {}
        slots = 0
        try:
            for batch, parts in self._batches(
                self._pool_windows, windows, list(range(len(windows)))
            ):
                for key, part in parts.items():
                    rows = pooled.setdefault(key, [torch.empty(0)] * len(windows))
                    for index, row in zip(batch, part, strict=True):
                        rows[index] = row
                members = [windows[i] for i in batch]
                slots += self.encoder.slots(members)
                on_batch(0, int(lengths_of(members).sum()))
        except TextTooLarge as error:
            raise TextTooLarge(owners[error.index]) from error
        ends = np.cumsum([len(texts[i].windows) for i in split]).tolist()
        for i, start, end in zip(split, [0, *ends], ends, strict=False):
            combined = {key: _combined(key, rows[start:end]) for key, rows in pooled.items()}
            for name, column in self._columns(combined).items():
                vectors[name][i] = column[0]
        return slots

    def _redo_overflowed(
        self, tokenized: Tokenized, vectors: dict[str, npt.NDArray[np.float32]]
    ) -> npt.NDArray[np.bool_]:
        """Encode texts again in float32 whose vectors aren't finite; say which they were."""
        overflowed = ~finite_rows(vectors.values(), len(tokenized.texts))
        if self.in_float32 is None or not overflowed.any():
            return np.zeros_like(overflowed)
        again = self.in_float32().encode(tokenized.only(np.flatnonzero(overflowed)))
        for name, column in again.vectors.items():
            vectors[name][overflowed] = column
        return overflowed

    def _batches(
        self, run: Run[K, A], texts: Sequence[TokenizedText], present: list[int]
    ) -> Iterator[tuple[list[int], dict[K, A]]]:
        """Yield each batch's indices with its results; several run at once where they may."""
        own = self.encoder.batches([texts[i] for i in present])
        batches = [[present[i] for i in batch] for batch in own]
        run_one = functools.partial(self._run_fitting, run, texts)
        if self.encoder.workers == 1:
            yield from zip(batches, map(run_one, batches), strict=True)
            return
        workers = ThreadPoolExecutor(self.encoder.workers)
        try:
            yield from zip(batches, workers.map(run_one, batches), strict=True)
        finally:
            workers.shutdown(cancel_futures=True)

    def _run_fitting(
        self, run: Run[K, A], texts: Sequence[TokenizedText], batch: list[int]
    ) -> dict[K, A]:
        """Run a batch, in halves where memory doesn't suffice, and remember that."""
        members = [texts[i] for i in batch]
        slots = self.encoder.slots(members)
        if slots < self.memory.too_much or len(batch) == 1:
            try:
                return run(members)
            except OUT_OF_MEMORY as error:
                if not _is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise TextTooLarge(batch[0]) from error
                # Well below what failed: pieces a token smaller would fail one after another.
                self.memory.too_much = min(self.memory.too_much, slots * 3 // 4)
                _log.warning("out of memory with %d tokens in a batch; halving it", slots)
        middle = len(batch) // 2
        halves = [self._run_fitting(run, texts, half) for half in (batch[:middle], batch[middle:])]
        return {key: _joined([half[key] for half in halves]) for key in halves[0]}

    @torch.inference_mode()
    def _encode_batch(self, texts: list[TokenizedText]) -> dict[str, npt.NDArray[Any]]:
        """Encode and pool one batch; blocks are joined first, so that what follows runs once."""
        blocks: dict[Pooled, list[Tensor]] = defaultdict(list)
        tokens: list[tuple[Tensor, Tensor]] = []
        for layers, block in self.encoder.encode(texts):
            for strategy, vectors in pool(block, self.recipe.strategies_of(layers)).items():
                blocks[layers, strategy].append(vectors)
            if layers == self.recipe.tokens:
                tokens.append((block.hidden_states[block.pooled_mask].float(), block.pooled_mask))
        columns = self._columns({key: torch.cat(parts) for key, parts in blocks.items()})
        return columns | self._token_columns(texts, tokens) if tokens else columns

    def _token_columns(
        self, texts: list[TokenizedText], tokens: list[tuple[Tensor, Tensor]]
    ) -> dict[str, npt.NDArray[Any]]:
        """Return a batch's token vectors ``(tokens, width)``, their ids, and their counts."""
        flat = self._finish(torch.cat([vectors for vectors, _ in tokens]))
        masks = [row for _, mask in tokens for row in mask.cpu().numpy()]
        ids = [
            np.asarray(text.input_ids)[mask[: len(text.input_ids)]]
            for text, mask in zip(texts, masks, strict=True)
        ]
        counts = np.array([len(one) for one in ids], dtype=np.int64)
        return dict(zip(TOKEN_KEYS, (flat, np.concatenate(ids), counts), strict=True))

    @torch.inference_mode()
    def _pool_windows(self, windows: list[TokenizedText]) -> dict[Pooled, Tensor]:
        """Encode and pool one batch of windows: ``(windows, hidden + 1)``, the weight last."""
        before = torch.tensor([window.pooled_before for window in windows])
        done: dict[Layers, int] = defaultdict(int)
        blocks: dict[Pooled, list[Tensor]] = defaultdict(list)
        for layers, block in self.encoder.encode(windows):
            start = done[layers]
            done[layers] = end = start + len(block.hidden_states)
            block = replace(block, pooled_before=before[start:end].to(block.hidden_states.device))
            pooled = pool_windows(block, self.recipe.strategies_of(layers))
            for strategy, (vectors, weights) in pooled.items():
                both = torch.cat([vectors, weights[:, None]], dim=1)
                blocks[layers, strategy].append(both.cpu())
        return {key: torch.cat(parts) for key, parts in blocks.items()}

    def _columns(self, pooled: Mapping[Pooled, Tensor]) -> dict[str, npt.NDArray[np.float32]]:
        """Put the pooled vectors, ``(texts, hidden)``, together to the output's columns."""
        return {
            name: self._finish(
                torch.cat([pooled[column.layers, one] for one in column.strategies], dim=1)
            )
            for name, column in self.recipe.columns.items()
        }

    @torch.inference_mode()
    def _finish(self, vectors: Tensor) -> npt.NDArray[np.float32]:
        vectors = vectors.to(self.encoder.device)
        for stage in self.stages:
            vectors = stage(vectors)
        array: npt.NDArray[np.float32] = vectors.cpu().numpy()
        return array


def lengths_of(texts: Sequence[TokenizedText]) -> npt.NDArray[np.int64]:
    """Return how many tokens of each text the model sees, those of its windows together."""
    return np.array(
        [sum(len(part.input_ids) for part in text.windows or (text,)) for text in texts],
        dtype=np.int64,
    )


def _combined(key: Pooled, windows: list[Tensor]) -> Tensor:
    """Combine a text's windows, each ``(hidden + 1)`` with its weight, to ``(1, hidden)``."""
    both = torch.stack(windows)
    return STRATEGIES[key[1]].combine(both[:, :-1], both[:, -1]).unsqueeze(0)


def _joined(halves: list[A]) -> A:
    if isinstance(halves[0], Tensor):
        return torch.cat(halves)
    return np.concatenate(halves)


@dataclass
class Memory:
    """How many token slots a batch must stay under, learnt from running out of memory."""

    too_much: int = sys.maxsize


# torch's own error for CUDA; a CPU's allocator raises a RuntimeError.
OUT_OF_MEMORY = (torch.OutOfMemoryError, RuntimeError, MemoryError)


def _is_out_of_memory(error: Exception) -> bool:
    return not isinstance(error, RuntimeError) or any(
        phrase in str(error) for phrase in ("out of memory", "can't allocate memory")
    )


def _embedded(
    tokenized: Tokenized,
    vectors: dict[str, npt.NDArray[np.float32]],
    tokens: list[TokenVectors] | None,
    *,
    slots: int,
    redone: npt.NDArray[np.bool_],
) -> Embedded:
    """Give each text what its distinct one has."""
    places = tokenized.places
    n_tokens = np.array([text.n_tokens for text in tokenized.texts], dtype=np.int32)[places]
    lengths = lengths_of(tokenized.texts)
    parts = [len(part.input_ids) for text in tokenized.texts for part in text.windows or (text,)]
    return Embedded(
        vectors={name: column[places] for name, column in vectors.items()},
        n_tokens=n_tokens,
        truncated=np.array([text.truncated for text in tokenized.texts], dtype=bool)[places],
        encoded_tokens=lengths.astype(np.int32)[places],
        unknown_only=tokenized.unknown_only[places],
        distinct=len(tokenized.texts),
        distinct_tokens=sum(parts),
        distinct_pairs=sum(length * length for length in parts),
        slots=slots,
        redone=int(redone[places].sum()),
        tokens=None if tokens is None else [tokens[place] for place in places.tolist()],
    )


def load_embedder(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    recipe: Recipe,
    *,
    device: torch.device,
    dtype: Dtype = "float32",
    batch_tokens: int | None = None,
    threads: int = 1,
    padded: bool = False,
) -> Embedder:
    """Load encoder and Dense layers, the encoder packed where it can be and isn't to be ``padded``.

    Raises:
        ModelError: something of the checkpoint is missing or broken.
        PoolingError: the checkpoint can't provide a strategy of the recipe.
    """
    load = functools.partial(
        load_embedder, checkpoint, tokenizer, recipe, device=device, batch_tokens=batch_tokens,
        threads=threads,
    )  # fmt: skip
    encoder = _load_encoder(
        checkpoint, tokenizer, recipe, device=device, dtype=dtype, batch_tokens=batch_tokens,
        threads=threads, padded=padded,
    )  # fmt: skip
    return Embedder(
        tokenizer,
        encoder,
        recipe,
        stages=[_load_stage(stage, checkpoint, device) for stage in recipe.stages],
        in_float32=None if dtype == "float32" else functools.cache(load),
    )


def _load_encoder(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    recipe: Recipe,
    *,
    device: torch.device,
    dtype: Dtype,
    batch_tokens: int | None,
    threads: int,
    padded: bool,
) -> Encoder:
    """Choose the packed way, or the padded one for what the packed doesn't have."""
    reason = "asked for" if padded else unsupported(checkpoint.config)
    if reason is None and not any(f.suffix == ".safetensors" for f in checkpoint.weight_files()):
        reason = "no safetensors"
    if reason is None:
        return load_packed(
            checkpoint,
            strategies=frozenset(recipe.strategies),
            wanted=recipe.layers,
            device=device,
            dtype=dtype,
            batch_tokens=batch_tokens,
            threads=threads,
        )
    # Here, not at the top: transformers takes seconds, and the packed way needs none of it.
    from bertpool.encoder.padded import load_padded

    _log.debug("%s: through transformers, padded (%s)", checkpoint.name, reason)
    torch.set_num_threads(threads)
    return load_padded(
        checkpoint,
        tokenizer,
        needs=recipe.needs,
        wanted=recipe.layers,
        device=device,
        dtype=dtype,
        batch_tokens=batch_tokens or PADDED_BATCH_TOKENS,
    )


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
