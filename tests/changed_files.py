"""Change vector files behind bertpool's back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from bertpool.output.provenance import BESIDE_SETTINGS, canonical_json
from bertpool.output.table import table_vectors

Vectors = npt.NDArray[np.floating[Any]]


def change_provenance(path: Path, *, sealed: bool = False, **values: object) -> None:
    """Set fields of a file's provenance; ``sealed`` renews the fingerprint, as a forger would."""
    sidecar = path.with_name(path.name + ".json")
    table = None if sidecar.exists() else pq.read_table(path)
    text = sidecar.read_text() if table is None else table.schema.metadata[b"bertpool"]
    content = json.loads(text) | values
    if sealed:
        settings = {k: v for k, v in content.items() if k not in BESIDE_SETTINGS}
        content["fingerprint"] = hashlib.sha256(canonical_json(settings).encode()).hexdigest()
    if table is None:
        sidecar.write_text(json.dumps(content))
    else:
        pq.write_table(table.replace_schema_metadata({"bertpool": json.dumps(content)}), path)


def change_vectors(path: Path, change: Callable[[Vectors], Vectors | None]) -> None:
    """Change a file's vectors in place, or by what ``change`` returns; rows may become more."""
    if path.suffix == ".npy":
        vectors = np.load(path)
        changed = change(vectors)
        np.save(path, vectors if changed is None else changed)
        return
    table = pq.read_table(path)
    field = table.schema.field("embedding")
    vectors = table_vectors(table, "embedding").copy()
    changed = change(vectors)
    flat = pa.array((vectors if changed is None else changed).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, type=field.type)
    index = table.schema.names.index("embedding")
    pq.write_table(table.set_column(index, field, column), path)
