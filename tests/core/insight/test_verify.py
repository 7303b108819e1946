from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from bertpool.errors import BertpoolError, ModelError, OutputError
from bertpool.extraction import extract
from bertpool.insight.sample import parse_sample
from bertpool.insight.verify import Verification, find_bounds, verify
from bertpool.merge import merge
from changed_files import Vectors, change_provenance, change_vectors

Tiny = Callable[[str], Path]
Make = Callable[..., Path]
TEXTS = tiny_models.sentences(30, seed=3, longest=20)
LONG = " ".join(tiny_models.sentences(12, seed=4, longest=40))


@pytest.fixture
def make(tiny: Tiny, tmp_path: Path) -> Make:
    """Embed some texts by some options into a file of that name, from `in.txt`."""

    def run(name: str = "v.parquet", texts: Sequence[str] = TEXTS, **options: Any) -> Path:
        source = tmp_path / "in.txt"
        source.write_text("\n".join(texts))
        options = {"model": str(tiny("tiny-bert"))} | options
        extract([str(source)], output=str(tmp_path / name), force=True, **options)
        return tmp_path / name

    return run


@pytest.fixture
def check(tiny: Tiny) -> Callable[..., Verification]:
    """Verify every row of a file of a tiny model."""

    def run(path: Path, model: str = "tiny-bert", **options: Any) -> Verification:
        return verify(path, model=str(tiny(model)), **{"sample": None, "threads": 1} | options)

    return run


Check = Callable[..., Verification]


@pytest.mark.parametrize(
    "model",
    ["tiny-bert", "tiny-roberta", "tiny-xlm-roberta", "tiny-distil", "tiny-electra", "tiny-mpnet"],
)
@pytest.mark.parametrize("strategy", ["cls", "mean", "max", "attention", "last"])
def test_what_the_packed_way_wrote_is_right(
    make: Make, check: Check, tiny: Tiny, model: str, strategy: str
) -> None:
    path = make(model=str(tiny(model)), strategy=strategy)
    found = check(path, model)
    assert found.passed, found.problems
    assert (found.rows, found.sampled) == (30, 30)


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": ["mean", "cls"], "layer": [-1, "first-last"]},
        {"strategy": "mean", "normalize": True, "dimensions": 7},
        {"strategy": "mean", "exclude_special": True, "prompt": "the cat "},
        {"strategy": "mean", "max_length": 8},
        {"texts": [LONG, "word", "", LONG[:300]], "strategy": "mean", "on_truncate": "window"},
        {"texts": [LONG], "strategy": "max", "on_truncate": "window", "stride": 3},
        {"output_dtype": "float16"},
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "normalize": True, "output_dtype": "float16"},
        {"texts": []},
        {"texts": [""]},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["v.parquet", "v.arrow"])
def test_an_honest_file_passes_whatever_made_it(
    make: Make, check: Check, options: dict[str, Any], name: str
) -> None:
    found = check(make(name, **options))
    assert found.passed, found.problems


@pytest.mark.parametrize("model", ["tiny-st-dense", "tiny-st-multi", "tiny-st-prompt", "tiny-zero"])
def test_what_a_checkpoint_declares_is_applied_again(
    make: Make, check: Check, tiny: Tiny, model: str
) -> None:
    found = check(make(model=str(tiny(model))), model)
    assert found.passed, found.problems


def swap(vectors: Vectors) -> None:
    vectors[[3, 17]] = vectors[[17, 3]]


def scale(vectors: Vectors) -> None:
    vectors[5] *= 1.01


def spoil(vectors: Vectors) -> None:
    vectors[5, 2] = np.nan


@pytest.mark.parametrize(
    ("change", "rows"), [(swap, (3, 17)), (scale, (5,)), (spoil, (5,))], ids=lambda v: str(v)[:20]
)
@pytest.mark.parametrize("options", [{}, {"output_dtype": "float16"}, {"normalize": True}], ids=str)
def test_wrong_rows_are_found_and_named(
    make: Make,
    check: Check,
    change: Callable[[Vectors], None],
    rows: tuple[int, ...],
    options: dict[str, Any],
) -> None:
    path = make(**options)
    change_vectors(path, change)
    found = check(path)
    assert not found.passed
    assert found.columns[0].failed_rows == rows
    assert f"row {', '.join(map(str, rows))} ({len(rows)})" in found.problems[0]


def test_the_worst_difference_and_cosine_are_those_of_the_wrong_row(
    make: Make, check: Check
) -> None:
    path = make("v.npy")
    kept = np.load(path)[9].copy()
    change_vectors(path, lambda vectors: vectors.__setitem__(9, -vectors[9]))
    (column,) = check(path, inputs=[str(path.with_name("in.txt"))]).columns
    assert (column.difference_row, column.cosine_row) == (9, 9)
    assert column.difference == pytest.approx(2 * np.abs(kept).max(), rel=1e-4)
    assert column.cosine == pytest.approx(-1, abs=1e-6)


def test_a_vector_that_is_not_finite_has_no_difference_and_the_worst_cosine(
    make: Make, check: Check
) -> None:
    path = make()
    change_vectors(path, spoil)
    (column,) = check(path).columns
    assert (column.difference, column.difference_row) == (None, 5)
    assert (column.cosine, column.cosine_row) == (-1.0, 5)


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_swapped_rows_and_a_scaled_unit_vector_are_found_in_half_precision(
    make: Make, check: Check, dtype: str
) -> None:
    path = make(dtype=dtype, normalize=True)
    change_vectors(path, swap)
    change_vectors(path, scale)
    assert set(check(path).columns[0].failed_rows) == {3, 5, 17}


@pytest.mark.parametrize("values", [{"strategies": ["cls"]}, {"layers": [[1]]}, {"prompt": "the "}])
@pytest.mark.parametrize("sealed", [True, False])
def test_changed_metadata_is_found_by_the_vectors_and_by_the_fingerprint(
    make: Make, check: Check, values: dict[str, Any], sealed: bool
) -> None:
    path = make(strategy="mean")
    change_provenance(path, sealed=sealed, **values)
    found = check(path)
    assert found.columns[0].failed == 30
    assert any("fingerprint" in problem for problem in found.problems) != sealed


def test_a_wrong_mask_is_found(make: Make, check: Check) -> None:
    path = make(strategy="mean", exclude_special=True)
    change_provenance(path, sealed=True, exclude_special=False)
    assert not check(path).passed


def test_another_model_is_refused_by_what_differs(make: Make, check: Check) -> None:
    with pytest.raises(ModelError, match="tiny-bert-deep isn't the model that made the file"):
        check(make(), "tiny-bert-deep")


def test_a_local_model_has_to_be_named(make: Make) -> None:
    with pytest.raises(ModelError, match="--model"):
        verify(make())


def test_a_row_count_that_is_not_the_files_is_found(make: Make, check: Check) -> None:
    path = make()
    change_provenance(path, rows=29)
    assert check(path).problems == ("its provenance says 29 rows, and it has 30",)


def test_a_sample_has_the_first_the_last_and_the_longest_row(
    make: Make, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*TEXTS[:10], "word " * 30, *TEXTS[10:]]
    path = make(texts=texts)
    change_vectors(path, lambda vectors: vectors * 2)
    (column,) = check(path, sample=1).columns
    assert {0, 10, 30} <= set(column.failed_rows)
    assert column.failed in (3, 4)


def test_the_seed_chooses_the_rows(make: Make, check: Check) -> None:
    path = make()
    change_vectors(path, lambda vectors: vectors * 2)
    rows = [check(path, sample=2, seed=seed).columns[0].failed_rows for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def test_a_tolerance_of_ones_own_replaces_that_of_the_dtype(make: Make, check: Check) -> None:
    path = make()
    change_vectors(path, scale)
    assert check(path, tolerance=0.02).passed
    assert not check(path, tolerance=1e-3).passed


def test_of_token_vectors_the_pooled_ones_beside_are_checked_or_none(
    make: Make, check: Check
) -> None:
    found = check(make(strategy="tokens,mean"))
    assert found.passed, found.problems
    assert [one.column for one in found.columns] == ["embedding"]
    with pytest.raises(OutputError, match="has token vectors and no pooled ones") as caught:
        check(make(strategy="tokens"))
    assert caught.value.exit_code == 2


# Texts from the inputs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("v.npy", {}),
        ("v.parquet", {"text": False}),
        ("v.npy", {"blank": "skip", "texts": ["a", "", "b", " ", "the cat"]}),
        ("v.npy", {"encoding": "latin-1"}),
    ],
)
def test_texts_come_from_the_input_read_as_it_was(
    make: Make, check: Check, name: str, options: dict[str, Any]
) -> None:
    path = make(name, **options)
    with pytest.raises(OutputError, match="--input"):
        check(path)
    found = check(path, inputs=[str(path.with_name("in.txt"))])
    assert found.passed, found.problems


def test_columns_and_pairs_come_from_the_input_or_the_file(
    check: Check, tiny: Tiny, tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("key,a,b\n" + "".join(f"{i},{t},{t} cat\n" for i, t in enumerate(TEXTS)))
    for name in ("v.npy", "v.parquet"):
        extract(
            [str(source)], text_column="a", pair_column="b", id_column="key",
            model=str(tiny("tiny-bert")), output=str(tmp_path / name),
        )  # fmt: skip
    assert check(tmp_path / "v.npy", inputs=[str(source)]).passed
    assert check(tmp_path / "v.parquet").passed


def test_the_shards_of_an_npy_and_their_whole_are_right(
    make: Make, check: Check, tmp_path: Path
) -> None:
    source = str(tmp_path / "in.txt")
    parts = []
    for index in (1, 2):
        make("v.npy", shard=f"{index}/2", strategy=["mean", "cls"])
        parts.append(tmp_path / f"v.part-{index}-of-2.cls.npy")
        assert check(parts[-1], inputs=[source]).passed
    make("w.npy", shard="1/2")
    make("w.npy", shard="2/2")
    merge([str(tmp_path / f"w.part-{i}-of-2.npy") for i in (1, 2)], output=str(tmp_path / "w.npy"))
    assert check(tmp_path / "w.npy", inputs=[source]).passed


def test_each_npy_of_several_columns_is_compared_with_its_own(
    make: Make, check: Check, tmp_path: Path
) -> None:
    make("v.npy", strategy=["mean", "cls"])
    inputs = [str(tmp_path / "in.txt")]
    mean, cls = tmp_path / "v.mean.npy", tmp_path / "v.cls.npy"
    found = check(mean, inputs=inputs)
    assert found.passed, found.problems
    assert found.columns[0].column == "mean"
    mean.write_bytes(cls.read_bytes())
    assert not check(mean, inputs=inputs).passed


def test_a_renamed_npy_of_several_columns_is_known_by_its_sidecar(
    make: Make, check: Check, tmp_path: Path
) -> None:
    make("v.npy", strategy=["mean", "cls"])
    for suffix in (".npy", ".npy.json"):
        (tmp_path / f"v.cls{suffix}").rename(tmp_path / f"other{suffix}")
    found = check(tmp_path / "other.npy", inputs=[str(tmp_path / "in.txt")])
    assert found.passed, found.problems
    assert [one.column for one in found.columns] == ["cls"]


def test_an_npy_of_several_columns_that_nothing_names_is_refused(
    make: Make, check: Check, tmp_path: Path
) -> None:
    make("v.npy", strategy=["mean", "cls"])
    for suffix in (".npy", ".npy.json"):
        (tmp_path / f"v.cls{suffix}").rename(tmp_path / f"other{suffix}")
    change_provenance(tmp_path / "other.npy", column=None)
    with pytest.raises(OutputError, match=r"other\.npy: which of mean, cls it holds"):
        check(tmp_path / "other.npy", inputs=[str(tmp_path / "in.txt")])


def test_another_input_is_refused(make: Make, check: Check, tmp_path: Path) -> None:
    path = make("v.npy")
    (tmp_path / "in.txt").write_text("\n".join(reversed(TEXTS)))
    with pytest.raises(OutputError, match=r"was made from in\.txt, and --input has other content"):
        check(path, inputs=[str(tmp_path / "in.txt")])


def test_rows_that_are_missing_are_found(make: Make, check: Check, tmp_path: Path) -> None:
    path = make("v.npy")
    change_vectors(path, lambda vectors: vectors[:-1])
    with pytest.raises(OutputError, match="has 29 rows, and its input 30 texts"):
        check(path, inputs=[str(tmp_path / "in.txt")])


# Bounds


@pytest.mark.parametrize("width", [2, 384, 1024])
def test_bounds_hold_rounding_and_not_one_percent(width: int) -> None:
    expected = np.random.default_rng(0).normal(size=width)
    for output_dtype in ("float32", "float16"):
        settings = {"dtype": "float32", "output_dtype": output_dtype, "normalize": False}
        bounds = find_bounds(settings)
        assert bounds.hold(expected.astype(output_dtype).astype(float), expected)
        assert not bounds.hold(expected * 1.01, expected)


@pytest.mark.parametrize("sample", ["0", "-1", "some", "1.5", ""])
def test_a_sample_that_is_no_number_is_refused(sample: str) -> None:
    with pytest.raises(BertpoolError, match=f"--sample {sample}: "):
        parse_sample(sample)


# The real model


def test_a_file_of_the_real_model_is_right_and_a_changed_one_is_not(
    minilm: Path, tmp_path: Path
) -> None:
    source, path = tmp_path / "in.txt", tmp_path / "v.parquet"
    texts = ["A dog is running through the park.", "Stock prices fell sharply today.", "Hello"] * 3
    source.write_text("\n".join(texts))
    extract([str(source)], model=str(minilm), output=str(path))
    good = verify(path, model=str(minilm), sample=None)
    assert good.passed, good.problems
    assert good.columns[0].difference is not None
    assert good.columns[0].difference < 1e-6
    change_vectors(path, lambda vectors: vectors.__setitem__([0, 1], vectors[[1, 0]]))
    assert verify(path, model=str(minilm), sample=None).columns[0].failed_rows == (0, 1)
