"""JSON lines: one object a text, for pipes and for eyes."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bertpool.output.rows import Layout, Rows
from bertpool.output.table import is_vector, output_schema, times_as_text


class JsonlWriter:
    """Writes an object a row, in the order of the columns; provenance stands in the sidecar.

    A number of a vector has the fewest digits that give the same float32 again.
    """

    def __init__(self, stream: BinaryIO, layout: Layout, provenance: str) -> None:
        self._stream = stream
        self._schema = output_schema(layout)

    def write(self, rows: Rows) -> None:
        """Append rows."""
        table = rows.table(self._schema)
        columns = [_json_column(table, field) for field in self._schema]
        names = [json.dumps(field.name, ensure_ascii=False) for field in self._schema]
        for values in zip(*columns, strict=True):
            pairs = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
            self._stream.write(f"{{{', '.join(pairs)}}}\n".encode())
        self._stream.flush()

    def close(self) -> None:
        """Nothing follows the last row."""

    def abort(self) -> None:
        """Nothing to let go of."""


def _json_column(table: pa.Table, field: pa.Field) -> Iterator[str]:
    if is_vector(field):
        return _json_vectors(table[field.name].combine_chunks())
    if field.name == "token_embeddings":
        return _json_token_vectors(table[field.name].combine_chunks())
    values: list[object] = times_as_text(table.select([field.name]))[0].to_pylist()
    if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
        values = [_without_nan(value) for value in values]
    return (json.dumps(value, ensure_ascii=False, default=_json_value) for value in values)


def _without_nan(value: object) -> object:
    """Put null for NaN and infinity, which JSON hasn't."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _without_nan(one) for name, one in value.items()}
        case list() | tuple():
            return [_without_nan(one) for one in value]
        case _:
            return value


def _json_vectors(vectors: pa.FixedSizeListArray) -> Iterator[str]:
    """Print numbers by Arrow, which finds the shortest digits, far faster than a loop would."""
    numbers = pc.cast(pc.cast(vectors.flatten(), pa.float32()), pa.string())
    # An integer has no negative zero, and what has no point is read as an integer.
    digits: list[str] = pc.if_else(pc.equal(numbers, "-0"), "-0.0", numbers).to_pylist()
    width = vectors.type.list_size
    return (
        f"[{', '.join(digits[start : start + width])}]" for start in range(0, len(digits), width)
    )


def _json_token_vectors(texts: pa.ListArray) -> Iterator[str]:
    vectors = list(_json_vectors(texts.flatten()))
    ends = np.cumsum(pc.list_value_length(texts).to_numpy()).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield f"[{', '.join(vectors[start:end])}]"


def _json_value(value: object) -> str:
    """Write what JSON has no type for: bytes as base64, decimals as text."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
