"""Where ``--report`` goes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from bertpool.errors import OutputError
from bertpool.output.atomic import mapped_errors, write_atomic
from bertpool.output.destination import STDOUT, check_target
from bertpool.plan import Plan
from bertpool.report import Report

if TYPE_CHECKING:
    from bertpool.forecast import Forecast


def check_report(report: str | None, plan: Plan) -> None:
    """Check before the run that the report can be written; an older report is replaced.

    Raises:
        OutputError: it can't, or it is the output or an input.
    """
    if report is None:
        return
    if report == STDOUT:
        if sys.stdout is None:
            raise OutputError("--report -: stdout is closed", usage=True)
        if not plan.destination.targets:
            raise OutputError("--report -: stdout takes the vectors; name a file", usage=True)
        return
    if os.path.realpath(report) in map(os.path.realpath, plan.destination.files):
        raise OutputError(f"--report {report}: is the output", usage=True)
    check_target(Path(report), plan.options.inputs, force=True)


def write_report(report: str | None, result: Report | Forecast) -> None:
    """Write the report to its file, or to stdout."""
    if report == STDOUT:
        with mapped_errors(Path("stdout")):
            typer.echo(result.to_json())
    elif report is not None:
        write_atomic(Path(report), result.to_json() + "\n")
