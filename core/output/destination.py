"""Where the output goes: checked before anything is loaded, and there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bertpool.corpus.inputs import STDIN
from bertpool.errors import OutputError
from bertpool.output.formats import FORMATS, OutputFormat
from bertpool.output.rows import Layout, Rows, Writer

NOTHING_WRITTEN = "; no vectors were written"


@dataclass(frozen=True)
class Destination:
    """A checked output path, its format, and the path of its metadata where that is a file."""

    path: Path
    format: OutputFormat
    sidecar: Path | None
    replace: bool

    @property
    def files(self) -> tuple[Path, ...]:
        """List the files that a run writes."""
        return (self.path, self.sidecar) if self.sidecar else (self.path,)


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
    if format_ is None:
        known = ", ".join(FORMATS)
        raise OutputError(f"--output {path}: unknown suffix; end it in {known}", usage=True)
    sidecar = path.with_name(path.name + ".json") if format_.sidecar else None
    destination = Destination(path, format_, sidecar, replace=force)
    for target in destination.files:
        check_target(target, inputs, force=force)
    return destination


def check_target(path: Path, inputs: Sequence[str], *, force: bool) -> None:
    """Check that a file may be written at a path, without writing.

    Raises:
        OutputError: it is an input or a directory, exists without ``force``, or its folder is
            missing or not writable.
    """
    try:
        _check_target(path, inputs, force=force)
    except OSError as error:  # a name too long, a loop of links
        raise OutputError(f"{path}: {error.strerror}", usage=True) from error


def _check_target(path: Path, inputs: Sequence[str], *, force: bool) -> None:
    if any(name != STDIN and _same_file(path, name) for name in inputs):
        raise OutputError(f"{path}: is an input; choose another --output", usage=True)
    if path.is_dir():
        raise OutputError(f"{path}: is a directory; name a file in it", usage=True)
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: not a regular file", usage=True)
    if path.exists() and not force:
        raise OutputError(f"{path}: exists; pass --force to replace it", usage=True)
    folder = resolved(path).parent
    if not folder.is_dir():
        raise OutputError(f"{path}: its folder doesn't exist; make it first", usage=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: no permission to write into its folder", usage=True)


def resolved(path: Path) -> Path:
    """Follow links, also a dangling one.

    Raises:
        OSError: the links form a loop.
    """
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return real


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

    def __init__(self, path: Path, *, replace: bool = True) -> None:
        self._path = resolved(path)
        self._replace = replace
        # A name of its own for each run, and short: the path's own name may be as long as can be.
        token = f"{self._path.name[:40]}.{secrets.token_hex(4)}"
        self._partial = self._path.with_name(f".{token}.partial")
        self._stream: BinaryIO | None = None

    @property
    def stream(self) -> BinaryIO:
        """Give the file to write to, opened on first use."""
        if self._stream is None:
            self._stream = self._partial.open("xb")  # the mode follows the user's umask
        return self._stream

    def finish(self) -> None:
        """Get all that was written onto the disk."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()

    def remove_old(self) -> None:
        """Remove what is at the path, where that is to be replaced."""
        if self._replace:
            self._path.unlink(missing_ok=True)

    def commit(self) -> None:
        """Put the finished file at its path.

        Raises:
            FileExistsError: another run has put one there, and it isn't to be replaced.
        """
        if not self._replace:
            try:
                os.link(self._partial, self._path)  # unlike a rename, this never replaces
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                if self._path.exists():
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            else:
                return
        self._partial.replace(self._path)

    def discard(self) -> None:
        """Remove what was written, unless it was committed."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            self._partial.unlink(missing_ok=True)


class OutputFile:
    """An output being written: rows, then the provenance, then it is there."""

    def __init__(self, destination: Destination) -> None:
        self._path = destination.path
        self._format = destination.format
        self._file = AtomicFile(destination.path, replace=destination.replace)
        self._sidecar: AtomicFile | None = None
        if destination.sidecar is not None:
            self._sidecar = AtomicFile(destination.sidecar, replace=destination.replace)
        self._writer: Writer | None = None

    def open(self, layout: Layout) -> None:
        """Start the file."""
        with mapped_errors(self._path, NOTHING_WRITTEN):
            self._writer = self._format.open_writer(self._file.stream, layout)

    def write(self, rows: Rows) -> None:
        """Append rows."""
        assert self._writer is not None
        with mapped_errors(self._path, NOTHING_WRITTEN):
            self._writer.write(rows)

    def commit(self, provenance: str) -> None:
        """Finish the file and its sidecar, and put them in place."""
        assert self._writer is not None
        with mapped_errors(self._path, NOTHING_WRITTEN):
            self._writer.close(provenance)
            self._file.finish()
            if self._sidecar is not None:
                self._sidecar.stream.write(f"{provenance}\n".encode())
                self._sidecar.finish()
                # Never new vectors beside old metadata, at whatever moment the power fails.
                self._sidecar.remove_old()
            self._file.commit()
            if self._sidecar is not None:
                self._sidecar.commit()

    def discard(self) -> None:
        """Leave nothing behind, unless it was committed."""
        if self._writer is not None:
            self._writer.abort()
        self._file.discard()
        if self._sidecar is not None:
            self._sidecar.discard()


@contextlib.contextmanager
def open_output(destination: Destination, layout: Layout) -> Iterator[OutputFile]:
    """Open the output; on the way out, whatever wasn't committed is gone.

    Raises:
        OutputError: the disk is full, or the file can't be written for another reason.
    """
    with mapped_errors(destination.path, NOTHING_WRITTEN):
        output = OutputFile(destination)
    try:
        output.open(layout)
        yield output
    finally:
        output.discard()


def write_atomic(path: Path, text: str) -> None:
    """Write a small file whole or not at all.

    Raises:
        OutputError: it can't be written.
    """
    with mapped_errors(path):
        file = AtomicFile(path)
        try:
            file.stream.write(text.encode())
            file.finish()
            file.commit()
        finally:
            file.discard()


@contextlib.contextmanager
def mapped_errors(path: Path, consequence: str = "") -> Iterator[None]:
    """Turn the operating system's errors into one line about a path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{path}: {reason}{consequence}") from error
