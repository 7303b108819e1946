"""Join the files of shards to the file that one run would have written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from bertpool.errors import OutputError
from bertpool.output.destination import Destination, find_destination, rejects_path
from bertpool.output.finished import write_output
from bertpool.output.formats import format_of
from bertpool.output.provenance import canonical_json, first_difference
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import OWN_COLUMNS, Layout, Rows
from bertpool.output.table import is_vector
from bertpool.output.vector_file import VectorFile, open_vectors

# What shards of one run may differ in.
OF_A_SHARD = ("shard", "rows")


def merge(parts: Sequence[str], *, output: str, force: bool = False) -> int:
    """Join the outputs of ``embed --shard I/N``, with proof that they are all of one run.

    Args:
        parts: the shards' files, in any order.
        output: the file to write, in the shards' format.
        force: replace an existing file.

    Returns:
        The number of rows.

    Raises:
        OutputError: a shard is missing, is there twice, or was made otherwise than the first.
    """
    if not parts:
        raise OutputError("no shard: name all of them", usage=True)
    files = [open_vectors(Path(part)) for part in parts]
    shards = _in_order(files)
    kind = shards[0].format_name
    if format_of(Path(output)) not in (kind, format_of(shards[0].path)):
        raise OutputError(f"--output {output}: the shards are .{kind}; end it in that", usage=True)
    destination = find_destination(
        output, parts, columns=shards[0].columns, output_format=kind, force=force
    )
    provenance = {k: v for k, v in shards[0].provenance.items() if k not in OF_A_SHARD}
    rows = sum(file.rows for file in shards)
    with _joined_rejects(shards, destination) as rejects:
        write_output(
            destination,
            _layout(shards[0]),
            canonical_json({**provenance, "rows": rows}),
            _rows(shards),
            rejects=rejects,
        )
    return rows


@contextlib.contextmanager
def _joined_rejects(
    shards: Sequence[VectorFile], destination: Destination
) -> Iterator[RejectsFile | None]:
    """Join the shards' files of rejects, where the run was one that rejects."""
    if shards[0].provenance["on_error"] != "reject":
        yield None
        return
    path = rejects_path(destination.path)
    joined = RejectsFile(path, replace=destination.replace, folder=path.parent)
    try:
        for file in shards:
            joined.copy(rejects_path(file.path))
        yield joined
    finally:
        joined.discard()


def _rows(shards: Sequence[VectorFile]) -> Iterator[Rows]:
    for file in shards:
        found = 0
        for some in file.stored_rows():
            found += len(some)
            yield some
        if found != file.rows:
            raise OutputError(f"{file.path}: holds {found} rows, and {file.rows} by its metadata")


def _in_order(files: Sequence[VectorFile]) -> list[VectorFile]:
    """Check that the files are the shards of one run, each once, and sort them.

    Raises:
        OutputError: they aren't.
    """
    for file in files:
        if "shard" not in file.provenance:
            raise OutputError(f"{file.path}: is no shard; embed with --shard I/N")
        _check_alike(files[0], file)
    by_index: dict[int, VectorFile] = {}
    count = files[0].provenance["shard"]["count"]
    for file in files:
        other = by_index.setdefault(file.provenance["shard"]["index"], file)
        if other is not file:
            raise OutputError(f"{file.path}: is shard {_name(file)}, and so is {other.path}")
    missing = [str(i) for i in range(1, count + 1) if i not in by_index]
    if missing:
        raise OutputError(f"shard {', '.join(missing)} of {count} is missing")
    return [by_index[index] for index in sorted(by_index)]


def _name(file: VectorFile) -> str:
    shard = file.provenance["shard"]
    return f"{shard['index']} of {shard['count']}"


def _check_alike(first: VectorFile, other: VectorFile) -> None:
    if first.format_name != other.format_name:
        raise OutputError(f"{other.path}: isn't .{first.format_name} as {first.path} is")
    one, two = (_common(file.provenance) for file in (first, other))
    for name in ("inputs", "total", "count"):
        if one[name] != two[name]:
            what = "the input wasn't the same" if name == "inputs" else f"{name} differs"
            raise OutputError(
                f"{other.path}: isn't a shard of the same run as {first.path}: {what}"
            )
    if difference := first_difference(two, one, this=str(first.path)):
        raise OutputError(f"{other.path}: was made with {difference}")
    if first.schema.remove_metadata() != other.schema.remove_metadata():
        raise OutputError(f"{other.path}: hasn't the columns that {first.path} has")


def _common(provenance: dict[str, Any]) -> dict[str, Any]:
    shard = provenance["shard"]
    common = {k: v for k, v in provenance.items() if k not in (*OF_A_SHARD, "fingerprint")}
    return {**common, "total": shard["total"], "count": shard["count"]}


def _layout(file: VectorFile) -> Layout:
    """Recover the layout that a file was written with."""
    names = file.schema.names
    others = [f for f in file.schema if f.name not in OWN_COLUMNS and not is_vector(f)]
    if file.provenance["id_column"] is not None:
        others.insert(0, file.schema.field("id"))
    return Layout(
        columns=file.columns,
        width=file.provenance["dimensions"],
        dtype=file.provenance["output_dtype"],
        text="text" in names,
        source="source" in names,
        line="line" in names,
        pair="pair" in names,
        extra=pa.schema(others) if others else None,
        tokens="tokens" in names,
    )
