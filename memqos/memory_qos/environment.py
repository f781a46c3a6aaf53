"""kubelet's start-up warnings about cgroup version and kernel; logged, never fatal."""

from __future__ import annotations

import re
from enum import StrEnum


__all__ = ["MINIMUM_KERNEL", "EnvironmentWarning", "environment_warnings", "kernel_version"]

#: Before it, memory.high throttling can livelock (kernel commit b3ff92916af3).
MINIMUM_KERNEL = (5, 9)


class EnvironmentWarning(StrEnum):
    """What kubelet warns of."""

    CGROUP_V1 = "cgroup-v1"
    KERNEL_LIVELOCK = "kernel-livelock"


def kernel_version(release: str) -> tuple[int, int] | None:
    """Read major and minor of a kernel release such as ``6.1.0-44-amd64``, None if it has none."""
    match = re.match(r"([0-9]{1,6})\.([0-9]{1,6})", release)
    return None if match is None else (int(match[1]), int(match[2]))


def environment_warnings(
    *, enabled: bool, cgroup_version: int, kernel: str | None
) -> tuple[EnvironmentWarning, ...]:
    """Return what kubelet logs at its start with the gate on.

    The kernel is not looked at on cgroup v1; back-ports of distributions are not recognised.
    """
    if not enabled:
        return ()
    if cgroup_version != 2:
        return (EnvironmentWarning.CGROUP_V1,)
    version = None if kernel is None else kernel_version(kernel)
    if version is not None and version < MINIMUM_KERNEL:
        return (EnvironmentWarning.KERNEL_LIVELOCK,)
    return ()
