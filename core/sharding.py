"""Shards: contiguous ranges of an input's rows, each of which is a run of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertpool.errors import BertpoolError

AUTO = "auto"
SLURM = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN")
TORCHRUN = ("RANK", "WORLD_SIZE")
MOST_SHARDS = 1_000_000


@dataclass(frozen=True)
class Shard:
    """Shard ``index``, from 1, of ``count``."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def rows(self, total: int) -> range:
        """Return its rows of ``total``; the shards' sizes differ by one at most.

        >>> [Shard(i, 3).rows(10) for i in (1, 2, 3)]
        [range(0, 3), range(3, 6), range(6, 10)]
        """
        return range(total * (self.index - 1) // self.count, total * self.index // self.count)

    def path(self, output: Path) -> Path:
        """Name its file after that of the whole.

        >>> str(Shard(1, 3).path(Path("x.parquet")))
        'x.part-1-of-3.parquet'
        """
        return output.with_name(f"{output.stem}.part-{self.index}-of-{self.count}{output.suffix}")


def parse_shard(shard: str, environment: Mapping[str, str] = os.environ) -> Shard:
    """Read ``I/N``, or ``auto``: SLURM's array variables, then ``RANK`` and ``WORLD_SIZE``.

    >>> parse_shard("2/3")
    Shard(index=2, count=3)

    Raises:
        BertpoolError: it is neither, or the environment has none of the variables, or not all.
    """
    if shard == AUTO:
        return _from_environment(environment)
    match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", shard)
    if match is None:
        raise BertpoolError(f"--shard {shard}: give I/N, for example 1/8, or auto", usage=True)
    return _checked(int(match[1]), int(match[2]), f"--shard {shard}")


def _from_environment(environment: Mapping[str, str]) -> Shard:
    if any(name in environment for name in SLURM):
        task, count, first = (_number(environment, name) for name in SLURM)
        return _checked(task - first + 1, count, "--shard auto: the SLURM variables")
    if any(name in environment for name in TORCHRUN):
        rank, size = (_number(environment, name) for name in TORCHRUN)
        return _checked(rank + 1, size, "--shard auto: RANK and WORLD_SIZE")
    known = ", ".join((*SLURM, *TORCHRUN))
    raise BertpoolError(f"--shard auto: none of {known} is set", usage=True)


def _number(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name)
    if value is None or not re.fullmatch(r"[0-9]{1,9}", value):
        found = "isn't set" if value is None else f"is {value!r}, not a number"
        raise BertpoolError(f"--shard auto: {name} {found}", usage=True)
    return int(value)


def _checked(index: int, count: int, what: str) -> Shard:
    if not 1 <= index <= count <= MOST_SHARDS:
        raise BertpoolError(f"{what}: shard {index} of {count}: I goes from 1 to N", usage=True)
    return Shard(index, count)
