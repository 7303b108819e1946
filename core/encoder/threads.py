"""How many threads a run may use: what this process was given, not what the host has."""

from __future__ import annotations

import os
from pathlib import Path

from bertpool.errors import BertpoolError

MAX_THREADS = 1024  # far more than help, and more than that the thread pools refuse
CGROUP = Path("/sys/fs/cgroup")
TOPOLOGY = Path("/sys/devices/system/cpu")


def default_threads(*, cgroup: Path = CGROUP, topology: Path = TOPOLOGY) -> int:
    """Return OMP_NUM_THREADS, else the allowed physical cores within the cgroup's quota."""
    # OpenMP allows a list, one number for each level of nesting.
    wish = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wish.isdecimal() and int(wish) > 0:
        return min(int(wish), MAX_THREADS)
    quota = cgroup_quota(cgroup)
    cores = physical_cores(allowed_cpus(), topology)
    return max(1, min(cores, int(quota))) if quota else max(1, cores)


def chosen_threads(threads: int | None) -> int:
    """Check a number of threads; None stands for the default.

    Raises:
        BertpoolError: it isn't possible.
    """
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise BertpoolError(f"--threads {threads}: give 1 to {MAX_THREADS}", usage=True)
    return threads or default_threads()


def allowed_cpus() -> set[int]:
    """Return the CPUs that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical_cores(cpus: set[int], topology: Path = TOPOLOGY) -> int:
    """Count CPUs, with hyper-threads of one core as one."""
    siblings = set()
    for cpu in cpus:
        path = topology / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        siblings.add(path.read_text() if path.is_file() else str(cpu))
    return len(siblings)


def cgroup_quota(root: Path = CGROUP) -> float | None:
    """Return the CPUs' worth of time that cgroup v2 or v1 grants, or None for no bound."""
    limit = root / "cpu.max"
    if limit.is_file():
        quota, period = limit.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    v1 = root / "cpu"
    if (v1 / "cpu.cfs_quota_us").is_file():
        quota = (v1 / "cpu.cfs_quota_us").read_text()
        return None if int(quota) <= 0 else int(quota) / int((v1 / "cpu.cfs_period_us").read_text())
    return None
