"""Output to stdout: rows as they come where the format allows it, else the whole at the end."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from bertpool.output.atomic import mapped_errors
from bertpool.output.destination import Destination
from bertpool.output.parts import Part
from bertpool.output.provenance import Settings
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import Layout, Rows, Writer

BUFFER_BYTES = 1 << 20


class StdoutOutput:
    """Writes rows to stdout. There is no sidecar, and nothing to resume.

    ``provenance`` is asked for when the first rows are there, and names neither inputs nor rows.
    """

    keeps_parts = False
    replaces = False

    def __init__(self, destination: Destination, provenance: Callable[[], str]) -> None:
        self._format = destination.format
        self._provenance = provenance
        self._stdout: io.FileIO | None = None
        self._stream: BinaryIO | None = None
        self._writer: Writer | None = None

    def open(self, *, resume: bool, force: bool) -> bool:
        """Take stdout; there are never parts to go on from."""
        with mapped_errors(Path("stdout")):
            self._stdout = io.FileIO(os.dup(1), "wb")
        return False

    def check(self, settings: Settings) -> None:
        """There is nothing that the settings could differ from."""

    def find(self, index: int, digest: str) -> Part | None:
        """There are no parts."""

    def add(
        self,
        index: int,
        rows: Rows,
        layout: Layout,
        digest: str,
        counts: Mapping[str, int],
        *,
        last: bool,
    ) -> None:
        """Write a window's rows.

        Raises:
            OutputError: stdout can't take them.
        """
        with mapped_errors(Path("stdout")):
            self._open_writer(layout).write(rows)

    def finish(
        self, windows: int, layout: Layout, provenance: str, rejects: RejectsFile | None
    ) -> None:
        """Write what is left."""
        assert self._stdout is not None
        with mapped_errors(Path("stdout")):
            self._open_writer(layout).close()
            assert self._stream is not None
            self._stream.flush()
            if not self._format.streams:
                self._stream.seek(0)
                shutil.copyfileobj(self._stream, self._stdout, BUFFER_BYTES)

    def remove(self) -> None:
        """Let go of everything."""
        if self._writer is not None:
            self._writer.abort()
        for file in (self._stream, self._stdout):
            with contextlib.suppress(OSError, ValueError):  # what a gone reader can't be given
                if file is not None:
                    file.close()

    def keep(self) -> None:
        """Let go of everything: what stdout has got it has, and nothing is kept here."""
        self.remove()

    def _open_writer(self, layout: Layout) -> Writer:
        if self._writer is None:
            assert self._stdout is not None
            if self._format.streams:
                self._stream = io.BufferedWriter(_Pipe(self._stdout), BUFFER_BYTES)
            else:
                self._stream = tempfile.TemporaryFile()
            self._writer = self._format.open_writer(self._stream, layout, self._provenance())
        return self._writer


class _Pipe(io.RawIOBase):
    """Raw stdout that says that it can't seek, as a file that it is redirected to could."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int | None:
        return self._raw.write(data)  # type: ignore[arg-type]
