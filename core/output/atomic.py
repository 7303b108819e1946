"""Files that appear at their path whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bertpool.errors import OutputError


class AtomicFile:
    """A file that appears at its path whole, or not at all.

    It grows in ``folder``, which must be on the same file system, or under a hidden name beside the
    path; a link at the path keeps pointing where it did.
    """

    def __init__(self, path: Path, *, replace: bool = True, folder: Path | None = None) -> None:
        self._path = resolved(path)
        self._replace = replace
        # A name of its own for each run, and short: the path's own name may be as long as can be.
        token = f"{self._path.name[:40]}.{secrets.token_hex(4)}"
        beside = self._path.with_name(f".{token}.partial")
        self._partial = beside if folder is None else folder / f"{token}.joined"
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


def resolved(path: Path) -> Path:
    """Follow links, also a dangling one.

    Raises:
        OSError: the links form a loop.
    """
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return real


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a small file whole or not at all, text as UTF-8.

    Raises:
        OutputError: it can't be written.
    """
    with mapped_errors(path):
        put_whole(path, content.encode() if isinstance(content, str) else content)


def put_whole(path: Path, content: bytes) -> None:
    """Put a small file at a path, whole or not at all.

    Raises:
        OSError: it can't be written.
    """
    file = AtomicFile(path)
    try:
        file.stream.write(content)
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
