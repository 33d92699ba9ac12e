"""How many cores this process may use: what the scheduler allows, and what its control group's quota pays for."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process can keep busy, at least 1.

    The smaller of its CPU affinity (taskset, Slurm, cpuset) and the CPU quota of its control group (containers), v1 or
    v2, rounded up. `os.cpu_count()` knows neither: in a container of 2 cores on a machine of 64 it says 64.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpu_quota(Path("/"))
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def cgroup_cpu_quota(root: Path) -> float | None:
    """CPUs that the quota of this process's control group, or of one above it, pays for; None without a quota."""
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in memberships:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            mount, read = root / "sys/fs/cgroup", _quota_v2
        elif "cpu" in controllers.split(","):
            mount, read = root / "sys/fs/cgroup/cpu", _quota_v1
        else:
            continue
        # inside a container the path may be the host's: then the group's own files are at the mount point
        below = Path(path.lstrip("/"))
        quotas += [read(mount / group) for group in (below, *below.parents)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_v2(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return None if quota <= 0 else quota / period
