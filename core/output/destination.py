"""Where the output goes, checked before anything is loaded."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertpool.corpus.formats import COMPRESSION_SUFFIXES
from bertpool.corpus.inputs import STDIN
from bertpool.errors import OutputError
from bertpool.output.atomic import resolved
from bertpool.output.formats import FORMATS, OutputFormat, OutputFormatName, format_of
from bertpool.sharding import Shard

STDOUT = "-"
LONGEST_NAME = 255  # bytes, on nearly every file system


@dataclass(frozen=True)
class Target:
    """One file of the output: its path, that of its metadata, and its column where it has one."""

    path: Path
    sidecar: Path | None
    column: str | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """List what is written."""
        return (self.path, self.sidecar) if self.sidecar else (self.path,)


@dataclass(frozen=True)
class Destination:
    """A checked output: what was asked for, its format, and the files that it becomes.

    ``targets`` is empty for stdout.
    """

    path: Path
    format_name: OutputFormatName
    targets: tuple[Target, ...]
    rejects: Path | None
    replace: bool

    @property
    def format(self) -> OutputFormat:
        """Look the format up."""
        return FORMATS[self.format_name]

    @property
    def files(self) -> tuple[Path, ...]:
        """List all the files that a run may write."""
        files = [file for target in self.targets for file in target.files]
        return (*files, self.rejects) if self.rejects else tuple(files)

    @property
    def folder(self) -> Path:
        """Name the folder of finished windows, ``OUT.partial``, beside the file itself."""
        path = resolved(self.path) if self.path.is_symlink() else self.path
        name = f"{path.name}.partial"
        if len(os.fsencode(name)) > LONGEST_NAME:
            digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
            name = f"{path.name[:40]}.{digest}.partial"
        return path.with_name(name)


def find_destination(
    output: str | None,
    inputs: Sequence[str],
    *,
    columns: Sequence[str],
    output_format: OutputFormatName | None = None,
    shard: Shard | None = None,
    rejects: bool = False,
    force: bool = False,
    resume: bool = False,
) -> Destination:
    """Choose and check the output.

    Args:
        output: as given; None stands for the input's name with ``.parquet``, beside the input.
        inputs: what is read, which the output must not be by any name.
        columns: the vector columns: several are several files where a file holds one.
        output_format: overrules the suffix.
        shard: of a shard, whose name goes into the file's.
        rejects: a file for what can't be read may be written, too.
        force: existing files may be replaced.
        resume: an existing output may be the finished one of this command.

    Raises:
        OutputError: the path can't be chosen, exists, is an input, or can't be written.
    """
    if output == STDOUT:
        return _stdout(output_format or "jsonl", columns, rejects=rejects, resume=resume)
    path = Path(output) if output is not None else _beside(inputs)
    name = output_format or format_of(path)
    if name is None:
        known = ", ".join(f".{one}" for one in FORMATS)
        raise OutputError(f"--output {path}: unknown suffix; end it in {known}", usage=True)
    if shard is not None:
        path = shard.path(path)
    if rejects and not FORMATS[name].rows:
        raise OutputError(
            f"--on-error reject: the rows of .{name} couldn't be matched to their texts any more; "
            "write .parquet",
            usage=True,
        )
    destination = Destination(
        path,
        name,
        _targets(path, FORMATS[name], columns),
        rejects_path(path) if rejects else None,
        replace=force,
    )
    for file in destination.files:
        check_target(file, inputs, force=force or resume)
    return destination


def rejects_path(output: Path) -> Path:
    """Name the file of what an output's run couldn't read."""
    return output.with_name(output.name + ".rejects.jsonl")


def _stdout(
    name: OutputFormatName, columns: Sequence[str], *, rejects: bool, resume: bool
) -> Destination:
    what = None
    if rejects:
        what = "--on-error reject: has no file name to go by on stdout; name one with --output"
    elif resume:
        what = "--resume: nothing is kept of a run that writes to stdout; name a file"
    elif not FORMATS[name].rows and len(columns) > 1:
        what = f"--output -: {name} holds one column, and there are {', '.join(columns)}"
    elif FORMATS[name].binary and sys.stdout is not None and os.isatty(1):
        what = f"--output -: {name} is no text for a terminal; redirect it"
    elif sys.stdout is None:
        what = "--output -: stdout is closed"
    if what is not None:
        raise OutputError(what, usage=True)
    return Destination(Path(STDOUT), name, (), None, replace=False)


def _targets(path: Path, format_: OutputFormat, columns: Sequence[str]) -> tuple[Target, ...]:
    """Name the files: ``x.npy``, or ``x.mean.npy`` and so on for several columns."""

    def target(path: Path, column: str | None) -> Target:
        sidecar = path.with_name(path.name + ".json") if format_.sidecar else None
        return Target(path, sidecar, column)

    if format_.rows or len(columns) == 1:
        return (target(path, None),)
    names = [(f"{path.stem}.{column}{path.suffix}", column) for column in columns]
    return tuple(target(path.with_name(name), column) for name, column in names)


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
    inside = [name for name in inputs if os.path.isdir(name) and _is_inside(path, name)]
    if inside:
        raise OutputError(f"{path}: is inside the input {inside[0]}; write elsewhere", usage=True)
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


def _beside(inputs: Sequence[str]) -> Path:
    if len(inputs) != 1 or inputs[0] == STDIN:
        what = "stdin" if STDIN in inputs else "several inputs"
        raise OutputError(f"{what}: say where the vectors go with --output", usage=True)
    path = Path(os.path.normpath(inputs[0]))
    # A pipe's name (/dev/stdin, /dev/fd/63) is no place for vectors.
    if path.name in ("", "..") or (path.exists() and not (path.is_file() or path.is_dir())):
        raise OutputError(f"{path}: say where the vectors go with --output", usage=True)
    if path.is_dir():
        return path.with_name(path.name + ".parquet")
    while path.suffix.lower() in COMPRESSION_SUFFIXES:
        path = path.with_suffix("")
    return path.with_suffix(".vectors.parquet" if path.suffix.lower() == ".parquet" else ".parquet")


def _same_file(path: Path, name: str) -> bool:
    try:
        return os.path.samefile(path, name)
    except OSError:
        return False


def _is_inside(path: Path, folder: str) -> bool:
    return Path(os.path.realpath(folder)) in resolved(path).parents
