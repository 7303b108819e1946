"""Bytes of one file, FIFO or stdin: hashed and counted as they lie there, then decompressed."""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from bertpool.corpus.compression import SIGNATURES as COMPRESSED
from bertpool.corpus.compression import decompressor
from bertpool.errors import CorpusError

T = TypeVar("T")
STDIN = "-"
BUFFER_BYTES = 1 << 17  # few: how far a run is goes by the bytes that were read
HEAD_BYTES = 1024  # enough for every signature, and for a fair guess at UTF-16

_log = logging.getLogger("bertpool")

# Patterns, since plain text may well start with PK or PAR1.
BINARY = {
    rb"PK\x03\x04": ("a zip archive", "unpack it first"),
    rb"PAR1\x15": ("Parquet", "pass --input-format parquet"),
    rb"\x93NUMPY": ("a .npy array", "bertpool reads text"),
    rb"(?s:.{257})ustar": ("a tar archive", "unpack it first"),
    rb"%PDF-1": ("a PDF", "extract its text first"),
}
TWICE = {
    pattern: (f"{name}-compressed twice", "decompress it first")
    for pattern, name in COMPRESSED.items()
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


class HeadedStream(io.RawIOBase):
    """A raw stream whose first bytes can be looked at before they are read."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        # Read whole here: a slow pipe may hand over a signature byte by byte.
        self.head = self._read_head()
        self._unread = memoryview(self.head)

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end."""
        if not self._unread:
            return self._wait_for(functools.partial(_read_into, self._raw, buffer))
        count = min(len(buffer), len(self._unread))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count

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


class DigestedStream(HeadedStream):
    """A raw stream that hashes and counts the bytes read through it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self.sha256 = hashlib.sha256()
        self.size = 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end."""
        count = super().readinto(buffer)
        self.sha256.update(memoryview(buffer)[:count])
        self.size += count
        return count

    def advance(self, position: int) -> None:
        """Read and drop bytes up to a position, for one who reads the file by other means."""
        while self.size < position and self.read(min(BUFFER_BYTES, position - self.size)):
            pass

    def identity(self, name: str) -> InputIdentity:
        """Describe what was read so far."""
        return InputIdentity(name, self.size, self.sha256.hexdigest())


def _read_into(raw: io.RawIOBase, buffer: memoryview) -> int | None:
    return raw.readinto(buffer)


@dataclass(frozen=True)
class Opened:
    """An open input.

    ``raw`` counts and hashes what lies there, ``content`` is that, decompressed. ``path`` names a
    regular file that isn't compressed, for a reader that must seek; it is None for all others.
    """

    shown: str
    raw: DigestedStream
    content: HeadedStream
    path: str | None

    def refuse_binary(self) -> None:
        """Refuse content that is no text, by the name of its format.

        Raises:
            CorpusError: it is a known binary format, or compressed twice.
        """
        for signature, (what, hint) in {**BINARY, **TWICE}.items():
            if re.match(signature, self.content.head):
                raise CorpusError(f"{self.shown}: looks {what}, not text; {hint}")


@contextlib.contextmanager
def open_input(name: str) -> Iterator[Opened]:
    """Open a file, FIFO or ``-`` for reading, closed at exit.

    Raises:
        CorpusError: it can't be opened, read or decompressed.
    """
    shown = printable_name(name)
    try:
        with _open_raw(name) as file:
            raw = DigestedStream(file)
            with contextlib.ExitStack() as stack:
                plain = decompressor(raw, raw.head, shown)
                if plain is None:
                    regular = name != STDIN and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                    yield Opened(shown, raw, raw, name if regular else None)
                else:
                    content = HeadedStream(stack.enter_context(plain))
                    yield Opened(shown, raw, content, None)
    except OSError as error:
        raise CorpusError(f"{shown}: {reason(error)}") from error


def reason(error: OSError | ValueError) -> str:
    """Say in a few words why a file can't be had."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _open_raw(name: str) -> io.FileIO:
    if name != STDIN:
        return io.FileIO(name)
    if os.isatty(0):
        _log.warning("reading texts from the terminal, one a line; end with Ctrl-D")
    return io.FileIO(0, closefd=False)
