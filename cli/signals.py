"""Signals end a run the way an error does: through every ``finally`` on the way up."""

from __future__ import annotations

import select
import signal
from types import FrameType

from bertpool.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)

_received: list[int] = []


def interrupt_on_signals() -> None:
    """Make the signals raise ``Interrupted``, unless one is ignored (as under nohup)."""
    for number in SIGNALS:
        if number == signal.SIGPIPE or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def raise_if_interrupted() -> None:
    """Raise again for a signal that came and had no effect.

    Python drops an exception that is raised while it runs a destructor or a weak reference's
    callback. A run calls this now and then, so that a signal at such a moment isn't lost.
    """
    if _received:
        raise Interrupted(_received[0])


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGPIPE and not _reader_gone():
        return  # a network connection broke, which its own library handles
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # cleaning up is quick and must not be cut short
    _received.append(number)
    raise Interrupted(number)


def _reader_gone() -> bool:
    """Tell whether nobody reads stdout or stderr any more."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
