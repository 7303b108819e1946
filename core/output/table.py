"""Rows as Arrow tables: the schema, there and back without copying a vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from bertpool.output.rows import EmbeddedRows, Floats, Layout

METADATA_KEY = "bertpool"
GROUP_BYTES = 16 << 20  # of a row group, before compression; a whole one is held in memory
ROW_OVERHEAD_BYTES = 32  # counts and offsets, about
NESTED_BYTES = 64  # a kept value of a type whose size isn't told cheaply, about


def output_schema(layout: Layout, provenance: str | None = None) -> pa.Schema:
    """Build the schema, the same for every run with the same layout, empty ones too."""
    element = pa.field("element", getattr(pa, layout.dtype)(), nullable=False)
    vector = pa.list_(element, layout.width)
    extra = {field.name: _decoded(field) for field in layout.extra or ()}
    own = extra.pop("id", None)
    fields = [
        own or pa.field("id", pa.int64(), nullable=False),
        *_fields(source=layout.source, line=layout.line),
        *extra.values(),
        *_fields(text=layout.text, pair=layout.pair and layout.text, n_tokens=True, truncated=True),
        *(pa.field(name, vector, nullable=False) for name in layout.columns),
    ]
    if layout.tokens:
        names = pa.list_(pa.field("element", pa.string(), nullable=False))
        fields.append(pa.field("tokens", names, nullable=False))
        vectors = pa.list_(pa.field("element", vector, nullable=False))
        fields.append(pa.field("token_embeddings", vectors, nullable=False))
    metadata = None if provenance is None else {METADATA_KEY: provenance}
    return pa.schema(fields, metadata=metadata)


def _decoded(field: pa.Field) -> pa.Field:
    """Make categories plain values: a file of Arrow has one list of them, and inputs have many."""
    is_dictionary = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if is_dictionary else field


TYPES = {
    "source": pa.string(),
    "line": pa.int64(),
    "text": pa.string(),
    "pair": pa.string(),
    "n_tokens": pa.int32(),
    "truncated": pa.bool_(),
}


def _fields(**wanted: bool) -> Iterator[pa.Field]:
    for name, is_wanted in wanted.items():
        if is_wanted:
            yield pa.field(name, TYPES[name], nullable=False)


def build_table(rows: EmbeddedRows, schema: pa.Schema) -> pa.Table:
    """Make a table of rows; columns that the schema lacks are left out."""
    own = {
        "id": rows.numbers,
        "source": rows.sources,
        "line": rows.lines,
        "text": rows.texts,
        "pair": rows.pairs,
        "n_tokens": rows.n_tokens,
        "truncated": rows.truncated,
        "tokens": rows.tokens,
    }
    extra = () if rows.extra is None else rows.extra.column_names

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in rows.vectors:
            return _fixed_size_lists(rows.vectors[field.name], field.type)
        if field.name in extra:
            assert rows.extra is not None
            return rows.extra[field.name].cast(field.type)
        if field.name == "token_embeddings":
            assert rows.token_vectors is not None
            return _lists_of_vectors(rows.token_vectors, field.type)
        return pa.array(own[field.name], field.type)

    return pa.table([column(field) for field in schema], schema=schema)


class StoredRows:
    """Rows that a table holds, as it comes from a part or a shard."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def vectors(self) -> Mapping[str, Floats]:
        """Each column's ``(rows, width)``."""
        fields = [field for field in self._table.schema if is_vector(field)]
        return {field.name: table_vectors(self._table, field.name) for field in fields}

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the rows as an Arrow table of that schema."""
        return self._table.select(schema.names).replace_schema_metadata(schema.metadata)

    def __len__(self) -> int:
        return len(self._table)


def is_vector(field: pa.Field) -> bool:
    """Tell whether a field holds vectors: fixed-size lists of float32 or float16, never null."""
    return (
        pa.types.is_fixed_size_list(field.type)
        and pa.types.is_floating(field.type.value_type)
        and not field.nullable
    )


def table_vectors(table: pa.Table, name: str) -> Floats:
    """View a column of vectors as ``(rows, width)``; several chunks are joined."""
    column = table[name].combine_chunks()
    width: int = column.type.list_size
    vectors: Floats = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return vectors


def _fixed_size_lists(vectors: Floats, kind: pa.DataType) -> pa.Array:
    """View a ``(rows, width)`` array as an Arrow array of fixed-size lists, without copying."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)


def _lists_of_vectors(texts: Sequence[Floats], kind: pa.DataType) -> pa.Array:
    """Make an Arrow array of lists of vectors from each text's ``(tokens, width)``."""
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    flat = np.concatenate([vectors.reshape(-1) for vectors in texts]) if texts else np.zeros(0)
    dtype = kind.value_type.value_type.to_pandas_dtype()
    values = _fixed_size_lists(flat.astype(dtype, copy=False), kind.value_type)
    return pa.ListArray.from_arrays(pa.array(ends), values, type=kind)


class Groups:
    """Cuts rows into groups of about ``GROUP_BYTES``.

    Where a group ends depends on the rows before it alone, never on how they arrive: the same rows
    give the same groups, and the same file.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take rows, and yield each group that they fill."""
        rows = len(table)
        ends = self._pending_bytes + np.cumsum(row_bytes(table))
        start, written = 0, 0
        while start < rows and ends[-1] - written >= GROUP_BYTES:
            stop = int(np.searchsorted(ends, written + GROUP_BYTES)) + 1
            self._pending.append(table.slice(start, stop - start))
            yield from self.rest()
            start, written = stop, int(ends[stop - 1])
        if start < rows:
            self._pending.append(table.slice(start))
            self._pending_bytes = int(ends[-1]) - written

    def rest(self) -> Iterator[pa.Table]:
        """Yield the group that isn't full, if there are rows."""
        if self._pending:
            # In one piece: pages, too, must not end where the rows happened to arrive. And always
            # copied, as a single piece alone isn't: slices are written with what lies around them.
            nothing = self._pending[0].slice(0, 0)
            yield pa.concat_tables([*self._pending, nothing]).combine_chunks()
        self._pending, self._pending_bytes = [], 0


BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def row_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    """Estimate the bytes of each row, from the row alone."""
    sizes = np.full(len(table), ROW_OVERHEAD_BYTES, dtype=np.int64)
    for field in table.schema:
        kind = field.type
        if is_vector(field):
            sizes += kind.list_size * kind.value_type.bit_width // 8
        elif field.name == "token_embeddings":
            vector = kind.value_type
            each = vector.list_size * vector.value_type.bit_width // 8 + ROW_OVERHEAD_BYTES
            sizes += pc.list_value_length(table[field.name]).to_numpy() * each
        elif any(is_kind(kind) for is_kind in BYTES):
            sizes += pc.fill_null(pc.binary_length(table[field.name]), 0).to_numpy()
        else:
            sizes += NESTED_BYTES if pa.types.is_nested(kind) else 8
    return sizes


def times_as_text(table: pa.Table) -> pa.Table:
    """Make texts of times, as Python has no type for fine or far ones; of durations, numbers."""
    fields = [field.with_type(_without_times(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_without_times(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(_without_times(kind.value_type))
        return pa.list_(inner, kind.list_size)
    return kind
