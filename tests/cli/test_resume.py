"""Runs that end early: what they leave, and that --resume finishes it to the same bytes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bertpool.corpus.corpus import WINDOW_ROWS
from tiny_models import WORDS
from vectors import read_column, read_vectors

Tiny = Callable[[str], Path]
Shell = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., Any]

BERTPOOL = str(Path(sys.executable).with_name("bertpool"))
PATIENCE = 60  # seconds until a process that does nothing is given up
GOOD = ["hello", "the cat", "", "dog", "one two", "hi", "word", "a b x"]
NOT_SHOWN = ("Traceback", "Exception ignored")
suffixes = pytest.mark.parametrize("suffix", [".parquet", ".npy"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parts_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the finished windows, with what would change if one were written again."""
    found = {}
    for path in sorted(folder.glob("*.partial/*.arrow")):
        with contextlib.suppress(FileNotFoundError):  # the run has just finished, and removes them
            found[path.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


# Small windows, in this process


@pytest.fixture
def run(
    bertpool: Run, tiny: Tiny, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Embed in.txt with windows of two rows, with further arguments."""
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 2)

    def invoke(*arguments: object, suffix: str = ".parquet", model: str = "tiny-bert") -> Any:
        command = ("embed", tmp_path / "in.txt", "-m", tiny(model))
        return bertpool(*command, "-o", folder / f"v{suffix}", *arguments)

    return invoke


@pytest.fixture
def unfinished(run: Run, tmp_path: Path, folder: Path) -> Callable[..., dict[str, bytes]]:
    """Leave four windows of an unfinished run, and return what an uninterrupted one gives."""

    def leave(*arguments: object, suffix: str = ".parquet") -> dict[str, bytes]:
        (tmp_path / "in.txt").write_text("\n".join([*GOOD, "last"]))
        assert run(*arguments, suffix=suffix).code == 0
        whole = {path.name: path.read_bytes() for path in folder.iterdir()}
        for path in folder.iterdir():
            path.unlink()
        (tmp_path / "in.txt").write_bytes("\n".join([*GOOD, ""]).encode() + b"\xff")
        assert run(*arguments, suffix=suffix).code == 1
        (tmp_path / "in.txt").write_text("\n".join([*GOOD, "last"]))
        assert names_in(folder) == [f"v{suffix}.partial"]
        assert len(parts_in(folder)) == 4
        return whole

    return leave


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".arrow", ".jsonl"])
def test_a_resumed_run_gives_the_bytes_of_an_uninterrupted_one(
    run: Run, unfinished: Run, folder: Path, suffix: str
) -> None:
    whole = unfinished(suffix=suffix)
    assert run("--resume", suffix=suffix).code == 0
    same = contents(folder) == whole
    assert same, "the bytes differ"


def test_several_strategies_are_resumed_to_the_same_files(
    run: Run, unfinished: Run, folder: Path
) -> None:
    whole = unfinished("-s", "cls,mean", suffix=".npy")
    assert sorted(whole) == ["v.cls.npy", "v.cls.npy.json", "v.mean.npy", "v.mean.npy.json"]
    assert run("-s", "cls,mean", "--resume", suffix=".npy").code == 0
    same = contents(folder) == whole
    assert same, "the bytes differ"


def test_finished_windows_are_not_encoded_again(run: Run, unfinished: Run, folder: Path) -> None:
    unfinished()
    part = folder / "v.parquet.partial" / "000001.arrow"
    with pa.memory_map(str(part)) as source:
        table = pa.ipc.open_file(source).read_all()
    marked = pa.array([[7.0] * 32] * 2, pa.list_(pa.float32(), 32)).cast(
        table.schema.field("embedding").type
    )
    place = table.schema.get_field_index("embedding")
    table = table.set_column(place, table.schema.field("embedding"), marked)
    part.unlink()
    with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert run("--resume").code == 0
    vectors = read_vectors(folder / "v.parquet")
    assert (vectors == 7).all(axis=1).tolist() == [i in (2, 3) for i in range(9)]


def test_a_report_of_a_resumed_run_counts_all_rows(run: Run, unfinished: Run) -> None:
    unfinished()
    ran = run("--resume", "--report", "-")
    report = json.loads(ran.out)
    assert report["rows"] == 9
    assert report["blank"] == 1
    assert report["tokens"] == 9 * 2 + sum(len(text.split()) for text in GOOD) + 1


def test_a_plain_run_does_not_touch_an_unfinished_one(
    run: Run, unfinished: Run, folder: Path
) -> None:
    unfinished()
    before = parts_in(folder)
    ran = run()
    assert ran.code == 2
    assert "holds finished windows (4) of an unfinished run; pass --resume" in ran.err
    assert "--force" in ran.err
    assert parts_in(folder) == before


def test_force_starts_an_unfinished_run_afresh(run: Run, unfinished: Run, folder: Path) -> None:
    unfinished("-s", "cls")
    assert run("--force").code == 0
    assert names_in(folder) == ["v.parquet"]
    assert read_column(folder / "v.parquet", "text") == [*GOOD, "last"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["-s", "cls"], "strategies"),
        (["--layer", "1"], "layers"),
        (["--max-length", "10"], "max_length"),
        (["--no-text"], "text"),
        (["--normalize"], "stages"),
        (["--output-dtype", "float16"], "output_dtype"),
        (["--dtype", "bfloat16"], "dtype"),
        (["--prompt", "the "], "prompt"),
        (["--blank", "skip"], "blank"),
        (["--on-truncate", "window"], "on_truncate"),
        (["--encoding", "latin-1"], "encoding"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_parts_of_other_settings_are_refused_by_the_field_that_differs(
    run: Run, unfinished: Run, folder: Path, arguments: list[str], field: str
) -> None:
    unfinished()
    before = parts_in(folder)
    ran = run("--resume", *arguments)
    assert ran.code == 2
    assert f"was made with {field} " in ran.err
    assert parts_in(folder) == before
    assert run("--resume").code == 0


def test_parts_of_another_model_are_refused(run: Run, unfinished: Run) -> None:
    unfinished()
    ran = run("--resume", model="tiny-bert-deep")
    assert ran.code == 2
    assert 'was made with model "tiny-bert"' in ran.err


def test_what_decides_no_bytes_may_differ_from_run_to_run(
    run: Run, unfinished: Run, folder: Path
) -> None:
    whole = unfinished()
    assert run("--resume", "--threads", 1, "--batch-tokens", 100, "--quiet").code == 0
    same = contents(folder) == whole
    assert same, "the bytes differ"


@pytest.mark.parametrize("row", [0, 7])
def test_parts_of_another_input_are_refused_by_the_window_that_differs(
    run: Run, unfinished: Run, tmp_path: Path, folder: Path, row: int
) -> None:
    unfinished()
    before = parts_in(folder)
    (tmp_path / "in.txt").write_text("\n".join([*GOOD[:row], "other", *GOOD[row + 1 :], "last"]))
    ran = run("--resume")
    assert ran.code == 1
    assert f"they differ in window {row // 2 + 1}" in ran.err
    assert parts_in(folder) == before


def test_resume_without_anything_to_resume_starts_and_says_so(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "in.txt").write_text("hello")
    ran = run("--resume")
    assert ran.code == 0
    assert "note: nothing to resume: starting from the first row" in ran.err
    assert names_in(folder) == ["v.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".arrow", ".jsonl"])
def test_resume_of_a_finished_output_ends_at_once(
    run: Run, tmp_path: Path, folder: Path, suffix: str
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(GOOD))
    assert run(suffix=suffix).code == 0
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    ran = run("--resume", suffix=suffix)
    assert ran.code == 0
    assert ran.err == f"{folder}/v{suffix}: is finished: 8 rows; nothing to do\n"
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_one_finished_row_is_not_called_rows(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("hello")
    assert run().code == 0
    assert "is finished: 1 row; nothing to do" in run("--resume").err


@suffixes
def test_resume_never_replaces_an_output_of_other_settings(
    run: Run, tmp_path: Path, folder: Path, suffix: str
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(GOOD))
    assert run(suffix=suffix).code == 0
    before = contents(folder)
    ran = run("--resume", "-s", "max", suffix=suffix)
    assert ran.code == 1
    assert 'made with strategies ["mean"], and this run has ["max"]' in ran.err
    assert contents(folder) == before


def test_resume_never_replaces_an_output_of_another_input(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(GOOD))
    assert run().code == 0
    before = contents(folder)
    (tmp_path / "in.txt").write_text("\n".join(GOOD[1:]))
    ran = run("--resume")
    assert ran.code == 1
    assert "another input" in ran.err
    assert contents(folder) == before


def test_resume_never_replaces_a_file_that_bertpool_did_not_make(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "in.txt").write_text("hello")
    (folder / "v.parquet").write_text("mine")
    assert run("--resume").code == 1
    assert contents(folder) == {"v.parquet": b"mine"}


def test_a_half_written_window_is_removed_and_done_again(
    run: Run, unfinished: Run, folder: Path
) -> None:
    whole = unfinished()
    partial = folder / "v.parquet.partial"
    content = (partial / "000003.arrow").read_bytes()
    (partial / "000003.arrow").unlink()
    (partial / "000003.new").write_bytes(content[:100])
    (partial / "v.parquet.0123.joined").write_bytes(b"half")
    assert run("--resume").code == 0
    same = contents(folder) == whole
    assert same, "the bytes differ"


def test_a_window_missing_between_others_is_done_again(
    run: Run, unfinished: Run, folder: Path
) -> None:
    whole = unfinished()
    (folder / "v.parquet.partial" / "000001.arrow").unlink()
    assert run("--resume").code == 0
    same = contents(folder) == whole
    assert same, "the bytes differ"


@pytest.mark.parametrize(
    "name",
    [
        "000000.arrow",
        "000002.arrow",
        "manifest.json",
    ],
)
def test_a_broken_part_is_an_error_of_one_line(
    run: Run, unfinished: Run, folder: Path, name: str
) -> None:
    unfinished()
    path = folder / "v.parquet.partial" / name
    path.write_bytes(path.read_bytes()[:-40])
    ran = run("--resume")
    assert ran.code in (1, 2)
    assert f"{path}: broken; pass --force to start afresh" in ran.err
    assert run("--force").code == 0


def test_a_run_killed_before_its_windows_were_removed_is_resumed_at_once(
    run: Run, unfinished: Run, folder: Path, tmp_path: Path
) -> None:
    whole = unfinished()
    shutil.copytree(folder / "v.parquet.partial", tmp_path / "copy")
    assert run("--resume").code == 0
    (tmp_path / "copy").rename(folder / "v.parquet.partial")
    ran = run("--resume")
    assert ran.code == 0
    assert "is finished: 9 rows" in ran.err
    same = contents(folder) == whole
    assert same, "the bytes differ"


def test_a_run_killed_between_two_of_its_files_is_resumed(
    run: Run, unfinished: Run, folder: Path, tmp_path: Path
) -> None:
    whole = unfinished("-s", "cls,mean", suffix=".npy")
    shutil.copytree(folder / "v.npy.partial", tmp_path / "copy")
    assert run("-s", "cls,mean", "--resume", suffix=".npy").code == 0
    (tmp_path / "copy").rename(folder / "v.npy.partial")
    (folder / "v.mean.npy").unlink()
    (folder / "v.mean.npy.json").unlink()
    ran = run("-s", "cls,mean", "--resume", suffix=".npy")
    assert ran.code == 0, ran.err
    same = contents(folder) == whole
    assert same, "the bytes differ"


def test_a_run_killed_between_its_file_and_the_sidecar_is_resumed(
    run: Run, unfinished: Run, folder: Path, tmp_path: Path
) -> None:
    whole = unfinished(suffix=".npy")
    shutil.copytree(folder / "v.npy.partial", tmp_path / "copy")
    assert run("--resume", suffix=".npy").code == 0
    (tmp_path / "copy").rename(folder / "v.npy.partial")
    (folder / "v.npy.json").unlink()
    ran = run("--resume", suffix=".npy")
    assert ran.code == 0, ran.err
    same = contents(folder) == whole
    assert same, "the bytes differ"


def test_rejects_before_and_after_the_break_are_all_there_once(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    lines = [b"cat", b"\xff1", b"dog", b"hi", b"", b"\xff2", b"ok"]
    options = ("--on-error", "reject", "--blank", "error")
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    assert run(*options).code == 1
    assert names_in(folder) == ["v.parquet.partial"]
    lines[4] = b"word"
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    ran = run(*options, "--resume", "--report", "-")
    assert ran.code == 3
    assert json.loads(ran.out)["rejected"] == 2
    rejects = (folder / "v.parquet.rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in rejects] == [1, 5]
    assert read_column(folder / "v.parquet", "id") == [0, 2, 3, 4, 6]


def test_a_shard_is_resumed_like_a_whole_run(run: Run, tmp_path: Path, folder: Path) -> None:
    shard = ("--shard", "2/2", "--blank", "error")
    (tmp_path / "in.txt").write_text("\n".join("a" * 7 + "bcd") + "\n\nlast\n")
    assert run(*shard).code == 1
    assert names_in(folder) == ["v.part-2-of-2.parquet.partial"]
    (tmp_path / "in.txt").write_text("\n".join("a" * 7 + "bcd") + "\nb\nlast\n")
    assert run(*shard, "--resume").code == 0
    assert read_column(folder / "v.part-2-of-2.parquet", "text") == [
        "a",
        "b",
        "c",
        "d",
        "b",
        "last",
    ]


def test_whichever_windows_are_there_the_bytes_come_out_the_same(
    run: Run, unfinished: Run, folder: Path
) -> None:
    whole = unfinished()
    names = list(parts_in(folder))
    saved = {name: (folder / "v.parquet.partial" / name).read_bytes() for name in names}
    manifest = (folder / "v.parquet.partial" / "manifest.json").read_bytes()
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(names, count) for count in (1, 2, 3)
    ):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (folder / "v.parquet.partial").mkdir()
        (folder / "v.parquet.partial" / "manifest.json").write_bytes(manifest)
        for name in chosen:
            (folder / "v.parquet.partial" / name).write_bytes(saved[name])
        assert run("--resume").code == 0
        same = contents(folder) == whole
        assert same, f"with {chosen} the bytes differ"


# Whole processes, killed


@pytest.fixture
def embed_command(tiny: Tiny) -> Callable[..., list[str]]:
    """Give the words that embed big.txt, on one thread."""

    def words(output: str, *more: str) -> list[str]:
        model = str(tiny("tiny-bert"))
        return [BERTPOOL, "embed", "big.txt", "-m", model, "-o", output, "--threads", "1", *more]

    return words


def write_windows(path: Path, count: int) -> None:
    """Write so many windows of short lines, 1,600 distinct ones in each."""
    with path.open("w") as stream:
        for window in range(count):
            for row in range(WINDOW_ROWS):
                first, second = row % len(WORDS), (row // len(WORDS) + window) % 12
                stream.write(f"{WORDS[first]} {WORDS[second]}\n")


class Started:
    """A started process, which is looked at every few milliseconds."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait for something, or for the end of the process."""
        deadline = time.monotonic() + PATIENCE
        while not happened() and self.process.poll() is None:
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.002)

    def kill(self) -> int:
        """Kill it unless it has ended, and return its code."""
        self.process.kill()
        _, self.err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@pytest.fixture
def started() -> Iterator[Callable[..., Started]]:
    """Start processes, and end them in any case."""
    every: list[Started] = []

    def start(command: list[str], folder: Path) -> Started:
        every.append(Started(command, folder))
        return every[-1]

    yield start
    for one in every:
        one.kill()


@pytest.fixture
def contents_of_whole(
    bertpool: Run, embed_command: Run, tmp_path: Path, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], dict[str, bytes]]:  # fmt: skip
    """Give what an uninterrupted run on the folder's big.txt leaves."""

    def embed(name: str) -> dict[str, bytes]:
        whole = tmp_path / "whole"
        whole.mkdir()
        (whole / "big.txt").hardlink_to(folder / "big.txt")
        with monkeypatch.context() as there:
            there.chdir(whole)
            assert bertpool(*embed_command(name)[1:]).code == 0
        return contents(whole)

    return embed


@pytest.fixture
def check_finished(
    bertpool: Run, embed_command: Run, folder: Path, contents_of_whole: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], None]:  # fmt: skip
    """Finish a run in the folder, and compare its files with those of an uninterrupted one."""

    def finish(name: str) -> None:
        with monkeypatch.context() as there:
            there.chdir(folder)
            done = bertpool(*embed_command(name, "--resume")[1:])
        assert done.code == 0, done.err
        same = contents(folder) == contents_of_whole(name)
        assert same, "the bytes differ"

    return finish


@pytest.mark.parametrize(("suffix", "times"), [(".parquet", 10), (".npy", 5)])
def test_a_run_killed_at_random_moments_ends_in_the_bytes_of_an_uninterrupted_one(
    embed_command: Run, started: Run, check_finished: Run, folder: Path, suffix: str, times: int
) -> None:
    name = f"v{suffix}"
    write_windows(folder / "big.txt", times + 3)
    rng, parts, kills = random.Random(suffix), parts_in(folder), 0
    for _ in range(times):
        one = started(embed_command(name, "--resume"), folder)
        more, pause = rng.choice([0, 1, 1, 1]), rng.uniform(0, 0.12)
        if more:
            goal = len(parts) + more
            one.wait_until(lambda goal=goal: len(parts_in(folder)) >= goal)
        else:
            pause = rng.uniform(0.05, 2)  # at any moment of the start
        time.sleep(pause)
        kills += one.kill() < 0
        before, parts = parts, parts_in(folder)
        assert list(parts) == [f"{i:06d}.arrow" for i in range(len(parts))]
        if (folder / name).exists():
            break
        kept = {part: parts[part] for part in before}
        assert kept == before, "a finished window was written again"
    assert kills >= times / 2
    check_finished(name)


@suffixes
def test_a_run_killed_while_its_windows_are_joined_leaves_no_file_at_the_path(
    embed_command: Run, started: Run, check_finished: Run, folder: Path, suffix: str
) -> None:
    name = f"v{suffix}"
    write_windows(folder / "big.txt", 3)
    one = started(embed_command(name), folder)
    one.wait_until(lambda: bool(list(folder.glob("*.partial/*.joined"))))
    if one.kill() == 0:
        pytest.skip("the machine was too busy to see it join")
    assert names_in(folder) in (
        ["big.txt", f"{name}.partial"],
        ["big.txt", name, f"{name}.partial"],
    )
    check_finished(name)


def test_of_two_runs_on_one_output_the_second_is_refused(
    bertpool: Run, tiny: Tiny, started: Run, tmp_path: Path, folder: Path
) -> None:
    os.mkfifo(tmp_path / "in")
    model = str(tiny("tiny-bert"))
    one = started([BERTPOOL, "embed", "../in", "-m", model, "-o", "v.parquet"], folder)
    with (tmp_path / "in").open("w") as fifo:
        fifo.write("hello\n")
        fifo.flush()
        one.wait_until(lambda: (folder / "v.parquet.partial" / "lock").exists())
        (tmp_path / "other.txt").write_text("other\n")
        command = ("embed", tmp_path / "other.txt", "-m", model, "-o", folder / "v.parquet")
        for option in ((), ("--resume",), ("--force",)):
            second = bertpool(*command, *option)
            assert second.code == 2
            assert f"{folder}/v.parquet: another run is writing it" in second.err
        fifo.write("word\n")
    _, err = one.process.communicate(timeout=PATIENCE)
    assert one.process.returncode == 0, err
    assert read_column(folder / "v.parquet", "text") == ["hello", "word"]


# Disks that fill up


def test_a_size_limit_met_at_the_end_keeps_the_windows_and_more_room_finishes_the_file(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    write_windows(folder / "big.txt", 3)
    # In KiB: enough for each window, too little for the file.
    command = f"ulimit -f 5000; bertpool embed big.txt -m {tiny('tiny-bert')} -o v.npy"
    finished = shell(command, cwd=folder)
    assert finished.returncode == 1
    error, note = finished.stderr.splitlines()[-2:]
    assert error == "error: v.npy: File too large; no output was written"
    assert note.startswith(f"note: {2 * WINDOW_ROWS:,} rows are kept in v.npy.partial; ")
    assert names_in(folder) == ["big.txt", "v.npy.partial"]
    before = parts_in(folder)
    assert len(before) == 2
    again = shell(note.partition("to go on: ")[2], cwd=folder)
    assert again.returncode == 0, again.stderr
    assert names_in(folder) == ["big.txt", "v.npy", "v.npy.json"]
    assert len(np.load(folder / "v.npy", mmap_mode="r")) == 3 * WINDOW_ROWS


def test_a_disk_full_amid_a_run_keeps_the_windows_and_more_room_finishes_the_file(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    # A small disk in a mount namespace of its own, which is gone with the command.
    mount = "mount -t tmpfs -o size=7m none ."
    if shell(f"unshare -m bash -c '{mount}'", cwd=folder).returncode != 0:
        pytest.skip("no right to mount a small disk here")
    write_windows(folder.parent / "big.txt", 4)
    embed = f"bertpool embed ../big.txt -m {tiny('tiny-bert')} -o v.npy"
    script = (
        f"{mount}; cd .; cd $PWD; {embed}; echo $?; ls -A; "
        f"mount -o remount,size=99m .; {embed} --resume; echo $?; ls -A"
    )
    finished = shell(f"unshare -m bash -c '{script}'", cwd=folder)
    assert finished.stdout.split() == ["1", "v.npy.partial", "0", "v.npy", "v.npy.json"]
    errors = [line for line in finished.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: v.npy: No space left on device")
    assert f"note: {2 * WINDOW_ROWS:,} rows are kept in v.npy.partial; " in finished.stderr
    assert not any(word in finished.stderr for word in NOT_SHOWN)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_loaded(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    mount = "mount --bind . . && mount -o remount,ro,bind ."
    if shell(f"unshare -m bash -c '{mount}'", cwd=folder).returncode != 0:
        pytest.skip("no right to mount a folder here")
    (folder.parent / "in.txt").write_text("hello\n")
    embed = f"bertpool embed ../in.txt -m {tiny('tiny-bert')} -o v.npy"
    finished = shell(f"unshare -m bash -c '{mount}; cd .; cd $PWD; {embed}'", cwd=folder)
    assert finished.returncode == 2
    assert finished.stderr == "error: v.npy: no permission to write into its folder\n"
