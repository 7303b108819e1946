"""What a run did: counted, timed, and said."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from bertpool.corpus.inputs import printable_name
from bertpool.digest import file_sha256

T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """Facts of one finished run; ``--report`` has the fields as keys, and ``output_sha256``.

    Attributes:
        outputs: the files of vectors; empty for stdout.
        rejects: the file of what couldn't be read, if anything.
        rows: texts written.
        columns: of vectors.
        tokens: tokens that the model saw.
        padding_share: share of the model's token slots that held padding.
        distinct: different texts, window by window: each is encoded once.
        blank: blank texts, kept or skipped.
        truncated: rows that lost tokens to ``max_length``.
        rejected: records that couldn't be read.
        unknown_only: rows of which the model sees the unknown token only.
        zero: rows whose vector is zero.
        redone: rows that overflowed in a half dtype and were encoded again in float32.
        seconds: wall-clock seconds of each stage, which run at once, and of the whole run.
        rows_per_second: rows by the seconds of embedding alone, and on Ray's workers by those of
            the whole run; likewise ``tokens_per_second``.
        gflop_per_second: of the encoder's matrix products, by the same seconds.
        peak_memory_bytes: of this process.
        fingerprint: of the settings, as in the file's own metadata.
    """

    outputs: tuple[str, ...]
    rejects: str | None
    rows: int
    dimensions: int
    columns: tuple[str, ...]
    strategies: tuple[str, ...]
    tokens: int
    padding_share: float
    distinct: int
    blank: int
    truncated: int
    rejected: int
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
    gflop_per_second: float
    peak_memory_bytes: int
    fingerprint: str

    def to_json(self) -> str:
        """Write the report as indented JSON, with each output's sha256 (it is read for it).

        Where there are several outputs, ``output``, ``output_bytes`` and ``output_sha256`` are
        lists; for stdout they are null.
        """
        files = [Path(output) for output in self.outputs]
        content = {
            "output": _single([printable_name(output) for output in self.outputs]),
            "output_bytes": _single([file.stat().st_size for file in files]),
            "output_sha256": _single([file_sha256(file) for file in files]),
            **{name: value for name, value in asdict(self).items() if name != "outputs"},
        }
        return json.dumps(content, indent=2, ensure_ascii=False)


SUMMED = (
    "rows",
    "tokens",
    "distinct",
    "blank",
    "rejected",
    "truncated",
    "unknown_only",
    "zero",
    "redone",
)


def joined_report(
    reports: Sequence[Report],
    *,
    outputs: tuple[str, ...],
    rejects: Path | None,
    seconds: float,
) -> Report:
    """Sum the reports of a run's shards: stages of all workers, rates by the whole run's seconds.

    Shards that a run before has finished count among the rows, and not for the rates.
    """
    first = reports[0]
    sums = {name: sum(getattr(one, name) for one in reports) for name in SUMMED}
    stages = {name: sum(one.seconds[name] for one in reports) for name in first.seconds}
    weights = [one.tokens for one in reports]
    total = sum(weights) or 1
    made = [one for one in reports if one.seconds["encode"]]
    gflop = sum(one.gflop_per_second * one.seconds["encode"] for one in made)
    shares = zip(reports, weights, strict=True)
    return replace(
        first,
        **sums,
        outputs=outputs,
        rejects=str(rejects) if rejects is not None and sums["rejected"] else None,
        padding_share=sum(one.padding_share * weight for one, weight in shares) / total,
        seconds={**stages, "total": seconds},
        rows_per_second=sum(one.rows for one in made) / seconds,
        tokens_per_second=sum(one.tokens for one in made) / seconds,
        gflop_per_second=gflop / seconds,
        peak_memory_bytes=max(one.peak_memory_bytes for one in reports),
    )


def report_keys() -> list[str]:
    """List the keys of a report as JSON."""
    own = [field.name for field in fields(Report) if field.name != "outputs"]
    return ["output", "output_bytes", "output_sha256", *own]


def _single(values: list[T]) -> T | list[T] | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else values


def peak_memory_bytes() -> int:
    """Return the most memory this process ever held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
