from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bertpool.errors import OutputError
from bertpool.output.atomic import AtomicFile, mapped_errors, resolved, write_atomic
from faults import files_limited_to
from rows import content

OTHER_RUN = """
import sys
from bertpool.output.atomic import AtomicFile
from pathlib import Path
file = AtomicFile(Path(sys.argv[1]))
file.stream.write(b"other")
file.finish()
file.commit()
"""


def written(path: Path, text: bytes, *, replace: bool = True) -> AtomicFile:
    file = AtomicFile(path, replace=replace)
    file.stream.write(text)
    file.finish()
    return file


def test_before_the_commit_only_a_hidden_file_is_there(tmp_path: Path) -> None:
    file = written(tmp_path / "v", b"x")
    (partial,) = tmp_path.iterdir()
    assert partial.name.startswith(".v.")
    file.commit()
    assert content(tmp_path) == {"v": b"x"}


def test_a_file_that_is_never_written_to_makes_nothing(tmp_path: Path) -> None:
    AtomicFile(tmp_path / "v").discard()
    assert content(tmp_path) == {}


def test_what_is_discarded_is_gone(tmp_path: Path) -> None:
    written(tmp_path / "v", b"x").discard()
    assert content(tmp_path) == {}


def test_a_discard_after_the_commit_changes_nothing(tmp_path: Path) -> None:
    for replace in (True, False):
        path = tmp_path / str(replace)
        file = written(path, b"x", replace=replace)
        file.commit()
        file.discard()
        assert path.read_bytes() == b"x"
    assert len(content(tmp_path)) == 2


def test_it_grows_in_the_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    file = AtomicFile(tmp_path / "v", folder=tmp_path / "parts")
    file.stream.write(b"x")
    file.finish()
    assert [path.parent.name for path in tmp_path.rglob("*") if path.is_file()] == ["parts"]
    file.commit()
    assert content(tmp_path) == {"v": b"x"}


def test_what_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "v"
    file = written(path, b"mine", replace=False)
    subprocess.run([sys.executable, "-c", OTHER_RUN, path], check=True)
    with pytest.raises(FileExistsError):
        file.commit()
    file.discard()
    assert content(tmp_path) == {"v": b"other"}


def test_what_appeared_meanwhile_is_replaced_whole_where_that_was_asked_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "v"
    file = written(path, b"mine")
    subprocess.run([sys.executable, "-c", OTHER_RUN, path], check=True)
    assert path.read_bytes() == b"other"
    file.commit()
    assert content(tmp_path) == {"v": b"mine"}


@pytest.mark.parametrize("replace", [True, False])
def test_an_old_file_is_removed_only_where_it_may_be_replaced(
    tmp_path: Path, replace: bool
) -> None:
    path = tmp_path / "v"
    path.write_bytes(b"old")
    AtomicFile(path, replace=replace).remove_old()
    assert path.exists() is not replace


def test_removing_an_old_file_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    AtomicFile(tmp_path / "v").remove_old()


def test_the_leftover_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    # In a container every run may have the same process id.
    killed = AtomicFile(tmp_path / "v")
    killed.stream.write(b"half")
    killed.stream.close()
    written(tmp_path / "v", b"whole").commit()
    assert (tmp_path / "v").read_bytes() == b"whole"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_file_gets_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        written(tmp_path / "v", b"x").commit()
    finally:
        os.umask(before)
    assert (tmp_path / "v").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_a_name_as_long_as_the_file_system_allows_is_written(tmp_path: Path, letter: str) -> None:
    name = letter * (255 // len(letter.encode()))
    written(tmp_path / name, b"x").commit()
    assert content(tmp_path) == {name: b"x"}


def test_a_link_at_the_path_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "real", tmp_path / "v"
    link.symlink_to(target)
    written(link, b"x").commit()
    assert link.readlink() == target
    assert target.read_bytes() == b"x"


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        resolved(tmp_path / "a")


def test_a_small_file_is_written_whole(tmp_path: Path) -> None:
    write_atomic(tmp_path / "r.json", "{é}\n")
    assert content(tmp_path) == {"r.json": "{é}\n".encode()}


def test_a_small_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_atomic(tmp_path / "r.json", "old")
    with files_limited_to(10), pytest.raises(OutputError, match="too large"):
        write_atomic(tmp_path / "r.json", "x" * 1000)
    assert content(tmp_path) == {"r.json": b"old"}


def test_an_error_of_the_operating_system_becomes_one_line_about_the_path() -> None:
    with pytest.raises(OutputError) as caught, mapped_errors(Path("v"), "; so it is"):
        Path("/no/such/file").read_bytes()
    assert str(caught.value) == "v: No such file or directory; so it is"
    assert caught.value.exit_code == 1


def test_any_other_error_stays_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), mapped_errors(Path("v")):
        raise ZeroDivisionError
