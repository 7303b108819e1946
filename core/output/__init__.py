"""Vectors -> files: formats, provenance, and where they may be written."""
