"""The output of a run that was finished before: found again under ``--resume``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertpool.corpus import Corpus
from bertpool.corpus.inputs import InputIdentity
from bertpool.counts import Counts
from bertpool.errors import OutputError
from bertpool.output.provenance import RowRange, Settings, first_difference, provenance_json
from bertpool.output.rejects import count_rejects
from bertpool.plan import Plan


@dataclass(frozen=True)
class FinishedRun:
    """What is left of a run in its files; tokens are counted where a file tells them."""

    counts: Counts
    rejected: int


def find_finished(
    plan: Plan,
    settings: Settings,
    inputs: Sequence[InputIdentity] | None,
    row_range: RowRange | None,
    *,
    going_on: bool,
    replaces: bool,
) -> FinishedRun | None:
    """Find all of a plan's output there, whole, as this run would write it.

    Args:
        plan: of this run.
        settings: of this run.
        inputs: what the inputs are, where that is known.
        row_range: of a shard.
        going_on: there are finished windows to go on from: what is there may be a part of what the
            run was putting in place when it was killed.
        replaces: that run was told to replace what is there, which may then be anything.

    Raises:
        OutputError: a file is there that this command wouldn't write.
    """
    there = [target.path for target in plan.destination.targets if target.path.exists()]
    all_there = _all_there(plan)
    read_once = Corpus(plan.options.inputs, plan.options.corpus).size is None
    # A pipe is used up by the comparison: not while there is still something to do with it.
    if not there or (going_on and (not all_there or (replaces and read_once))):
        return None
    if not all_there and read_once:
        raise OutputError(f"{there[0]}: exists; pass --force to replace it")
    inputs = _read_all(plan) if inputs is None else inputs
    try:
        rows = [_check_made(path, plan, settings, inputs, row_range) for path in there]
    except OutputError:
        if going_on and replaces:
            return None
        raise
    if len(there) < len(plan.destination.targets):
        return None
    rejected = count_rejects(plan.destination.rejects)
    return FinishedRun(_counts(there[0], plan, rows[0]), rejected)


def _check_made(
    path: Path,
    plan: Plan,
    settings: Settings,
    inputs: Sequence[InputIdentity],
    row_range: RowRange | None,
) -> int:
    """Check that a file is what this run would write; return its number of rows."""
    made = _provenance(path, plan)
    expected = json.loads(provenance_json(settings, inputs, made["rows"], row_range))
    if difference := first_difference(made, expected):
        raise OutputError(
            f"{path}: exists, and was made with {difference}; pass --force to replace it"
        )
    rows: int = made["rows"]
    return rows


def _all_there(plan: Plan) -> bool:
    return all(file.exists() for target in plan.destination.targets for file in target.files)


def _read_all(plan: Plan) -> Sequence[InputIdentity]:
    """Read the inputs, also a pipe, which is used up by that: nothing is left to do with it."""
    corpus = Corpus(plan.options.inputs, plan.options.corpus)
    for _ in corpus.windows():
        pass
    return corpus.identities


def _provenance(path: Path, plan: Plan) -> dict[str, Any]:
    from bertpool.output.vector_file import read_provenance

    try:
        return read_provenance(path, plan.destination.format_name)
    except (OSError, ValueError, OutputError) as error:
        raise OutputError(f"{path}: exists; pass --force to replace it") from error


def _counts(path: Path, plan: Plan, rows: int) -> Counts:
    """Count what a file tells of its rows."""
    from bertpool.output.vector_file import open_vectors

    if plan.destination.format_name not in ("parquet", "arrow"):
        return Counts(rows=rows)
    tokens, truncated = 0, 0
    for table in open_vectors(path, plan.destination.format_name).batches(
        ["n_tokens", "truncated"]
    ):
        seen = table["n_tokens"].to_numpy()
        tokens += int(seen.clip(max=plan.limit.tokens).sum() if plan.stride is None else seen.sum())
        truncated += int(table["truncated"].to_numpy().sum())
    return Counts(rows=rows, tokens=tokens, truncated=truncated)
