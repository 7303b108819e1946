"""The finished output: all of its files appear together, whole, or none does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from bertpool.output.atomic import AtomicFile, mapped_errors
from bertpool.output.destination import Destination, Target
from bertpool.output.provenance import canonical_json
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import Layout, Rows, Writer

NOTHING_WRITTEN = "; no output was written"


class OutputFile:
    """One file being written, with its sidecar."""

    def __init__(
        self, target: Target, destination: Destination, layout: Layout, folder: Path | None
    ) -> None:
        self._column = target.column
        self._format = destination.format
        self._layout = layout
        if target.column is not None:
            self._layout = dataclasses.replace(layout, columns=(target.column,))
        replace = destination.replace
        self._file = AtomicFile(target.path, replace=replace, folder=folder)
        self._sidecar: AtomicFile | None = None
        if target.sidecar is not None:
            self._sidecar = AtomicFile(target.sidecar, replace=replace, folder=folder)
        self._writer: Writer | None = None

    def open(self, provenance: str) -> None:
        """Start the file and write its sidecar."""
        self._writer = self._format.open_writer(self._file.stream, self._layout, provenance)
        if self._sidecar is not None:
            self._sidecar.stream.write(f"{self._of_column(provenance)}\n".encode())

    def write(self, rows: Rows) -> None:
        """Append rows."""
        assert self._writer is not None
        self._writer.write(rows)

    def _of_column(self, provenance: str) -> str:
        """Say which column the file holds, where only its name would tell."""
        if self._column is None:
            return provenance
        return canonical_json({**json.loads(provenance), "column": self._column})

    def finish(self) -> None:
        """Get everything onto the disk."""
        assert self._writer is not None
        self._writer.close()
        self._file.finish()
        if self._sidecar is not None:
            self._sidecar.finish()

    def commit(self) -> None:
        """Put the file and its sidecar in place."""
        if self._sidecar is not None:
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


def write_output(
    destination: Destination,
    layout: Layout,
    provenance: str,
    rows: Iterable[Rows],
    *,
    rejects: RejectsFile | None = None,
    folder: Path | None = None,
) -> None:
    """Write all the files of an output, then put them in place.

    Args:
        destination: where.
        layout: of the rows.
        provenance: JSON of what made them.
        rows: all of them, in order.
        rejects: what wasn't read, which gets its place first: no output without its rejects.
        folder: where the files grow, on the same file system; None for beside themselves.

    Raises:
        OutputError: it can't be written; of several files some may be in their places.
    """
    with mapped_errors(destination.path, NOTHING_WRITTEN), contextlib.ExitStack() as stack:
        files = [OutputFile(one, destination, layout, folder) for one in destination.targets]
        for file in files:
            stack.callback(file.discard)
            file.open(provenance)
        for some in rows:
            for file in files:
                file.write(some)
        for file in files:
            file.finish()
        if rejects is not None:
            rejects.commit()
        for file in files:
            file.commit()
