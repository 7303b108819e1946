"""What made a file: enough to make it again, and nothing that changes between equal runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertpool.corpus.inputs import InputIdentity

FORMAT_VERSION = 1
# What provenance holds beside the settings, and the fingerprint isn't of. ``column`` is in the
# sidecar of a file that holds one of several.
BESIDE_SETTINGS = ("format_version", "fingerprint", "inputs", "rows", "shard", "column")


@dataclass(frozen=True)
class Settings:
    """All that decides the rows of given inputs, but the machine. No time, host or path.

    ``layers`` lists what is pooled, each of them the layers that are averaged for it.
    ``stages`` names what follows the pooling, in order; ``modules_sha256`` is of its weights.
    """

    bertpool_version: str
    model: str
    revision: str | None
    config_sha256: str
    weights_sha256: str
    tokenizer_sha256: str
    modules_sha256: str | None
    strategies: tuple[str, ...]
    layers: tuple[tuple[int, ...], ...]
    columns: tuple[str, ...]
    stages: tuple[str, ...]
    exclude_special: bool
    max_length: int
    prompt: str
    include_prompt: bool
    lower_case: bool
    normalize: bool
    dimensions: int
    dtype: str
    output_dtype: str
    on_truncate: str
    stride: int | None
    input_format: str
    text_column: str
    pair_column: str | None
    id_column: str | None
    keep: tuple[str, ...]
    text: bool
    encoding: str
    blank: str
    on_error: str

    def fingerprint(self) -> str:
        """Hash the settings: equal inputs under equal fingerprints give equal files."""
        return hashlib.sha256(canonical_json(asdict(self)).encode()).hexdigest()


@dataclass(frozen=True)
class RowRange:
    """Rows ``first`` to before ``stop`` of ``total``: those of shard ``index`` of ``count``."""

    index: int
    count: int
    first: int
    stop: int
    total: int

    @property
    def rows(self) -> range:
        """Return the rows."""
        return range(self.first, self.stop)


def provenance_json(
    settings: Settings,
    inputs: Sequence[InputIdentity] | None,
    rows: int | None,
    shard: RowRange | None = None,
) -> str:
    """Write provenance as JSON with sorted keys.

    ``inputs`` and ``rows`` are None on stdout, where rows are written before they are known.
    """
    content = {
        "format_version": FORMAT_VERSION,
        "fingerprint": settings.fingerprint(),
        "inputs": None if inputs is None else [asdict(one) for one in inputs],
        "rows": rows,
        **({"shard": asdict(shard)} if shard else {}),
        **asdict(settings),
    }
    return canonical_json(content)


def is_unchanged(provenance: Mapping[str, Any]) -> bool:
    """Tell whether the settings are still those that the fingerprint is of."""
    settings = {k: v for k, v in provenance.items() if k not in BESIDE_SETTINGS}
    digest = hashlib.sha256(canonical_json(settings).encode()).hexdigest()
    return bool(digest == provenance["fingerprint"])


def first_difference(
    made_with: Mapping[str, Any], settings: Mapping[str, Any], *, this: str = "this run"
) -> str | None:
    """Name the first field that differs from ``this``, with both values; None where none does."""
    for name, value in settings.items():
        own = made_with.get(name)
        if name == "fingerprint" or own == value:
            continue  # a fingerprint differs where a field does, and says less
        if name == "inputs":
            return "another input, or one that has changed since"
        return f"{name} {canonical_json(own)}, and {this} has {canonical_json(value)}"
    return None


def canonical_json(content: object) -> str:
    """Write JSON with sorted keys: equal content, equal bytes."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False)
