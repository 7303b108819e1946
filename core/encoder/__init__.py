"""Texts -> token vectors: find a checkpoint, tokenize, batch, run."""
