"""What stderr shows: notes, errors, the summary. Text from users is never read as markup."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
from collections.abc import Sequence

from bertpool.corpus.inputs import printable_name
from bertpool.errors import Kept
from bertpool.report import Report
from rich.console import Console
from rich.text import Text

# No wrapping: a path that is broken in two can't be copied.
stderr = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)


# These libraries show their log themselves; how much of it, variables tell them.
WITH_OWN_HANDLER = ("transformers", "huggingface_hub")
VERBOSITY_VARIABLES = ("TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY")


def show(label: str, style: str, message: str) -> None:
    """Show one line; control characters in it (a file name can hold any) are escaped."""
    stderr.print(Text.assemble((escaped(label), style), escaped(message)))


def escaped(text: str) -> str:
    """Escape what isn't printable, so that a text stays on its line."""
    with contextlib.suppress(UnicodeError):
        text = printable_name(text)  # a file name's bytes, whatever the locale made of them
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_error(message: str) -> None:
    """Show why the run ends."""
    show("error: ", "bold red", message)


class NoteHandler(logging.Handler):
    """Shows log records of bertpool and of the libraries it runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record: information bare, warnings as notes."""
        is_note = record.levelno >= logging.WARNING
        show("note: " if is_note else "", "yellow", record.getMessage())


def start_logging(*, quiet: bool, verbose: bool) -> None:
    """Send bertpool's log to stderr; the libraries' warnings only when ``verbose``."""
    own = logging.getLogger("bertpool")
    own.handlers, own.propagate = [NoteHandler()], False
    own.setLevel(logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO)
    heard = verbose and not quiet
    logging.captureWarnings(True)
    # On the handler, not the logger: records of other loggers pass a logger's level by.
    libraries = NoteHandler(logging.WARNING if heard else logging.CRITICAL)
    libraries.addFilter(lambda record: not record.name.startswith(WITH_OWN_HANDLER))
    logging.getLogger().handlers = [libraries]
    for variable in VERBOSITY_VARIABLES:
        os.environ.setdefault(variable, "warning" if heard else "critical")


def show_kept(kept: Kept, arguments: Sequence[str]) -> None:
    """Say what an unfinished run has left, and the command that goes on from it."""
    words = [word for word in arguments if word != "--force"]
    again = shlex.join(["bertpool", *words, *(() if "--resume" in words else ("--resume",))])
    show("note: ", "yellow", f"{kept.rows:,} rows are kept in {kept.folder}; to go on: {again}")


def show_summary(report: Report) -> None:
    """Say in one line what was made, how fast, and where it is."""
    place = ", ".join(report.outputs) or "stdout"
    rows = f"{report.rows:,} row{'s' * (report.rows != 1)}"
    if report.rows and not report.distinct:
        show(f"{place}: ", "bold", f"is finished: {rows}; nothing to do")
        return
    facts = [f"{report.tokens:,} tokens"]
    if report.truncated:
        of = f"{report.truncated:,} of {report.rows:,} rows"
        facts.append(f"{of} truncated at {report.max_length} tokens")
    if report.blank:
        facts.append(f"{report.blank:,} blank")
    if report.rejected:
        facts.append(f"{report.rejected:,} rejected, see {report.rejects}")
    show(
        f"{place}: ",
        "bold",
        f"{rows} of {report.dimensions} "
        f"{report.output_dtype}; {', '.join(facts)}; {report.seconds['total']:.1f} s, "
        f"embedding at {report.rows_per_second:,.0f} rows/s",
    )
