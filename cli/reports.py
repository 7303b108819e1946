"""Where ``--report`` goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from bertpool.errors import OutputError
from bertpool.output.destination import check_target, write_atomic
from bertpool.report import Report

STDOUT = "-"


def check_report(report: str | None, inputs: Sequence[str], output: str | None) -> None:
    """Check before the run that the report can be written; an older report is replaced.

    Raises:
        OutputError: it can't, or it is the output or an input.
    """
    if report is None or report == STDOUT:
        return
    if output is not None and Path(report).resolve() == Path(output).resolve():
        raise OutputError(f"--report {report}: is the output", usage=True)
    check_target(Path(report), inputs, force=True)


def write_report(report: str | None, result: Report) -> None:
    """Write the report to its file, or to stdout."""
    if report == STDOUT:
        typer.echo(result.to_json())
    elif report is not None:
        write_atomic(Path(report), result.to_json() + "\n")
