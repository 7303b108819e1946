"""Hashes of files."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Return a file's sha256; an unchanged file is read once in a process."""
    status = path.stat()
    return _sha256(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _sha256(path: Path, size: int, modified: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
