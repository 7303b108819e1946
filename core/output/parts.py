"""Finished windows of a run that isn't finished: ``OUT.partial/``.

Each window is a part, an Arrow file that is there whole or not at all, so that a run killed at any
moment loses one window at most. The next run with ``--resume`` reads the inputs again, compares
each window with the part's hash of it, and encodes only what has none.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from bertpool.errors import Interrupted, Kept, OutputError
from bertpool.output.atomic import mapped_errors, put_whole
from bertpool.output.destination import Destination
from bertpool.output.finished import write_output
from bertpool.output.provenance import Settings, first_difference
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import Layout, Rows

if TYPE_CHECKING:
    from bertpool.corpus import Window

LOCK = "lock"
MANIFEST = "manifest.json"
SHARDS = "shards.json"  # how many shards a run on Ray has, which are files beside the folder
SUFFIX = ".arrow"
# Names of what a run puts into its folder; anything else there is somebody's.
OWN = re.compile(
    r"lock|manifest\.json|shards\.json|[0-9]{6,}\.arrow|.*\.new|.*\.joined|\..*\.partial"
)
REPLACES = "replaces"  # key of the manifest: the run was told to replace what is there
DIGEST_KEY, COUNTS_KEY, ROWS_KEY = b"window", b"counts", b"rows"


@dataclass(frozen=True)
class Part:
    """A finished window: its number, and the counts that its run took of it."""

    index: int
    counts: dict[str, int]


class PartedOutput:
    """An output whose windows are kept as they are finished, then joined to its files.

    One run at a time may use the folder of an output's windows.
    """

    keeps_parts = True

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._path = destination.path
        self._checked = False
        self.replaces = destination.replace  # whatever is at the paths
        self.folder = destination.folder
        self._lock: BinaryIO | None = None
        self._last: tuple[int, Rows] | None = None
        self._rows_kept = 0

    def open(self, *, resume: bool, force: bool) -> bool:
        """Take the folder, and tell whether it holds parts to go on from.

        Raises:
            OutputError: another run has it; or it holds parts, and neither ``resume`` nor
                ``force`` says what to do with them.
        """
        try:
            found = self._take_folder(resume=resume, force=force)
        except Interrupted:
            # For keep(), which is called on the way out, and removes what holds nothing.
            with contextlib.suppress(OSError, OutputError):
                self._take_lock()
            raise
        if resume:
            # What stands at the paths is this run's own, put there before it was interrupted.
            self._destination = replace(self._destination, replace=True)
        return bool(found)

    def _take_folder(self, *, resume: bool, force: bool) -> list[Path]:
        """Lock the folder and return the parts in it that this run may use."""
        with mapped_errors(self.folder), contextlib.ExitStack() as refused:
            self._check_own()
            self._take_lock()
            refused.callback(self._let_go)
            found = self._clean_up()
            if found and not resume and not force:
                raise OutputError(
                    f"{self.folder}: holds finished windows ({len(found)}) of an unfinished run; "
                    "pass --resume to go on from them, or --force to start afresh",
                    usage=True,
                )
            if force:
                for part in found:
                    part.unlink()
                found = []
            if not found:  # what an older run noted of its settings says nothing of this one's
                (self.folder / MANIFEST).unlink(missing_ok=True)
            elif (self.folder / MANIFEST).exists():
                self.replaces = bool(_read_manifest(self.folder / MANIFEST).get(REPLACES))
            self._rows_kept = sum(int(read_metadata(part)[ROWS_KEY]) for part in found)
            refused.pop_all()
        return found

    def check(self, settings: Settings) -> None:
        """Compare the settings with those that made the parts, or write them down.

        Raises:
            OutputError: a setting differs; it is named.
        """
        if self._checked:
            return
        self._checked = True
        manifest = self.folder / MANIFEST
        with mapped_errors(self._path):
            if not manifest.exists():
                about = {"fingerprint": settings.fingerprint(), REPLACES: self.replaces}
                content = {**about, **asdict(settings)}
                put_whole(manifest, json.dumps(content, sort_keys=True, indent=1).encode())
                return
            made_with = _read_manifest(manifest)
        difference = first_difference(made_with, json.loads(json.dumps(asdict(settings))))
        if difference is not None:
            raise OutputError(
                f"{self.folder}: was made with {difference}; repeat the first command's options, "
                "or pass --force to start afresh",
                usage=True,
            )

    def find(self, index: int, digest: str) -> Part | None:
        """Find a window's part.

        Raises:
            OutputError: there is one, of another window.
        """
        path = self._part(index)
        if not path.exists():
            return None
        metadata = read_metadata(path)
        if metadata[DIGEST_KEY].decode() != digest:
            raise OutputError(
                f"{self.folder}: the input isn't the one that its windows were made from (they "
                f"differ in window {index + 1}); pass --force to start afresh"
            )
        return Part(index, json.loads(metadata[COUNTS_KEY]))

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
        """Keep a window's rows, on the disk unless they are the last and joined at once.

        Raises:
            OutputError: the disk is full.
        """
        if last:
            self._last = (index, rows)
            return
        import pyarrow as pa
        from bertpool.output.table import output_schema

        metadata = {
            DIGEST_KEY: digest,
            COUNTS_KEY: json.dumps(dict(counts)),
            ROWS_KEY: str(len(rows)),
        }
        schema = output_schema(layout).with_metadata(metadata)
        temporary = self._part(index).with_suffix(".new")
        with mapped_errors(self._path):
            with temporary.open("wb") as stream:
                with pa.ipc.new_file(stream, schema) as writer:
                    writer.write_table(rows.table(schema))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(self._part(index))
        self._rows_kept += len(rows)

    def finish(
        self, windows: int, layout: Layout, provenance: str, rejects: RejectsFile | None
    ) -> None:
        """Join the first ``windows`` windows to the output's files, and put those in place.

        Raises:
            OutputError: the disk is full.
        """
        write_output(
            self._destination,
            layout,
            provenance,
            self._rows(windows),
            rejects=rejects,
            folder=self.folder,
        )

    def _rows(self, count: int) -> Iterator[Rows]:
        """Yield the rows of the first ``count`` windows, one window at a time."""
        import pyarrow as pa
        from bertpool.output.table import StoredRows

        for index in range(count):
            if self._last is not None and self._last[0] == index:
                yield self._last[1]
                continue
            with pa.memory_map(os.fspath(self._part(index))) as source:
                yield StoredRows(pa.ipc.open_file(source).read_all())

    def remove(self) -> None:
        """Remove the folder, once the output is in place; no other run can have it before."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            # The last window first: a run that is killed here leaves the first ones, as any other.
            for part in reversed(self._clean_up()):
                part.unlink()
            for name in (SHARDS, MANIFEST, LOCK):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        self._let_go()

    def keep(self) -> Kept | None:
        """Leave the folder for the next run if it holds anything, and say which windows."""
        if self._lock is None:
            return None
        with contextlib.suppress(OSError):
            if not self._clean_up():
                if (self.folder / SHARDS).exists():
                    self._let_go()
                else:
                    self.remove()
                return None
        self._let_go()
        return Kept(self._rows_kept, str(self.folder))

    def _part(self, index: int) -> Path:
        return self.folder / f"{index:06d}{SUFFIX}"

    def _check_own(self) -> None:
        """Refuse a folder that holds what no run of bertpool has put there.

        Raises:
            OutputError: it is another's, or no folder at all.
        """
        folder, strange = self.folder, []
        with contextlib.suppress(FileNotFoundError):  # not there, or just removed by its run
            if not stat.S_ISDIR(folder.lstat().st_mode):
                strange = [folder]
            else:
                strange = [file for file in folder.iterdir() if not OWN.fullmatch(file.name)]
        if strange:
            raise OutputError(
                f"{strange[0]}: isn't bertpool's, which needs {folder} for its own; move it away",
                usage=True,
            )

    def _clean_up(self) -> list[Path]:
        """Remove what a killed run left half written; return the parts."""
        parts = []
        for file in self.folder.iterdir():
            if file.suffix == SUFFIX:
                parts.append(file)
            elif file.name not in (LOCK, MANIFEST, SHARDS):
                file.unlink()
        return sorted(parts)

    def _take_lock(self) -> None:
        path = self.folder / LOCK
        while self._lock is None:
            lock = self._open_lock()
            if lock is None:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.close()
                raise OutputError(f"{self._path}: another run is writing it", usage=True) from error
            except OSError:  # a file system without locks
                self._lock = lock
                return
            # A run that just ended may have removed the folder meanwhile, lock and all.
            if _is_at(path, lock):
                self._lock = lock
            else:
                lock.close()

    def _open_lock(self) -> BinaryIO | None:
        """Open the lock in the folder; None where a run that just ended has removed that."""
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir()
        try:
            return (self.folder / LOCK).open("wb")
        except FileNotFoundError:
            if self.folder.is_symlink():
                raise
            return None

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def window_digest(window: Window) -> str:
    """Hash all of a window that the output holds or depends on."""
    digest = hashlib.sha256()
    for texts in (window.texts, window.pairs or [], window.sources):
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        digest.update(np.array([len(text) for text in encoded], dtype=np.int64).tobytes())
        digest.update(b"".join(encoded))
    for numbers in (window.rows, window.lines):
        digest.update(np.asarray(numbers, dtype=np.int64).tobytes())
    if window.extra is not None:
        from bertpool.output.table import times_as_text

        values = times_as_text(window.extra).to_pydict()
        digest.update(repr(values).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read_metadata(part: Path) -> dict[bytes, bytes]:
    """Read a part's metadata.

    Raises:
        OutputError: it isn't a part.
    """
    import pyarrow as pa

    with mapped_errors(part):
        try:
            with pa.memory_map(os.fspath(part)) as source:
                metadata: dict[bytes, bytes] = pa.ipc.open_file(source).schema.metadata or {}
            return {key: metadata[key] for key in (DIGEST_KEY, COUNTS_KEY, ROWS_KEY)}
        except (pa.ArrowInvalid, KeyError) as error:
            raise OutputError(f"{part}: broken; pass --force to start afresh") from error


def _read_manifest(manifest: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(manifest.read_bytes())
    except ValueError as error:
        raise OutputError(f"{manifest}: broken; pass --force to start afresh") from error
    return content
