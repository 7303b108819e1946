"""Text: a whole file is one text."""

from __future__ import annotations

import io
from collections.abc import Iterator

from bertpool.corpus import lines
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Flaw, Record, UnreadableRecord
from bertpool.corpus.streams import HEAD_BYTES, Opened
from bertpool.errors import CorpusError

BOM = "\ufeff"


def read_document(opened: Opened, options: CorpusOptions) -> Iterator[Record | Flaw]:
    """Yield an input as one text, all of it but a leading BOM; an empty file is an empty text.

    Raises:
        CorpusError: it is a binary format, or too large for a text.
    """
    opened.refuse_binary()
    data = io.BufferedReader(opened.content).read(lines.MAX_LINE_BYTES)
    if len(data) >= lines.MAX_LINE_BYTES:
        limit = lines.MAX_LINE_BYTES >> 20
        raise CorpusError(f"{opened.shown}: over {limit} MiB, too large for one text")
    try:
        yield Record(_decode(data, options.encoding), 1)
    except UnreadableRecord as error:
        yield error.flaw(1, data)


def _decode(data: bytes, encoding: str) -> str:
    """Decode a file, which is a record of its own whatever its encoding."""
    utf8 = lines.is_utf8(encoding)
    looks = lines.wide_encoding(data[:HEAD_BYTES]) if utf8 else None
    if looks:
        hint = f"pass --encoding {looks}, or --on-error reject"
        raise UnreadableRecord(f"looks like {looks.upper()}, not UTF-8", hint)
    try:
        text = data.decode("utf-8" if utf8 else encoding)
    except UnicodeDecodeError as error:
        if utf8:
            raise lines.not_utf8(error, where="") from error
        raise UnreadableRecord(f"not {encoding}: {error.reason}") from error
    except UnicodeError as error:
        raise UnreadableRecord(f"not {encoding}: {error}") from error
    return text.removeprefix(BOM)
