from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bertpool.errors import OutputError
from bertpool.output.destination import (
    AtomicFile,
    check_target,
    find_destination,
    open_output,
    write_atomic,
)
from bertpool.output.rows import Layout, Rows
from vectors import read_vectors

NOBODY = 65534
LAYOUT = Layout(("embedding",), 32, "float32", text=True, source=False, line=False)
SUFFIXES = [".parquet", ".npy"]


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


@pytest.fixture
def public_path() -> Iterator[Path]:
    """Give a folder that every user can reach (pytest's own are closed to others)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    return path


def make_rows(count: int) -> Rows:
    numbers = np.arange(count, dtype=np.int64)
    vectors = np.random.default_rng(count).standard_normal((count, 32), dtype=np.float32)
    return Rows(
        ids=numbers,
        texts=[f"hello {i}" for i in range(count)],
        sources=["a.txt"] * count,
        lines=numbers,
        n_tokens=numbers.astype(np.int32),
        truncated=numbers < 0,
        vectors={"embedding": vectors},
    )


def write(path: Path, rows: Rows, provenance: str = "{}", *, force: bool = False) -> None:
    with open_output(find_destination(str(path), [], force=force), LAYOUT) as output:
        output.write(rows)
        output.commit(provenance)


def fail_amid(path: Path, error: type[BaseException], *, force: bool = False) -> None:
    """Raise an error when rows are written and not yet committed."""
    with open_output(find_destination(str(path), [], force=force), LAYOUT) as output:
        output.write(make_rows(100))
        raise error


def refusal(output: Path | str | None, *inputs: Path | str, force: bool = False) -> str:
    name = None if output is None else str(output)
    with pytest.raises(OutputError) as caught:
        find_destination(name, [str(one) for one in inputs], force=force)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("notes.txt", "notes.parquet"),
        ("notes", "notes.parquet"),
        ("notes.v2.txt", "notes.v2.parquet"),
        (".hidden", ".hidden.parquet"),
        ("a b é.txt", "a b é.parquet"),
    ],
)
def test_without_a_name_the_output_lies_beside_the_input(
    tmp_path: Path, name: str, beside: str
) -> None:
    destination = find_destination(None, [str(tmp_path / name)], force=False)
    assert destination.path == tmp_path / beside


@pytest.mark.parametrize("inputs", [["a.txt", "b.txt"], ["-"], ["a.txt", "-"]])
def test_several_inputs_or_stdin_need_a_named_output(inputs: list[str]) -> None:
    assert "--output" in refusal(None, *inputs)


@pytest.mark.parametrize("name", ["vec", "vec.bin", "vec.npz", "-", ".parquet", "vec.parquet.gz"])
def test_an_unknown_suffix_is_refused_and_the_known_ones_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(name)
    assert ".parquet" in message
    assert ".npy" in message


@pytest.mark.parametrize("name", ["v.npy", "v.NPY", "v.parquet", "v.PARQUET", "a.b.npy"])
def test_exactly_the_named_file_is_written(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, make_rows(3))
    sidecar = {name + ".json"} if name.lower().endswith(".npy") else set()
    assert set(content(tmp_path)) == {name} | sidecar


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_output_is_refused_and_force_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.touch()
    assert "--force" in refusal(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_output_passes_under_force(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.touch()
    assert find_destination(str(path), [], force=True).path == path


def test_an_existing_sidecar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.npy.json").touch()
    assert "v.npy.json: exists" in refusal(tmp_path / "v.npy")


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_is_refused(tmp_path: Path, force: bool) -> None:
    (tmp_path / "d.npy").mkdir()
    assert "is a directory" in refusal(tmp_path / "d.npy", force=force)


@pytest.mark.parametrize("force", [False, True])
def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path, force: bool) -> None:
    assert "folder doesn't exist" in refusal(tmp_path / "no" / "v.npy", force=force)
    assert not (tmp_path / "no").exists()


def test_a_path_through_a_file_is_refused(source: Path) -> None:
    assert "folder" in refusal(source / "v.npy")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_without_write_permission_is_refused(public_path: Path, force: bool) -> None:
    folder = public_path / "closed"
    folder.mkdir(mode=0o555)
    with without_privilege():
        assert "no permission" in refusal(folder / "v.npy", force=force)


@pytest.mark.parametrize("force", [False, True])
def test_a_fifo_is_refused(tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "v.npy")
    assert "not a regular file" in refusal(tmp_path / "v.npy", force=force)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("v.npy")
        assert "not a regular file" in refusal("v.npy", force=True)


def test_a_link_to_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.npy").symlink_to("/dev/null")
    assert "not a regular file" in refusal(tmp_path / "v.npy", force=True)


def test_a_link_loop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.npy").symlink_to("v.npy")
    assert "v.npy: " in refusal(tmp_path / "v.npy")


def test_a_name_too_long_for_the_file_system_is_refused(tmp_path: Path) -> None:
    assert "too long" in refusal(tmp_path / f"{'x' * 300}.npy").lower()


def test_a_name_as_long_as_the_file_system_allows_is_written(tmp_path: Path) -> None:
    name = "x" * 247 + ".parquet"
    write(tmp_path / name, make_rows(1))
    assert set(content(tmp_path)) == {name}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("way", ["same", "dots", "link", "hard link", "folder link"])
def test_an_output_that_is_an_input_by_any_name_is_refused(
    tmp_path: Path, way: str, force: bool
) -> None:
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "v.npy"
    path.write_text("hello\n")
    other = tmp_path / "other.npy"
    if way == "same":
        other = path
    elif way == "dots":
        other = tmp_path / "d" / ".." / "d" / "v.npy"
    elif way == "link":
        other.symlink_to(path)
    elif way == "hard link":
        other.hardlink_to(path)
    else:
        (tmp_path / "e").symlink_to("d")
        other = tmp_path / "e" / "v.npy"
    assert "is an input" in refusal(other, path, force=force)
    assert "is an input" in refusal(path, other, force=force)


def test_a_sidecar_that_is_an_input_is_refused_under_force(tmp_path: Path) -> None:
    (tmp_path / "v.npy.json").write_text("hello\n")
    assert "is an input" in refusal(tmp_path / "v.npy", tmp_path / "v.npy.json", force=True)


def test_an_output_that_differs_from_the_input_by_case_alone_is_another_file_where_it_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "V.npy").write_text("hello\n")
    if (tmp_path / "v.npy").exists():  # the file system ignores case
        assert "is an input" in refusal(tmp_path / "v.npy", tmp_path / "V.npy", force=True)
    else:
        find_destination(str(tmp_path / "v.npy"), [str(tmp_path / "V.npy")], force=False)


def test_checking_a_target_writes_nothing(tmp_path: Path) -> None:
    check_target(tmp_path / "v.npy", [], force=False)
    assert content(tmp_path) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_before_the_commit_nothing_stands_at_the_path(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    with open_output(find_destination(str(path), [], force=False), LAYOUT) as output:
        output.write(make_rows(100))
        assert not path.exists()
        assert [p for p in tmp_path.iterdir() if not p.name.startswith(".")] == []
        output.commit("{}")
    assert path.exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_that_fails_leaves_nothing_behind(
    tmp_path: Path, suffix: str, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        fail_amid(tmp_path / f"v{suffix}", error)
    assert content(tmp_path) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_that_fails_leaves_the_old_output_as_it_was(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    write(path, make_rows(3))
    before = content(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail_amid(path, ZeroDivisionError, force=True)
    assert content(tmp_path) == before


# 2,000 bytes hold the sidecar and not 20 vectors, which stay in a buffer until the commit; in
# 4,000,000 bytes the disk fills while rows are written; in 0 it was full from the start.
@pytest.mark.parametrize(("room", "count"), [(2000, 20), (4_000_000, 60_000), (0, 20), (0, 0)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_is_an_error_of_one_line_and_leaves_nothing_behind(
    tmp_path: Path, suffix: str, room: int, count: int
) -> None:
    path = tmp_path / f"v{suffix}"
    with files_limited_to(room), pytest.raises(OutputError) as caught:
        write(path, make_rows(count), "x" * 1000)
    assert str(caught.value) == f"{path}: File too large; no vectors were written"
    assert caught.value.exit_code == 1
    assert content(tmp_path) == {}


@pytest.mark.parametrize(("room", "count"), [(2000, 20), (4_000_000, 60_000)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_output_and_its_sidecar_as_they_were(
    tmp_path: Path, suffix: str, room: int, count: int
) -> None:
    path = tmp_path / f"v{suffix}"
    write(path, make_rows(3), "old")
    before = content(tmp_path)
    with files_limited_to(room), pytest.raises(OutputError):
        write(path, make_rows(count), "x" * 1000, force=True)
    assert content(tmp_path) == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_commit_that_fails_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    with open_output(find_destination(str(path), [], force=False), LAYOUT) as output:
        output.write(make_rows(3))
        path.mkdir()  # what the file can't be renamed onto
        with pytest.raises(OutputError, match="no vectors were written"):
            output.commit("{}")
    assert content(tmp_path) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_writer_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    impossible: Any = "float99"
    destination = find_destination(str(tmp_path / f"v{suffix}"), [], force=False)
    with pytest.raises((AttributeError, TypeError)):
        open_output(destination, replace(LAYOUT, dtype=impossible)).__enter__()
    assert content(tmp_path) == {}


def test_a_folder_that_vanished_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    destination = find_destination(str(tmp_path / "d" / "v.npy"), [], force=False)
    (tmp_path / "d").rmdir()
    with pytest.raises(OutputError, match="no vectors were written"):
        open_output(destination, LAYOUT).__enter__()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_shorter_rerun_replaces_the_file_whole(tmp_path: Path, suffix: str) -> None:
    path, fresh = tmp_path / f"v{suffix}", tmp_path / f"fresh{suffix}"
    write(path, make_rows(1000))
    write(path, make_rows(10), force=True)
    write(fresh, make_rows(10))
    assert path.read_bytes() == fresh.read_bytes()


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_get_the_mode_that_the_umask_leaves(tmp_path: Path, suffix: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / f"v{suffix}", make_rows(1))
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
    write(link, make_rows(3), force=exists)
    assert link.is_symlink()
    assert link.readlink() == target
    np.testing.assert_array_equal(read_vectors(target), make_rows(3).vectors["embedding"])


def test_a_dangling_link_into_a_missing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.npy").symlink_to(tmp_path / "no" / "real.npy")
    assert "folder doesn't exist" in refusal(tmp_path / "v.npy")


def test_the_sidecar_of_an_npy_file_holds_the_provenance(tmp_path: Path) -> None:
    write(tmp_path / "v.npy", make_rows(1), '{"rows": 1}')
    assert (tmp_path / "v.npy.json").read_text(encoding="utf-8") == '{"rows": 1}\n'


OTHER_RUN = """
import sys
from bertpool.output.destination import AtomicFile
from pathlib import Path
file = AtomicFile(Path(sys.argv[1]))
file.stream.write(b"other")
file.commit()
"""


def test_of_two_runs_at_once_the_second_doesnt_replace_the_firsts_file(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    with open_output(find_destination(str(path), [], force=False), LAYOUT) as output:
        output.write(make_rows(7))
        subprocess.run([sys.executable, "-c", OTHER_RUN, path], check=True)
        with pytest.raises(OutputError, match="exists"):
            output.commit("{}")
    assert content(tmp_path) == {"v.parquet": b"other"}


def test_of_two_runs_at_once_under_force_the_last_is_there_whole(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    with open_output(find_destination(str(path), [], force=True), LAYOUT) as output:
        output.write(make_rows(7))
        subprocess.run([sys.executable, "-c", OTHER_RUN, path], check=True)
        assert path.read_bytes() == b"other"
        output.commit("{}")
    assert len(read_vectors(path)) == 7
    assert set(content(tmp_path)) == {"v.parquet"}


def test_the_leftover_of_a_killed_process_of_the_same_id_is_no_obstacle(tmp_path: Path) -> None:
    # In a container every run may have the same process id.
    killed = AtomicFile(tmp_path / "v.npy")
    killed.stream.write(b"half")
    killed.stream.close()
    write(tmp_path / "v.npy", make_rows(3))
    assert len(read_vectors(tmp_path / "v.npy")) == 3


def test_a_small_file_is_written_whole(tmp_path: Path) -> None:
    write_atomic(tmp_path / "r.json", "{é}\n")
    assert content(tmp_path) == {"r.json": "{é}\n".encode()}


def test_a_small_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_atomic(tmp_path / "r.json", "old")
    with files_limited_to(10), pytest.raises(OutputError, match="too large"):
        write_atomic(tmp_path / "r.json", "x" * 1000)
    assert content(tmp_path) == {"r.json": b"old"}
