from __future__ import annotations

import contextlib
import os
import pty
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bertpool.errors import OutputError
from bertpool.output.destination import Destination, check_target, find_destination
from bertpool.sharding import Shard
from faults import without_privilege
from rows import FORMATS, content

SUFFIXES = [f".{name}" for name in FORMATS]
SIDECARS = {"npy", "jsonl"}


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


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """Put a terminal in stdout's place."""
    before = os.dup(1)
    master, slave = pty.openpty()
    os.dup2(slave, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        for descriptor in (before, master, slave):
            os.close(descriptor)


def find(
    output: Path | str | None,
    *inputs: Path | str,
    columns: tuple[str, ...] = ("embedding",),
    **options: Any,
) -> Destination:
    name = None if output is None else str(output)
    return find_destination(name, [str(one) for one in inputs], columns=columns, **options)


def refusal(output: Path | str | None, *inputs: Path | str, **options: Any) -> str:
    with pytest.raises(OutputError) as caught:
        find(output, *inputs, **options)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("notes.txt", "notes.parquet"),
        ("notes", "notes.parquet"),
        ("notes.v2.txt", "notes.v2.parquet"),
        (".hidden", ".hidden.parquet"),
        ("a b é.txt", "a b é.parquet"),
        ("notes.txt.gz", "notes.parquet"),
        ("notes.jsonl.ZST", "notes.parquet"),
        ("notes.csv.bz2", "notes.parquet"),
        ("notes.xz", "notes.parquet"),
        ("x.parquet", "x.vectors.parquet"),
        ("x.PARQUET", "x.vectors.parquet"),
        ("d", "d.parquet"),
        ("d/", "d.parquet"),
        ("d/../notes.txt", "notes.parquet"),
    ],
)
def test_without_a_name_the_output_lies_beside_the_input(
    tmp_path: Path, name: str, beside: str
) -> None:
    (tmp_path / "d").mkdir()
    assert find(None, f"{tmp_path}/{name}").path == tmp_path / beside


@pytest.mark.parametrize("inputs", [["a.txt", "b.txt"], ["-"], ["a.txt", "-"]])
def test_several_inputs_or_stdin_need_a_named_output(inputs: list[str]) -> None:
    assert "--output" in refusal(None, *inputs)


@pytest.mark.parametrize("name", ["vec", "vec.bin", "vec.npz", ".parquet", "vec.parquet.gz"])
def test_an_unknown_suffix_is_refused_and_the_known_ones_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(name)
    assert ".parquet" in message
    assert ".npy" in message


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_output_is_refused_and_force_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.touch()
    assert "--force" in refusal(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_output_passes_under_force(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"v{suffix}"
    path.touch()
    assert find(path, force=True).path == path


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
        find(tmp_path / "v.npy", tmp_path / "V.npy")


def test_checking_a_target_writes_nothing(tmp_path: Path) -> None:
    check_target(tmp_path / "v.npy", [], force=False)
    assert content(tmp_path) == {}


@pytest.mark.parametrize("name", [".", "..", "./", "d/..", "d/../..", "/"])
def test_a_directory_without_a_name_of_its_own_needs_a_named_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "--output" in refusal(None, name)


def test_the_default_output_is_refused_where_it_exists(source: Path) -> None:
    source.with_suffix(".parquet").touch()
    assert "notes.parquet: exists" in refusal(None, source)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("way", ["straight", "deeper", "dots", "link", "input is a link"])
def test_an_output_inside_an_input_directory_is_refused(
    tmp_path: Path, way: str, force: bool
) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "link").symlink_to("d")
    output = {
        "straight": tmp_path / "d" / "v.parquet",
        "deeper": tmp_path / "d" / "e" / "v.parquet",
        "dots": tmp_path / "d" / ".." / "d" / "v.parquet",
        "link": tmp_path / "link" / "v.parquet",
        "input is a link": tmp_path / "d" / "v.parquet",
    }[way]
    folder = tmp_path / ("link" if way == "input is a link" else "d")
    assert "is inside the input" in refusal(output, folder, force=force)


def test_a_link_outside_that_points_into_an_input_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "v.parquet").symlink_to(tmp_path / "d" / "v.parquet")
    assert "is inside the input" in refusal(tmp_path / "v.parquet", tmp_path / "d")


def test_an_output_beside_an_input_directory_with_the_same_start_passes(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    path = tmp_path / "d.parquet"
    assert find(path, tmp_path / "d").path == path


def test_a_name_too_long_for_the_rejects_alone_is_refused(tmp_path: Path) -> None:
    name = "x" * 247 + ".parquet"
    assert find(tmp_path / name).path == tmp_path / name
    assert "too long" in refusal(tmp_path / name, rejects=True).lower()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_overrules_the_suffix(tmp_path: Path, name: Any) -> None:
    found = find(tmp_path / "v.bin", output_format=name)
    assert found.format_name == name
    assert found.path == tmp_path / "v.bin"


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_a_sidecar_where_the_file_cannot_hold_the_provenance(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"v.{name}"
    sidecar = [tmp_path / f"v.{name}.json"] if name in SIDECARS else []
    assert list(find(path).files) == [path, *sidecar]


def test_npy_gets_a_file_and_a_sidecar_for_each_of_several_columns(tmp_path: Path) -> None:
    found = find(tmp_path / "v.npy", columns=("mean", "cls"))
    names = ["v.mean.npy", "v.mean.npy.json", "v.cls.npy", "v.cls.npy.json"]
    assert [file.name for file in found.files] == names
    assert [target.column for target in found.targets] == ["mean", "cls"]


@pytest.mark.parametrize("name", ["v.parquet", "v.arrow"])
def test_other_formats_hold_several_columns_in_one_file(tmp_path: Path, name: str) -> None:
    (target,) = find(tmp_path / name, columns=("mean", "cls")).targets
    assert target.path == tmp_path / name
    assert target.column is None


@pytest.mark.parametrize("taken", ["v.cls.npy", "v.mean.npy.json"])
def test_a_file_of_one_of_several_columns_that_exists_is_refused(
    tmp_path: Path, taken: str
) -> None:
    (tmp_path / taken).touch()
    assert f"{taken}: exists" in refusal(tmp_path / "v.npy", columns=("mean", "cls"))


def test_a_shard_goes_into_the_files_name(tmp_path: Path) -> None:
    found = find(tmp_path / "v.npy", shard=Shard(2, 3))
    names = ["v.part-2-of-3.npy", "v.part-2-of-3.npy.json"]
    assert [file.name for file in found.files] == names


def test_rejects_stand_beside_the_output_under_its_name(tmp_path: Path) -> None:
    found = find(tmp_path / "v.parquet", rejects=True)
    assert found.rejects == tmp_path / "v.parquet.rejects.jsonl"
    assert found.rejects in found.files


def test_rejects_that_exist_are_refused(tmp_path: Path) -> None:
    (tmp_path / "v.parquet.rejects.jsonl").touch()
    assert "rejects.jsonl: exists" in refusal(tmp_path / "v.parquet", rejects=True)


def test_rejects_are_refused_where_rows_could_not_be_told_apart_any_more(tmp_path: Path) -> None:
    assert "--on-error reject" in refusal(tmp_path / "v.npy", rejects=True)


def test_an_existing_output_passes_under_resume_which_may_find_it_finished(
    tmp_path: Path,
) -> None:
    (tmp_path / "v.parquet").touch()
    found = find(tmp_path / "v.parquet", resume=True)
    assert not found.replace


@pytest.mark.parametrize("resume", [False, True])
def test_a_directory_is_refused_under_resume_too(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "v.parquet").mkdir()
    assert "is a directory" in refusal(tmp_path / "v.parquet", resume=resume)


def test_finished_windows_are_kept_beside_the_output(tmp_path: Path) -> None:
    assert find(tmp_path / "v.npy").folder == tmp_path / "v.npy.partial"


def test_behind_a_link_finished_windows_are_kept_where_the_file_will_be(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "v.npy").symlink_to(tmp_path / "store" / "real.npy")
    folder = find(tmp_path / "v.npy").folder
    assert folder == (tmp_path / "store").resolve() / "real.npy.partial"


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_the_folder_of_a_long_name_has_a_short_one_of_its_own(tmp_path: Path, letter: str) -> None:
    length = 246 // len(letter.encode())
    one, two = (find(tmp_path / f"{letter * length}{i}.parquet").folder for i in (1, 2))
    assert one != two
    one.mkdir()
    two.mkdir()


@pytest.mark.parametrize("name", [None, *FORMATS])
def test_stdout_is_no_file_and_jsonl_unless_told_otherwise(name: Any) -> None:
    found = find("-", "-", output_format=name)
    assert found.format_name == name or (name is None and found.format_name == "jsonl")
    assert found.files == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rejects": True}, "--on-error reject"),
        ({"resume": True}, "--resume"),
        ({"output_format": "npy", "columns": ("mean", "cls")}, "mean, cls"),
    ],
    ids=["rejects", "resume", "two npy columns"],
)
def test_what_stdout_cannot_do_is_refused_by_name(options: Any, named: str) -> None:
    assert named in refusal("-", **options)


@pytest.mark.parametrize("name", ["parquet", "arrow", "jsonl"])
def test_stdout_holds_several_columns_where_the_format_does(name: Any) -> None:
    assert find("-", output_format=name, columns=("mean", "cls")).format_name == name


@pytest.mark.parametrize("name", ["parquet", "npy", "arrow"])
def test_a_binary_format_on_a_terminal_is_refused(name: Any) -> None:
    with terminal():
        assert "terminal" in refusal("-", output_format=name)


def test_jsonl_on_a_terminal_passes() -> None:
    with terminal():
        assert find("-").format_name == "jsonl"


def test_a_closed_stdout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert "closed" in refusal("-")
