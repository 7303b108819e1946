"""The errors that bertpool raises on purpose: each is one line for the person who runs it."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """What an unfinished run leaves for ``--resume``: so many rows, in a folder."""

    rows: int
    folder: str


class BertpoolError(Exception):
    """Say in one line what is wrong, where, and what to do.

    ``usage`` marks what was asked for wrongly and is known before anything is loaded (exit code
    2); everything else was found later (exit code 1). ``kept`` is what isn't lost.
    """

    kept: Kept | None = None

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.exit_code = 2 if usage else 1


class CorpusError(BertpoolError):
    """An input is missing, unreadable or not the text it should be."""


class ModelError(BertpoolError):
    """A checkpoint can't be found, isn't whole, or can't do what was asked."""


class TextTooLarge(ModelError):
    """Memory doesn't suffice for one text alone; ``index`` is its place among those given."""

    def __init__(self, index: int) -> None:
        super().__init__(f"text {index} doesn't fit into memory")
        self.index = index


class DeviceError(BertpoolError):
    """The device or number type asked for isn't there."""


class PoolingError(BertpoolError):
    """A strategy is unknown, or the checkpoint can't provide it."""


class OutputError(BertpoolError):
    """The output can't be written where it was asked for."""


class Interrupted(BaseException):
    """A signal ended the run; not an ``Exception``, so that nothing swallows it on the way up."""

    kept: Kept | None = None

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
