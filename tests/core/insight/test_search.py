from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tiny_models
from bertpool.errors import BertpoolError, CorpusError, ModelError, OutputError
from bertpool.extraction import extract
from bertpool.insight import search as searching
from bertpool.insight.search import Hit, nearest, read_queries, search
from bertpool.output.vector_file import open_vectors
from changed_files import change_vectors
from vectors import read_vectors

Tiny = Callable[[str], Path]
Make = Callable[..., Path]
TEXTS = list(dict.fromkeys(tiny_models.sentences(60, seed=5, longest=12)))
Floats = npt.NDArray[np.float32]


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


@pytest.fixture
def find(tiny: Tiny) -> Callable[..., list[list[Hit]]]:
    """Search with a tiny model."""

    def run(path: Path, *queries: str, model: str = "tiny-bert", **options: Any) -> list[list[Hit]]:
        return search(path, queries, model=str(tiny(model)), threads=1, **options)

    return run


Find = Callable[..., list[list[Hit]]]


def random_file(make: Make, vectors: Floats) -> Any:
    """Give a `.npy` with those vectors, of 32 dimensions."""
    path = make("r.npy", texts=["a"])
    change_vectors(path, lambda _: vectors)
    return open_vectors(path)


def brute_force(vectors: Floats, queries: Floats, top: int) -> list[list[int]]:
    """Sort all rows by their cosine in float64, then by row."""
    rows, asked = vectors.astype(np.float64), queries.astype(np.float64)
    cosines = (asked @ rows.T) / np.linalg.norm(rows, axis=1)
    return [sorted(range(len(rows)), key=lambda i: (-c[i], i))[:top] for c in cosines]


@pytest.mark.parametrize("name", ["v.parquet", "v.arrow", "v.npy"])
def test_every_text_finds_itself_first(make: Make, find: Find, name: str) -> None:
    found = find(make(name), *TEXTS)
    assert [hits[0].row for hits in found] == list(range(len(TEXTS)))
    assert min(hits[0].score for hits in found) > 1 - 1e-6
    assert all([hit.rank for hit in hits] == list(range(1, 11)) for hits in found)


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": "the cat "},
        {"normalize": True, "dimensions": 9},
        {"layer": 1, "strategy": "cls"},
        {"max_length": 6},
        {"output_dtype": "float16"},
        {"exclude_special": True},
        {"strategy": "attention"},
    ],
    ids=str,
)
def test_queries_are_encoded_as_the_texts_were(
    make: Make, find: Find, options: dict[str, Any]
) -> None:
    ((first, *_),) = find(make(**options), TEXTS[7])
    assert first.score > 1 - 1e-5
    assert first.cells["text"] == TEXTS[7]


def test_what_a_checkpoint_declares_is_applied_to_queries(
    make: Make, find: Find, tiny: Tiny
) -> None:
    path = make(model=str(tiny("tiny-st-dense")), strategy="auto")
    assert find(path, TEXTS[4], model="tiny-st-dense")[0][0].row == 4


def test_the_prompt_of_the_file_is_said_and_another_replaces_it(
    make: Make, find: Find, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(prompt="the cat ")
    find(path, "runs")
    assert "queries get the prompt of the file's texts: 'the cat '" in caplog.text
    caplog.clear()
    hits = find(path, "the cat " + TEXTS[3], prompt="")
    assert caplog.text == ""
    assert hits[0][0].score > 1 - 1e-6


def test_cells_are_what_the_file_knows_of_a_row(make: Make, find: Find) -> None:
    assert find(make(), "dog")[0][0].cells.keys() == {"id", "text"}
    assert find(make(blank="skip"), "dog")[0][0].cells.keys() == {"id", "line", "text"}
    assert find(make("v.npy"), "dog")[0][0].cells == {}


def test_a_column_is_chosen_by_name_and_the_first_with_a_note(
    make: Make, find: Find, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(strategy=["mean", "cls"])
    first, second = (read_vectors(path, name) for name in ("mean", "cls"))
    for column, vectors in ((None, first), ("cls", second)):
        rows = brute_force(vectors, vectors[5:6], 5)
        assert [hit.row for hit in find(path, TEXTS[5], top=5, column=column)[0]] == rows[0]
    assert caplog.messages == ["searching mean; --column takes any of mean, cls"]
    with pytest.raises(OutputError, match="--column max: it has mean, cls"):
        find(path, "dog", column="max")


def test_another_model_is_refused(make: Make, find: Find) -> None:
    with pytest.raises(ModelError, match="isn't the model that made the file"):
        find(make(), "dog", model="tiny-bert-deep")


def test_fewer_rows_than_asked_for_are_all_ranked_and_an_empty_file_has_none(
    make: Make, find: Find
) -> None:
    assert len(find(make(texts=["a", "b"]), "dog", top=5)[0]) == 2
    assert find(make(texts=[]), "dog") == [[]]
    assert find(make()) == []


@pytest.mark.parametrize("top", [0, -1])
def test_a_number_of_hits_under_one_is_refused(make: Make, find: Find, top: int) -> None:
    with pytest.raises(BertpoolError, match=f"--top {top}"):
        find(make(), "dog", top=top)


# The search itself


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("queries", [1, 7])
def test_the_nearest_are_exactly_those_of_a_full_sort(
    make: Make, dtype: type, queries: int
) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(9000, 32)).astype(dtype)
    asked = generator.normal(size=(queries, 32)).astype(np.float32)
    found = nearest(random_file(make, vectors), "embedding", asked, top=25)
    assert [[hit.row for hit in hits] for hits in found] == brute_force(vectors, asked, 25)


def test_cosines_that_float32_cannot_tell_apart_rank_by_their_true_order(make: Make) -> None:
    asked = np.zeros((1, 32), dtype=np.float32)
    asked[0, 0] = 1
    vectors = np.zeros((5000, 32), dtype=np.float32)
    vectors[:, 0] = 1
    vectors[:, 1] = np.random.default_rng(1).uniform(1e-5, 1e-4, size=5000)  # cosine 1 - 5e-9
    (hits,) = nearest(random_file(make, vectors), "embedding", asked, top=20)
    assert [hit.row for hit in hits] == brute_force(vectors, asked, 20)[0]


def test_equal_vectors_rank_by_row_wherever_they_stand(make: Make) -> None:
    generator = np.random.default_rng(2)
    vectors = generator.normal(size=(9001, 32)).astype(np.float32)
    places = [9000, 8192, 4097, 4095, 77, 3]
    vectors[places] = vectors[0]
    (hits,) = nearest(random_file(make, vectors), "embedding", vectors[:1], top=5)
    assert [hit.row for hit in hits] == [0, 3, 77, 4095, 4097]
    assert len({hit.score for hit in hits}) == 1


def test_zero_and_non_finite_vectors_never_rank(make: Make) -> None:
    vectors = np.ones((6, 32), dtype=np.float32)
    vectors[1], vectors[2, 0], vectors[3, 0], vectors[4] = 0, np.nan, np.inf, -1
    (hits,) = nearest(random_file(make, vectors), "embedding", vectors[:1], top=6)
    assert [hit.row for hit in hits] == [0, 5, 4]
    assert [hit.score for hit in hits] == pytest.approx([1, 1, -1])


def test_nothing_is_near_to_a_zero_vector(make: Make) -> None:
    asked = np.zeros((1, 32), dtype=np.float32)
    vectors = np.ones((6, 32), dtype=np.float32)
    assert nearest(random_file(make, vectors), "embedding", asked, top=3) == [[]]


def test_blocks_are_bounded_whatever_the_rows_and_queries(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    whole = searching._rank

    def watched(vectors: Floats, cells: Any, first: int, units: Any, best: Any) -> None:
        sizes.append((len(vectors), len(units)))
        whole(vectors, cells, first, units, best)

    monkeypatch.setattr(searching, "_rank", watched)
    vectors = np.random.default_rng(0).normal(size=(9000, 32)).astype(np.float32)
    file = random_file(make, vectors)
    for queries in (1, 2000):
        nearest(file, "embedding", vectors[:queries], top=1)
    assert all(rows <= 4096 and rows * queries <= searching.SCORES for rows, queries in sizes)


# Queries


def test_a_query_is_one_text_even_with_line_ends(make: Make) -> None:
    assert read_queries("a\nb") == ["a\nb"]


def test_a_query_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(CorpusError, match="QUERY: not UTF-8"):
        read_queries("caf\udce9")


# The real model


def test_the_real_model_finds_what_means_the_same(minilm: Path, tmp_path: Path) -> None:
    source, path = tmp_path / "in.txt", tmp_path / "v.parquet"
    texts = ["Stock prices fell sharply today.", "A canine sprints across the garden.", "Soup."]
    source.write_text("\n".join(texts))
    extract([str(source)], model=str(minilm), output=str(path))
    (hits,) = search(path, ["A dog is running through the park."], model=str(minilm))
    assert hits[0].cells["text"] == texts[1]
