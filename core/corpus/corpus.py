"""A corpus: the texts of all inputs in order, each with its identity, in bounded windows."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bertpool.corpus.inputs import STDIN, InputIdentity, open_input, printable_name
from bertpool.corpus.lines import read_lines
from bertpool.errors import CorpusError

Blank = Literal["keep", "skip", "error"]

# Large windows make batches of equal lengths; the bounds keep memory flat whatever the texts.
WINDOW_ROWS = 16_384
WINDOW_CHARACTERS = 8 << 20


@dataclass(frozen=True)
class Text:
    """One text and where it stands: ``row`` from 0 over all inputs, ``line`` from 1 in its own."""

    row: int
    text: str
    source: str
    line: int


@dataclass(frozen=True)
class Window:
    """Texts that are sorted, batched and written together.

    ``bytes_read`` is how far into the inputs the reading stands at the window's end.
    """

    texts: list[Text]
    bytes_read: int


def is_blank(text: str) -> bool:
    r"""Tell whether nothing in the text is visible: white space, control and format characters.

    >>> [is_blank(text) for text in ("", " \t", "\u3000", "\u200b", "\x00", "a", ".")]
    [True, True, True, True, True, False, False]
    """
    if not text or text.isspace():
        return True
    invisible = ("Cc", "Cf", "Zs", "Zl", "Zp")
    return all(unicodedata.category(character) in invisible for character in text)


class Corpus:
    """The texts of several inputs, read once, in order.

    Args:
        inputs: paths, or ``-`` for stdin, already checked.
        encoding: a Python codec name.
        blank: keep blank texts, skip them (their row numbers stay unused), or stop at the first.
    """

    def __init__(self, inputs: Sequence[str], *, encoding: str, blank: Blank) -> None:
        self._inputs = tuple(inputs)
        self._encoding = encoding
        self._blank: Blank = blank
        self._bytes_before = 0
        self.blank = 0
        self.identities: list[InputIdentity] = []

    @property
    def size(self) -> int | None:
        """Bytes of all inputs together, or None when one of them is a pipe."""
        regular = all(name != STDIN and os.path.isfile(name) for name in self._inputs)
        return sum(os.path.getsize(name) for name in self._inputs) if regular else None

    def windows(self) -> Iterator[Window]:
        """Yield every text, in windows of bounded rows and characters.

        Raises:
            CorpusError: text that can't be read or decoded, or a blank one under ``error``.
        """
        texts: list[Text] = []
        characters = 0
        position = 0
        for text, position in self._texts():
            texts.append(text)
            characters += len(text.text)
            if len(texts) >= WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
                yield Window(texts, position)
                texts, characters = [], 0
        if texts:
            yield Window(texts, position)

    def _texts(self) -> Iterator[tuple[Text, int]]:
        """Yield each text with the bytes read up to it."""
        row = -1
        for name in self._inputs:
            source = printable_name(name)
            with open_input(name) as stream:
                for line, text in enumerate(read_lines(stream, source, self._encoding), start=1):
                    row += 1
                    if not is_blank(text) or self._keep_blank(source, line):
                        yield Text(row, text, source, line), self._bytes_before + stream.size
                self.identities.append(stream.identity(os.path.basename(source)))
                self._bytes_before += stream.size

    def _keep_blank(self, source: str, line: int) -> bool:
        if self._blank == "error":
            raise CorpusError(f"{source}:{line}: blank text; pass --blank keep or --blank skip")
        self.blank += 1
        return self._blank == "keep"
