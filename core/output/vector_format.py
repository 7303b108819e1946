"""The format of a vector file, told before a library that reads it is imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bertpool.errors import OutputError
from bertpool.output.formats import FORMATS, OutputFormatName, format_of

ARROW_FILE = b"ARROW1"
# Source: the Arrow columnar format, "IPC Streaming Format": a continuation, and a length.
CONTINUATION = b"\xff" * 4
NPY = b"\x93NUMPY"
MAGIC: dict[bytes, OutputFormatName] = {
    b"PAR1": "parquet",
    ARROW_FILE: "arrow",
    CONTINUATION: "arrow",
    NPY: "npy",
}


def find_format(path: Path) -> OutputFormatName:
    """Tell a vector file's format by its suffix, or by its first bytes under any other.

    Raises:
        OutputError: it isn't there, can't be read, or has neither.
    """
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}", usage=True) from error
    by_bytes = next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)
    name = format_of(path) or by_bytes
    if name is None:
        known = ", ".join(f".{one}" for one in FORMATS)
        raise OutputError(f"{path}: unknown suffix; vectors are in {known}", usage=True)
    return name


def check_vector_files(names: Iterable[str]) -> None:
    """Check that files are there, and may be of vectors.

    Raises:
        OutputError: the first that isn't.
    """
    for name in names:
        find_format(Path(name))
