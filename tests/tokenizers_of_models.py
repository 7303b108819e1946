"""Tokenizers of a checkpoint: bertpool's, and transformers' to compare it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import length_limit
from bertpool.encoder.recipe import Reading
from bertpool.encoder.tokenizer import Tokenizer, load_tokenizer


def tokenizer_of(directory: Path, max_length: int | None = None, **reading: Any) -> Tokenizer:
    """Load a checkpoint's tokenizer as bertpool does."""
    checkpoint = find_checkpoint(str(directory))
    return load_tokenizer(checkpoint, length_limit(checkpoint, max_length), Reading(**reading))


def own_tokenizer(directory: Path) -> Any:
    """Load the model's own tokenizer, with the padding that its file may carry reset."""
    own = hf.AutoTokenizer.from_pretrained(directory)
    if own.is_fast:
        own.backend_tokenizer.no_padding()
    return own
