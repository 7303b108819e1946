from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest
from bertpool.corpus import CorpusOptions
from bertpool.errors import CorpusError
from bertpool.insight.texts import (
    PAIR_COLUMNS,
    Pairs,
    find_pair_columns,
    find_text,
    read_material,
    read_pairs,
    sample_texts,
)

PLAIN = CorpusOptions()


def table(folder: Path, header: str, *rows: str) -> str:
    path = folder / "pairs.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(path)


ROWS = ("a,b,1", "c,d,0", "e,f,1", "g,h,0")


@pytest.mark.parametrize("columns", PAIR_COLUMNS, ids=",".join)
def test_usual_columns_of_pairs_are_found(tmp_path: Path, columns: tuple[str, str, str]) -> None:
    name = table(tmp_path, ",".join(columns), *ROWS)
    found = read_material(name, PLAIN, None, 10)
    assert isinstance(found, Pairs)
    assert found.texts == ["a", "c", "e", "g"]
    assert found.pairs == ["b", "d", "f", "h"]
    assert found.labels.tolist() == [1, 0, 1, 0]
    assert found.binary


def test_columns_that_were_guessed_are_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("bertpool").propagate = True
    find_pair_columns(table(tmp_path, "sentence1,sentence2,score", *ROWS), PLAIN, None)
    assert "sentence1 and sentence2, labels in score" in caplog.text


def test_columns_that_are_named_are_taken(tmp_path: Path) -> None:
    name = table(tmp_path, "x,y,z", *ROWS)
    options = CorpusOptions(text_column="x", pair_column="y")
    found = read_material(name, options, "z", 10)
    assert isinstance(found, Pairs)
    assert found.labels.tolist() == [1, 0, 1, 0]


def test_a_label_column_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match='no column "grade"'):
        read_material(table(tmp_path, "text,pair,label", *ROWS), PLAIN, "grade", 10)


def test_labels_of_json_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    scores = [0.5, 3, 4.25, 1]
    rows = [{"text": "a", "pair": "b", "score": score} for score in scores]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_material(str(path), PLAIN, None, 10)
    assert isinstance(found, Pairs)
    assert found.labels.tolist() == scores
    assert not found.binary


@pytest.mark.parametrize("label", ["yes", "nan", ""])
def test_a_label_that_is_no_number_is_named_with_its_line(tmp_path: Path, label: str) -> None:
    name = table(tmp_path, "text,pair,label", *ROWS, f"i,j,{label}")
    with pytest.raises(CorpusError, match=r"pairs\.csv:6: the label"):
        read_pairs(name, CorpusOptions(pair_column="pair"), "label")


def test_pairs_of_one_label_cannot_be_compared(tmp_path: Path) -> None:
    name = table(tmp_path, "text,pair,label", "a,b,1", "c,d,1", "e,f,1", "g,h,1")
    with pytest.raises(CorpusError, match="two similar and two dissimilar"):
        read_pairs(name, CorpusOptions(pair_column="pair"), "label")


def test_a_file_without_pairs_gives_its_texts(tmp_path: Path) -> None:
    assert read_material(table(tmp_path, "text", "a", "b", "c"), PLAIN, None, 10) == ["a", "b", "c"]


def test_a_sample_has_no_blank_or_equal_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb\na\n \nc\n")
    assert sample_texts(str(tmp_path / "a.txt"), PLAIN, 10) == ["a", "b", "c"]


def test_a_sample_is_of_the_size_asked_for_and_the_same_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"text {i}\n" for i in range(500)))
    first, second = (sample_texts(str(tmp_path / "a.txt"), PLAIN, 50) for _ in range(2))
    assert first == second
    assert len(first) == 50
    assert len({int(text.split()[1]) // 100 for text in first}) == 5


def test_too_few_texts_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\na\nb\n")
    with pytest.raises(CorpusError, match="2 distinct texts"):
        sample_texts(str(tmp_path / "a.txt"), PLAIN, 10)


def test_a_text_is_taken_as_it_is_given() -> None:
    assert find_text("  the cat ", None, 0, PLAIN) == "  the cat "


def test_a_pipe_is_not_read_for_columns_to_guess(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("bertpool").propagate = True
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    rows = "\n".join(["sentence1,text,pair,label", *(f"x,{row}" for row in ROWS)])
    writer = threading.Thread(target=lambda: Path(pipe).write_text(rows))
    writer.start()
    found = read_material(pipe, CorpusOptions("csv"), None, 10)
    writer.join()
    assert found == ["a", "c", "e", "g"]
    assert "--pair-column says where pairs are" in caplog.text
