from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from bertpool.cli import signals
from bertpool.cli.messages import stderr
from bertpool.cli.progress import shown_progress
from bertpool.errors import Interrupted
from bertpool.pipeline import Progress


@pytest.fixture
def received() -> Iterator[list[int]]:
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    signals._received.clear()
    yield signals._received
    signals._received.clear()
    for number, handler in before.items():
        signal.signal(number, handler)


class Destroyed:
    """Its destructor drops every exception, as Python's do."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("quiet", [True, False])
def test_a_signal_that_python_drops_ends_the_run_at_the_next_batch(
    received: list[int], quiet: bool
) -> None:
    signals.interrupt_on_signals()
    with shown_progress(stderr, quiet=quiet) as on_progress:
        on_progress(Progress(1, 1, None))
        one = Destroyed()
        del one  # the exception is dropped here
        assert received == [signal.SIGTERM]
        with pytest.raises(Interrupted):
            on_progress(Progress(2, 2, None))
