"""Inputs as the user names them: what can be known of them before any is read."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bertpool.corpus.formats import COLUMN_CHECKS
from bertpool.corpus.options import DEFAULT_TEXT_COLUMN, CorpusOptions
from bertpool.corpus.sources import Input, Source, find_input
from bertpool.corpus.streams import STDIN, InputIdentity, open_input, printable_name
from bertpool.errors import CorpusError

__all__ = [
    "STDIN",
    "InputIdentity",
    "check_inputs",
    "find_inputs",
    "open_input",
    "printable_name",
]

SHOWN_PROBLEMS = 10  # files that one message names at most
LINES = CorpusOptions()

_log = logging.getLogger("bertpool")


def check_inputs(inputs: Sequence[str], options: CorpusOptions = LINES) -> None:
    """Check all that can be known early: inputs exist and may be read, options go together.

    Of files with columns, the header, the footer or the first record is read.

    Raises:
        CorpusError: no input, stdin named twice, the inputs that fail, in one line, options that
            don't fit the inputs, or a column that isn't there.
    """
    found = find_inputs(inputs, options)
    _check_options(options)
    sources = [source for one in found for source in one.sources]
    _check_formats(sources, options)
    for link in (link for one in found for link in one.links):
        _log.warning("%s: a link to a directory, not followed", link)
    for source in sources:
        if source.format in COLUMN_CHECKS and source.regular:
            with open_input(source.path) as opened:
                COLUMN_CHECKS[source.format](opened, options)


def find_inputs(inputs: Sequence[str], options: CorpusOptions) -> list[Input]:
    """Find the files that all inputs stand for.

    Raises:
        CorpusError: no input, stdin named twice, or the inputs that fail, in one line.
    """
    if not inputs:
        raise CorpusError("no input: name files or directories, or - for stdin", usage=True)
    if list(inputs).count(STDIN) > 1:
        raise CorpusError("stdin (-) is named twice, and can be read once", usage=True)
    found = [find_input(name, options) for name in inputs]
    problems = [problem for one in found for problem in one.problems]
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        shown = problems[:SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise CorpusError("; ".join(shown), usage=True)
    return found


def _check_options(options: CorpusOptions) -> None:
    twice = [name for name in options.keep if options.keep.count(name) > 1]
    if twice:
        raise CorpusError(f"--keep {twice[0]} is given twice", usage=True)
    if "id" in options.keep:
        message = "--keep id: the output has an id of its own; pass --id-column id"
        raise CorpusError(message, usage=True)


def _check_formats(sources: Sequence[Source], options: CorpusOptions) -> None:
    """Check that options about columns meet formats that have them, in one way."""
    plain = [source for source in sources if source.format not in COLUMN_CHECKS]
    asked = _column_options(options)
    only_text = asked == ["--text-column"]
    if asked and plain and not (only_text and len(plain) < len(sources)):
        raise CorpusError(
            f"{plain[0].shown}: {asked[0]} needs columns, and {plain[0].format} has none; "
            f"pass --input-format {', '.join(COLUMN_CHECKS)}",
            usage=True,
        )
    typed = {source.format == "parquet" for source in sources}
    if options.has_extra and len(typed) > 1:
        raise CorpusError(
            "--id-column and --keep take Parquet files, or others, not both at once", usage=True
        )


def _column_options(options: CorpusOptions) -> list[str]:
    """Name the options given that are about columns, the default text column aside."""
    given = {
        "--pair-column": options.pair_column is not None,
        "--id-column": options.id_column is not None,
        "--keep": bool(options.keep),
        "--text-column": options.text_column != DEFAULT_TEXT_COLUMN,
    }
    return [name for name, is_given in given.items() if is_given]
