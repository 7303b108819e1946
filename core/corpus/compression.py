"""Compression, recognised by the first bytes of a stream and never by a file's name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from bertpool.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow as pa

INPUT_BYTES = 1 << 18

# Patterns, since plain text may well start with BZh. zstd's second one starts a skippable frame,
# which parallel compressors write first.
SIGNATURES = {
    rb"\x1f\x8b": "gzip",
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": "zstd",
    rb"BZh[1-9](?:1AY&SY|\x17rE8P)": "bzip2",
    rb"\xfd7zXZ\x00": "xz",
}


def decompressor(raw: io.RawIOBase, head: bytes, shown: str) -> io.RawIOBase | None:
    """Return a stream of the decompressed bytes, or None where the bytes aren't compressed.

    Args:
        raw: the compressed bytes, from their first.
        head: the first of them.
        shown: how messages call the input.
    """
    for signature, name in SIGNATURES.items():
        if re.match(signature, head):
            return _Checked(DECOMPRESSORS[name](raw), f"{shown}: broken {name} data")
    return None


class _Checked(io.RawIOBase):
    """A decompressed stream whose errors say which input is broken."""

    def __init__(self, content: io.RawIOBase | gzip.GzipFile, complaint: str) -> None:
        self._content = content
        self._complaint = complaint

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end.

        Raises:
            CorpusError: the data is damaged, cut short, or followed by something else.
        """
        try:
            return self._content.readinto(buffer) or 0
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            why = (str(error).splitlines() or ["damaged"])[0]
            raise CorpusError(f"{self._complaint} ({why}); fetch or make the file again") from error

    def close(self) -> None:
        """Close what decompresses; the raw stream stays open."""
        self._content.close()
        super().close()


class _Members(io.RawIOBase):
    """Decompresses members one after the other.

    The standard library's own file objects take what follows the last member for nothing, silently.
    """

    def __init__(
        self,
        raw: io.RawIOBase,
        start: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
        padding: bytes,
    ) -> None:
        self._raw = raw
        self._start = start
        self._padding = padding
        self._member = start()

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end."""
        while True:
            data = b""
            if self._member.eof:
                data = self._next_member()
                if not data:
                    return 0
            elif self._member.needs_input:
                data = self._raw.read(INPUT_BYTES) or b""
                if not data:
                    raise EOFError("it is cut short")
            plain = self._member.decompress(data, len(buffer))
            if plain:
                buffer[: len(plain)] = plain
                return len(plain)

    def _next_member(self) -> bytes:
        """Start a member and return its first bytes, none at the end of the input."""
        data = self._member.unused_data.lstrip(self._padding)
        while not data and (more := self._raw.read(INPUT_BYTES)):
            data = more.lstrip(self._padding)
        if data:
            self._member = self._start()
        return data


class _Arrow(io.RawIOBase):
    """Decompresses with Arrow's codecs: Python has none for zstd before 3.14."""

    def __init__(self, raw: io.RawIOBase, codec: str) -> None:
        import pyarrow as pa

        self._stream: pa.NativeFile = pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec)

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end."""
        plain = self._stream.read(len(buffer))
        buffer[: len(plain)] = plain
        return len(plain)


DECOMPRESSORS: dict[str, Callable[[io.RawIOBase], io.RawIOBase | gzip.GzipFile]] = {
    # A buffer between: gzip reads by small pieces.
    "gzip": lambda raw: gzip.GzipFile(fileobj=io.BufferedReader(_Lent(raw), INPUT_BYTES)),
    "zstd": lambda raw: _Arrow(raw, "zstd"),
    "bzip2": lambda raw: _Members(raw, bz2.BZ2Decompressor, b""),
    # An xz file may be padded with NULs.
    "xz": lambda raw: _Members(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), b"\0"),
}


class _Lent(io.RawIOBase):
    """A raw stream that stays open when who reads it is closed."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        """Read into a buffer and return the number of bytes, 0 at the end."""
        return self._raw.readinto(buffer)
