"""Files and pipes -> texts with an identity."""

from bertpool.corpus.corpus import Blank, Corpus, Text, Window

__all__ = ["Blank", "Corpus", "Text", "Window"]
