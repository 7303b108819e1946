"""Read vectors back from the files that bertpool writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq


def read_vectors(path: Path, column: str = "embedding") -> npt.NDArray[np.floating[Any]]:
    """Return the vectors of a Parquet or ``.npy`` file, ``(rows, width)``."""
    if path.suffix.lower() == ".npy":
        vectors: npt.NDArray[np.floating[Any]] = np.load(path, allow_pickle=False)
        return vectors
    chunks = pq.read_table(path)[column].combine_chunks()
    flat = chunks.values.to_numpy(zero_copy_only=False)
    return flat.reshape(len(chunks), chunks.type.list_size)


def read_column(path: Path, column: str) -> list[Any]:
    """Return a column of a Parquet file as Python values."""
    values: list[Any] = pq.read_table(path)[column].to_pylist()
    return values
