"""Shards and their merge, by command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tiny_models
from vectors import read_column, read_vectors

Tiny = Callable[[str], Path]
Run = Callable[..., Any]

suffixes = pytest.mark.parametrize("suffix", [".parquet", ".npy", ".arrow"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder that holds in.txt, of 100 texts, with windows of 16 rows."""
    for name in os.environ:
        if name.startswith("SLURM_") or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 16)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("\n".join(tiny_models.sentences(100, seed=4, longest=30)))
    return tmp_path


@pytest.fixture
def embed(bertpool: Run, tiny: Tiny) -> Run:
    """Embed in.txt with further arguments, and succeed."""

    def run(*arguments: object, output: str = "v.parquet", model: str = "tiny-bert") -> Any:
        finished = bertpool("embed", "in.txt", "-m", tiny(model), "-o", output, *arguments)
        assert finished.code == 0, finished.err
        return finished

    return run


@pytest.fixture
def shards(embed: Run) -> Run:
    """Embed in.txt in so many shards, and return their files."""

    def run(count: int, *arguments: object, suffix: str = ".parquet") -> list[str]:
        for index in range(1, count + 1):
            embed("--shard", f"{index}/{count}", *arguments, output=f"v{suffix}")
        return [f"v.part-{index}-of-{count}{suffix}" for index in range(1, count + 1)]

    return run


@suffixes
@pytest.mark.parametrize("count", [1, 3])
def test_merged_shards_are_the_bytes_of_one_run(
    bertpool: Run, embed: Run, shards: Run, folder: Path, suffix: str, count: int
) -> None:
    parts = shards(count, suffix=suffix)
    finished = bertpool("merge", *reversed(parts), "-o", f"merged{suffix}")
    assert (finished.code, finished.out) == (0, "")
    assert finished.err == f"merged{suffix}: 100 rows of {count} shards\n"
    embed(output=f"whole{suffix}")
    for end in (suffix, f"{suffix}.json"):
        whole, merged = folder / f"whole{end}", folder / f"merged{end}"
        assert whole.exists() == merged.exists()
        same = not whole.exists() or whole.read_bytes() == merged.read_bytes()
        assert same, "the bytes differ"


def test_kept_columns_and_ids_come_through_a_merge(bertpool: Run, tiny: Tiny, folder: Path) -> None:
    rows = "".join(f"k{i},cat {'x' * i},{i}\n" for i in range(40))
    (folder / "in.csv").write_text(f"key,text,n\n{rows}")
    command = ("embed", "in.csv", "-m", tiny("tiny-bert"), "--id-column", "key", "--keep", "n")
    for index in (1, 2):
        assert bertpool(*command, "-o", "v.parquet", "--shard", f"{index}/2").code == 0
    assert bertpool(*command, "-o", "whole.parquet").code == 0
    parts = ("v.part-1-of-2.parquet", "v.part-2-of-2.parquet")
    assert bertpool("merge", *parts, "-o", "merged.parquet").code == 0
    same = (folder / "merged.parquet").read_bytes() == (folder / "whole.parquet").read_bytes()
    assert same, "the bytes differ"
    assert read_column(folder / "merged.parquet", "id") == [f"k{i}" for i in range(40)]


def test_more_shards_than_rows_merge_all_the_same(
    bertpool: Run, embed: Run, shards: Run, folder: Path
) -> None:
    (folder / "in.txt").write_text("hello\ncat")
    parts = shards(4)
    assert sorted(len(pq.read_table(part)) for part in parts) == [0, 0, 1, 1]
    assert bertpool("merge", *parts, "-o", "merged.parquet").code == 0
    embed(output="whole.parquet")
    same = (folder / "merged.parquet").read_bytes() == (folder / "whole.parquet").read_bytes()
    assert same, "the bytes differ"


def test_shards_in_other_folders_under_other_names_merge(
    bertpool: Run, shards: Run, folder: Path
) -> None:
    (folder / "other").mkdir()
    shutil.move(shards(2)[0], "other/first.parquet")
    finished = bertpool(
        "merge", "v.part-2-of-2.parquet", "other/first.parquet", "-o", "merged.parquet"
    )
    assert finished.code == 0
    assert read_column(folder / "merged.parquet", "id") == list(range(100))


def test_a_merge_leaves_its_shards_alone(bertpool: Run, shards: Run, folder: Path) -> None:
    parts = shards(2)
    before = {part: (folder / part).read_bytes() for part in parts}
    assert bertpool("merge", *parts, "-o", "merged.parquet").code == 0
    assert {part: (folder / part).read_bytes() for part in parts} == before


def test_quiet_says_nothing_of_a_merge(bertpool: Run, shards: Run) -> None:
    finished = bertpool("merge", *shards(2), "-o", "merged.parquet", "-q")
    assert (finished.code, finished.out, finished.err) == (0, "", "")


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_a_missing_shard_is_named(bertpool: Run, shards: Run, folder: Path, suffix: str) -> None:
    parts = shards(4, suffix=suffix)
    finished = bertpool("merge", parts[0], parts[2], "-o", f"merged{suffix}")
    assert finished.code == 1
    assert finished.err == "error: shard 2, 4 of 4 is missing\n"
    assert not (folder / f"merged{suffix}").exists()


def test_a_shard_that_is_there_twice_is_refused(bertpool: Run, shards: Run) -> None:
    first, second = shards(2)
    shutil.copy(first, "copy.parquet")
    finished = bertpool("merge", first, second, "copy.parquet", "-o", "merged.parquet")
    assert finished.code == 1
    assert f"copy.parquet: is shard 1 of 2, and so is {first}" in finished.err


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["-s", "cls"], "strategies"),
        (["--max-length", "10"], "max_length"),
        (["--prompt", "the "], "prompt"),
        (["--no-text"], "text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_shards_of_other_settings_are_refused_by_the_field_that_differs(
    bertpool: Run, embed: Run, shards: Run, folder: Path, arguments: list[str], field: str
) -> None:
    parts = shards(2)
    embed("--shard", "2/2", "--force", *arguments)
    finished = bertpool("merge", *parts, "-o", "merged.parquet")
    assert finished.code == 1
    assert f"{parts[1]}: was made with {field} " in finished.err
    assert not (folder / "merged.parquet").exists()


def test_shards_of_another_model_are_refused(bertpool: Run, embed: Run, shards: Run) -> None:
    parts = shards(2)
    embed("--shard", "2/2", "--force", model="tiny-bert-deep")
    finished = bertpool("merge", *parts, "-o", "merged.parquet")
    assert finished.code == 1
    assert f"{parts[1]}: was made with " in finished.err
    assert "sha256" in finished.err


def test_shards_of_another_input_are_refused(
    bertpool: Run, embed: Run, shards: Run, folder: Path
) -> None:
    parts = shards(2)
    (folder / "in.txt").write_text("\n".join(["hello"] * 100))
    embed("--shard", "2/2", "--force")
    finished = bertpool("merge", *parts, "-o", "merged.parquet")
    assert finished.code == 1
    assert "the input wasn't the same" in finished.err


def test_shards_of_other_counts_are_refused(bertpool: Run, embed: Run, shards: Run) -> None:
    parts = shards(2)
    embed("--shard", "2/3")
    finished = bertpool("merge", parts[0], "v.part-2-of-3.parquet", "-o", "merged.parquet")
    assert finished.code == 1
    assert "isn't a shard of the same run" in finished.err


def test_a_file_of_a_whole_run_is_no_shard(bertpool: Run, embed: Run) -> None:
    embed()
    finished = bertpool("merge", "v.parquet", "-o", "merged.parquet")
    assert finished.code == 1
    assert finished.err == "error: v.parquet: is no shard; embed with --shard I/N\n"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"hello"])
def test_what_is_no_vector_file_is_an_error_of_one_line(
    bertpool: Run, folder: Path, content: bytes
) -> None:
    (folder / "x.parquet").write_bytes(content)
    finished = bertpool("merge", "x.parquet", "-o", "merged.parquet")
    assert finished.code == 1
    assert finished.err.startswith("error: x.parquet: can't be read: ")
    assert len(finished.err.splitlines()) == 1


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".arrow"])
def test_a_shard_cut_short_is_an_error_that_leaves_nothing(
    bertpool: Run, shards: Run, folder: Path, suffix: str
) -> None:
    parts = shards(2, suffix=suffix)
    content = (folder / parts[1]).read_bytes()
    (folder / parts[1]).write_bytes(content[: len(content) - 500])
    finished = bertpool("merge", *parts, "-o", f"merged{suffix}")
    assert finished.code == 1
    assert len(finished.err.splitlines()) == 1
    assert not (folder / f"merged{suffix}").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "merged.parquet"], "PART..."),
        (["PARTS"], "--output"),
        (["no.parquet", "-o", "merged.parquet"], "no.parquet"),
        (["in.txt", "-o", "merged.parquet"], "in.txt: unknown suffix"),
        (["PARTS", "-o", "merged.bin"], "merged.bin: the shards are .parquet"),
        (["PARTS", "-o", "no/such/merged.parquet"], "its folder doesn't exist"),
        (["PARTS", "-o", "v.part-1-of-2.parquet"], "is an input"),
        (["PARTS", "-o", "v.part-1-of-2.parquet", "--force"], "is an input"),
        (["PARTS", "-o", "there.parquet"], "there.parquet: exists; pass --force"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_of_merge_is_one_line_and_exit_code_2(
    bertpool: Run, shards: Run, folder: Path, arguments: list[str], said: str
) -> None:
    parts = shards(2)
    (folder / "there.parquet").write_text("old")
    before = sorted(os.listdir())
    words = [word for one in arguments for word in (parts if one == "PARTS" else [one])]
    finished = bertpool("merge", *words)
    assert finished.code == 2
    assert said in finished.err
    assert len(finished.err.splitlines()) == 1
    assert sorted(os.listdir()) == before


def test_a_merge_into_another_format_is_refused_before_anything_is_written(
    bertpool: Run, shards: Run, folder: Path
) -> None:
    finished = bertpool("merge", *shards(2), "-o", "merged.npy")
    assert finished.code in (1, 2)
    assert len(finished.err.splitlines()) == 1
    assert not (folder / "merged.npy").exists()


def test_force_replaces_what_is_there(bertpool: Run, shards: Run, folder: Path) -> None:
    (folder / "merged.parquet").write_text("old")
    assert bertpool("merge", *shards(2), "-o", "merged.parquet", "--force").code == 0
    assert len(read_vectors(folder / "merged.parquet")) == 100


# Shards named by the environment


def test_slurm_s_array_variables_name_the_shard(
    embed: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "5")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
    for task in (5, 6, 7):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        embed("--shard", "auto")
    parts = [folder / f"v.part-{index}-of-3.parquet" for index in (1, 2, 3)]
    assert [i for part in parts for i in read_column(part, "id")] == list(range(100))


def test_the_shard_may_be_a_variable_too(
    embed: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTPOOL_SHARD", "auto")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    embed()
    assert read_column(folder / "v.part-2-of-2.parquet", "id") == list(range(50, 100))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "none of SLURM_ARRAY_TASK_ID"),
        ({"SLURM_ARRAY_TASK_ID": "1"}, "SLURM_ARRAY_TASK_COUNT isn't set"),
        ({"SLURM_ARRAY_TASK_COUNT": "1", "SLURM_ARRAY_TASK_MIN": "0"}, "TASK_ID isn't set"),
        ({"RANK": "0"}, "WORLD_SIZE isn't set"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x', not a number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "shard 3 of 2"),
    ],
    ids=str,
)
def test_variables_of_which_some_are_missing_or_wrong_are_a_usage_error(
    bertpool: Run, tiny: Tiny, monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str], said: str,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    finished = bertpool(
        "embed", "in.txt", "-m", tiny("tiny-bert"), "-o", "v.parquet", "--shard", "auto"
    )
    assert finished.code == 2
    assert said in finished.err
    assert os.listdir() == ["in.txt"]


def test_a_shard_of_stdin_is_refused(bertpool: Run, tiny: Tiny) -> None:
    finished = bertpool("embed", "-", "-m", tiny("tiny-bert"), "-o", "v.npy", "--shard", "1/2")
    assert finished.code == 2
    assert "stdin (-) is read once" in finished.err


def test_a_shard_of_a_fifo_is_refused(bertpool: Run, tiny: Tiny) -> None:
    os.mkfifo("pipe")
    finished = bertpool("embed", "pipe", "-m", tiny("tiny-bert"), "-o", "v.npy", "--shard", "1/2")
    assert finished.code == 2
    assert "a pipe can be read once" in finished.err
    assert sorted(os.listdir()) == ["in.txt", "pipe"]
