from __future__ import annotations

from typing import get_args

import pytest
from bertpool.corpus.formats import COLUMN_CHECKS, READERS, SUFFIXES, format_of
from bertpool.corpus.options import CorpusOptions, InputFormat

AUTO = CorpusOptions()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", "lines"),
        ("a", "lines"),
        ("-", "lines"),
        ("a.gz", "lines"),
        (".csv", "lines"),
        ("a.jsonl", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("d.csv/a.txt", "lines"),
        ("d/a.CSV", "csv"),
        ("a.tsv.zst", "tsv"),
        ("a.csv.gz", "csv"),
        ("a.jsonl.bz2", "jsonl"),
        ("a.parquet.xz", "parquet"),
    ],
)
def test_a_format_is_told_from_the_suffix_but_for_a_compression(name: str, expected: str) -> None:
    assert format_of(name, AUTO, inside=False) == expected


def test_files_in_a_directory_are_texts_whatever_their_suffix() -> None:
    assert format_of("d/a.csv", AUTO, inside=True) == "text"


@pytest.mark.parametrize("inside", [True, False])
def test_a_format_that_is_named_holds_for_every_input(inside: bool) -> None:
    assert format_of("a.csv", CorpusOptions(input_format="lines"), inside=inside) == "lines"


def test_every_format_that_can_be_named_has_a_reader() -> None:
    assert {"auto", *READERS} == set(get_args(InputFormat))
    assert {*SUFFIXES.values(), *COLUMN_CHECKS} <= set(READERS)
