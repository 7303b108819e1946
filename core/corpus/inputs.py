"""Inputs as the user names them: what can be known of them before any is read, and their bytes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import os
import re
import select
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bertpool.errors import CorpusError

T = TypeVar("T")
STDIN = "-"
BUFFER_BYTES = 1 << 20
HEAD_BYTES = 1024  # enough for every signature, and for a fair guess at UTF-16

_log = logging.getLogger("bertpool")

# Suffixes of formats that aren't lines: read as lines they would embed syntax, silently.
NOT_LINES = (".jsonl", ".csv", ".tsv", ".parquet", ".npy", ".arrow")
# Patterns, since plain text may well start with BZh or PAR1.
SIGNATURES = {
    rb"\x1f\x8b": ("gzip-compressed", "gzip -dc"),
    rb"\x28\xb5\x2f\xfd": ("zstd-compressed", "zstd -dc"),
    rb"BZh[1-9](?:1AY&SY|\x17rE8P)": ("bzip2-compressed", "bzip2 -dc"),
    rb"\xfd7zXZ\x00": ("xz-compressed", "xz -dc"),
    rb"PK\x03\x04": ("a zip archive", "unzip -p"),
    rb"PAR1\x15": ("Parquet", None),
    rb"\x93NUMPY": ("a .npy array", None),
}


@dataclass(frozen=True)
class InputIdentity:
    """What an input was: its base name (never its folder), its size and its hash."""

    name: str
    bytes: int
    sha256: str


def printable_name(name: str) -> str:
    r"""Return a file name as valid Unicode: bytes that aren't UTF-8 become ``\xNN``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def check_inputs(inputs: Sequence[str]) -> None:
    """Check all that can be known without reading: every input exists and may be read.

    Raises:
        CorpusError: no input, stdin named twice, or the inputs that fail, in one line.
    """
    if not inputs:
        raise CorpusError("no input: name files, or - for stdin", usage=True)
    if list(inputs).count(STDIN) > 1:
        raise CorpusError("stdin (-) is named twice, and can be read once", usage=True)
    problems = [problem for name in inputs if (problem := _problem(name))]
    if problems:
        raise CorpusError("; ".join(problems), usage=True)


def _problem(name: str) -> str | None:
    """Say why an input can't be read, or None."""
    shown = printable_name(name)
    if name == STDIN:
        return None
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError) as error:
        return f"{shown}: {_reason(error)}"
    if stat.S_ISDIR(mode):
        return f"{shown}: is a directory; name the files in it"
    if not os.access(name, os.R_OK):
        return f"{shown}: no permission to read it"
    suffix = os.path.splitext(name)[1].lower()
    if suffix in NOT_LINES:
        return f"{shown}: bertpool reads lines of text, not {suffix}; extract the text column first"
    return None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class DigestedStream(io.RawIOBase):
    """A raw stream that hashes and counts the bytes read through it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._sha256 = hashlib.sha256()
        self.size = 0
        # Read whole here: a slow pipe may hand over a signature byte by byte.
        self.head = self._read_head()
        self._unread = memoryview(self.head)

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end."""
        if self._unread:
            count = min(len(buffer), len(self._unread))
            buffer[:count] = self._unread[:count]
            self._unread = self._unread[count:]
        else:
            count = self._wait_for(functools.partial(self._raw.readinto, buffer))
        self._sha256.update(buffer[:count])
        self.size += count
        return count

    def identity(self, name: str) -> InputIdentity:
        """Describe what was read so far."""
        return InputIdentity(name, self.size, self._sha256.hexdigest())

    def _read_head(self) -> bytes:
        head = b""
        while len(head) < HEAD_BYTES:
            more = self._wait_for(functools.partial(self._raw.read, HEAD_BYTES - len(head)))
            if not more:
                break
            head += more
        return head

    def _wait_for(self, read: Callable[[], T | None]) -> T:
        """Read, waiting where a non-blocking descriptor has nothing yet (None, unlike its end)."""
        while (result := read()) is None:
            select.select([self._raw.fileno()], [], [])
        return result


@contextlib.contextmanager
def open_input(name: str) -> Iterator[DigestedStream]:
    """Open a file, FIFO or ``-`` for reading bytes, closed at exit.

    Raises:
        CorpusError: it can't be opened or read, or holds a format that isn't lines of text.
    """
    shown = printable_name(name)
    try:
        with _open_raw(name) as raw:
            stream = DigestedStream(raw)
            _refuse_signature(shown, stream.head)
            yield stream
    except OSError as error:
        raise CorpusError(f"{shown}: {_reason(error)}") from error


def _open_raw(name: str) -> io.FileIO:
    if name != STDIN:
        return io.FileIO(name)
    if os.isatty(0):
        _log.warning("reading texts from the terminal, one a line; end with Ctrl-D")
    return io.FileIO(0, closefd=False)


def _refuse_signature(shown: str, head: bytes) -> None:
    for signature, (what, command) in SIGNATURES.items():
        if re.match(signature, head):
            source = "" if shown == STDIN else f" {shown}"
            hint = f"; pipe it: {command}{source} | bertpool embed - -o OUT" if command else ""
            raise CorpusError(f"{shown}: looks {what}, not lines of text{hint}")
