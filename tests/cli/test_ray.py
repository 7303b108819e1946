"""Workers of Ray, by command. Ray takes seconds to start, so few runs show much each."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_models

pytest.importorskip("ray", reason="needs the extra bertpool[ray]")

Tiny = Callable[[str], Path]
Shell = Callable[..., subprocess.CompletedProcess[str]]
TEXTS = tiny_models.sentences(100, seed=6, longest=20)


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """Give Ray a folder of its own, so that no other Ray on this machine is found."""
    folder = tempfile.mkdtemp(prefix="ray")  # short, as the sockets in it may have 107 characters
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_workers_give_the_bytes_of_a_run_without_them(
    shell: Shell, tiny: Tiny, tmp_path: Path, ray_folder: str
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    embed = f"bertpool embed in.txt -m {tiny('tiny-bert')}"
    alone = shell(f"{embed} -o alone.parquet", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    finished = shell(
        f"{embed} -o v.parquet --engine ray --workers 2", cwd=tmp_path, RAY_TMPDIR=ray_folder
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == ""
    assert "v.parquet: 100 rows of 32 float32" in finished.stderr
    assert "Traceback" not in finished.stderr
    same = (tmp_path / "v.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    assert same, "the bytes differ"
    assert names_in(tmp_path) == ["alone.parquet", "in.txt", "v.parquet"]


def test_a_worker_s_error_ends_the_run_in_one_line_and_leaves_no_file_at_the_path(
    shell: Shell, tiny: Tiny, tmp_path: Path, ray_folder: str
) -> None:
    (tmp_path / "in.txt").write_bytes("\n".join(TEXTS).encode() + b"\nit\x96s")
    finished = shell(
        f"bertpool embed in.txt -m {tiny('tiny-bert')} -o v.parquet",
        cwd=tmp_path,
        BERTPOOL_ENGINE="ray",
        BERTPOOL_WORKERS="1",
        RAY_TMPDIR=ray_folder,
    )
    assert finished.returncode == 1, finished.stderr
    errors = [line for line in finished.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {tmp_path}/in.txt:101: not UTF-8 at byte 3")
    assert "Traceback" not in finished.stderr
    left = [name for name in names_in(tmp_path) if not name.startswith("v.part-")]
    assert left == ["in.txt", "v.parquet.partial"]  # the latter notes how many shards there are
    shards = [name for name in names_in(tmp_path) if name.startswith("v.part-")]
    assert "; to go on: bertpool embed in.txt" in finished.stderr
    assert shards  # so that --resume need not embed them again
    assert all("-of-4.parquet" in name for name in shards)  # four of each worker
