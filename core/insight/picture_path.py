"""Where a picture goes, checked before anything is measured or imported to draw it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertpool.errors import OutputError
from bertpool.insight.extras import check_extra
from bertpool.output.destination import check_target

SUFFIXES = (".png", ".html")


def picture_of(file: str, output: str | None) -> Path:
    """Return where the map of a vector file goes; None is beside it."""
    return Path(output) if output is not None else Path(file).with_suffix(".png")


def check_picture(path: Path, inputs: Sequence[str], *, force: bool) -> None:
    """Check that a picture has a known suffix and may be written.

    Raises:
        OutputError: it hasn't, or may not.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise OutputError(f"{path}: unknown suffix; pictures are {', '.join(SUFFIXES)}", usage=True)
    check_target(path, inputs, force=force)


def check_comparison_plot(output: str | None, inputs: Sequence[str], *, force: bool) -> None:
    """Check that a comparison may be drawn, where it is to be.

    Raises:
        BertpoolError: it may not, or matplotlib isn't installed.
    """
    if output is not None:
        check_picture(Path(output), inputs, force=force)
        check_extra("plot", "matplotlib")
