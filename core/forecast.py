"""What a run would take: counted and tried on a sample, nothing written."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import numpy.typing as npt
from bertpool.corpus import Corpus, Window, count_rows
from bertpool.encoder.flop import encoder_flop
from bertpool.encoder.tokenized import Tokenized, tokenize
from bertpool.encoder.tokenizer import Tokenizer, load_tokenizer
from bertpool.output.rows import EmbeddedRows, Layout
from bertpool.pipeline import load_plan
from bertpool.plan import Plan
from bertpool.report import peak_memory_bytes

SAMPLED = 16  # of the windows after the first, one row in so many is tokenized
PROBE_SECONDS = 3.0
PROBE_ROWS = 256  # encoded at once, again and again until the probe's time is over
PADDED_BATCH = 32  # texts of a batch that is padded, as many tools do by default
BINS = 12


@dataclass(frozen=True)
class Bin:
    """Rows of ``least`` to ``most`` tokens, both included; None is no bound."""

    least: int
    most: int | None
    rows: int


@dataclass(frozen=True)
class Forecast:
    """What a run would take; ``--report`` has the fields as keys.

    Attributes:
        rows: texts in the input.
        sampled: rows that were tokenized; where fewer than all, what follows is scaled up.
        tokens: that the model would see.
        truncated: rows beyond ``max_length``.
        truncated_share: the same, of the rows.
        histogram: rows by their tokens, before truncation.
        padding_avoided: share of the slots that padding would take in batches of 32 in the
            input's order, and that no text's batch here takes (packed models).
        seconds: that the run would take, by the rate of a probe of a few seconds.
        tokens_per_second: of the probe.
        output_bytes: of the vectors' file.
        peak_memory_bytes: of this process after the probe; of a run it is about the same.
    """

    rows: int
    sampled: int
    tokens: int
    max_length: int
    truncated: int
    truncated_share: float
    histogram: tuple[Bin, ...]
    padding_avoided: float
    seconds: float
    tokens_per_second: float
    output_bytes: int
    peak_memory_bytes: int

    def to_json(self) -> str:
        """Write the forecast as indented JSON."""
        return json.dumps(asdict(self), indent=2)


Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Tokens:
    """Of some rows: tokens before truncation, what the model sees, and for how many rows each is.

    ``new`` marks the first of equal texts in a window: only that is encoded.
    """

    lengths: Numbers
    seen: Numbers
    attended: Numbers
    new: npt.NDArray[np.bool_]
    weights: Numbers


@dataclass
class _Sample:
    """The rows that were looked at, and how many there are in all."""

    tokens: list[_Tokens]
    first: tuple[Window, Tokenized] | None = None
    rows: int = 0


def forecast(plan: Plan) -> Forecast:
    """Read the inputs, tokenize a sample, encode for a few seconds, and say what it comes to.

    Raises:
        BertpoolError: an input or the model is wrong, as in a run.
    """
    started = time.perf_counter()
    corpus = _open_corpus(plan)
    tokenizer = load_tokenizer(plan.checkpoint, plan.limit, plan.reading, stride=plan.stride)
    sample = _sample(corpus, tokenizer)
    reading = time.perf_counter() - started
    rate, row_bytes = _probe(plan, tokenizer, sample, corpus)
    every = _joined(sample.tokens)
    scale = sample.rows / max(1, int(every.weights.sum()))
    tokens = round(int(every.seen @ every.weights) * scale)
    new = every.weights * every.new
    flop = encoder_flop(
        plan.checkpoint, plan.recipe, int(every.seen @ new), int(every.attended @ new)
    )
    encoding = flop * scale / rate if rate else 0.0
    histogram = _histogram(every, plan.limit.tokens, scale)
    truncated = histogram[-1].rows if plan.stride is None else 0
    return Forecast(
        rows=sample.rows,
        sampled=len(every.lengths),
        tokens=tokens,
        max_length=plan.limit.tokens,
        truncated=truncated,
        truncated_share=truncated / max(1, sample.rows),
        histogram=histogram,
        padding_avoided=_padding(np.minimum(every.lengths, plan.limit.tokens)),
        seconds=reading + encoding,
        tokens_per_second=tokens / encoding if encoding else 0.0,
        output_bytes=round(row_bytes * sample.rows) + _token_bytes(plan, tokens),
        peak_memory_bytes=peak_memory_bytes(),
    )


def _open_corpus(plan: Plan) -> Corpus:
    """Open the inputs, or a shard's rows of them, which must be counted for that."""
    options, within = plan.options, None
    if plan.shard is not None:
        within = plan.shard.rows(count_rows(options.inputs, options.corpus)[0])
    return Corpus(options.inputs, options.corpus, rows=within)


def _sample(corpus: Corpus, tokenizer: Tokenizer) -> _Sample:
    """Tokenize the first window whole, and of the others one row in ``SAMPLED``."""
    sample = _Sample([])
    for number, window in enumerate(corpus.windows()):
        sample.rows += len(window.texts)
        step = 1 if number == 0 else SAMPLED
        pairs = None if window.pairs is None else window.pairs[::step]
        tokenized = tokenize(tokenizer, window.texts[::step], pairs)
        if len(tokenized.places):
            sample.tokens.append(_tokens(tokenized, len(window.texts)))
        if number == 0:
            sample.first = window, tokenized
    return sample


def _tokens(tokenized: Tokenized, rows: int) -> _Tokens:
    """Count the tokens of a window's sample, which stands for so many rows."""
    parts = [[len(part.input_ids) for part in text.windows or (text,)] for text in tokenized.texts]
    places = tokenized.places
    new = np.zeros(len(places), dtype=bool)
    new[np.unique(places, return_index=True)[1]] = True
    return _Tokens(
        lengths=np.array([text.n_tokens for text in tokenized.texts], dtype=np.int64)[places],
        seen=np.array([sum(part) for part in parts], dtype=np.int64)[places],
        attended=np.array([sum(n * n for n in part) for part in parts], dtype=np.int64)[places],
        new=new,
        weights=np.full(len(places), round(rows / len(places)), dtype=np.int64),
    )


def _joined(tokens: Sequence[_Tokens]) -> _Tokens:
    names = [field.name for field in fields(_Tokens)]
    empty = np.zeros(0, dtype=np.int64)
    return _Tokens(
        *(np.concatenate([empty, *(getattr(one, name) for one in tokens)]) for name in names)
    )


def _probe(
    plan: Plan, tokenizer: Tokenizer, sample: _Sample, corpus: Corpus
) -> tuple[float, float]:
    """Encode rows of the first window; return operations a second, and bytes of a written row."""
    if sample.first is None or not sample.first[0].texts:
        return 0.0, 0.0
    window, tokenized = sample.first
    embedder = load_plan(plan, tokenizer)
    order = np.random.default_rng(0).permutation(len(tokenized.texts))
    flop, spent, start = 0, 0.0, 0
    while spent < PROBE_SECONDS and start < len(order):
        some = tokenized.only(order[start : start + PROBE_ROWS])
        began = time.perf_counter()
        embedded = embedder.encode(some)
        spent += time.perf_counter() - began
        counted = embedded.distinct_tokens, embedded.distinct_pairs
        flop += encoder_flop(plan.checkpoint, plan.recipe, *counted)
        start += PROBE_ROWS
    layout = plan.layout(corpus.extra_schema(), several=corpus.several)
    layout = replace(layout, tokens=False)  # their vectors are counted apart
    return flop / spent, _row_bytes(plan, layout, window)


def _row_bytes(plan: Plan, layout: Layout, window: Window) -> float:
    """Write the first window with vectors of noise, which compress as little as real ones."""
    rows = len(window.texts)
    noise = np.random.default_rng(0).standard_normal((rows, layout.width), dtype=np.float32)
    total = 0
    for columns in _files(plan, layout):
        stream = io.BytesIO()
        writer = plan.destination.format.open_writer(stream, columns, "{}")
        writer.write(
            EmbeddedRows(
                numbers=np.asarray(window.rows),
                texts=window.texts,
                pairs=window.pairs,
                sources=window.sources,
                lines=np.asarray(window.lines),
                extra=window.extra,
                n_tokens=np.zeros(rows, dtype=np.int32),
                truncated=np.zeros(rows, dtype=bool),
                vectors={name: noise.astype(layout.dtype) for name in layout.columns},
            )
        )
        writer.close()
        total += len(stream.getvalue())
    return total / rows


def _token_bytes(plan: Plan, tokens: int) -> int:
    if plan.recipe.tokens is None:
        return 0
    return tokens * plan.recipe.width * np.dtype(plan.options.output_dtype).itemsize


def _files(plan: Plan, layout: Layout) -> Sequence[Layout]:
    """Return the layout of each file that the output becomes."""
    if plan.destination.format.rows:
        return [layout]
    return [replace(layout, columns=(column,)) for column in layout.columns]


def _padding(seen: npt.NDArray[np.int64]) -> float:
    """Return the share of slots that padding takes in batches of ``PADDED_BATCH``, in order."""
    starts = range(0, len(seen), PADDED_BATCH)
    batches = [seen[start : start + PADDED_BATCH] for start in starts]
    slots = sum(len(batch) * int(batch.max()) for batch in batches)
    return 1 - int(seen.sum()) / slots if slots else 0.0


def _histogram(every: _Tokens, limit: int, scale: float) -> tuple[Bin, ...]:
    """Count rows in bins of equal width up to the longest, and those beyond the limit in one."""
    lengths, weights = every.lengths, every.weights
    longest = max(1, min(limit, int(lengths.max(initial=0))))
    width = -(-longest // BINS)
    bins = []
    for least in range(1, longest + 1, width):
        most = min(limit, least + width - 1)
        within = (lengths <= most) & (lengths >= (0 if least == 1 else least))
        bins.append(Bin(least, most, round(int(weights[within].sum()) * scale)))
    beyond = round(int(weights[lengths > limit].sum()) * scale)
    return (*bins, Bin(limit + 1, None, beyond))
