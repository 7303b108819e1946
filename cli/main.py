"""Run the command: signals, and the one place where errors are shown and become exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys

import typer
from bertpool.cli.app import app
from bertpool.cli.messages import show_error, show_kept
from bertpool.cli.signals import interrupt_on_signals
from bertpool.errors import BertpoolError, Interrupted


def main() -> None:
    """Run ``bertpool`` with the arguments of this process and exit with its code."""
    interrupt_on_signals()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code.

    Whatever isn't a ``BertpoolError`` is a bug and keeps its traceback.
    """
    try:
        return app(arguments, prog_name="bertpool", standalone_mode=False) or 0
    except BertpoolError as error:
        show_error(str(error))
        if error.kept is not None and error.exit_code == 1:
            show_kept(error.kept, arguments)
        return error.exit_code
    except typer.TyperException as error:
        # Without arguments the message is empty: the help was shown in its stead.
        if message := error.format_message():
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "bertpool"
            show_error(f"{message} (see {command} --help)")
        return error.exit_code
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF):
            raise
        show_error(f"stdout: {error.strerror}")  # where --help or --version were to go
        return 1
    except Interrupted as interrupted:
        return _end_interrupted(interrupted, arguments)


def _end_interrupted(interrupted: Interrupted, arguments: list[str]) -> int:
    if interrupted.exit_code == 128 + signal.SIGPIPE:
        # What is still buffered has no reader: let the interpreter flush it into nothing.
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
    else:
        show_error(f"interrupted by {interrupted}")
        if interrupted.kept is not None:
            show_kept(interrupted.kept, arguments)
    return interrupted.exit_code
