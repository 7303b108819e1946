"""Progress on stderr: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from bertpool.cli.messages import show
from bertpool.cli.signals import raise_if_interrupted
from bertpool.pipeline import OnProgress, Progress
from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)

PLAIN_INTERVAL = 10.0  # seconds between plain lines
NARROW = 70  # columns; below this only the counts fit


def _show_nothing(progress: Progress) -> None:
    """Take progress and show nothing."""
    raise_if_interrupted()


@contextlib.contextmanager
def shown_progress(console: Console, *, quiet: bool) -> Iterator[OnProgress]:
    """Give a function that shows progress as this console can."""
    if quiet:
        yield _show_nothing
    elif console.is_terminal and not console.is_dumb_terminal:
        with _bar(console) as bar:
            yield _BarProgress(bar)
    else:
        yield _PlainProgress()


def _bar(console: Console) -> Bar:
    counts = TextColumn("{task.fields[counts]}", markup=False)
    columns: list[ProgressColumn] = [counts]
    if console.width >= NARROW:
        columns = [
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            counts,
            TimeRemainingColumn(),
        ]
    return Bar(*columns, console=console, transient=True)


class _BarProgress:
    """Feeds a Rich bar; where the input's size is unknown it pulses."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._started = time.monotonic()
        self._task = bar.add_task("", total=None, counts="loading the model")

    def __call__(self, progress: Progress) -> None:
        raise_if_interrupted()
        if progress.share is not None:
            self._bar.update(self._task, total=1.0, completed=progress.share)
        self._bar.update(self._task, counts=_counts(progress, time.monotonic() - self._started))


class _PlainProgress:
    """Shows a line every ``PLAIN_INTERVAL`` seconds."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        raise_if_interrupted()
        now = time.monotonic()
        if now - self._shown >= PLAIN_INTERVAL:
            self._shown = now
            share = "" if progress.share is None else f"{progress.share:.0%}, "
            show("", "", share + _counts(progress, now - self._started))


def _counts(progress: Progress, seconds: float) -> str:
    rate = progress.rows / max(seconds, 1e-3)
    return f"{progress.rows:,} rows, {progress.tokens:,} tokens, {rate:,.0f} rows/s"
