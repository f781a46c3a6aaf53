"""How much memory a watcher asks the kernel to leave it: memory.min of its own cgroup.

Source: the kernel's cgroup-v2.rst. What is below memory.min is not reclaimed, as far as every
ancestor has as much to give.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


__all__ = ["MARGIN_BYTES", "reserve_bytes", "void_ancestor"]

_MIB = 1024 * 1024
#: Beyond what is resident at the start: the tree of a large node while a cycle runs, a
#: configuration that is compiled anew, hooks, and what the kernel charges to the cgroup beside
#: our pages (page cache of our files, page tables, sockets).
MARGIN_BYTES = 64 * _MIB


def reserve_bytes(
    *,
    cgroup: str,
    processes: Collection[int],
    pid: int,
    memory_min: int | None,
    resident_bytes: int,
) -> int | None:
    """Decide what to write into memory.min of our own cgroup; None to leave it as it is.

    Args:
        cgroup: its path within the mount, as /proc/self/cgroup has it. The root has no memory.min,
            or is a container's, which is not ours to protect; ``..`` leads out of what we see.
        processes: pids in it; others would be protected along with us.
        pid: ours.
        memory_min: bytes it has now, None where there is no such file.
        resident_bytes: what we hold.
    """
    parts = cgroup.strip("/").split("/")
    if memory_min is None or "" in parts or ".." in parts or set(processes) != {pid}:
        return None
    wanted = -(-resident_bytes // _MIB) * _MIB + MARGIN_BYTES
    return wanted if memory_min < wanted else None


def void_ancestor(mins: Iterable[tuple[str, int | None]]) -> str | None:
    """Return the nearest ancestor without a memory.min to share, None if all have one.

    Args:
        mins: path and memory.min of each ancestor, the nearest first; None where there is no such
            file, as in the root.
    """
    return next((path for path, memory_min in mins if memory_min == 0), None)
