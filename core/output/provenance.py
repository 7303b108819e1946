"""What made a file: enough to make it again, and nothing that changes between equal runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bertpool.corpus.inputs import InputIdentity

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Settings:
    """All that decides the vectors of given texts, but the machine. No time, host or path.

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
    encoding: str
    blank: str

    def fingerprint(self) -> str:
        """Hash the settings: vectors of equal fingerprints may be compared."""
        return hashlib.sha256(_canonical(asdict(self)).encode()).hexdigest()


def provenance_json(settings: Settings, inputs: Sequence[InputIdentity], rows: int) -> str:
    """Write provenance as JSON with sorted keys."""
    content = {
        "format_version": FORMAT_VERSION,
        "fingerprint": settings.fingerprint(),
        "inputs": [asdict(one) for one in inputs],
        "rows": rows,
        **asdict(settings),
    }
    return _canonical(content)


def _canonical(content: object) -> str:
    return json.dumps(content, sort_keys=True, ensure_ascii=False)
