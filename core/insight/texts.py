"""Texts to look at: one row of an input, a sample of it, or its labelled pairs."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bertpool.corpus import Corpus, CorpusOptions
from bertpool.corpus.corpus import is_blank
from bertpool.corpus.formats import COLUMN_CHECKS
from bertpool.corpus.inputs import STDIN, check_inputs, printable_name
from bertpool.corpus.options import DEFAULT_TEXT_COLUMN
from bertpool.errors import CorpusError
from bertpool.insight.sample import SEED

# Names that files of pairs give to the two texts and the label; the first that fits is taken.
PAIR_COLUMNS = (
    ("text", "pair", "label"),
    ("text", "pair", "score"),
    ("sentence1", "sentence2", "score"),
    ("sentence1", "sentence2", "label"),
    ("sentence1", "sentence2", "similarity_score"),
    ("text_a", "text_b", "label"),
    ("text_a", "text_b", "score"),
    ("text1", "text2", "label"),
    ("text1", "text2", "score"),
    ("question1", "question2", "is_duplicate"),
)

_log = logging.getLogger("bertpool")


@dataclass(frozen=True)
class Pairs:
    """Labelled pairs of texts.

    Attributes:
        texts: the first of each.
        pairs: the second of each.
        labels: ``(pairs)`` float64: 0 and 1, or scores.
    """

    texts: list[str]
    pairs: list[str]
    labels: npt.NDArray[np.float64]

    @property
    def binary(self) -> bool:
        """Tell whether labels say similar (1) or not (0), rather than how much."""
        return bool(np.isin(self.labels, (0.0, 1.0)).all())

    @property
    def distinct(self) -> list[str]:
        """List every text once, in order."""
        return list(dict.fromkeys([*self.texts, *self.pairs]))


def find_text(text: str | None, name: str | None, row: int, options: CorpusOptions) -> str:
    """Take a text as it was given, or a row of an input; the text ``-`` is lines on stdin.

    Raises:
        CorpusError: there is no text, or two of them.
    """
    if (text is None) == (name is None):
        what = "give a text, or a file with --input" if text is None else "a text and --input given"
        raise CorpusError(f"{what}: one of the two", usage=True)
    if name is None and text != STDIN:
        assert text is not None
        return decoded(text)
    return read_row(name or STDIN, row, options)


def decoded(text: str) -> str:
    """Read an argument's bytes as UTF-8, whatever the locale made of them.

    Raises:
        CorpusError: they aren't.
    """
    try:
        return os.fsencode(text).decode()
    except UnicodeError as error:
        raise CorpusError("the text isn't UTF-8", usage=True) from error


def read_row(name: str, row: int, options: CorpusOptions) -> str:
    """Read the text of one row of an input, counted from 0.

    Raises:
        CorpusError: there is no such row, or it can't be read.
    """
    check_inputs([name], options)
    corpus = Corpus([name], options, rows=range(row, row + 1))
    for window in corpus.windows():
        for text in window.texts:
            return text
    raise CorpusError(f"{printable_name(name)}: has no row {row}; rows count from 0")


def read_material(
    name: str, options: CorpusOptions, label_column: str | None, most: int
) -> list[str] | Pairs:
    """Read labelled pairs where an input has them, else a sample of its texts.

    Raises:
        CorpusError: it has too few, or can't be read.
    """
    columns = find_pair_columns(name, options, label_column)
    return sample_texts(name, options, most) if columns is None else read_pairs(name, *columns)


def find_pair_columns(
    name: str, options: CorpusOptions, label_column: str | None
) -> tuple[CorpusOptions, str] | None:
    """Find the columns of labelled pairs: those named, else usual ones, else None.

    Usual ones are looked for in what can be read twice, and not in a pipe.

    Raises:
        CorpusError: a column that was named isn't there, or its company isn't named.
    """
    if options.pair_column is not None or label_column is not None:
        named = dataclasses.replace(options, pair_column=options.pair_column or "pair")
        label = label_column or "label"
        check_inputs([name], dataclasses.replace(named, keep=(label,)))
        return named, label
    if options.text_column != DEFAULT_TEXT_COLUMN:
        return None
    if not (os.path.isfile(name) or os.path.isdir(name)):
        if options.input_format in COLUMN_CHECKS:
            _log.warning("%s: taken for texts; --pair-column says where pairs are", name)
        return None
    for text, pair, label in PAIR_COLUMNS:
        usual = dataclasses.replace(options, text_column=text, pair_column=pair)
        if _fits(name, dataclasses.replace(usual, keep=(label,))):
            if (text, pair, label) != PAIR_COLUMNS[0]:
                _log.warning("pairs in the columns %s and %s, labels in %s", text, pair, label)
            return usual, label
    return None


def _fits(name: str, options: CorpusOptions) -> bool:
    try:
        check_inputs([name], options)
        # A field of JSON lines is known to be missing when records were read.
        next(Corpus([name], options, rows=range(1)).windows(), None)
    except CorpusError:
        return False
    return True


def read_pairs(name: str, options: CorpusOptions, label_column: str) -> Pairs:
    """Read all labelled pairs of an input.

    Raises:
        CorpusError: a label is no number, or there are too few pairs to compare.
    """
    texts, pairs, labels = [], [], []
    for window in Corpus([name], dataclasses.replace(options, keep=(label_column,))).windows():
        assert window.pairs is not None
        assert window.extra is not None
        values = window.extra[label_column].to_pylist()
        texts += window.texts
        pairs += window.pairs
        labels += [_number(name, line, v) for line, v in zip(window.lines, values, strict=True)]
    found = Pairs(texts, pairs, np.array(labels, dtype=np.float64))
    counts = np.unique(found.labels, return_counts=True)[1]
    if len(counts) < 2 or (found.binary and counts.min() < 2) or len(labels) < 4:
        raise CorpusError(
            f"{printable_name(name)}: {len(labels)} pairs of {len(counts)} label(s); give at least "
            "two similar and two dissimilar pairs, or four scores that differ"
        )
    return found


def _number(name: str, line: int, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise CorpusError(f"{printable_name(name)}:{line}: the label {value!r} is no number")
    return number


def sample_texts(name: str, options: CorpusOptions, most: int) -> list[str]:
    """Read an input and keep a seeded sample of its texts, blank and equal ones left out.

    Raises:
        CorpusError: fewer than three texts are left.
    """
    check_inputs([name], options)
    generator = random.Random(SEED)
    sample: list[str] = []
    met = 0
    for window in Corpus([name], options).windows():
        for text in window.texts:
            if is_blank(text):
                continue
            met += 1
            if len(sample) < most:
                sample.append(text)
            elif (place := generator.randrange(met)) < most:
                sample[place] = text
    distinct = list(dict.fromkeys(sample))
    if len(distinct) < 3:
        raise CorpusError(f"{printable_name(name)}: {len(distinct)} distinct texts; give three")
    if met > most:
        _log.warning("a sample of %d of %d texts; --sample takes more", most, met)
    return distinct
