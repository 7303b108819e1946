"""``OUT.rejects.jsonl``: what couldn't be read, so that it can be mended and read again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from bertpool.corpus.records import Reject
from bertpool.output.atomic import AtomicFile, mapped_errors


class RejectsFile:
    """Collects rejects, and appears beside the output when that does; none, no file.

    It grows in ``folder``, on the same file system.
    """

    def __init__(self, path: Path, *, replace: bool, folder: Path) -> None:
        self._path = path
        self._file = AtomicFile(path, replace=replace, folder=folder)
        self.count = 0

    def add(self, rejects: Iterable[Reject]) -> None:
        """Append a line for each: its row, source, line, reason, and bytes.

        Bytes that aren't UTF-8 are escaped, see :func:`escaped_bytes`.

        Raises:
            OutputError: the disk is full.
        """
        with mapped_errors(self._path):
            for reject in rejects:
                content = {
                    "row": reject.row,
                    "source": reject.source,
                    "line": reject.line,
                    "reason": reject.reason,
                    "data": escaped_bytes(reject.data),
                }
                self._file.stream.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
                self.count += 1

    def copy(self, path: Path) -> None:
        """Append what another file of rejects holds, if it is there.

        Raises:
            OutputError: it can't be read, or the disk is full.
        """
        with mapped_errors(self._path):
            if not path.is_file():
                return
            with path.open("rb") as lines:
                for line in lines:
                    self._file.stream.write(line)
                    self.count += 1

    def commit(self) -> None:
        """Put the file in place, or remove an older run's where there is nothing to say."""
        if self.count:
            self._file.finish()
            self._file.commit()
        else:
            self._file.remove_old()

    def discard(self) -> None:
        """Leave nothing behind, unless it was committed."""
        self._file.discard()


def count_rejects(path: Path | None) -> int:
    """Count the rejects of a finished run; 0 where there is no file."""
    if path is None or not path.is_file():
        return 0
    with mapped_errors(path), path.open("rb") as lines:
        return sum(1 for _ in lines)


def escaped_bytes(data: bytes) -> str:
    r"""Write bytes as text that gives them back: ``\xNN`` for no UTF-8, a backslash as two.

    >>> print(escaped_bytes(b"caf\xe9 \\ \xc3\xa9"))
    caf\xe9 \\ é
    """
    return data.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
