from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bertpool.encoder import threads
from bertpool.encoder.threads import allowed_cpus, cgroup_quota, default_threads, physical_cores


def topology(root: Path, siblings: dict[int, str]) -> Path:
    """Write what the kernel tells of each CPU: the hyper-threads on its core."""
    for cpu, listing in siblings.items():
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{listing}\n")
    return root


def cgroup_v1(root: Path, quota: int, period: int = 100_000) -> Path:
    (root / "cpu").mkdir(parents=True)
    (root / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (root / "cpu" / "cpu.cfs_period_us").write_text(f"{period}\n")
    return root


def test_hyper_threads_of_a_core_are_one(tmp_path: Path) -> None:
    root = topology(tmp_path, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    assert physical_cores({0, 1, 2, 3}, root) == 2


def test_only_cores_with_an_allowed_cpu_count(tmp_path: Path) -> None:
    root = topology(tmp_path, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert physical_cores({1, 2}, root) == 2
    assert physical_cores({2, 3}, root) == 1


def test_without_a_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert physical_cores({0, 1, 5}, tmp_path) == 3


@pytest.mark.parametrize(
    ("written", "quota"),
    [("max 100000", None), ("200000 100000", 2.0), ("50000 100000", 0.5), ("150000 50000", 3.0)],
)
def test_cgroup_v2_grants_its_quota(tmp_path: Path, written: str, quota: float | None) -> None:
    (tmp_path / "cpu.max").write_text(f"{written}\n")
    assert cgroup_quota(tmp_path) == quota


@pytest.mark.parametrize(("written", "quota"), [(-1, None), (100_000, 1.0), (250_000, 2.5)])
def test_cgroup_v1_grants_its_quota(tmp_path: Path, written: int, quota: float | None) -> None:
    assert cgroup_quota(cgroup_v1(tmp_path, written)) == quota


def test_no_cgroup_sets_no_bound(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None


def test_the_allowed_cpus_are_those_of_the_scheduler() -> None:
    assert allowed_cpus() == os.sched_getaffinity(0)


def test_a_process_bound_to_one_cpu_gets_one_thread() -> None:
    code = (
        "import os; from bertpool.encoder.threads import default_threads;"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(default_threads())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert int(printed) == 1


def test_every_core_within_the_quota_gets_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = physical_cores(os.sched_getaffinity(0))
    assert default_threads() == max(1, min(cores, int(cgroup_quota() or cores)))


@pytest.mark.parametrize(("wish", "expected"), [("7", 7), ("3,2", 3), (" 5 ", 5)])
def test_omp_num_threads_wins(monkeypatch: pytest.MonkeyPatch, wish: str, expected: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", wish)
    assert default_threads() == expected


@pytest.mark.parametrize("wish", ["", "0", "-1", "many", "\u00b2", ","])
def test_an_omp_num_threads_that_is_no_count_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, wish: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    without = default_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", wish)
    assert default_threads() == without


def test_the_files_read_are_the_kernels() -> None:
    assert threads.CGROUP == Path("/sys/fs/cgroup")
    assert threads.TOPOLOGY == Path("/sys/devices/system/cpu")
