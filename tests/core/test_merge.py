from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from bertpool.errors import BertpoolError, OutputError
from bertpool.extraction import extract
from bertpool.merge import merge
from rows import content
from vectors import read_vectors

Tiny = Callable[[str], Path]
FORMATS = ["parquet", "npy", "arrow"]
TEXTS = [*tiny_models.sentences(20, 0, 12), "", "hello", "hello"]
COUNT = 3


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


@pytest.fixture(autouse=True)
def _small_windows_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let shards end amid windows, and both amid groups."""
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 4)
    monkeypatch.setattr("bertpool.output.table.GROUP_BYTES", 1000)


@pytest.fixture
def embed(tiny: Tiny) -> Callable[..., Path]:
    """Embed inputs into a file, and return it or the shard's."""

    def run(inputs: Path | Iterable[Path], output: Path, **options: Any) -> Path:
        names = [inputs] if isinstance(inputs, Path) else inputs
        model = str(tiny("tiny-bert"))
        report = extract(
            [str(name) for name in names], output=str(output), **{"model": model, **options}
        )
        return Path(report.outputs[0])

    return run


@pytest.fixture
def shards(embed: Callable[..., Path], notes: Path, tmp_path: Path) -> list[Path]:
    """Give the three shards of a run, as Parquet."""
    return [embed(notes, tmp_path / "s.parquet", shard=f"{i}/{COUNT}") for i in (1, 2, 3)]


def merged(parts: Iterable[Path], output: Path, **options: Any) -> Path:
    merge([str(part) for part in parts], output=str(output), **options)
    return output


def refusal(parts: Iterable[Path], output: Path, **options: Any) -> str:
    before = content(output.parent)
    with pytest.raises(BertpoolError) as caught:
        merged(parts, output, **options)
    assert "\n" not in str(caught.value)
    assert content(output.parent) == before
    return str(caught.value)


def files(path: Path) -> dict[str, bytes]:
    """Return a file's bytes, and its sidecar's."""
    sidecar = path.with_name(path.name + ".json")
    return {one.name[len(path.stem) :]: one.read_bytes() for one in (path, sidecar) if one.exists()}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Give texts with an id and columns to keep, as Parquet."""
    path = tmp_path / "t.parquet"
    count = len(TEXTS)
    columns = {
        "text": TEXTS,
        "key": [f"k{i}" for i in range(count)],
        "score": [None if i % 5 == 0 else i / 4 for i in range(count)],
        "tags": [["x"] * (i % 3) for i in range(count)],
        "group": pa.array([f"g{i // 7}" for i in range(count)]).dictionary_encode(),
        "time": pa.array(range(count), pa.timestamp("us")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=5)
    return path


@pytest.mark.parametrize("options", [{}, {"text": False}], ids=["text", "no-text"])
@pytest.mark.parametrize("name", FORMATS)
def test_merged_shards_are_the_file_of_one_run(
    tmp_path: Path, notes: Path, embed: Callable[..., Path], name: str, options: Any
) -> None:
    whole = embed(notes, tmp_path / f"whole.{name}", **options)
    parts = [
        embed(notes, tmp_path / f"s.{name}", shard=f"{i}/{COUNT}", **options) for i in (1, 2, 3)
    ]
    assert files(merged(parts, tmp_path / f"merged.{name}")) == files(whole)


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_ids_and_kept_columns_are_those_of_one_run(
    tmp_path: Path, table: Path, embed: Callable[..., Path], name: str
) -> None:
    options: Any = {"id_column": "key", "keep": ["score", "tags", "group", "time"]}
    whole = embed(table, tmp_path / f"whole.{name}", **options)
    parts = [
        embed(table, tmp_path / f"s.{name}", shard=f"{i}/{COUNT}", **options) for i in (1, 2, 3)
    ]
    assert files(merged(parts, tmp_path / f"merged.{name}")) == files(whole)


@pytest.mark.parametrize("name", FORMATS)
def test_several_inputs_merge_to_the_file_of_one_run(
    tmp_path: Path, notes: Path, embed: Callable[..., Path], name: str
) -> None:
    more = tmp_path / "more.txt"
    more.write_text("the cat\nthe dog\n")
    inputs = [more, notes]
    whole = embed(inputs, tmp_path / f"whole.{name}")
    parts = [embed(inputs, tmp_path / f"s.{name}", shard=f"{i}/{COUNT}") for i in (1, 2, 3)]
    assert files(merged(parts, tmp_path / f"merged.{name}")) == files(whole)


@pytest.mark.parametrize(
    "options",
    [{"blank": "skip"}, {"output_dtype": "float16"}, {"strategy": ["mean", "cls"]}],
    ids=["blank skipped", "float16", "two columns"],
)
def test_other_layouts_merge_to_the_file_of_one_run(
    tmp_path: Path, notes: Path, embed: Callable[..., Path], options: Any
) -> None:
    whole = embed(notes, tmp_path / "whole.parquet", **options)
    parts = [
        embed(notes, tmp_path / "s.parquet", shard=f"{i}/{COUNT}", **options) for i in (1, 2, 3)
    ]
    assert files(merged(parts, tmp_path / "merged.parquet")) == files(whole)


def test_each_column_of_several_npy_files_merges_for_itself(
    tmp_path: Path, notes: Path, embed: Callable[..., Path]
) -> None:
    options: Any = {"strategy": ["mean", "cls"]}
    embed(notes, tmp_path / "whole.npy", **options)
    for i in (1, 2):
        embed(notes, tmp_path / "s.npy", shard=f"{i}/2", **options)
    parts = [tmp_path / f"s.part-{i}-of-2.cls.npy" for i in (1, 2)]
    assert files(merged(parts, tmp_path / "merged.npy")) == files(tmp_path / "whole.cls.npy")


def test_shards_of_different_columns_are_refused(
    tmp_path: Path, notes: Path, embed: Callable[..., Path]
) -> None:
    for i in (1, 2):
        embed(notes, tmp_path / "s.npy", shard=f"{i}/2", strategy=["mean", "cls"])
    parts = [tmp_path / "s.part-1-of-2.mean.npy", tmp_path / "s.part-2-of-2.cls.npy"]
    message = refusal(parts, tmp_path / "merged.npy")
    assert "column" in message
    assert "s.part-2-of-2.cls.npy" in message


@pytest.mark.parametrize("order", [[2, 1, 0], [1, 0, 2]], ids=str)
def test_shards_may_come_in_any_order(tmp_path: Path, shards: list[Path], order: list[int]) -> None:
    first = merged(shards, tmp_path / "a.parquet").read_bytes()
    assert merged([shards[i] for i in order], tmp_path / "b.parquet").read_bytes() == first


def test_more_shards_than_rows_merge(tmp_path: Path, embed: Callable[..., Path]) -> None:
    source = tmp_path / "two.txt"
    source.write_text("hello\nthe cat\n")
    whole = embed(source, tmp_path / "whole.parquet")
    parts = [embed(source, tmp_path / "s.parquet", shard=f"{i}/4") for i in (1, 2, 3, 4)]
    assert merged(parts, tmp_path / "m.parquet").read_bytes() == whole.read_bytes()


def test_a_single_shard_merges(tmp_path: Path, notes: Path, embed: Callable[..., Path]) -> None:
    whole = embed(notes, tmp_path / "whole.parquet")
    part = embed(notes, tmp_path / "s.parquet", shard="1/1")
    assert merged([part], tmp_path / "m.parquet").read_bytes() == whole.read_bytes()


def test_the_number_of_rows_is_returned(tmp_path: Path, shards: list[Path]) -> None:
    rows = merge([str(one) for one in shards], output=str(tmp_path / "m.parquet"))
    assert rows == len(TEXTS) == len(read_vectors(tmp_path / "m.parquet"))


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_gap_is_refused_and_the_missing_shard_named(
    tmp_path: Path, shards: list[Path], missing: int
) -> None:
    parts = [one for i, one in enumerate(shards, 1) if i != missing]
    assert f"shard {missing} of 3 is missing" in refusal(parts, tmp_path / "m.parquet")


def test_a_shard_that_is_there_twice_is_refused_and_both_files_named(
    tmp_path: Path, shards: list[Path]
) -> None:
    copy = tmp_path / "copy.parquet"
    shutil.copy(shards[1], copy)
    message = refusal([*shards, copy], tmp_path / "m.parquet")
    assert "copy.parquet" in message
    assert shards[1].name in message


def test_shards_of_another_number_are_refused(
    tmp_path: Path, notes: Path, shards: list[Path], embed: Callable[..., Path]
) -> None:
    other = embed(notes, tmp_path / "s.parquet", shard="3/4")
    message = refusal([*shards[:2], other], tmp_path / "m.parquet")
    assert other.name in message
    assert "count" in message


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"strategy": "cls"}, "strategies"),
        ({"max_length": 8}, "max_length"),
        ({"normalize": True}, "normalize"),
        ({"blank": "skip"}, "blank"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"text": False}, "text"),
    ],
    ids=str,
)
def test_other_settings_are_refused_and_the_field_and_file_named(
    tmp_path: Path, notes: Path, shards: list[Path], embed: Callable[..., Path],
    options: Any, named: str,
) -> None:  # fmt: skip
    other = embed(notes, tmp_path / "o.parquet", shard="3/3", **options)
    message = refusal([*shards[:2], other], tmp_path / "m.parquet")
    assert other.name in message
    assert named in message


def test_another_model_is_refused(
    tmp_path: Path, notes: Path, shards: list[Path], embed: Callable[..., Path], tiny: Tiny
) -> None:
    copy = tmp_path / "other" / "tiny-bert"
    shutil.copytree(tiny("tiny-left"), copy)
    other = embed(notes, tmp_path / "o.parquet", shard="3/3", model=str(copy))
    assert "sha256" in refusal([*shards[:2], other], tmp_path / "m.parquet")


@pytest.mark.parametrize("change", ["another text", "another name", "one row more"])
def test_another_input_is_refused_and_the_file_named(
    tmp_path: Path, notes: Path, shards: list[Path], embed: Callable[..., Path], change: str
) -> None:
    text = notes.read_text()
    if change == "another name":
        notes = notes.rename(tmp_path / "renamed.txt")
    else:
        notes.write_text(text.replace("hello", "cat") if "text" in change else f"{text}ok\n")
    other = embed(notes, tmp_path / "o.parquet", shard="3/3")
    message = refusal([*shards[:2], other], tmp_path / "m.parquet")
    assert other.name in message
    assert "input" in message


def test_another_format_is_refused_and_the_file_named(
    tmp_path: Path, notes: Path, shards: list[Path], embed: Callable[..., Path]
) -> None:
    other = embed(notes, tmp_path / "s.arrow", shard="3/3")
    assert other.name in refusal([*shards[:2], other], tmp_path / "m.parquet")


def test_a_file_that_is_no_shard_is_refused_by_name(
    tmp_path: Path, notes: Path, shards: list[Path], embed: Callable[..., Path]
) -> None:
    whole = embed(notes, tmp_path / "whole.parquet")
    assert "whole.parquet: is no shard" in refusal([*shards, whole], tmp_path / "m.parquet")


def test_a_shard_that_is_not_there_is_named(tmp_path: Path, shards: list[Path]) -> None:
    gone = tmp_path / "gone.parquet"
    assert "gone.parquet" in refusal([*shards[:2], gone], tmp_path / "m.parquet")


@pytest.mark.parametrize("name", ["m.npy", "m.arrow", "m.bin", "m"])
def test_an_output_of_another_format_is_refused(
    tmp_path: Path, shards: list[Path], name: str
) -> None:
    assert "the shards are .parquet" in refusal(shards, tmp_path / name)


def test_stdout_is_refused(shards: list[Path]) -> None:
    with pytest.raises(OutputError, match="--output"):
        merge([str(one) for one in shards], output="-")


def test_an_existing_output_is_refused_and_force_replaces_it(
    tmp_path: Path, shards: list[Path]
) -> None:
    output = tmp_path / "m.parquet"
    output.write_text("old")
    assert "m.parquet: exists" in refusal(shards, output)
    merged(shards, output, force=True)
    assert len(read_vectors(output)) == len(TEXTS)


def test_an_output_that_is_a_shard_is_refused_under_force(
    tmp_path: Path, shards: list[Path]
) -> None:
    assert "is an input" in refusal(shards, shards[1], force=True)


def test_a_shard_whose_rows_are_not_those_of_its_metadata_is_refused(
    tmp_path: Path, notes: Path, embed: Callable[..., Path]
) -> None:
    parts = [embed(notes, tmp_path / "s.npy", shard=f"{i}/2") for i in (1, 2)]
    np.save(parts[0], read_vectors(parts[0])[:-1])
    assert parts[0].name in refusal(parts, tmp_path / "m.npy")


def test_the_merged_file_is_no_shard(tmp_path: Path, shards: list[Path]) -> None:
    output = merged(shards, tmp_path / "m.parquet")
    metadata = json.loads(pq.read_metadata(output).metadata[b"bertpool"])
    assert "shard" not in metadata
    assert metadata["rows"] == len(TEXTS)
