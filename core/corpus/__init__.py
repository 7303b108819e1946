"""Files and pipes -> texts with an identity."""

from bertpool.corpus.corpus import Corpus, Window, count_rows
from bertpool.corpus.options import Blank, CorpusOptions, InputFormat, OnError
from bertpool.corpus.records import Reject

__all__ = [
    "Blank",
    "Corpus",
    "CorpusOptions",
    "InputFormat",
    "OnError",
    "Reject",
    "Window",
    "count_rows",
]
