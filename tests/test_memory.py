from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import tiny_models


def test_five_times_the_rows_take_at_most_a_tenth_more_memory(
    shell: Callable[..., subprocess.CompletedProcess[str]],
    tiny: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    peaks = []
    for rows in (20_000, 100_000):
        lines = "".join(
            f"{word}\n" for word, _ in zip(itertools.cycle(tiny_models.WORDS), range(rows))
        )
        (tmp_path / f"{rows}.txt").write_text(lines)
        finished = shell(
            f"bertpool embed {rows}.txt -m {tiny('tiny-bert')} --batch-tokens 16384 --report -",
            cwd=tmp_path,
        )
        report = json.loads(finished.stdout)
        assert report["rows"] == rows
        peaks.append(report["peak_memory_bytes"])
    assert peaks[1] <= 1.1 * peaks[0]
