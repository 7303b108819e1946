"""Channels that a corpus may come through, and users whom permissions bind."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import faults
import pytest

StdinOf = Callable[[int], AbstractContextManager[None]]
WrittenBeside = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def without_privilege() -> Callable[[], AbstractContextManager[None]]:
    """Run a block as a user whom file permissions bind; root may read and write everything."""
    return faults.without_privilege


@contextlib.contextmanager
def _stdin_of(descriptor: int) -> Iterator[None]:
    before = os.dup(0)
    os.dup2(descriptor, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(descriptor)


@pytest.fixture
def stdin_of() -> StdinOf:
    """Put a descriptor in stdin's place, and close it at the end."""
    return _stdin_of


@contextlib.contextmanager
def _written_beside(descriptor: int, *pieces: bytes, delay: float = 0.0) -> Iterator[None]:
    pause = threading.Event()

    def write() -> None:
        for piece in pieces:
            if delay:
                pause.wait(delay)
            with contextlib.suppress(BrokenPipeError), open(descriptor, "wb", closefd=False) as out:
                out.write(piece)
        os.close(descriptor)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.fixture
def written_beside() -> WrittenBeside:
    """Write pieces to a descriptor, and close it, while a block runs."""
    return _written_beside


@pytest.fixture
def public_path() -> Iterator[Path]:
    """Give a folder that every user can reach (pytest's own are closed to others)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
