from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models

Tiny = Callable[[str], Path]
Shell = Callable[..., subprocess.CompletedProcess[str]]
PeakOf = Callable[[int, str], int]


@pytest.fixture
def peak_of(shell: Shell, tiny: Tiny, tmp_path: Path) -> PeakOf:
    """Embed so many lines from a stream, and return the bytes of memory that it took."""
    (tmp_path / "words").write_text("\n".join(tiny_models.WORDS))

    def embed(rows: int, arguments: str) -> int:
        finished = shell(
            f'yes "$(cat words)" | head -n {rows} | '
            f"bertpool embed - -m {tiny('tiny-bert')} --threads 1 --report - --force {arguments}",
            cwd=tmp_path,
            timeout=300,
        )
        assert finished.returncode == 0, finished.stderr
        report = json.loads(finished.stdout)
        assert report["rows"] == rows
        peak: int = report["peak_memory_bytes"]
        return peak

    return embed


def test_five_times_the_rows_take_at_most_a_tenth_more_memory(peak_of: PeakOf) -> None:
    small, large = (peak_of(rows, "-o v.npy") for rows in (20_000, 100_000))
    assert large <= 1.1 * small


def test_parquet_takes_no_more_memory_past_its_first_row_group(peak_of: PeakOf) -> None:
    # Some 800 bytes a row: of the 160 MB more that the second run writes, none may stay.
    strategies = "-s cls,mean,max,last,weighted_mean,mean_sqrt_len -o v.parquet"
    small, large = (peak_of(rows, strategies) for rows in (100_000, 300_000))
    assert large <= 1.1 * small
