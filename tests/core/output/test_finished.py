from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bertpool.corpus.records import Reject
from bertpool.errors import OutputError
from bertpool.output.destination import find_destination
from bertpool.output.finished import write_output
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import EmbeddedRows, Layout
from faults import files_limited_to
from rows import content, make_rows
from vectors import read_vectors

LAYOUT = Layout(("embedding",), 32, "float32", text=True, source=False, line=False)
SUFFIXES = [".parquet", ".npy", ".arrow", ".jsonl"]
NPY = ("v.mean.npy", "v.mean.npy.json", "v.cls.npy", "v.cls.npy.json")

OTHER_RUN = """
import sys
from bertpool.output.atomic import AtomicFile
from pathlib import Path
file = AtomicFile(Path(sys.argv[1]))
file.stream.write(b"other")
file.finish()
file.commit()
"""


def some_rows(count: int) -> EmbeddedRows:
    return make_rows(count, width=32, seed=count)


def write(
    path: Path,
    rows: EmbeddedRows | Iterator[EmbeddedRows],
    provenance: str = "{}",
    *,
    force: bool = False,
    layout: Layout = LAYOUT,
    **options: Any,
) -> None:
    destination = find_destination(str(path), [], columns=layout.columns, force=force)
    every = [rows] if isinstance(rows, EmbeddedRows) else rows
    write_output(destination, layout, provenance, every, **options)


def failing(error: type[BaseException]) -> Iterator[EmbeddedRows]:
    """Yield rows, then raise an error."""
    yield some_rows(100)
    raise error


@pytest.mark.parametrize(
    "name", ["v.npy", "v.NPY", "v.parquet", "v.PARQUET", "a.b.npy", "v.arrow", "v.jsonl"]
)
def test_exactly_the_named_file_is_written(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, some_rows(3))
    sidecar = {name + ".json"} if name.lower().endswith((".npy", ".jsonl")) else set()
    assert set(content(tmp_path)) == {name} | sidecar


def test_a_name_as_long_as_the_file_system_allows_is_written(tmp_path: Path) -> None:
    name = "x" * 247 + ".parquet"
    write(tmp_path / name, some_rows(1))
    assert set(content(tmp_path)) == {name}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_until_all_rows_are_there_nothing_stands_at_the_path(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"

    def rows() -> Iterator[EmbeddedRows]:
        yield some_rows(100)
        assert not path.exists()
        assert [p for p in tmp_path.iterdir() if not p.name.startswith(".")] == []

    write(path, rows())
    assert path.exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_grow_in_the_folder_that_is_named(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "parts").mkdir()

    def rows() -> Iterator[EmbeddedRows]:
        yield some_rows(100)
        assert [p.name for p in tmp_path.iterdir()] == ["parts"]

    write(tmp_path / f"v{suffix}", rows(), folder=tmp_path / "parts")
    assert list((tmp_path / "parts").iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_that_fails_leaves_nothing_behind(
    tmp_path: Path, suffix: str, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        write(tmp_path / f"v{suffix}", failing(error))
    assert content(tmp_path) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_that_fails_leaves_the_old_output_as_it_was(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    write(path, some_rows(3))
    before = content(tmp_path)
    with pytest.raises(ZeroDivisionError):
        write(path, failing(ZeroDivisionError), force=True)
    assert content(tmp_path) == before


# 2,000 bytes hold the sidecar and not 20 vectors, which stay in a buffer until the end; in
# 4,000,000 bytes the disk fills while rows are written; in 0 it was full from the start.
@pytest.mark.parametrize(("room", "count"), [(2000, 20), (4_000_000, 60_000), (0, 20), (0, 0)])
@pytest.mark.parametrize("suffix", SUFFIXES[:3])
def test_a_full_disk_is_an_error_of_one_line_and_leaves_nothing_behind(
    tmp_path: Path, suffix: str, room: int, count: int
) -> None:
    path = tmp_path / f"v{suffix}"
    with files_limited_to(room), pytest.raises(OutputError) as caught:
        write(path, some_rows(count), "x" * 1000)
    assert str(caught.value) == f"{path}: File too large; no output was written"
    assert caught.value.exit_code == 1
    assert content(tmp_path) == {}


@pytest.mark.parametrize(("room", "count"), [(2000, 20), (400_000, 2000), (0, 20)])
def test_a_disk_that_json_lines_fill_leaves_nothing_behind(
    tmp_path: Path, room: int, count: int
) -> None:
    with files_limited_to(room), pytest.raises(OutputError, match="no output was written"):
        write(tmp_path / "v.jsonl", some_rows(count), "x" * 1000)
    assert content(tmp_path) == {}


@pytest.mark.parametrize(("room", "count"), [(2000, 20), (4_000_000, 60_000)])
@pytest.mark.parametrize("suffix", SUFFIXES[:3])
def test_a_full_disk_leaves_the_old_output_and_its_sidecar_as_they_were(
    tmp_path: Path, suffix: str, room: int, count: int
) -> None:
    path = tmp_path / f"v{suffix}"
    write(path, some_rows(3), "old")
    before = content(tmp_path)
    with files_limited_to(room), pytest.raises(OutputError):
        write(path, some_rows(count), "x" * 1000, force=True)
    assert content(tmp_path) == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_commit_that_fails_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"

    def rows() -> Iterator[EmbeddedRows]:
        yield some_rows(3)
        path.mkdir()  # what the file can't be renamed onto

    with pytest.raises(OutputError, match="no output was written"):
        write(path, rows())
    assert content(tmp_path) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_writer_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    impossible: Any = "float99"
    with pytest.raises((AttributeError, TypeError)):
        write(tmp_path / f"v{suffix}", some_rows(1), layout=replace(LAYOUT, dtype=impossible))
    assert content(tmp_path) == {}


def test_a_folder_that_vanished_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    destination = find_destination(str(tmp_path / "d" / "v.npy"), [], columns=LAYOUT.columns)
    (tmp_path / "d").rmdir()
    with pytest.raises(OutputError, match="no output was written"):
        write_output(destination, LAYOUT, "{}", [some_rows(1)])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_shorter_rerun_replaces_the_file_whole(tmp_path: Path, suffix: str) -> None:
    path, fresh = tmp_path / f"v{suffix}", tmp_path / f"fresh{suffix}"
    write(path, some_rows(1000))
    write(path, some_rows(10), force=True)
    write(fresh, some_rows(10))
    assert path.read_bytes() == fresh.read_bytes()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_get_the_mode_that_the_umask_leaves(tmp_path: Path, suffix: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / f"v{suffix}", some_rows(1))
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o666 & ~umask}


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_at_the_path_keeps_pointing_and_its_target_is_written(
    tmp_path: Path, exists: bool
) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "real.npy", tmp_path / "v.npy"
    link.symlink_to(target)
    if exists:
        target.touch()
    write(link, some_rows(3), force=exists)
    assert link.is_symlink()
    assert link.readlink() == target
    np.testing.assert_array_equal(read_vectors(target), some_rows(3).vectors["embedding"])


@pytest.mark.parametrize("name", ["v.npy", "v.jsonl"])
def test_the_sidecar_holds_the_provenance(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, some_rows(1), '{"rows": 1}')
    assert (tmp_path / f"{name}.json").read_text(encoding="utf-8") == '{"rows": 1}\n'


def test_of_several_columns_each_gets_an_npy_file_with_its_vectors(tmp_path: Path) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"))
    rows = make_rows(20, width=32, columns=layout.columns)
    write(tmp_path / "v.npy", rows, layout=layout)
    assert set(content(tmp_path)) == set(NPY)
    for name in layout.columns:
        np.testing.assert_array_equal(read_vectors(tmp_path / f"v.{name}.npy"), rows.vectors[name])


def test_of_several_columns_the_sidecar_says_which_it_is_of(tmp_path: Path) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"))
    rows = make_rows(20, width=32, columns=layout.columns)
    write(tmp_path / "v.npy", rows, '{"rows": 20}', layout=layout)
    for name in layout.columns:
        sidecar = json.loads((tmp_path / f"v.{name}.npy.json").read_bytes())
        assert sidecar == {"rows": 20, "column": name}


def test_of_several_files_none_appears_where_one_cannot_be_written(tmp_path: Path) -> None:
    layout = replace(LAYOUT, columns=("mean", "cls"))

    def rows() -> Iterator[EmbeddedRows]:
        yield make_rows(20, width=32, columns=layout.columns)
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        write(tmp_path / "v.npy", rows(), layout=layout)
    assert content(tmp_path) == {}


def test_of_two_runs_at_once_the_second_doesnt_replace_the_firsts_file(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"

    def rows() -> Iterator[EmbeddedRows]:
        yield some_rows(7)
        subprocess.run([sys.executable, "-c", OTHER_RUN, path], check=True)

    with pytest.raises(OutputError, match="exists"):
        write(path, rows())
    assert content(tmp_path) == {"v.parquet": b"other"}


def test_of_two_runs_at_once_under_force_the_last_is_there_whole(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"

    def rows() -> Iterator[EmbeddedRows]:
        yield some_rows(7)
        subprocess.run([sys.executable, "-c", OTHER_RUN, path], check=True)
        assert path.read_bytes() == b"other"

    write(path, rows(), force=True)
    assert len(read_vectors(path)) == 7
    assert set(content(tmp_path)) == {"v.parquet"}


def rejects_in(folder: Path, *, replace: bool = False) -> RejectsFile:
    path = folder / "v.parquet.rejects.jsonl"
    file = RejectsFile(path, replace=replace, folder=folder)
    file.add([Reject(0, "a.txt", 1, "not UTF-8", b"\xff")])
    return file


def test_rejects_appear_with_the_output(tmp_path: Path) -> None:
    rejects = rejects_in(tmp_path)
    write(tmp_path / "v.parquet", some_rows(1), rejects=rejects)
    rejects.discard()
    assert set(content(tmp_path)) == {"v.parquet", "v.parquet.rejects.jsonl"}


def test_no_output_appears_where_its_rejects_cannot(tmp_path: Path) -> None:
    rejects = rejects_in(tmp_path)
    (tmp_path / "v.parquet.rejects.jsonl").write_text("another run's")
    with pytest.raises(OutputError, match="no output was written"):
        write(tmp_path / "v.parquet", some_rows(1), rejects=rejects)
    rejects.discard()
    assert content(tmp_path) == {"v.parquet.rejects.jsonl": b"another run's"}
