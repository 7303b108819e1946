"""The pipeline: inputs -> texts -> tokens -> vectors -> file.

One text's way: ``corpus`` reads it and gives it a row; a window of texts goes to the ``embedder``,
which tokenizes them, sorts them into batches, runs the ``encoder``, pools each batch and puts the
vectors back in order; ``output`` appends the window to a file that appears when all is done.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from bertpool.ahead import Ahead
from bertpool.corpus import Blank, Corpus, Window
from bertpool.corpus.inputs import check_inputs
from bertpool.encoder.checkpoint import Checkpoint, find_checkpoint
from bertpool.encoder.device import Dtype, check_device_name
from bertpool.encoder.limits import LengthLimit, length_limit
from bertpool.encoder.recipe import Named, Reading, Recipe, check_strategies, make_recipe
from bertpool.encoder.threads import MAX_THREADS, default_threads
from bertpool.encoder.tokenized import Tokenized, tokenize
from bertpool.encoder.tokenizer import Tokenizer, load_tokenizer
from bertpool.errors import BertpoolError, CorpusError, ModelError, TextTooLarge
from bertpool.output.destination import Destination, OutputFile, find_destination, open_output
from bertpool.output.provenance import Settings, provenance_json
from bertpool.output.rows import Layout, OutputDtype, Rows, finite_rows, zero_rows
from bertpool.report import Report, peak_memory_bytes

if TYPE_CHECKING:
    from bertpool.embedder import Embedded, Embedder

_log = logging.getLogger("bertpool")

T = TypeVar("T")
END: Any = object()
# Stages that run at once; "wait" is how long the encoder waited for the others.
STAGES = ("read", "tokenize", "load", "encode", "write", "wait")


@dataclass(frozen=True)
class Progress:
    """How far a run is; ``share`` of the input's bytes, or None where their number is unknown."""

    rows: int
    tokens: int
    share: float | None


OnProgress = Callable[[Progress], None]


def _ignore(progress: Progress) -> None:
    """Take progress and do nothing with it."""


@dataclass(frozen=True)
class Plan:
    """A run, decided and checked before a model is loaded."""

    inputs: Sequence[str]
    destination: Destination
    checkpoint: Checkpoint
    recipe: Recipe
    reading: Reading
    limit: LengthLimit
    encoding: str
    blank: Blank
    text: bool
    device: str
    dtype: Dtype
    output_dtype: OutputDtype
    threads: int
    batch_tokens: int | None

    @property
    def layout(self) -> Layout:
        """Describe the output's columns; lines are one where row numbers don't give them."""
        several = len(self.inputs) > 1
        return Layout(
            columns=tuple(self.recipe.columns),
            width=self.recipe.width,
            dtype=self.output_dtype,
            text=self.text,
            source=several,
            line=several or self.blank == "skip",
        )


@dataclass
class Tally:
    """Counts of a run so far."""

    rows: int = 0
    tokens: int = 0
    truncated: int = 0
    unknown_only: int = 0
    zero: int = 0
    slots: int = 0
    distinct: int = 0
    distinct_tokens: int = 0
    redone: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    def add(self, embedded: Embedded) -> None:
        """Count a window."""
        self.rows += len(embedded.n_tokens)
        self.tokens += int(embedded.encoded_tokens.sum())
        self.truncated += int(embedded.truncated.sum())
        self.unknown_only += int(embedded.unknown_only.sum())
        self.slots += embedded.slots
        self.distinct += embedded.distinct
        self.distinct_tokens += embedded.distinct_tokens
        self.redone += embedded.redone

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time that a block takes to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - start


def extract(
    inputs: Sequence[str],
    *,
    model: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    strategy: Named = "auto",
    layer: Named = -1,
    exclude_special: bool = False,
    max_length: int | None = None,
    prompt: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    output_dtype: OutputDtype = "float32",
    device: str = "auto",
    dtype: Dtype = "float32",
    threads: int | None = None,
    batch_tokens: int | None = None,
    encoding: str = "utf-8",
    blank: Blank = "keep",
    output: str | None = None,
    force: bool = False,
    text: bool = True,
    on_progress: OnProgress = _ignore,
) -> Report:
    """Read texts, embed them and write their vectors: what ``bertpool embed`` does.

    Args:
        inputs: files of lines, or ``-`` for stdin.
        model: directory or hub id; None is ``sentence-transformers/all-MiniLM-L6-v2``.
        revision: branch, tag or commit of a hub model.
        offline: never reach for the network.
        strategy: ``auto`` (what the checkpoint declares), or keys of ``STRATEGIES``.
        layer: of transformers' ``hidden_states``, 0 the embeddings and -1 the last; also
            ``first-last`` and ``last-N``, averages of layers. Several strategies or layers give
            a column each.
        exclude_special: pool without special tokens, except in texts that have no others.
        max_length: tokens kept of a text, specials included; None is the checkpoint's limit.
        prompt: put before every text; None is the declared one under ``auto``, else none.
        normalize: scale vectors to unit length; None is what is declared under ``auto``, else no.
        dimensions: keep so many leading dimensions, before normalization.
        output_dtype: of the vectors in the file.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: of weights and hidden states; pooling sums in float32 whatever it is.
        threads: CPU threads; None is ``OMP_NUM_THREADS``, else the cores this process may use.
        batch_tokens: token slots in a batch; None is what was measured to run best.
        encoding: of the inputs.
        blank: what to do with blank texts.
        output: ``.parquet`` or ``.npy``; None is the input's name with ``.parquet``.
        force: replace an existing output.
        text: keep the texts in the output (Parquet).
        on_progress: called after each batch.

    Raises:
        BertpoolError: a subclass says what is wrong; nothing is left at the output path.
    """
    check_inputs(inputs)
    check_strategies(strategy)
    check_device_name(device)
    _check_encoding(encoding)
    _check_positive(threads=threads, batch_tokens=batch_tokens)
    destination = find_destination(output, inputs, force=force)
    checkpoint = find_checkpoint(model, revision=revision, offline=offline)
    recipe, reading = make_recipe(
        checkpoint,
        strategy=strategy,
        layer=layer,
        exclude_special=exclude_special,
        prompt=prompt,
        normalize=normalize,
        dimensions=dimensions,
    )
    plan = Plan(
        inputs=inputs,
        destination=destination,
        checkpoint=checkpoint,
        recipe=recipe,
        reading=reading,
        limit=length_limit(checkpoint, max_length),
        encoding=encoding,
        blank=blank,
        text=text,
        device=device,
        dtype=dtype,
        output_dtype=output_dtype,
        threads=threads or default_threads(),
        batch_tokens=batch_tokens,
    )
    return _Run(plan, on_progress).execute()


def _check_encoding(encoding: str) -> None:
    try:
        "".encode(encoding)
    except (LookupError, ValueError) as error:
        raise CorpusError(f"--encoding {encoding}: no such text encoding", usage=True) from error


def _check_positive(**options: int | None) -> None:
    for name, value in options.items():
        if value is not None and value < 1:
            option = name.replace("_", "-")
            raise BertpoolError(f"--{option} {value}: give 1 or more", usage=True)
    if (options["threads"] or 0) > MAX_THREADS:
        raise BertpoolError(f"--threads: give at most {MAX_THREADS}", usage=True)


class _Run:
    """One run of a plan: load, embed window after window, put the finished file in place."""

    def __init__(self, plan: Plan, on_progress: OnProgress) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._started = time.perf_counter()
        self._tally = Tally()
        self._corpus = Corpus(plan.inputs, encoding=plan.encoding, blank=plan.blank)
        self._input_bytes = self._corpus.size
        self._position = 0  # bytes of the inputs that are embedded

    def execute(self) -> Report:
        """Read, tokenize, encode and write at once, each in its own thread.

        What fails in one of them ends the run with its own message.
        """
        plan = self._plan
        with (
            Ahead(self._timed("read", self._corpus.windows())) as reading,
            ThreadPoolExecutor(max_workers=1) as hashing,
        ):
            windows = iter(reading)
            # Waited for: what can't be decoded near the start shows before anything loads.
            first = list(itertools.islice(windows, 1))
            settings = hashing.submit(_settings, plan)  # beside the loading: hashing takes no GIL
            with self._tally.timed("load"):
                tokenizer = load_tokenizer(plan.checkpoint, plan.limit, plan.reading)
            with Ahead(self._tokenized(itertools.chain(first, windows), tokenizer)) as tokenized:
                with self._tally.timed("load"):
                    embedder = _load(plan, tokenizer)
                with open_output(plan.destination, plan.layout) as output:
                    self._embed_all(tokenized, embedder, output)
                    with self._tally.timed("write"):
                        identities = self._corpus.identities
                        rows = self._tally.rows
                        output.commit(provenance_json(settings.result(), identities, rows))
        self._note_results()
        return self._report(embedder, settings.result())

    def _timed(self, stage: str, items: Iterable[T]) -> Iterator[T]:
        """Yield items, counting the time that each takes to come."""
        iterator = iter(items)
        while True:
            with self._tally.timed(stage):
                item = next(iterator, END)
            if item is END:
                return
            yield item

    def _tokenized(
        self, windows: Iterable[Window], tokenizer: Tokenizer
    ) -> Iterator[tuple[Window, Tokenized]]:
        for window in windows:
            with self._tally.timed("tokenize"):
                tokenized = tokenize(tokenizer, [text.text for text in window.texts])
            yield window, tokenized

    def _embed_all(
        self, tokenized: Iterable[tuple[Window, Tokenized]], embedder: Embedder, output: OutputFile
    ) -> None:
        """Embed window after window, writing each while the next is embedded."""
        with ThreadPoolExecutor(max_workers=1) as writing:
            written: Future[None] | None = None
            for window, tokens in self._timed("wait", tokenized):
                embedded = self._embed(window, tokens, embedder)
                if written is not None:
                    with self._tally.timed("wait"):
                        written.result()
                written = writing.submit(self._write, window, embedded, output)
            if written is not None:
                written.result()

    def _embed(self, window: Window, tokenized: Tokenized, embedder: Embedder) -> Embedded:
        """Embed a window and count it.

        Raises:
            ModelError: a vector holds NaN or infinity, or memory doesn't suffice for one text.
        """
        with self._tally.timed("encode"):
            try:
                embedded = embedder.encode(tokenized, on_batch=self._batch_progress(window))
            except TextTooLarge as error:
                fits = tokenized.places != error.index
                self._refuse(window, fits, "doesn't fit into memory; pass a lower --max-length")
                raise
        self._refuse(window, embedded.finite, self._not_finite)
        self._tally.add(embedded)
        self._position = window.bytes_read
        return embedded

    @staticmethod
    def _refuse(window: Window, finite: npt.NDArray[np.bool_], what: str) -> None:
        if not finite.all():
            bad = window.texts[int(np.argmin(finite))]
            raise ModelError(f"row {bad.row} ({bad.source}:{bad.line}): {what}")

    @property
    def _not_finite(self) -> str:
        dtype = self._plan.dtype
        advice = "the model itself overflows" if dtype == "float32" else "try --dtype float32"
        return f"the vector isn't finite under --dtype {dtype}; {advice}"

    def _batch_progress(self, window: Window) -> Callable[[int, int], None]:
        """Turn batches into progress, taking the window's bytes to be spread evenly over it."""
        rows, tokens, done = self._tally.rows, self._tally.tokens, 0
        before, behind = self._position, window.bytes_read - self._position

        def on_batch(batch_rows: int, batch_tokens: int) -> None:
            nonlocal done, tokens
            done += batch_rows
            tokens += batch_tokens
            share = None
            if self._input_bytes:
                share = (before + behind * done / len(window.texts)) / self._input_bytes
            self._on_progress(Progress(rows + done, tokens, share))

        return on_batch

    def _write(self, window: Window, embedded: Embedded, output: OutputFile) -> None:
        dtype = np.dtype(self._plan.output_dtype)
        with np.errstate(over="ignore"):  # checked in the next line
            vectors = {n: v.astype(dtype, copy=False) for n, v in embedded.vectors.items()}
        if dtype != np.float32:
            finite = finite_rows(vectors.values(), len(window.texts))
            self._refuse(window, finite, f"the vector is too large for --output-dtype {dtype}")
        self._tally.zero += int(zero_rows(vectors.values(), len(window.texts)).sum())
        rows = Rows(
            ids=np.array([text.row for text in window.texts], dtype=np.int64),
            texts=[text.text for text in window.texts],
            sources=[text.source for text in window.texts],
            lines=np.array([text.line for text in window.texts], dtype=np.int64),
            n_tokens=embedded.n_tokens,
            truncated=embedded.truncated,
            vectors=vectors,
        )
        with self._tally.timed("write"):
            output.write(rows)

    def _note_results(self) -> None:
        """Say what is odd about the rows, once each."""
        rows, tally = self._tally.rows, self._tally
        notes = (
            (rows == 0, "the input holds no text: the output is empty"),
            (
                tally.unknown_only,
                f"nothing but unknown tokens: {tally.unknown_only} of {rows} rows",
            ),
            (tally.redone, f"overflowed and done again in float32: {tally.redone} of {rows} rows"),
            (tally.zero, f"zero vectors: {tally.zero} of {rows} rows"),
        )
        for happened, note in notes:
            if happened:
                _log.warning(note)

    def _report(self, embedder: Embedder, settings: Settings) -> Report:
        seconds = time.perf_counter() - self._started
        plan, tally = self._plan, self._tally
        embedding = tally.seconds["encode"] or 1.0
        return Report(
            output=str(plan.destination.path),
            output_bytes=plan.destination.path.stat().st_size,
            rows=tally.rows,
            dimensions=plan.recipe.width,
            strategies=plan.recipe.strategies,
            tokens=tally.tokens,
            padding_share=1 - tally.distinct_tokens / tally.slots if tally.slots else 0.0,
            distinct=tally.distinct,
            blank=self._corpus.blank,
            truncated=tally.truncated,
            unknown_only=tally.unknown_only,
            zero=tally.zero,
            redone=tally.redone,
            max_length=plan.limit.tokens,
            model=plan.checkpoint.name,
            device=str(embedder.encoder.device),
            dtype=plan.dtype,
            output_dtype=plan.output_dtype,
            threads=plan.threads,
            seconds={**tally.seconds, "total": seconds},
            rows_per_second=tally.rows / embedding,
            tokens_per_second=tally.tokens / embedding,
            peak_memory_bytes=peak_memory_bytes(),
            fingerprint=settings.fingerprint(),
        )


def _load(plan: Plan, tokenizer: Tokenizer) -> Embedder:
    # Here, not at the top: torch takes a second, and every check above none.
    from bertpool.embedder import load_embedder
    from bertpool.encoder.device import find_device

    device = find_device(plan.device, plan.dtype)
    _log.info(
        "%s: %s, at most %d tokens (%s), %s on %s, %d threads",
        plan.checkpoint.name,
        plan.recipe.describe(),
        plan.limit.tokens,
        plan.limit.origin,
        plan.dtype,
        device,
        plan.threads,
    )
    return load_embedder(
        plan.checkpoint,
        tokenizer,
        plan.recipe,
        device=device,
        dtype=plan.dtype,
        batch_tokens=plan.batch_tokens,
        threads=plan.threads,
    )


def _settings(plan: Plan) -> Settings:
    checkpoint, recipe = plan.checkpoint, plan.recipe
    return Settings(
        bertpool_version=metadata.version("bertpool"),
        model=checkpoint.name,
        revision=checkpoint.revision,
        config_sha256=checkpoint.config_sha256(),
        weights_sha256=checkpoint.weights_sha256(),
        tokenizer_sha256=checkpoint.tokenizer_sha256(),
        modules_sha256=checkpoint.modules_sha256(recipe.folders),
        strategies=recipe.strategies,
        layers=recipe.layers,
        columns=tuple(recipe.columns),
        stages=tuple(map(str, recipe.stages)),
        exclude_special=plan.reading.exclude_special,
        max_length=plan.limit.tokens,
        prompt=plan.reading.prompt,
        include_prompt=plan.reading.include_prompt,
        lower_case=plan.reading.lower_case,
        normalize=recipe.normalize,
        dimensions=recipe.width,
        dtype=plan.dtype,
        output_dtype=plan.output_dtype,
        encoding=plan.encoding,
        blank=plan.blank,
    )
