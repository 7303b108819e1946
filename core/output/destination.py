"""Where the output goes: checked before anything is loaded, and there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bertpool.corpus.inputs import STDIN
from bertpool.errors import OutputError
from bertpool.output.formats import FORMATS, OutputFormat
from bertpool.output.rows import Layout, Rows


@dataclass(frozen=True)
class Destination:
    """A checked output path, its format, and the path of its metadata where that is a file."""

    path: Path
    format: OutputFormat
    sidecar: Path | None


def find_destination(output: str | None, inputs: Sequence[str], *, force: bool) -> Destination:
    """Choose and check the output path.

    Args:
        output: as given; None stands for the input's name with ``.parquet``, beside the input.
        inputs: what is read, which the output must not be by any name.
        force: an existing file may be replaced.

    Raises:
        OutputError: the path can't be chosen, exists, is an input, or can't be written.
    """
    path = Path(output) if output is not None else _beside(inputs)
    format_ = FORMATS.get(path.suffix.lower())
    if format_ is None or output == "-":
        known = ", ".join(FORMATS)
        raise OutputError(f"--output {path}: unknown suffix; end it in {known}", usage=True)
    sidecar = path.with_name(path.name + ".json") if format_.sidecar else None
    for target in (path, sidecar) if sidecar else (path,):
        check_target(target, inputs, force=force)
    return Destination(path, format_, sidecar)


def check_target(path: Path, inputs: Sequence[str], *, force: bool) -> None:
    """Check that a file may be written at a path, without writing.

    Raises:
        OutputError: it is an input or a directory, exists without ``force``, or its folder is
            missing or not writable.
    """
    if any(name != STDIN and _same_file(path, name) for name in inputs):
        raise OutputError(f"{path}: is an input; choose another --output", usage=True)
    if path.is_dir():
        raise OutputError(f"{path}: is a directory; name a file in it", usage=True)
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: not a regular file", usage=True)
    if path.exists() and not force:
        raise OutputError(f"{path}: exists; pass --force to replace it", usage=True)
    folder = path.resolve().parent
    if not folder.is_dir():
        raise OutputError(f"{path}: its folder doesn't exist; make it first", usage=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: no permission to write into its folder", usage=True)


def _beside(inputs: Sequence[str]) -> Path:
    if len(inputs) != 1 or inputs[0] == STDIN:
        what = "stdin" if STDIN in inputs else "several inputs"
        raise OutputError(f"{what}: say where the vectors go with --output", usage=True)
    return Path(inputs[0]).with_suffix(".parquet")


def _same_file(path: Path, name: str) -> bool:
    try:
        return os.path.samefile(path, name)
    except OSError:
        return False


class AtomicFile:
    """A file that appears at its path whole, or not at all.

    It grows under a hidden name in the same folder; a link at the path keeps pointing where it did.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        # "x": two runs never share a partial file; the mode follows the user's umask.
        self.stream: BinaryIO = self._partial.open("xb")

    def commit(self) -> None:
        """Put the finished file at its path, safely on disk."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        self._partial.replace(self._path)

    def discard(self) -> None:
        """Remove what was written, unless it was committed."""
        with contextlib.suppress(OSError):
            self.stream.close()
        self._partial.unlink(missing_ok=True)


class OutputFile:
    """An output being written: rows, then the provenance, then it is there."""

    def __init__(self, destination: Destination, layout: Layout) -> None:
        self._destination = destination
        self._file = AtomicFile(destination.path)
        self._writer = destination.format.open_writer(self._file.stream, layout)

    def write(self, rows: Rows) -> None:
        """Append rows."""
        with _mapped(self._destination.path):
            self._writer.write(rows)

    def commit(self, provenance: str) -> None:
        """Finish the file and its sidecar; the file itself appears last."""
        with _mapped(self._destination.path):
            self._writer.close(provenance)
            if self._destination.sidecar is not None:
                write_atomic(self._destination.sidecar, provenance + "\n")
            self._file.commit()

    def discard(self) -> None:
        """Leave nothing behind, unless it was committed."""
        self._writer.abort()
        self._file.discard()


@contextlib.contextmanager
def open_output(destination: Destination, layout: Layout) -> Iterator[OutputFile]:
    """Open the output; on the way out, whatever wasn't committed is gone.

    Raises:
        OutputError: the disk is full, or the file can't be written for another reason.
    """
    with _mapped(destination.path):
        output = OutputFile(destination, layout)
    try:
        yield output
    finally:
        output.discard()


def write_atomic(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    file = AtomicFile(path)
    try:
        file.stream.write(text.encode())
        file.commit()
    finally:
        file.discard()


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{path}: {reason}; no vectors were written") from error
