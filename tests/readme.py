"""The generated parts of the documents: ``python tests/readme.py`` writes, a test compares."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import typer
from bertpool.cli.app import app
from bertpool.report import report_keys

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
COMMANDS = ROOT / "docs" / "commands.md"


def render(readme: str) -> str:
    """Return the README with help text and report keys as the code has them now."""
    keys = ", ".join(f"`{key}`" for key in report_keys())
    readme = _between(readme, "report", keys)
    return _between(readme, "help", f"\n```text\n{command_help()}\n```\n")


def render_commands() -> str:
    """Return the page of every command's help."""
    group: typer.core.TyperGroup = typer.main.get_command(app)  # type: ignore[assignment]
    parts = ["# Commands\n\nMade by `make readme` from the commands' own `--help`.\n"]
    for name in group.commands:
        parts.append(f"## bertpool {name}\n\n```text\n{command_help(name)}\n```\n")
    return "\n".join(parts)


def command_help(*names: str) -> str:
    """Return a help text as a 120-column terminal without colours shows it."""
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "bertpool", *names, "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return "\n".join(line.rstrip() for line in shown.stdout.strip("\n ").splitlines())


def _between(readme: str, name: str, content: str) -> str:
    pattern = rf"(<!-- {name}[^>]*-->).*?(<!-- /{name} -->)"
    return re.sub(pattern, lambda found: found[1] + content + found[2], readme, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(render(README.read_text()))
    COMMANDS.write_text(render_commands())
