"""Formats: which reader reads an input. A new one is a module, a row here, and its test."""

from __future__ import annotations

import os
from collections.abc import Callable

from bertpool.corpus.delimited import check_csv, check_tsv, read_csv, read_tsv
from bertpool.corpus.document import read_document
from bertpool.corpus.jsonl import check_jsonl, read_jsonl
from bertpool.corpus.lines import read_lines
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.parquet import check_parquet, read_parquet
from bertpool.corpus.records import Reader
from bertpool.corpus.streams import Opened

READERS: dict[str, Reader] = {
    "lines": read_lines,
    "text": read_document,
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
}
# Formats with columns, and what tells early that one is missing.
COLUMN_CHECKS: dict[str, Callable[[Opened, CorpusOptions], None]] = {
    "jsonl": check_jsonl,
    "csv": check_csv,
    "tsv": check_tsv,
    "parquet": check_parquet,
}
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
COMPRESSION_SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
# Vectors, most often bertpool's own output: read as lines they would embed nonsense.
NOT_TEXT = (".npy", ".arrow")


def suffix_of(name: str) -> str:
    """Return a file name's suffix in lower case, that of a compression aside.

    >>> suffix_of("d/a.CSV.gz"), suffix_of("a.gz"), suffix_of("a.b/c")
    ('.csv', '', '')
    """
    stem, suffix = os.path.splitext(os.path.basename(name).lower())
    return os.path.splitext(stem)[1] if suffix in COMPRESSION_SUFFIXES else suffix


def format_of(name: str, options: CorpusOptions, *, inside: bool) -> str:
    """Name the format of an input, or of a file inside an input that is a directory."""
    if options.input_format != "auto":
        return options.input_format
    return "text" if inside else SUFFIXES.get(suffix_of(name), "lines")
