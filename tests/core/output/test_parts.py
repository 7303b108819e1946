from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bertpool.corpus.corpus import Window
from bertpool.errors import Kept, OutputError
from bertpool.output.destination import find_destination
from bertpool.output.finished import write_output
from bertpool.output.parts import PartedOutput, read_metadata, window_digest
from bertpool.output.rejects import RejectsFile
from bertpool.output.rows import EmbeddedRows
from faults import files_limited_to
from rows import FORMATS, KEPT, LAYOUT, SETTINGS, content, make_rows, portions
from vectors import read_vectors

LAYOUT_KEPT = replace(LAYOUT, extra=KEPT.schema)
SIZES = [3, 1, 5]


def parted(path: Path, **options: Any) -> PartedOutput:
    """Name an output, without taking its folder."""
    return PartedOutput(find_destination(str(path), [], columns=LAYOUT.columns, **options))


@contextlib.contextmanager
def opened(path: Path, *, resume: bool = False, force: bool = False) -> Iterator[PartedOutput]:
    output = parted(path, resume=resume, force=force)
    output.open(resume=resume, force=force)
    try:
        yield output
    finally:
        output.keep()


def windows() -> list[EmbeddedRows]:
    extra = pa.concat_tables([KEPT] * 3)
    return list(portions(make_rows(9, extra=extra), SIZES))


def add(output: PartedOutput, *indices: int, last: int | None = None) -> None:
    output.check(SETTINGS)
    for index in indices:
        rows = windows()[index]
        counts = {"rows": len(rows)}
        output.add(index, rows, LAYOUT_KEPT, f"digest {index}", counts, last=index == last)


def leave_parts(path: Path, *indices: int) -> Path:
    """Leave the windows of an interrupted run, and return their folder."""
    with opened(path) as output:
        add(output, *(indices or (0, 1)))
    return output.folder


def refusal(path: Path, *, resume: bool = False, force: bool = False) -> str:
    with pytest.raises(OutputError) as caught:
        parted(path, resume=resume, force=force).open(resume=resume, force=force)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "v.parquet"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("last", [2, None], ids=["last in memory", "all on disk"])
def test_windows_join_to_the_file_that_they_are_of(
    tmp_path: Path, name: str, last: int | None
) -> None:
    with opened(tmp_path / f"v.{name}") as output:
        add(output, 0, 1, 2, last=last)
        output.finish(3, LAYOUT_KEPT, "{}", None)
        output.remove()
    whole = find_destination(str(tmp_path / f"whole.{name}"), [], columns=LAYOUT.columns)
    write_output(whole, LAYOUT_KEPT, "{}", windows())
    assert (tmp_path / f"v.{name}").read_bytes() == (tmp_path / f"whole.{name}").read_bytes()


def test_until_the_end_everything_is_in_the_folder(path: Path) -> None:
    with opened(path) as output:
        add(output, 0, 1)
        assert {file.name for file in path.parent.iterdir()} == {"v.parquet.partial"}
        assert output.folder == path.with_name("v.parquet.partial")


def test_a_finished_output_stands_alone(path: Path) -> None:
    with opened(path) as output:
        add(output, 0, 1, 2, last=2)
        output.finish(3, LAYOUT_KEPT, "{}", None)
        output.remove()
    assert set(content(path.parent)) == {"v.parquet"}
    assert not output.folder.exists()


def test_of_an_input_without_texts_an_empty_file_is_made(path: Path) -> None:
    with opened(path) as output:
        output.finish(0, LAYOUT, "{}", None)
        output.remove()
    assert read_vectors(path).shape == (0, 8)


def test_a_run_without_a_finished_window_leaves_nothing(path: Path) -> None:
    output = parted(path)
    output.open(resume=False, force=False)
    add(output, 0, last=0)
    assert output.keep() is None
    assert list(path.parent.iterdir()) == []


def test_what_is_kept_is_said(path: Path) -> None:
    output = parted(path)
    output.open(resume=False, force=False)
    add(output, 0, 1)
    assert output.keep() == Kept(4, str(output.folder))


def test_what_earlier_runs_kept_is_counted_too(path: Path) -> None:
    leave_parts(path)
    output = parted(path, resume=True)
    assert output.open(resume=True, force=False) is True
    add(output, 2)
    assert output.keep() == Kept(9, str(output.folder))


def test_without_parts_there_is_nothing_to_go_on_from(path: Path) -> None:
    output = parted(path)
    assert output.open(resume=True, force=False) is False
    output.keep()


def test_a_part_is_found_with_its_counts(path: Path) -> None:
    leave_parts(path)
    with opened(path, resume=True) as output:
        output.check(SETTINGS)
        part = output.find(1, "digest 1")
        assert part is not None
        assert (part.index, part.counts) == (1, {"rows": 1})
        assert output.find(2, "digest 2") is None


def test_a_part_of_another_input_is_refused_and_its_window_named(path: Path) -> None:
    leave_parts(path)
    with opened(path, resume=True) as output:
        output.check(SETTINGS)
        with pytest.raises(OutputError, match="window 2") as caught:
            output.find(1, "another digest")
    assert "--force" in str(caught.value)


def test_parts_stay_when_the_input_is_refused(path: Path) -> None:
    folder = leave_parts(path)
    before = content(folder)
    with opened(path, resume=True) as output, pytest.raises(OutputError):
        output.find(0, "another digest")
    assert content(folder) == before


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_that_goes_on_ends_with_the_same_bytes(tmp_path: Path, name: str) -> None:
    leave_parts(tmp_path / f"v.{name}")
    with opened(tmp_path / f"v.{name}", resume=True) as output:
        add(output, 2, last=2)
        output.finish(3, LAYOUT_KEPT, "{}", None)
        output.remove()
    whole = find_destination(str(tmp_path / f"whole.{name}"), [], columns=LAYOUT.columns)
    write_output(whole, LAYOUT_KEPT, "{}", windows())
    assert (tmp_path / f"v.{name}").read_bytes() == (tmp_path / f"whole.{name}").read_bytes()


def test_parts_are_refused_where_nothing_says_what_to_do_with_them(path: Path) -> None:
    folder = leave_parts(path)
    before = content(folder)
    message = refusal(path)
    assert "finished windows (2)" in message
    assert "--resume" in message
    assert "--force" in message
    assert content(folder) == before


def test_force_clears_parts_and_settings(path: Path) -> None:
    leave_parts(path)
    with opened(path, force=True) as output:
        assert {file.name for file in output.folder.iterdir()} == {"lock"}
        output.check(replace(SETTINGS, max_length=32))
        assert output.find(0, "digest 0") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_length", 32), ("strategies", ("cls",)), ("weights_sha256", "x"), ("stride", 4)],
)
def test_other_settings_are_refused_by_name(path: Path, name: str, value: Any) -> None:
    leave_parts(path)
    other = replace(SETTINGS, **{name: value})
    with opened(path, resume=True) as output, pytest.raises(OutputError) as caught:
        output.check(other)
    assert f"was made with {name} " in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_same_settings_pass(path: Path) -> None:
    leave_parts(path)
    with opened(path, resume=True) as output:
        output.check(replace(SETTINGS))
        output.check(replace(SETTINGS, max_length=1))  # once a run is enough


def test_the_settings_of_a_run_that_finished_no_window_are_forgotten(path: Path) -> None:
    folder = path.with_name("v.parquet.partial")
    folder.mkdir()
    (folder / "manifest.json").write_text('{"max_length": 1}')
    with opened(path) as output:
        output.check(SETTINGS)


def test_broken_settings_are_an_error_of_one_line(path: Path) -> None:
    folder = leave_parts(path)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(OutputError, match="broken"), opened(path, resume=True):
        pass


def test_windows_of_a_run_that_replaces_say_so_to_the_run_that_goes_on(path: Path) -> None:
    leave_parts(path)
    with opened(path, resume=True) as output:
        assert not output.replaces
    manifest = path.with_name(path.name + ".partial") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"replaces": false', '"replaces": true'))
    with opened(path, resume=True) as output:
        assert output.replaces


def test_a_folder_that_is_removed_loses_its_last_windows_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = leave_parts(path)
    unlink, removed = Path.unlink, []

    def noted(self: Path, missing_ok: bool = False) -> None:
        removed.append(self.name)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    with opened(path, resume=True) as output:
        output.remove()
    assert [name for name in removed if name != "shards.json"] == [
        "000001.arrow", "000000.arrow", "manifest.json", "lock",
    ]  # fmt: skip
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["empty", "half", "other", "no metadata"])
def test_a_broken_part_is_refused_by_name(path: Path, damage: str) -> None:
    folder = leave_parts(path)
    part = folder / "000001.arrow"
    data = part.read_bytes()
    if damage == "no metadata":
        table = pa.table({"x": [1]})
        with part.open("wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)
    else:
        part.write_bytes({"empty": b"", "half": data[: len(data) // 2], "other": b"x" * 99}[damage])
    message = refusal(path, resume=True)
    assert "000001.arrow: broken" in message
    assert "--force" in message


def test_after_a_refusal_the_folder_is_free_while_the_error_lives(path: Path) -> None:
    folder = leave_parts(path)
    (folder / "000001.arrow").write_bytes(b"x")
    for resume in (True, False):
        output = parted(path, resume=resume)
        with pytest.raises(OutputError):
            output.open(resume=resume, force=False)
    with opened(path, force=True):
        pass


def test_what_a_killed_run_left_half_written_is_removed(path: Path) -> None:
    folder = leave_parts(path)
    for name in ("000002.new", "manifest.new", "v.parquet.0a1b2c3d.joined"):
        (folder / name).write_bytes(b"half")
    with opened(path, resume=True):
        names = {file.name for file in folder.iterdir()}
    assert names == {"lock", "manifest.json", "000000.arrow", "000001.arrow"}


KILLED = """
import os, signal, sys
sys.path.append(sys.argv[2])
from pathlib import Path
from bertpool.output.destination import find_destination
from bertpool.output.parts import PartedOutput
from rows import LAYOUT, SETTINGS, make_rows
output = PartedOutput(find_destination(sys.argv[1], [], columns=LAYOUT.columns))
output.open(resume=False, force=False)
output.check(SETTINGS)
output.add(0, make_rows(3), LAYOUT, "digest 0", {"rows": 3}, last=False)
def rows():
    yield make_rows(3)
    os.kill(os.getpid(), signal.SIGKILL)
output._rows = lambda count: rows()
output.finish(2, LAYOUT, "{}", None)
"""


def in_other_process(code: str, path: Path) -> list[str]:
    return [sys.executable, "-c", code, str(path), str(Path(__file__).parents[2])]


def test_after_a_kill_the_lock_is_free_and_the_parts_are_whole(path: Path) -> None:
    done = subprocess.run(in_other_process(KILLED, path), check=False)
    assert done.returncode == -signal.SIGKILL
    folder = path.with_name("v.parquet.partial")
    assert any(file.suffix == ".joined" for file in folder.iterdir())
    with opened(path, resume=True) as output:
        assert not any(file.suffix == ".joined" for file in folder.iterdir())
        output.check(SETTINGS)
        assert output.find(0, "digest 0") is not None
    assert not path.exists()


HOLDS = """
import sys
from bertpool.output.destination import find_destination
from bertpool.output.parts import PartedOutput
output = PartedOutput(find_destination(sys.argv[1], [], columns=("embedding",)))
output.open(resume=False, force=False)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("force", [False, True])
def test_while_another_process_writes_an_output_it_is_refused(path: Path, force: bool) -> None:
    with subprocess.Popen(
        in_other_process(HOLDS, path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert "another run is writing it" in refusal(path, force=force)
        other.communicate()
    with opened(path):
        pass


def test_while_another_run_of_this_process_writes_an_output_it_is_refused(path: Path) -> None:
    with opened(path) as output:
        add(output, 0)
        before = content(output.folder)
        assert "another run is writing it" in refusal(path, force=True)
        assert content(output.folder) == before


def test_behind_a_link_the_output_is_the_same(path: Path) -> None:
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    with opened(path):
        assert "another run is writing it" in refusal(link)


def test_a_folder_that_another_run_has_taken_since_is_left_to_it(path: Path) -> None:
    first = parted(path)
    first.open(resume=False, force=False)
    first.remove()
    with opened(path) as second:
        add(second, 0)
        first.remove()
        first.keep()
        assert (second.folder / "000000.arrow").exists()


def test_runs_that_start_as_others_end_never_share_a_folder(path: Path) -> None:
    inside, seen, errors = [0], [0], []

    def work() -> None:
        for _ in range(150):
            output = parted(path)
            try:
                output.open(resume=False, force=False)
            except OutputError as error:
                if "another run" not in str(error):
                    errors.append(str(error))
                continue
            inside[0] += 1
            seen[0] = max(seen[0], inside[0])
            (output.folder / "manifest.json").write_bytes(b"")
            if not (output.folder / "manifest.json").exists():
                errors.append("the folder is gone")
            inside[0] -= 1
            output.remove()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert seen == [1]
    assert list(path.parent.iterdir()) == []


def test_the_folder_of_a_long_name_takes_parts(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 120 + ".parquet")
    folder = leave_parts(path)
    assert folder.is_dir()
    with opened(path, resume=True) as output:
        add(output, 2, last=2)
        output.finish(3, LAYOUT_KEPT, "{}", None)
        output.remove()
    assert set(content(tmp_path)) == {path.name}


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(path: Path) -> None:
    path.with_name("v.parquet.partial").write_text("a file")
    assert "v.parquet.partial: " in refusal(path)


def test_a_dangling_link_in_the_folders_place_is_an_error_of_one_line(path: Path) -> None:
    path.with_name("v.parquet.partial").symlink_to("nowhere")
    assert "v.parquet.partial: isn't bertpool's" in refusal(path)


def test_a_window_that_fills_the_disk_is_an_error_and_the_others_stay(path: Path) -> None:
    rows = make_rows(20_000)
    with opened(path) as output:
        add(output, 0)
        with files_limited_to(100_000), pytest.raises(OutputError, match="too large"):
            output.add(1, rows, LAYOUT, "", {}, last=False)
    assert {file.name for file in output.folder.iterdir()} == {
        "lock",
        "manifest.json",
        "000000.arrow",
    }


def test_a_disk_that_fills_while_windows_are_joined_leaves_them(path: Path) -> None:
    with opened(path) as output:
        add(output, 0, 1, 2)
        with files_limited_to(1000), pytest.raises(OutputError, match="no output was written"):
            output.finish(3, LAYOUT_KEPT, "{}", None)
    assert {file.suffix for file in output.folder.iterdir()} == {"", ".json", ".arrow"}
    assert not path.exists()


def test_an_output_that_appeared_meanwhile_is_not_replaced(path: Path) -> None:
    with opened(path) as output:
        add(output, 0)
        path.write_bytes(b"other")
        with pytest.raises(OutputError, match="exists"):
            output.finish(1, LAYOUT_KEPT, "{}", None)
    assert path.read_bytes() == b"other"


def test_going_on_replaces_what_stands_at_the_path_already(path: Path) -> None:
    # A run that is killed between two files of its output has put the first in place.
    leave_parts(path, 0)
    path.write_bytes(b"its own")
    with opened(path, resume=True) as output:
        output.check(SETTINGS)
        output.finish(1, LAYOUT_KEPT, "{}", None)
        output.remove()
    assert len(read_vectors(path)) == 3


def test_rejects_appear_with_the_output(path: Path) -> None:
    with opened(path) as output:
        rejects = RejectsFile(
            path.with_name("v.parquet.rejects.jsonl"), replace=False, folder=output.folder
        )
        add(output, 0, last=0)
        output.finish(1, LAYOUT_KEPT, "{}", rejects)
        output.remove()
    assert set(content(path.parent)) == {"v.parquet"}


def test_a_part_says_what_it_is_of(path: Path) -> None:
    folder = leave_parts(path)
    found = read_metadata(folder / "000001.arrow")
    assert found[b"window"] == b"digest 1"
    assert json.loads(found[b"counts"]) == {"rows": 1}
    assert found[b"rows"] == b"1"


def test_the_settings_are_written_down_in_full(path: Path) -> None:
    folder = leave_parts(path)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["fingerprint"] == SETTINGS.fingerprint()
    assert manifest["max_length"] == 64


WINDOW = Window(
    texts=["a", "bc"],
    pairs=["x", ""],
    rows=[0, 1],
    sources=["s", "t"],
    lines=[1, 2],
    extra=KEPT.slice(0, 2),
    rejects=[],
    bytes_read=10,
)


def test_the_hash_of_a_window_is_that_of_an_equal_one() -> None:
    again = replace(WINDOW, texts=list(WINDOW.texts), extra=pa.concat_tables([KEPT]).slice(0, 2))
    assert window_digest(again) == window_digest(WINDOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": ["ab", "c"]},
        {"texts": ["a", "bd"]},
        {"pairs": ["", "x"]},
        {"pairs": None},
        {"sources": ["st", ""]},
        {"rows": [0, 2]},
        {"lines": [1, 3]},
        {"extra": KEPT.slice(1, 2)},
        {"extra": None},
        {"texts": ["a", "b\udcff"]},
    ],
    ids=str,
)
def test_whatever_of_a_window_the_output_holds_changes_its_hash(changes: dict[str, Any]) -> None:
    assert window_digest(replace(WINDOW, **changes)) != window_digest(WINDOW)


@pytest.mark.parametrize("name", KEPT.column_names)
def test_the_values_of_every_kind_of_kept_column_are_hashed(name: str) -> None:
    digests = {
        window_digest(replace(WINDOW, extra=KEPT.select([name]).take([i, i]))) for i in range(3)
    }
    assert len(digests) == 3


def test_times_that_differ_by_a_nanosecond_differ_in_their_hash() -> None:
    extras = [pa.table({"x": pa.array([i, i], pa.timestamp("ns"))}) for i in (1, 2)]
    one, two = (window_digest(replace(WINDOW, extra=extra)) for extra in extras)
    assert one != two


def test_dates_beyond_pythons_can_be_hashed() -> None:
    extra = pa.table({"x": pa.array([10**7, None], pa.date32())})
    assert window_digest(replace(WINDOW, extra=extra))


def test_progress_through_the_inputs_is_no_part_of_the_hash() -> None:
    assert window_digest(replace(WINDOW, bytes_read=99)) == window_digest(WINDOW)


@pytest.mark.parametrize("kind", ["file", "link", "folder of another's"])
@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_bertpools_is_refused_and_left_alone(
    path: Path, tmp_path: Path, kind: str, force: bool
) -> None:
    folder, other = path.with_name(path.name + ".partial"), tmp_path / "other"
    other.mkdir()
    (other / "keep").write_text("mine")
    if kind == "file":
        folder.write_text("mine")
    elif kind == "link":
        folder.symlink_to(other)
    else:
        other.rename(folder)
    with pytest.raises(OutputError, match="isn't bertpool's") as caught, opened(path, force=force):
        pass
    assert caught.value.exit_code == 2
    kept = {"file": folder, "link": other / "keep", "folder of another's": folder / "keep"}[kind]
    assert kept.read_text() == "mine"
