"""Lines: a text is what stands between two LF bytes."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import AnyStr

from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Flaw, Record, UnreadableRecord
from bertpool.corpus.streams import BUFFER_BYTES, Opened
from bertpool.errors import CorpusError

MAX_LINE_BYTES = 256 << 20  # a longer "line" is a binary file or a device, and would fill memory


def read_lines(opened: Opened, options: CorpusOptions) -> Iterator[Record | Flaw]:
    """Yield the lines of an input; only LF splits, and one CR before it goes.

    Raises:
        CorpusError: the input isn't text in the encoding.
    """
    for number, line in enumerate(byte_lines(opened, options.encoding), start=1):
        raw = without_end(line)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            yield not_utf8(error).flaw(number, raw)
        else:
            yield Record(text, number)


def byte_lines(opened: Opened, encoding: str) -> Iterator[bytes]:
    """Yield the lines of an input as UTF-8 with their ends, without a leading BOM.

    Other encodings are decoded as a whole; UTF-8 is left to the reader, so that an error is in one
    line's own bytes.

    Raises:
        CorpusError: a binary format, another encoding than UTF-8 that doesn't fit (with the line),
            or a line without end.
    """
    opened.refuse_binary()
    if is_utf8(encoding):
        refuse_utf16(opened)
        lines = _raw_lines(opened)
    else:
        lines = _transcoded_lines(opened, encoding)
    first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
    if first:  # a file of nothing but a BOM is empty
        yield first
    yield from lines


def without_end(line: bytes) -> bytes:
    r"""Return a line without its LF, and without one CR before that.

    >>> without_end(b"a\r\r\n"), without_end(b"a\r")
    (b'a\r', b'a\r')
    """
    return line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


def not_utf8(error: UnicodeDecodeError, where: str = " of the line") -> UnreadableRecord:
    """Say at which byte, from 1, a record stops being UTF-8."""
    byte = error.object[error.start]
    return UnreadableRecord(
        f"not UTF-8 at byte {error.start + 1}{where} (0x{byte:02x})",
        "name the file's encoding with --encoding, or pass --on-error reject",
    )


def is_utf8(encoding: str) -> bool:
    """Tell whether a codec name means UTF-8, with or without a BOM."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def _raw_lines(opened: Opened) -> Iterator[bytes]:
    buffered = io.BufferedReader(opened.content, BUFFER_BYTES)
    number = 0
    while raw := buffered.readline(MAX_LINE_BYTES):
        number += 1
        # The comparison alone, as this runs for each line.
        if len(raw) >= MAX_LINE_BYTES:
            _check_length(opened.shown, number, raw, b"\n")
        yield raw


def _transcoded_lines(opened: Opened, encoding: str) -> Iterator[bytes]:
    """Decode the stream as a whole: in UTF-16 an LF byte need not be a line's end."""
    buffered = io.BufferedReader(opened.content, BUFFER_BYTES)
    number = 0
    try:
        text = io.TextIOWrapper(buffered, encoding=encoding, errors="strict", newline="\n")
        while line := text.readline(MAX_LINE_BYTES):
            number += 1
            _check_length(opened.shown, number, line, "\n")
            yield line.encode("utf-8", "surrogatepass")
    except UnicodeError as error:
        # Every line of the chunks before was yielded, so the rest counts within this chunk.
        # The error's codec, not the file's: past the BOM it knows the order of the bytes.
        chunk, codec = b"", encoding
        if isinstance(error, UnicodeDecodeError):
            chunk, codec = error.object[: error.start], error.encoding
        number += 1 + chunk.decode(codec, "ignore").count("\n")
        raise CorpusError(
            f"{opened.shown}:{number}: not {encoding}: {_decode_reason(error)}; name the right "
            "--encoding (--on-error reject goes on only in UTF-8)"
        ) from error


def _check_length(name: str, number: int, line: AnyStr, end: AnyStr) -> None:
    if len(line) >= MAX_LINE_BYTES and not line.endswith(end):
        limit = MAX_LINE_BYTES >> 20
        raise CorpusError(f"{name}:{number}: a line of over {limit} MiB; is this text?")


def _decode_reason(error: UnicodeError) -> str:
    return error.reason if isinstance(error, UnicodeDecodeError) else str(error)


def refuse_utf16(opened: Opened) -> None:
    """Refuse UTF-16 and UTF-32 by name: most of their bytes pass for UTF-8 riddled with NULs.

    Raises:
        CorpusError: the input looks like one of them.
    """
    looks = wide_encoding(opened.content.head)
    if looks:
        raise CorpusError(
            f"{opened.shown}: looks like {looks.upper()}, not UTF-8; pass --encoding {looks}"
        )


def wide_encoding(head: bytes) -> str | None:
    """Name the wide encoding that the first bytes of an input seem to be in."""
    boms = (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    )
    looks = next((encoding for bom, encoding in boms if head.startswith(bom)), None)
    return looks or _wide_without_bom(head)


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
