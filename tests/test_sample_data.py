from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from bertpool.corpus import Corpus, CorpusOptions
from tokenizers import Tokenizer

SAMPLES = Path(__file__).parent.parent / "sample_data"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Give the texts of corpus.txt, as bertpool reads them."""
    corpus = Corpus([str(SAMPLES / "corpus.txt")], CorpusOptions())
    return [text for window in corpus.windows() for text in window.texts]


def test_the_corpus_has_200_rows(texts: list[str]) -> None:
    assert len(texts) == 200


def test_exactly_line_100_is_blank(texts: list[str]) -> None:
    assert [line for line, text in enumerate(texts, start=1) if not text.strip()] == [100]


def test_exactly_line_150_is_longer_than_512_bert_tokens(texts: list[str], minilm: Path) -> None:
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    assert [line for line, length in enumerate(lengths, start=1) if length > 512] == [150]


def test_the_json_lines_hold_the_same_texts_and_ids(texts: list[str]) -> None:
    with (SAMPLES / "corpus.jsonl").open(encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    assert [row["text"] for row in rows] == texts
    assert [row["id"] for row in rows] == [f"s{i:03d}" for i in range(1, 201)]


def test_the_csv_holds_the_same_texts_and_ids(texts: list[str]) -> None:
    with (SAMPLES / "corpus.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["text"] for row in rows] == texts
    assert [row["id"] for row in rows] == [f"s{i:03d}" for i in range(1, 201)]


def test_the_pairs_are_60_with_30_of_each_label() -> None:
    with (SAMPLES / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert Counter(row["label"] for row in rows) == {"0": 30, "1": 30}
    assert all(row["text"].strip() and row["pair"].strip() for row in rows)
