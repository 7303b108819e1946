"""What a run did: counted, timed, and said."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bertpool.corpus.inputs import printable_name
from bertpool.digest import file_sha256


@dataclass(frozen=True)
class Report:
    """Facts of one finished run; ``--report`` has the fields as keys, and ``output_sha256``.

    Attributes:
        rows: texts written.
        tokens: tokens that the model saw.
        padding_share: share of the model's token slots that held padding.
        distinct: different texts, window by window: each is encoded once.
        blank: blank texts, kept or skipped.
        truncated: rows that lost tokens to ``max_length``.
        unknown_only: rows of which the model sees the unknown token only.
        zero: rows whose vector is zero.
        redone: rows that overflowed in a half dtype and were encoded again in float32.
        seconds: wall-clock seconds of each stage, which run at once, and of the whole run.
        rows_per_second: rows by the seconds of embedding alone; likewise ``tokens_per_second``.
        peak_memory_bytes: of this process.
        fingerprint: of the settings, as in the file's own metadata.
    """

    output: str
    output_bytes: int
    rows: int
    dimensions: int
    strategies: tuple[str, ...]
    tokens: int
    padding_share: float
    distinct: int
    blank: int
    truncated: int
    unknown_only: int
    zero: int
    redone: int
    max_length: int
    model: str
    device: str
    dtype: str
    output_dtype: str
    threads: int
    seconds: dict[str, float]
    rows_per_second: float
    tokens_per_second: float
    peak_memory_bytes: int
    fingerprint: str

    def to_json(self) -> str:
        """Write the report as indented JSON, with the output's sha256 (the file is read for it)."""
        content = {
            **asdict(self),
            "output": printable_name(self.output),
            "output_sha256": file_sha256(Path(self.output)),
        }
        return json.dumps(content, indent=2, ensure_ascii=False)


def peak_memory_bytes() -> int:
    """Return the most memory this process ever held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
