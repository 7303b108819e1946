"""What a run would take: counted and tried on a sample, nothing written."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt
from bertpool.corpus import Corpus, Window
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


@dataclass
class _Sample:
    """Token counts of sampled rows, each standing for ``weights`` rows of the input."""

    lengths: list[npt.NDArray[np.int64]]
    weights: list[npt.NDArray[np.int64]]
    first: tuple[Window, Tokenized] | None = None
    rows: int = 0


def forecast(plan: Plan) -> Forecast:
    """Read the inputs, tokenize a sample, encode for a few seconds, and say what it comes to.

    Raises:
        BertpoolError: an input or the model is wrong, as in a run.
    """
    started = time.perf_counter()
    corpus = Corpus(plan.options.inputs, plan.options.corpus)
    tokenizer = load_tokenizer(plan.checkpoint, plan.limit, plan.reading, stride=plan.stride)
    sample = _sample(corpus, tokenizer)
    lengths = np.concatenate([*sample.lengths, np.zeros(0, dtype=np.int64)])
    weights = np.concatenate([*sample.weights, np.zeros(0, dtype=np.int64)])
    scale = sample.rows / max(1, int(weights.sum()))
    reading = time.perf_counter() - started
    seen, attended = _seen(lengths, plan)
    rate, row_bytes = _probe(plan, tokenizer, sample, corpus)
    flop = encoder_flop(plan.checkpoint, plan.recipe, int(seen @ weights), int(attended @ weights))
    tokens = round(int(seen @ weights) * scale)
    encoding = flop * scale / rate if rate else 0.0
    cut = plan.stride is None
    truncated = round(int(weights[lengths > plan.limit.tokens].sum()) * scale) if cut else 0
    return Forecast(
        rows=sample.rows,
        sampled=len(lengths),
        tokens=tokens,
        max_length=plan.limit.tokens,
        truncated=truncated,
        truncated_share=truncated / max(1, sample.rows),
        histogram=_histogram(lengths, weights, plan.limit.tokens),
        padding_avoided=_padding(np.minimum(lengths, plan.limit.tokens)),
        seconds=reading + encoding,
        tokens_per_second=tokens / encoding if encoding else 0.0,
        output_bytes=round(row_bytes * sample.rows) + _token_bytes(plan, tokens),
        peak_memory_bytes=peak_memory_bytes(),
    )


def _seen(
    lengths: npt.NDArray[np.int64], plan: Plan
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many tokens of each text the model sees, and how many pairs of them attend."""
    limit = plan.limit.tokens
    if plan.stride is None:
        seen = np.minimum(lengths, limit)
        return seen, seen**2
    windows = 1 + np.maximum(0, -(-(lengths - limit) // max(1, limit - plan.stride)))
    each = np.minimum(lengths, limit)
    return windows * each, windows * each**2


def _sample(corpus: Corpus, tokenizer: Tokenizer) -> _Sample:
    """Tokenize the first window whole, and of the others one row in ``SAMPLED``."""
    sample = _Sample([], [])
    for number, window in enumerate(corpus.windows()):
        sample.rows += len(window.texts)
        step = 1 if number == 0 else SAMPLED
        pairs = None if window.pairs is None else window.pairs[::step]
        tokenized = tokenize(tokenizer, window.texts[::step], pairs)
        lengths = np.array([text.n_tokens for text in tokenized.texts], dtype=np.int64)
        sample.lengths.append(lengths[tokenized.places])
        weight = len(window.texts) / max(1, len(tokenized.places))
        sample.weights.append(np.full(len(tokenized.places), round(weight), dtype=np.int64))
        if number == 0:
            sample.first = window, tokenized
    return sample


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


def _histogram(
    lengths: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], limit: int
) -> tuple[Bin, ...]:
    """Count rows in bins of equal width up to the longest, and those beyond the limit in one."""
    longest = max(1, min(limit, int(lengths.max(initial=0))))
    width = -(-longest // BINS)
    bins = []
    for least in range(1, longest + 1, width):
        most = min(limit, least + width - 1)
        within = (lengths <= most) & (lengths >= (0 if least == 1 else least))
        bins.append(Bin(least, most, int(weights[within].sum())))
    beyond = int(weights[lengths > limit].sum())
    return (*bins, Bin(limit + 1, None, beyond))
