"""Where ``--report`` goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from bertpool.corpus.inputs import check_inputs
from bertpool.errors import OutputError
from bertpool.output.destination import check_target, find_destination, mapped_errors, write_atomic
from bertpool.report import Report

STDOUT = "-"


def check_report(
    report: str | None, inputs: Sequence[str], output: str | None, *, force: bool
) -> None:
    """Check before the run that the report can be written; an older report is replaced.

    Raises:
        OutputError: it can't, or it is the output or an input.
    """
    if report == STDOUT and sys.stdout is None:
        raise OutputError("--report -: stdout is closed", usage=True)
    if report is None or report == STDOUT:
        return
    check_inputs(inputs)
    destination = find_destination(output, inputs, force=force)
    if os.path.realpath(report) in map(os.path.realpath, destination.files):
        raise OutputError(f"--report {report}: is the output", usage=True)
    check_target(Path(report), inputs, force=True)


def write_report(report: str | None, result: Report) -> None:
    """Write the report to its file, or to stdout."""
    if report == STDOUT:
        with mapped_errors(Path("stdout")):
            typer.echo(result.to_json())
    elif report is not None:
        write_atomic(Path(report), result.to_json() + "\n")
