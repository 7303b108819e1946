"""Users whom permissions bind, and disks that fill up."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

NOBODY = 65534


@contextlib.contextmanager
def without_privilege() -> Iterator[None]:
    """Run a block as a user whom file permissions bind; root may read and write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Run a block in which no file may grow past a size, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
