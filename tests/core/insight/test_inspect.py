from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bertpool.errors import OutputError
from bertpool.extraction import extract
from bertpool.insight.inspect import FileFacts, inspect_files
from changed_files import change_provenance, change_vectors

Tiny = Callable[[str], Path]
Make = Callable[..., Path]
TEXTS = ["hello word", "", "the cat runs by the river", "hello word", " ".join(["word"] * 100)]


@pytest.fixture
def make(tiny: Tiny, tmp_path: Path) -> Make:
    """Embed some texts by some options into a file of that name."""

    def run(name: str = "v.parquet", texts: Sequence[str] = TEXTS, **options: Any) -> Path:
        source = tmp_path / "in.txt"
        source.write_text("\n".join(texts))
        options = {"strategy": "mean", "model": str(tiny("tiny-bert"))} | options
        extract([str(source)], output=str(tmp_path / name), force=True, **options)
        return tmp_path / name

    return run


def facts(path: Path) -> FileFacts:
    (file,) = inspect_files([path]).files
    return file


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".arrow"])
def test_every_format_shows_rows_dimensions_and_duplicates(make: Make, suffix: str) -> None:
    file = facts(make(f"v{suffix}", output_dtype="float16"))
    (vectors,) = file.vectors
    assert (file.rows, file.format) == (5, suffix[1:])
    assert (vectors.column, vectors.dimensions, vectors.dtype) == ("embedding", 32, "float16")
    assert (vectors.zero, vectors.non_finite, vectors.duplicates) == (0, 0, 1)


def test_lengths_are_those_of_the_vectors(make: Make) -> None:
    path = make("v.npy")
    lengths = np.linalg.norm(np.load(path), axis=1)
    (vectors,) = facts(path).vectors
    found = (vectors.norm_min, vectors.norm_mean, vectors.norm_max)
    assert found == pytest.approx((lengths.min(), lengths.mean(), lengths.max()), rel=1e-6)


def test_zero_and_non_finite_rows_are_counted_and_lengths_are_of_the_finite(make: Make) -> None:
    path = make("v.npy")

    def spoil(vectors: np.ndarray) -> None:
        vectors[0], vectors[1, 3], vectors[2, 0] = 0, np.nan, np.inf

    change_vectors(path, spoil)
    (vectors,) = facts(path).vectors
    assert (vectors.zero, vectors.non_finite) == (1, 2)
    assert vectors.norm_min == 0
    assert np.isfinite(vectors.norm_max or 0)


def test_tokens_are_counted_by_powers_of_two_with_the_truncated(make: Make) -> None:
    tokens = facts(make()).tokens
    assert tokens is not None
    assert (tokens.fewest, tokens.most, tokens.truncated) == (2, 102, 1)
    assert tokens.mean == pytest.approx((4 + 2 + 8 + 4 + 102) / 5)
    assert tokens.histogram == {2: 1, 4: 2, 8: 1, 16: 0, 32: 0, 64: 0, 128: 1}


def test_an_empty_file_has_no_lengths_and_no_tokens(make: Make) -> None:
    file = facts(make(texts=[]))
    assert (file.rows, file.tokens, file.vectors[0].norm_min) == (0, None, None)


def test_several_columns_have_their_facts_each(make: Make) -> None:
    file = facts(make(strategy=["mean", "cls"]))
    assert [one.column for one in file.vectors] == ["mean", "cls"]
    assert file.vectors[0].norm_mean != file.vectors[1].norm_mean


def test_a_shard_shows_which_it_is(make: Make) -> None:
    make(shard="2/2")
    shard = facts(make(shard="2/2").with_name("v.part-2-of-2.parquet")).provenance["shard"]
    assert (shard["index"], shard["first"], shard["stop"]) == (2, 2, 5)


def test_changed_provenance_is_told_by_its_fingerprint(make: Make) -> None:
    path = make()
    assert facts(path).problems == ()
    change_provenance(path, prompt="other")
    assert "the fingerprint is another's" in facts(path).problems[0]


def test_a_row_count_that_is_not_the_files_is_told(make: Make) -> None:
    path = make()
    change_provenance(path, rows=7)
    assert facts(path).problems == ("its provenance says 7 rows, and it has 5",)


@pytest.mark.parametrize(
    "options",
    [
        {"output_dtype": "float16"},
        {"text": False},
        {"blank": "skip"},
        {"texts": ["other"]},
        {"dtype": "bfloat16"},
        {"on_truncate": "keep"},
    ],
    ids=str,
)
def test_what_does_not_decide_vectors_does_not_keep_from_comparing(
    make: Make, options: dict[str, Any]
) -> None:
    assert inspect_files([make("a.parquet"), make("b.parquet", **options)]).comparable


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"strategy": "cls"}, "strategies"),
        ({"layer": 1}, "layers"),
        ({"normalize": True}, "normalize"),
        ({"dimensions": 8}, "dimensions"),
        ({"prompt": "the "}, "prompt"),
        ({"max_length": 16}, "max_length"),
        ({"exclude_special": True}, "exclude_special"),
        ({"on_truncate": "window"}, "stride"),
    ],
    ids=str,
)
def test_what_decides_vectors_is_named_with_both_values(
    make: Make, options: dict[str, Any], field: str
) -> None:
    paths = make("a.parquet"), make("b.parquet", **options)
    found = inspect_files(paths)
    one, two = (file.provenance[field] for file in found.files)
    assert not found.comparable
    (difference,) = [one for one in found.differences if one.field == field]
    assert (difference.first_value, difference.value) == (one, two)
    assert (difference.first, difference.path) == tuple(map(str, paths))


def test_another_model_is_named_and_a_copy_by_another_name_is_none(
    make: Make, tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "copy").symlink_to(tiny("tiny-bert"))
    same = make("same.parquet", model=str(tmp_path / "copy"))
    other = make("other.parquet", model=str(tiny("tiny-bert-deep")))
    first = make("a.parquet")
    assert inspect_files([first, same]).comparable
    assert inspect_files([first, other]).differences[0].field == "model"


def test_memory_is_that_of_a_piece_and_eight_bytes_a_row(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("v.npy")
    change_vectors(path, lambda vectors: np.tile(vectors, (2000, 1)))
    sizes: list[int] = []
    from bertpool.insight import inspect as module

    whole = module.row_hashes

    def watched(vectors: Any) -> Any:
        sizes.append(len(vectors))
        return whole(vectors)

    monkeypatch.setattr(module, "row_hashes", watched)
    (found,) = inspect_files([path]).files[0].vectors
    assert found.duplicates == 10_000 - 4
    assert max(sizes) <= 4096


def test_npy_without_its_metadata_is_refused_by_the_name_of_that(make: Make) -> None:
    path = make("v.npy")
    path.with_name("v.npy.json").unlink()
    with pytest.raises(OutputError, match=r"v\.npy\.json: No such file"):
        inspect_files([path])


def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((2, 3), dtype=np.float32))
    (tmp_path / "v.parquet").write_text("text")
    for name, reason in (("v.npy", "No such file"), ("v.parquet", "can't be read"), ("v.x", "")):
        with pytest.raises(OutputError, match=f"{name}.*: .*{reason}") as raised:
            inspect_files([tmp_path / name])
        assert "\n" not in str(raised.value)
