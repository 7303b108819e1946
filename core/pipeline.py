"""The pipeline: inputs -> texts -> tokens -> vectors -> file.

One text's way: ``corpus`` reads it and gives it a row; a window of texts goes to the ``embedder``,
which tokenizes them, sorts them into batches, runs the ``encoder``, pools each batch and puts the
vectors back in order; ``output`` keeps the window as a part, and joins the parts to a file that
appears when all is done.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from bertpool.ahead import Ahead
from bertpool.corpus import Corpus, Window, count_rows
from bertpool.counts import Counts, count_window
from bertpool.encoder.flop import encoder_flop
from bertpool.encoder.tokenized import Tokenized, tokenize
from bertpool.encoder.tokenizer import Tokenizer, load_tokenizer
from bertpool.errors import (
    BertpoolError,
    CorpusError,
    Interrupted,
    ModelError,
    TextTooLarge,
)
from bertpool.finished_run import FinishedRun, find_finished
from bertpool.memory import give_back_memory
from bertpool.output.destination import STDOUT
from bertpool.output.parts import Part, PartedOutput, window_digest
from bertpool.output.provenance import RowRange, Settings, provenance_json
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import EmbeddedRows, Layout, finite_rows, zero_rows
from bertpool.output.stream import StdoutOutput
from bertpool.plan import Plan
from bertpool.report import Report, peak_memory_bytes

if TYPE_CHECKING:
    from bertpool.corpus.inputs import InputIdentity
    from bertpool.embedder import Embedded, Embedder

_log = logging.getLogger("bertpool")

T = TypeVar("T")
END: Any = object()
# Stages that run at once; "wait" is how long the encoder waited for the others.
STAGES = ("read", "tokenize", "load", "encode", "write", "wait")
TOKENS_WINDOW_SHARE = 32  # every token's vector takes so much more room than one a text
ROWS_NAMED = 3  # of those that are too long, in an error


@dataclass(frozen=True)
class Progress:
    """How far a run is; ``share`` of the input's bytes, or None where their number is unknown."""

    rows: int
    tokens: int
    share: float | None


OnProgress = Callable[[Progress], None]
# What count_rows returns.
Counted: TypeAlias = "tuple[int, list[InputIdentity]]"


def ignore_progress(progress: Progress) -> None:
    """Take progress and do nothing with it."""


def run(
    plan: Plan, on_progress: OnProgress = ignore_progress, *, counted: Counted | None = None
) -> Report:
    """Run a checked plan, in this process or on workers.

    Args:
        plan: of the run.
        on_progress: is told how far the run is.
        counted: the inputs' rows and what they are, where a shard needn't count them itself.

    Raises:
        BertpoolError: a subclass says what is wrong; finished windows are kept for ``resume``.
    """
    if plan.options.engine == "ray":
        from bertpool.cluster import run_on_ray

        return run_on_ray(plan, on_progress)
    return _Run(plan, on_progress, counted).execute()


def finished_report(plan: Plan, settings: Settings, finished: FinishedRun) -> Report:
    """Report an output that a run before has finished."""
    found = _Run(plan, ignore_progress)
    found._settings = Future()
    found._settings.set_result(settings)
    found._counts, found._rejected_before = finished.counts, finished.rejected
    return found._report(None)


class _Run:
    """One run of a plan: load, embed window after window, put the finished file in place."""

    def __init__(self, plan: Plan, on_progress: OnProgress, counted: Counted | None = None) -> None:
        self._plan = plan
        self._counted = counted
        self._on_progress = on_progress
        self._started = time.perf_counter()
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._counts = Counts()
        self._encoded = Counts()  # of these, what this run has encoded itself
        self._rows, self._tokens = 0, 0  # embedded so far, written or not
        self._windows = 0  # that were read
        self._read_all = False
        self._position = 0  # bytes of the inputs that are embedded
        self._settings: Future[Settings]
        self._layout: Layout | None = None
        self._row_range: RowRange | None = None
        self._whole: Sequence[InputIdentity] | None = None  # where known before the reading
        self._corpus = Corpus(plan.options.inputs, plan.options.corpus)
        self._rejected_before = 0  # by the run that this one found finished

    def execute(self) -> Report:
        """Run, and on the way out leave no half-written file; finished windows stay."""
        options = self._plan.options
        self._output = _make_output(self._plan)
        try:
            going_on = self._output.open(resume=options.resume, force=options.force)
            with ThreadPoolExecutor(max_workers=1) as hashing:
                self._settings = hashing.submit(self._plan.settings)  # beside the loading
                if going_on:
                    self._output.check(self._settings.result())
                self._row_range, self._whole = self._find_rows()
                finished = None
                if options.resume:
                    finished = find_finished(
                        self._plan, self._settings.result(), self._whole, self._row_range,
                        going_on=going_on, replaces=self._output.replaces,
                    )  # fmt: skip
                if finished is not None:
                    self._counts, self._rejected_before = finished.counts, finished.rejected
                    report = self._report(None)
                else:
                    if options.resume and not going_on:
                        _log.warning("nothing to resume: starting from the first row")
                    report = self._execute()
        except (BertpoolError, Interrupted) as error:
            error.kept = self._output.keep()
            raise
        except BaseException:
            self._output.keep()
            raise
        self._output.remove()
        return report

    def _find_rows(self) -> tuple[RowRange | None, Sequence[InputIdentity] | None]:
        """Count the input's rows where a shard needs their number."""
        plan = self._plan
        if plan.shard is None:
            return None, None
        with self._timed_block("read"):
            total, identities = self._counted or count_rows(
                plan.options.inputs, plan.options.corpus
            )
        shard, rows = plan.shard, plan.shard.rows(total)
        return RowRange(shard.index, shard.count, rows.start, rows.stop, total), identities

    def _execute(self) -> Report:
        """Read, tokenize, encode and write at once, each in its own thread.

        What fails in one of them ends the run with its own message.
        """
        plan = self._plan
        self._corpus = self._open_corpus()
        with Ahead(self._timed("read", self._read())) as reading:
            windows = iter(reading)
            # Waited for: what can't be decoded near the start shows before anything loads.
            first = list(itertools.islice(windows, 1))
            with self._timed_block("load"):
                self._tokenizer = load_tokenizer(
                    plan.checkpoint, plan.limit, plan.reading, stride=plan.stride
                )
            self._check_lengths()
            every = itertools.chain(first, windows)
            with Ahead(self._tokenized(every)) as tokenized:
                with self._timed_block("load"):
                    embedder = load_plan(plan, self._tokenizer)
                with self._rejects() as rejects:
                    self._embed_all(tokenized, embedder, rejects)
                    self._finish(rejects)
        self._note_results()
        return self._report(embedder)

    def _open_corpus(self) -> Corpus:
        within = None if self._row_range is None else self._row_range.rows
        share = 1 if self._plan.recipe.tokens is None else TOKENS_WINDOW_SHARE
        options = self._plan.options
        return Corpus(options.inputs, options.corpus, rows=within, window_share=share)

    def _read(self) -> Iterator[Window]:
        for window in self._corpus.windows():
            self._windows += 1
            yield window
        self._read_all = True

    def _timed(self, stage: str, items: Iterable[T]) -> Iterator[T]:
        """Yield items, counting the time that each takes to come."""
        iterator = iter(items)
        while True:
            with self._timed_block(stage):
                item = next(iterator, END)
            if item is END:
                return
            yield item

    @contextmanager
    def _timed_block(self, stage: str) -> Iterator[None]:
        """Add the time that a block takes to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] += time.perf_counter() - start

    def _check_lengths(self) -> None:
        """Look for texts that are too long before anything is encoded, where that is an error.

        Of a pipe that can't be known; there they are found window by window.
        """
        plan = self._plan
        if plan.options.on_truncate != "error" or self._corpus.size is None:
            return
        for window in self._open_corpus().windows():
            with self._timed_block("tokenize"):
                self._refuse_truncated(
                    window, tokenize(self._tokenizer, window.texts, window.pairs)
                )

    def _refuse_truncated(self, window: Window, tokenized: Tokenized) -> None:
        texts = [tokenized.texts[place] for place in tokenized.places.tolist()]
        long = [index for index, text in enumerate(texts) if text.truncated]
        if not long:
            return
        named = [
            f"row {window.rows[i]} ({window.sources[i]}:{window.lines[i]}, "
            f"{texts[i].n_tokens} tokens)"
            for i in long[:ROWS_NAMED]
        ]
        more = ", ..." if len(long) > ROWS_NAMED else ""
        raise CorpusError(
            f"longer than {self._plan.limit.tokens} tokens: {', '.join(named)}{more}; pass "
            "--on-truncate keep or window, or a higher --max-length"
        )

    def _tokenized(
        self, windows: Iterable[Window]
    ) -> Iterator[tuple[int, Window, str, Part | Tokenized]]:
        """Yield each window with its number, its hash, and its part or its tokens."""
        for index, window in enumerate(windows):
            with self._timed_block("tokenize"):
                digest = window_digest(window) if self._output.keeps_parts else ""
                ready: Part | Tokenized | None = self._output.find(index, digest)
                if ready is None:
                    ready = tokenize(self._tokenizer, window.texts, window.pairs)
            yield index, window, digest, ready

    @contextmanager
    def _rejects(self) -> Iterator[RejectsFile | None]:
        """Open the file of rejects where the options ask for one."""
        destination = self._plan.destination
        if destination.rejects is None:
            yield None
            return
        # What stands there already a killed run has put there, just before the output.
        replace = destination.replace or self._plan.options.resume
        file = RejectsFile(destination.rejects, replace=replace, folder=destination.folder)
        try:
            yield file
        finally:
            file.discard()

    def _embed_all(
        self,
        tokenized: Iterable[tuple[int, Window, str, Part | Tokenized]],
        embedder: Embedder,
        rejects: RejectsFile | None,
    ) -> None:
        """Embed window after window, writing each while the next is embedded."""
        with ThreadPoolExecutor(max_workers=1) as writing:
            written: Future[Counts] | None = None
            for index, window, digest, ready in self._timed("wait", tokenized):
                if rejects is not None:
                    rejects.add(window.rejects)
                if isinstance(ready, Part):
                    self._skip(window, ready)
                    continue
                embedded = self._embed(window, ready, embedder)
                self._find_layout(window)
                if written is not None:
                    with self._timed_block("wait"):
                        self._count(written.result())
                written = writing.submit(self._write, index, window, digest, embedded)
            if written is not None:
                self._count(written.result())

    def _count(self, counts: Counts) -> None:
        """Count a window that this run has encoded and written."""
        self._counts += counts
        self._encoded += counts

    def _skip(self, window: Window, part: Part) -> None:
        """Count a window that an earlier run has finished."""
        counts = Counts(**part.counts)
        self._find_layout(window)
        self._counts += counts
        self._rows += counts.rows
        self._tokens += counts.tokens
        self._position = window.bytes_read
        self._on_progress(Progress(self._rows, self._tokens, self._share(self._position)))

    def _embed(self, window: Window, tokenized: Tokenized, embedder: Embedder) -> Embedded:
        """Embed a window and count it.

        Raises:
            ModelError: a vector holds NaN or infinity, or memory doesn't suffice for one text.
        """
        if self._plan.options.on_truncate == "error":
            self._refuse_truncated(window, tokenized)
        with self._timed_block("encode"):
            try:
                embedded = embedder.encode(tokenized, on_batch=self._batch_progress(window))
            except TextTooLarge as error:
                fits = tokenized.places != error.index
                self._refuse(window, fits, "doesn't fit into memory; pass a lower --max-length")
                raise
        self._refuse(window, embedded.finite, self._not_finite)
        self._rows += len(window.texts)
        self._tokens += int(embedded.encoded_tokens.sum())
        self._position = window.bytes_read
        return embedded

    @staticmethod
    def _refuse(window: Window, good: npt.NDArray[np.bool_], what: str) -> None:
        if not good.all():
            i = int(np.argmin(good))
            raise ModelError(
                f"row {window.rows[i]} ({window.sources[i]}:{window.lines[i]}): {what}"
            )

    @property
    def _not_finite(self) -> str:
        dtype = self._plan.options.dtype
        advice = "the model itself overflows" if dtype == "float32" else "try --dtype float32"
        return f"the vector isn't finite under --dtype {dtype}; {advice}"

    def _share(self, position: float) -> float | None:
        return position / self._corpus.size if self._corpus.size else None

    def _batch_progress(self, window: Window) -> Callable[[int, int], None]:
        """Turn batches into progress, taking the window's bytes to be spread evenly over it."""
        rows, tokens, done = self._rows, self._tokens, 0
        before, behind = self._position, window.bytes_read - self._position

        def on_batch(batch_rows: int, batch_tokens: int) -> None:
            nonlocal done, tokens
            done += batch_rows
            tokens += batch_tokens
            share = self._share(before + behind * done / len(window.texts))
            self._on_progress(Progress(rows + done, tokens, share))

        return on_batch

    def _write(self, index: int, window: Window, digest: str, embedded: Embedded) -> Counts:
        dtype = np.dtype(self._plan.options.output_dtype)
        with np.errstate(over="ignore"):  # checked in the next line
            vectors = {n: v.astype(dtype, copy=False) for n, v in embedded.vectors.items()}
        if dtype != np.float32:
            finite = finite_rows(vectors.values(), len(window.texts))
            self._refuse(window, finite, f"the vector is too large for --output-dtype {dtype}")
        zero = int(zero_rows(vectors.values(), len(window.texts)).sum())
        counts = count_window(embedded, zero)
        rows = EmbeddedRows(
            numbers=np.asarray(window.rows, dtype=np.int64),
            texts=window.texts,
            pairs=window.pairs,
            sources=window.sources,
            lines=np.asarray(window.lines, dtype=np.int64),
            extra=window.extra,
            n_tokens=embedded.n_tokens,
            truncated=embedded.truncated,
            vectors=vectors,
            **_token_columns(embedded, dtype),
        )
        last = self._read_all and index == self._windows - 1
        with self._timed_block("write"):
            layout = self._find_layout(window)
            if not last:
                self._output.check(self._settings.result())
            self._output.add(index, rows, layout, digest, counts.to_dict(), last=last)
        give_back_memory()
        return counts

    def _find_layout(self, window: Window | None) -> Layout:
        """Describe the output's columns, once the first window shows what the inputs hold."""
        if self._layout is None:
            extra = self._corpus.extra_schema()
            self._layout = self._plan.layout(extra, several=self._corpus.several)
        return self._layout

    def _finish(self, rejects: RejectsFile | None) -> None:
        with self._timed_block("write"):
            identities = self._whole or self._corpus.identities
            provenance = provenance_json(
                self._settings.result(), identities, self._counts.rows, self._row_range
            )
            self._output.finish(self._windows, self._find_layout(None), provenance, rejects)

    def _note_results(self) -> None:
        """Say what is odd about the rows, once each."""
        counts, rows = self._counts, self._counts.rows
        notes = (
            (rows == 0, "the input holds no text: the output is empty"),
            (
                counts.unknown_only,
                f"nothing but unknown tokens: {counts.unknown_only} of {rows} rows",
            ),
            (
                counts.redone,
                f"overflowed and done again in float32: {counts.redone} of {rows} rows",
            ),
            (counts.zero, f"zero vectors: {counts.zero} of {rows} rows"),
        )
        for happened, note in notes:
            if happened:
                _log.warning(note)

    def _report(self, embedder: Embedder | None) -> Report:
        """Sum up the run; one that found its output finished has loaded no embedder."""
        seconds = time.perf_counter() - self._started
        plan, counts, corpus = self._plan, self._counts, self._corpus
        rejected = corpus.rejected + self._rejected_before
        encoded, embedding = self._encoded, self._seconds["encode"] or math.inf
        flop = encoder_flop(
            plan.checkpoint, plan.recipe, encoded.distinct_tokens, encoded.distinct_pairs
        )
        return Report(
            outputs=tuple(str(target.path) for target in plan.destination.targets),
            rejects=str(plan.destination.rejects) if rejected else None,
            rows=counts.rows,
            dimensions=plan.recipe.width,
            columns=tuple(plan.recipe.columns),
            strategies=plan.recipe.strategies,
            tokens=counts.tokens,
            padding_share=counts.padding_share,
            distinct=counts.distinct,
            blank=corpus.blank,
            truncated=counts.truncated,
            rejected=rejected,
            unknown_only=counts.unknown_only,
            zero=counts.zero,
            redone=counts.redone,
            max_length=plan.limit.tokens,
            model=plan.checkpoint.name,
            device=str(embedder.encoder.device) if embedder else plan.options.device,
            dtype=plan.options.dtype,
            output_dtype=plan.options.output_dtype,
            threads=plan.threads,
            seconds={**self._seconds, "total": seconds},
            rows_per_second=encoded.rows / embedding,
            tokens_per_second=encoded.tokens / embedding,
            gflop_per_second=flop / embedding / 1e9,
            peak_memory_bytes=peak_memory_bytes(),
            fingerprint=self._settings.result().fingerprint(),
        )


def _token_columns(embedded: Embedded, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the rows' tokens and their vectors, where they are wanted."""
    if embedded.tokens is None:
        return {}
    return {
        "tokens": [one.names for one in embedded.tokens],
        "token_vectors": [one.vectors.astype(dtype, copy=False) for one in embedded.tokens],
    }


def _make_output(plan: Plan) -> PartedOutput | StdoutOutput:
    if str(plan.destination.path) == STDOUT:
        return StdoutOutput(plan.destination, lambda: provenance_json(plan.settings(), None, None))
    return PartedOutput(plan.destination)


def load_plan(plan: Plan, tokenizer: Tokenizer) -> Embedder:
    """Load the model that a plan names, and say which it is."""
    # Here, not at the top: torch takes a second, and every check above none.
    from bertpool.embedder import load_embedder
    from bertpool.encoder.device import find_device

    options = plan.options
    device = find_device(options.device, options.dtype)
    _log.info(
        "%s: %s, at most %d tokens (%s), %s on %s, %d threads",
        plan.checkpoint.name,
        plan.recipe.describe(),
        plan.limit.tokens,
        plan.limit.origin,
        options.dtype,
        device,
        plan.threads,
    )
    return load_embedder(
        plan.checkpoint,
        tokenizer,
        plan.recipe,
        device=device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
        threads=plan.threads,
    )
