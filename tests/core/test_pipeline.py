from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from bertpool.errors import BertpoolError, CorpusError, Interrupted, Kept, OutputError
from bertpool.extraction import extract
from bertpool.pipeline import Progress
from bertpool.report import Report
from rows import FORMATS, content
from vectors import read_column, read_vectors

Tiny = Callable[[str], Path]
Embed = Callable[..., Report]
WINDOW = 5
TEXTS = [*tiny_models.sentences(20, 1, 12), "", "same", "same"]  # five windows, the last of 3
# What may differ between a run and one that was interrupted.
OF_THE_RUN = {"outputs", "seconds", "rows_per_second", "tokens_per_second", "gflop_per_second"}
OF_THE_RUN |= {"peak_memory_bytes"}


class Stopped(Exception):
    """Ends a run amid its windows."""


def stop_after(windows: int) -> Callable[[Progress], None]:
    """Let a run end in the window after the first so many."""

    def on_progress(progress: Progress) -> None:
        if progress.rows > windows * WINDOW:
            raise Stopped

    return on_progress


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", WINDOW)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


@pytest.fixture
def embed(tiny: Tiny) -> Embed:
    """Embed an input, one text a batch, so that each is a step of progress."""

    def run(source: Path, output: Path | str, **options: Any) -> Report:
        defaults: dict[str, Any] = {"model": str(tiny("tiny-bert")), "batch_tokens": 16}
        return extract([str(source)], output=str(output), **{**defaults, **options})

    return run


@pytest.fixture
def interrupted(embed: Embed) -> Callable[..., Path]:
    """Leave a run that ended after some windows, and return the folder of those."""

    def run(source: Path, output: Path, windows: int = 2, **options: Any) -> Path:
        with pytest.raises(Stopped):
            embed(source, output, on_progress=stop_after(windows), **options)
        folder = output.with_name(f"{output.name}.partial")
        assert len(list(folder.glob("*.arrow"))) == windows
        assert not output.exists()
        return folder

    return run


def files(path: Path) -> dict[str, bytes]:
    """Return a file's bytes, and its sidecar's."""
    sidecar = path.with_name(path.name + ".json")
    return {one.name[len(path.stem) :]: one.read_bytes() for one in (path, sidecar) if one.exists()}


def counts(report: Report) -> dict[str, Any]:
    return {name: value for name, value in asdict(report).items() if name not in OF_THE_RUN}


@pytest.mark.parametrize("windows", [1, 3, 4])
@pytest.mark.parametrize("name", FORMATS)
def test_a_run_that_goes_on_ends_with_the_bytes_of_one_that_never_stopped(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path],
    name: str, windows: int,
) -> None:  # fmt: skip
    embed(notes, tmp_path / f"whole.{name}")
    output = tmp_path / f"v.{name}"
    folder = interrupted(notes, output, windows)
    embed(notes, output, resume=True)
    assert files(output) == files(tmp_path / f"whole.{name}")
    assert not folder.exists()


@pytest.mark.parametrize("name", ["parquet", "arrow", "jsonl"])
def test_ids_and_kept_columns_survive_an_interruption(
    tmp_path: Path, embed: Embed, interrupted: Callable[..., Path], name: str
) -> None:
    source = tmp_path / "t.parquet"
    count = len(TEXTS)
    columns = {
        "text": TEXTS,
        "key": [f"k{i}" for i in range(count)],
        "score": [None if i % 5 == 0 else i / 4 for i in range(count)],
        "tags": [["x"] * (i % 3) for i in range(count)],
        "group": pa.array([f"g{i // 7}" for i in range(count)]).dictionary_encode(),
        "time": pa.array(range(count), pa.timestamp("ns")),
    }
    pq.write_table(pa.table(columns), source, row_group_size=6)
    options: Any = {"id_column": "key", "keep": ["score", "tags", "group", "time"]}
    embed(source, tmp_path / f"whole.{name}", **options)
    output = tmp_path / f"v.{name}"
    interrupted(source, output, **options)
    embed(source, output, resume=True, **options)
    assert files(output) == files(tmp_path / f"whole.{name}")


def test_several_columns_survive_an_interruption(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    options: Any = {"strategy": ["mean", "cls"]}
    embed(notes, tmp_path / "whole.npy", **options)
    interrupted(notes, tmp_path / "v.npy", **options)
    embed(notes, tmp_path / "v.npy", resume=True, **options)
    for name in ("mean", "cls"):
        assert files(tmp_path / f"v.{name}.npy") == files(tmp_path / f"whole.{name}.npy")


def test_a_run_may_be_interrupted_again_and_again(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    embed(notes, tmp_path / "whole.parquet")
    output = tmp_path / "v.parquet"
    for windows in (1, 2, 4):
        with pytest.raises(Stopped):
            embed(notes, output, resume=True, on_progress=stop_after(windows))
    embed(notes, output, resume=True)
    assert files(output) == files(tmp_path / "whole.parquet")


def test_a_shard_goes_on(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    whole = embed(notes, tmp_path / "whole.parquet", shard="1/2").outputs[0]
    part = tmp_path / "v.part-1-of-2.parquet"
    with pytest.raises(Stopped):
        embed(notes, tmp_path / "v.parquet", shard="1/2", on_progress=stop_after(1))
    embed(notes, tmp_path / "v.parquet", shard="1/2", resume=True)
    assert part.read_bytes() == Path(whole).read_bytes()


def test_finished_windows_are_not_encoded_again(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    interrupted(notes, tmp_path / "v.parquet", 3)
    seen: list[int] = []
    embed(
        notes,
        tmp_path / "v.parquet",
        resume=True,
        on_progress=lambda progress: seen.append(progress.rows),
    )
    # A window that is there is one step; one that is encoded, a step for each of its batches.
    assert seen[:3] == [5, 10, 15]
    assert seen[3] < 20
    assert len(seen) > 3 + 4
    assert seen[-1] == len(TEXTS)


@pytest.mark.parametrize("name", ["parquet", "npy"])
def test_the_report_of_a_run_that_goes_on_counts_what_the_whole_run_would(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path], name: str
) -> None:
    options: Any = {"max_length": 8}
    whole = embed(notes, tmp_path / f"whole.{name}", **options)
    interrupted(notes, tmp_path / f"v.{name}", **options)
    again = embed(notes, tmp_path / f"v.{name}", resume=True, **options)
    assert counts(again) == counts(whole)
    assert whole.truncated > 0
    assert whole.blank == 1


def test_what_an_error_leaves_is_told_with_it(tmp_path: Path, notes: Path, embed: Embed) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.rows > 2 * WINDOW:
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted) as caught:
        embed(notes, tmp_path / "v.parquet", on_progress=interrupt)
    assert caught.value.kept == Kept(2 * WINDOW, str(tmp_path / "v.parquet.partial"))


def test_a_run_that_fails_in_its_first_window_leaves_nothing(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    with pytest.raises(Stopped):
        embed(notes, tmp_path / "v.parquet", on_progress=stop_after(0))
    assert set(content(tmp_path)) == {"notes.txt"}


def test_a_text_that_cannot_be_read_keeps_what_came_before(tmp_path: Path, embed: Embed) -> None:
    source = tmp_path / "notes.txt"
    source.write_bytes(b"hello\n" * 12 + b"\xff\n" + b"hello\n")
    with pytest.raises(CorpusError, match=r"notes\.txt:13") as caught:
        embed(source, tmp_path / "v.parquet")
    assert not (tmp_path / "v.parquet").exists()
    assert caught.value.kept is None or caught.value.kept.rows % WINDOW == 0


@pytest.mark.parametrize("window", [1, 2])
def test_a_changed_input_is_refused_and_its_window_named(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path], window: int
) -> None:
    folder = interrupted(notes, tmp_path / "v.parquet", 2)
    before = content(folder)
    lines = notes.read_text().splitlines()
    lines[(window - 1) * WINDOW] = "another text"
    notes.write_text("\n".join(lines))
    with pytest.raises(OutputError, match=f"window {window}") as caught:
        embed(notes, tmp_path / "v.parquet", resume=True)
    assert "--force" in str(caught.value)
    assert content(folder) == before
    assert not (tmp_path / "v.parquet").exists()


def test_an_input_that_changed_behind_the_finished_windows_is_read_anew(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    interrupted(notes, tmp_path / "v.parquet", 2)
    with notes.open("a") as stream:
        stream.write("one more\n")
    embed(notes, tmp_path / "v.parquet", resume=True)
    embed(notes, tmp_path / "fresh.parquet")
    assert files(tmp_path / "v.parquet") == files(tmp_path / "fresh.parquet")


def test_an_input_that_lost_its_end_gives_the_output_of_what_is_left(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    interrupted(notes, tmp_path / "v.parquet", 3)
    notes.write_text("".join(f"{text}\n" for text in TEXTS[: 2 * WINDOW]))
    embed(notes, tmp_path / "v.parquet", resume=True)
    embed(notes, tmp_path / "fresh.parquet")
    assert files(tmp_path / "v.parquet") == files(tmp_path / "fresh.parquet")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"strategy": "cls"}, "strategies"),
        ({"max_length": 8}, "max_length"),
        ({"normalize": True}, "normalization"),
        ({"output_dtype": "float16"}, "output_dtype"),
        ({"text": False}, "text"),
        ({"prompt": "the "}, "prompt"),
    ],
    ids=str,
)
def test_changed_settings_are_refused_by_name(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path],
    options: Any, named: str,
) -> None:  # fmt: skip
    folder = interrupted(notes, tmp_path / "v.parquet")
    before = content(folder)
    with pytest.raises(OutputError, match="was made with") as caught:
        embed(notes, tmp_path / "v.parquet", resume=True, **options)
    assert named in str(caught.value)
    assert caught.value.exit_code == 2
    assert content(folder) == before


def test_another_model_is_refused_by_its_hash(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path], tiny: Tiny
) -> None:
    interrupted(notes, tmp_path / "v.parquet")
    with pytest.raises(OutputError, match="was made with"):
        embed(notes, tmp_path / "v.parquet", resume=True, model=str(tiny("tiny-roberta")))


def test_a_plain_run_leaves_finished_windows_alone_and_names_both_ways_on(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    folder = interrupted(notes, tmp_path / "v.parquet")
    before = content(folder)
    with pytest.raises(OutputError, match=r"--resume.*--force"):
        embed(notes, tmp_path / "v.parquet")
    assert content(folder) == before


def test_force_starts_afresh(
    tmp_path: Path, notes: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    interrupted(notes, tmp_path / "v.parquet")
    embed(notes, tmp_path / "v.parquet", force=True, strategy="cls")
    embed(notes, tmp_path / "fresh.parquet", strategy="cls")
    assert files(tmp_path / "v.parquet") == files(tmp_path / "fresh.parquet")
    assert not (tmp_path / "v.parquet.partial").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_a_finished_output_is_left_as_it_is(
    tmp_path: Path, notes: Path, embed: Embed, name: str
) -> None:
    output = tmp_path / f"v.{name}"
    embed(notes, output)
    before, changed = content(tmp_path), output.stat().st_mtime_ns
    seen: list[Progress] = []
    report = embed(notes, output, resume=True, on_progress=seen.append)
    assert seen == []
    assert report.rows == len(TEXTS)
    assert content(tmp_path) == before
    assert output.stat().st_mtime_ns == changed


@pytest.mark.parametrize(
    ("options", "named"), [({"strategy": "cls"}, "strategies"), ({"max_length": 8}, "max_length")]
)
def test_a_finished_output_of_other_settings_is_refused_by_name(
    tmp_path: Path, notes: Path, embed: Embed, options: Any, named: str
) -> None:
    embed(notes, tmp_path / "v.parquet")
    before = content(tmp_path)
    with pytest.raises(OutputError, match=named):
        embed(notes, tmp_path / "v.parquet", resume=True, **options)
    assert content(tmp_path) == before


def test_a_finished_output_of_another_input_is_refused(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    embed(notes, tmp_path / "v.parquet")
    notes.write_text("hello\n")
    with pytest.raises(OutputError, match="another input"):
        embed(notes, tmp_path / "v.parquet", resume=True)


def test_another_programs_file_is_refused_under_resume(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    output = tmp_path / "v.parquet"
    pq.write_table(pa.table({"x": [1]}), output)
    before = output.read_bytes()
    with pytest.raises(OutputError, match="--force"):
        embed(notes, output, resume=True)
    assert output.read_bytes() == before


def test_with_nothing_to_resume_a_run_starts_and_says_so(
    tmp_path: Path, notes: Path, embed: Embed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="bertpool"):
        embed(notes, tmp_path / "v.parquet", resume=True)
    assert "nothing to resume" in caplog.text
    assert len(read_vectors(tmp_path / "v.parquet")) == len(TEXTS)


def test_of_several_files_one_that_is_missing_is_made_again(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    options: Any = {"strategy": ["mean", "cls"]}
    embed(notes, tmp_path / "v.npy", **options)
    before = content(tmp_path)
    (tmp_path / "v.cls.npy").unlink()
    embed(notes, tmp_path / "v.npy", resume=True, **options)
    assert content(tmp_path) == before


def test_rejects_are_the_same_after_an_interruption(
    tmp_path: Path, embed: Embed, interrupted: Callable[..., Path]
) -> None:
    source = tmp_path / "notes.txt"
    source.write_bytes(b"hello\n\xff\nthe cat\n" * 7)
    options: Any = {"on_error": "reject"}
    whole = embed(source, tmp_path / "whole.parquet", **options)
    # A window holds the rejected records, too: so many are fewer texts.
    with pytest.raises(Stopped):
        embed(source, tmp_path / "v.parquet", on_progress=stop_after(1), **options)
    again = embed(source, tmp_path / "v.parquet", resume=True, **options)
    assert files(tmp_path / "v.parquet") == files(tmp_path / "whole.parquet")
    rejects = [(tmp_path / f"{name}.parquet.rejects.jsonl").read_bytes() for name in ("v", "whole")]
    assert rejects[0] == rejects[1]
    assert again.rejected == whole.rejected == 7
    assert read_column(tmp_path / "v.parquet", "id") == [i for i in range(21) if i % 3 != 1]


def test_rejects_that_a_killed_run_put_in_place_are_replaced(tmp_path: Path, embed: Embed) -> None:
    source = tmp_path / "notes.txt"
    source.write_bytes(b"hello\n\xff\nthe cat\n" * 7)
    output, rejects = tmp_path / "v.parquet", tmp_path / "v.parquet.rejects.jsonl"
    embed(source, output, on_error="reject")
    whole = rejects.read_bytes()
    output.unlink()
    rejects.unlink()
    with pytest.raises(Stopped):
        embed(source, output, on_error="reject", on_progress=stop_after(1))
    rejects.write_bytes(whole)  # as if killed between the two files
    embed(source, output, on_error="reject", resume=True)
    assert rejects.read_bytes() == whole


def test_a_run_that_is_killed_loses_a_window_or_two_and_no_more(
    tmp_path: Path, notes: Path, embed: Embed, tiny: Tiny
) -> None:
    code = (
        "import sys; sys.path.append(sys.argv[4]); import bertpool.corpus.corpus as corpus;"
        f"corpus.WINDOW_ROWS = {WINDOW};"
        "import os, signal; from bertpool.extraction import extract;"
        f"die = lambda p: os.kill(os.getpid(), 9) if p.rows > {3 * WINDOW} else None;"
        "extract([sys.argv[1]], output=sys.argv[2], model=sys.argv[3], batch_tokens=16,"
        " on_progress=die)"
    )
    output = tmp_path / "v.parquet"
    arguments = [str(notes), str(output), str(tiny("tiny-bert")), str(Path(__file__).parents[1])]
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not output.exists()
    assert len(list((tmp_path / "v.parquet.partial").glob("*.arrow"))) >= 2
    embed(notes, output, resume=True)
    embed(notes, tmp_path / "whole.parquet")
    assert files(output) == files(tmp_path / "whole.parquet")


def test_windows_leave_no_trace_in_the_output(
    tmp_path: Path, notes: Path, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FORMATS:
        embed(notes, tmp_path / f"small.{name}")
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 10_000)
    for name in FORMATS:
        embed(notes, tmp_path / f"large.{name}")
        assert files(tmp_path / f"small.{name}") == files(tmp_path / f"large.{name}")


@pytest.mark.parametrize("name", FORMATS)
def test_stdout_gets_the_vectors_of_the_file(
    tmp_path: Path, notes: Path, embed: Embed, capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    report = embed(notes, "-", output_format=name)
    data = capfdbinary.readouterr().out
    embed(notes, tmp_path / f"v.{name}")
    assert report.outputs == ()
    assert report.rows == len(TEXTS)
    if name in ("npy", "jsonl"):
        assert data == (tmp_path / f"v.{name}").read_bytes()
        return
    if name == "arrow":
        table = pa.ipc.open_stream(data).read_all()
        whole = pa.ipc.open_file(tmp_path / "v.arrow").read_all()
    else:
        table, whole = pq.read_table(pa.BufferReader(data)), pq.read_table(tmp_path / "v.parquet")
    assert table.equals(whole)
    made = json.loads(table.schema.metadata[b"bertpool"])
    assert (made["inputs"], made["rows"]) == (None, None)


def test_stdout_keeps_nothing_of_a_run_that_fails(
    tmp_path: Path, notes: Path, embed: Embed, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(Stopped):
        embed(notes, "-", on_progress=stop_after(2))
    lines = capfdbinary.readouterr().out.splitlines()
    assert len(lines) % WINDOW == 0
    assert set(content(tmp_path)) == {"notes.txt"}


def test_two_runs_may_not_write_one_output_at_once(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    refused: list[str] = []

    def start_another(progress: Progress) -> None:
        if not refused:
            with pytest.raises(BertpoolError) as caught:
                embed(notes, tmp_path / "v.parquet", force=True)
            refused.append(str(caught.value))

    embed(notes, tmp_path / "v.parquet", on_progress=start_another)
    assert "another run is writing it" in refused[0]
    assert len(read_vectors(tmp_path / "v.parquet")) == len(TEXTS)


def test_row_i_of_the_output_is_text_i_of_the_input(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    embed(notes, tmp_path / "v.parquet")
    assert read_column(tmp_path / "v.parquet", "text") == TEXTS
    vectors = read_vectors(tmp_path / "v.parquet")
    np.testing.assert_array_equal(vectors[-1], vectors[-2])


def test_an_empty_input_gives_an_empty_output_in_every_format(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    notes.write_bytes(b"")
    for name in ("parquet", "npy"):
        assert embed(notes, tmp_path / f"v.{name}").rows == 0
        assert read_vectors(tmp_path / f"v.{name}").shape == (0, 32)
    embed(notes, tmp_path / "v.jsonl")
    assert (tmp_path / "v.jsonl").read_bytes() == b""
    embed(notes, tmp_path / "v.arrow")
    assert pa.ipc.open_file(tmp_path / "v.arrow").read_all().num_rows == 0


def test_a_forced_run_that_was_killed_goes_on_though_an_older_output_is_there(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    output = tmp_path / "v.parquet"
    embed(notes, output)
    whole = files(output)
    older = tmp_path / "older.txt"
    older.write_text("another text\n")
    output.unlink()
    embed(older, output)
    with pytest.raises(Stopped):
        embed(notes, output, force=True, on_progress=stop_after(2))
    embed(notes, output, resume=True)
    assert files(output) == whole


def test_an_older_output_is_not_replaced_by_a_run_that_was_not_told_to(
    tmp_path: Path, notes: Path, embed: Embed
) -> None:
    output, older = tmp_path / "v.parquet", tmp_path / "older.txt"
    older.write_text("another text\n")
    with pytest.raises(Stopped):
        embed(notes, output, on_progress=stop_after(2))
    embed(older, tmp_path / "other.parquet")
    (tmp_path / "other.parquet").rename(output)
    with pytest.raises(OutputError, match="another input"):
        embed(notes, output, resume=True)
