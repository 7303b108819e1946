"""Lines: a text is what stands between two LF bytes."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import AnyStr

from bertpool.corpus.inputs import BUFFER_BYTES, DigestedStream
from bertpool.errors import CorpusError

MAX_LINE_BYTES = 256 << 20  # a longer "line" is a binary file or a device, and would fill memory
BOM = "\ufeff"


def read_lines(stream: DigestedStream, name: str, encoding: str) -> Iterator[str]:
    """Yield the lines of a stream; only LF splits, one CR before it goes, so does a leading BOM.

    Args:
        stream: the bytes.
        name: how messages call it.
        encoding: a Python codec name; never guessed, never taken from the locale.

    Raises:
        CorpusError: bytes that aren't in the encoding, with line and byte (both from 1).
    """
    is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
    if is_utf8:
        _refuse_utf16(name, stream.head)
    lines = _decode_lines(stream, name) if is_utf8 else _transcode_lines(stream, name, encoding)
    for number, line in enumerate(lines):
        text = line.removeprefix(BOM) if number == 0 else line
        if line == BOM and number == 0:
            return  # a file of nothing but a BOM is empty
        yield (text[:-2] if text.endswith("\r\n") else text.removesuffix("\n"))


def _decode_lines(stream: DigestedStream, name: str) -> Iterator[str]:
    """Split the bytes at LF, then decode each line, so that an error is in one line's own bytes."""
    buffered = io.BufferedReader(stream, BUFFER_BYTES)
    number = 0
    while raw := buffered.readline(MAX_LINE_BYTES):
        number += 1
        _check_length(name, number, raw, b"\n")
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            at = error.start + 1
            raise CorpusError(
                f"{name}:{number}: not UTF-8 at byte {at} of the line (0x{raw[error.start]:02x}); "
                "name the file's encoding with --encoding"
            ) from error


def _transcode_lines(stream: DigestedStream, name: str, encoding: str) -> Iterator[str]:
    """Decode the stream as a whole: in UTF-16 an LF byte need not be a line's end."""
    buffered = io.BufferedReader(stream, BUFFER_BYTES)
    number = 0
    try:
        text = io.TextIOWrapper(buffered, encoding=encoding, errors="strict", newline="\n")
        while line := text.readline(MAX_LINE_BYTES):
            number += 1
            _check_length(name, number, line, "\n")
            yield line
    except UnicodeError as error:
        # Every line of the chunks before was yielded, so the rest counts within this chunk.
        # The error's codec, not the file's: past the BOM it knows the order of the bytes.
        chunk, codec = b"", encoding
        if isinstance(error, UnicodeDecodeError):
            chunk, codec = error.object[: error.start], error.encoding
        number += 1 + chunk.decode(codec, "ignore").count("\n")
        raise CorpusError(f"{name}:{number}: not {encoding}: {_decode_reason(error)}") from error


def _check_length(name: str, number: int, line: AnyStr, end: AnyStr) -> None:
    if len(line) >= MAX_LINE_BYTES and not line.endswith(end):
        limit = MAX_LINE_BYTES >> 20
        raise CorpusError(f"{name}:{number}: a line of over {limit} MiB; is this text?")


def _decode_reason(error: UnicodeError) -> str:
    return error.reason if isinstance(error, UnicodeDecodeError) else str(error)


def _refuse_utf16(name: str, head: bytes) -> None:
    """Refuse UTF-16 and UTF-32 by name: most of their bytes pass for UTF-8 riddled with NULs."""
    boms = (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    )
    looks = next((encoding for bom, encoding in boms if head.startswith(bom)), None)
    looks = looks or _wide_without_bom(head)
    if looks:
        raise CorpusError(f"{name}: looks like {looks.upper()}, not UTF-8; pass --encoding {looks}")


# Which bytes of four are NUL where Latin letters stand in a wide encoding.
WIDE_NULS = {
    "utf-32-le": (0, 1, 1, 1),
    "utf-32-be": (1, 1, 1, 0),
    "utf-16-le": (0, 1, 0, 1),
    "utf-16-be": (1, 0, 1, 0),
}


def _wide_without_bom(head: bytes) -> str | None:
    """Guess from where most NULs stand; text with a NUL here and there isn't wide."""
    columns = [head[offset::4] for offset in range(4)]
    if not all(columns):
        return None
    shares = [column.count(0) / len(column) for column in columns]
    for encoding, nuls in WIDE_NULS.items():
        pairs = zip(shares, nuls, strict=True)
        if all(share > 0.7 if nul else share < 0.1 for share, nul in pairs):
            return encoding
    return None
