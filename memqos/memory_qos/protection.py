"""The kernel's effective protection: what memory.min and memory.low are worth.

Source: mm/page_counter.c, effective_protection (before 6.12 in mm/memcontrol.c). Whole pages,
unsigned integers, truncating division.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from memqos.cgroup import MAX


__all__ = ["CgroupMemory", "Protected", "effective_protection", "parent_of"]


class CgroupMemory(NamedTuple):
    """One cgroup; bytes, None where a file could not be read.

    Attributes:
        path: absolute within the mount, such as ``/kubepods.slice``.
        usage: memory.current.
        min: memory.min.
        low: memory.low.
    """

    path: str
    usage: int | None
    min: int
    low: int


class Protected(NamedTuple):
    """What a reclaim leaves a cgroup; bytes.

    Attributes:
        cgroup: the cgroup.
        effective_min: None where the kernel does not evaluate it (no usage).
        effective_low: the same for memory.low.
        min_limited_by: the cgroup whose setting makes memory.min worth less than it could be:
            itself where its setting is below its usage, an ancestor that has too little to give,
            None where nothing limits it.
        low_limited_by: the same for memory.low.
        claimed_min: what memory.min would keep if all ancestors had enough: whole pages, no more
            than is used; nothing for the reclaim's target.
        claimed_low: the same for memory.low.
    """

    cgroup: CgroupMemory
    effective_min: int | None
    effective_low: int | None
    min_limited_by: str | None
    low_limited_by: str | None
    claimed_min: int = 0
    claimed_low: int = 0


def parent_of(path: str) -> str:
    """Return the parent's path; the root's is empty."""
    return path.rpartition("/")[0] or ("/" if path != "/" else "")


def effective_protection(
    cgroups: Iterable[CgroupMemory],
    *,
    recursive: bool,
    page_size: int,
    reclaim_root: str = "/",
) -> tuple[Protected, ...]:
    """Work out the protection of every cgroup below the reclaim's target.

    Args:
        cgroups: all of them, parents and children in any order; unmanaged siblings count, too.
        recursive: the mount option memory_recursiveprot.
        page_size: bytes.
        reclaim_root: ``/`` for global pressure, else the cgroup whose limit was hit: it is not
            protected by its own values.

    Returns:
        One for each cgroup at or below the target, sorted by path.
    """
    known = {cgroup.path: cgroup for cgroup in cgroups if cgroup.path != "/"}
    children: dict[str, list[CgroupMemory]] = {}
    for path in sorted(known, key=lambda path: path.split("/")):
        children.setdefault(parent_of(path), []).append(known[path])
    found: list[Protected] = []
    if reclaim_root in known:
        found.append(Protected(known[reclaim_root], 0, 0, None, None))
    # Parents before children: each level needs its parents' effective values.
    level: list[tuple[str, _Effective | None, _Effective | None]] = []
    if reclaim_root == "/" or reclaim_root in known:
        level.append((reclaim_root, None, None))
    while level:
        path, parent_min, parent_low = level.pop()
        inner = children.get(path, [])
        parent = None if path == reclaim_root else known[path]
        mins = _share(inner, "min", parent, parent_min, recursive=recursive, page_size=page_size)
        lows = _share(inner, "low", parent, parent_low, recursive=recursive, page_size=page_size)
        for cgroup, own_min, own_low in zip(inner, mins, lows, strict=True):
            unused = not (cgroup.usage or 0) // page_size
            found.append(
                Protected(
                    cgroup,
                    None if unused else own_min.pages * page_size,
                    None if unused else own_low.pages * page_size,
                    own_min.limited_by,
                    own_low.limited_by,
                    _claim(cgroup.min, cgroup.usage, page_size) * page_size,
                    _claim(cgroup.low, cgroup.usage, page_size) * page_size,
                )
            )
            level.append((cgroup.path, own_min, own_low))
    return tuple(sorted(found, key=lambda item: item.cgroup.path.split("/")))


class _Effective(NamedTuple):
    pages: int
    limited_by: str | None


def _share(
    inner: list[CgroupMemory],
    knob: str,
    parent: CgroupMemory | None,
    given: _Effective | None,
    *,
    recursive: bool,
    page_size: int,
) -> list[_Effective]:
    """Share what a parent has among its children; `parent` is None for the reclaim's target."""
    settings = [_pages(getattr(cgroup, knob), page_size) for cgroup in inner]
    usages = [(cgroup.usage or 0) // page_size for cgroup in inner]
    if parent is None or given is None:
        return [
            _Effective(setting if usage else 0, cgroup.path if setting < usage else None)
            for cgroup, setting, usage in zip(inner, settings, usages, strict=True)
        ]
    claims = [_claim(getattr(cgroup, knob), cgroup.usage, page_size) for cgroup in inner]
    claimed, pool = sum(claims), given.pages
    parent_usage = (parent.usage or 0) // page_size
    found = []
    for cgroup, claim, usage in zip(inner, claims, usages, strict=True):
        pages = claim
        limiter = cgroup.path if claim < usage else None
        if claimed > pool:
            pages = claim * pool // claimed
            if claim:
                limiter = _limiter(parent, given, knob, page_size)
        elif recursive and pool > claimed and parent_usage > claimed and usage > claim:
            pages += (pool - claimed) * (usage - claim) // (parent_usage - claimed)
            limiter = None if pages >= usage else limiter
        found.append(_Effective(pages if usage else 0, limiter if usage else None))
    return found


def _limiter(parent: CgroupMemory, given: _Effective, knob: str, page_size: int) -> str:
    """Name who is to blame for a parent's short pool: itself, or who limits it in turn."""
    own = _pages(getattr(parent, knob), page_size)
    return parent.path if given.pages >= own or given.limited_by is None else given.limited_by


def _claim(setting: int, usage: int | None, page_size: int) -> int:
    return min(_pages(setting, page_size), (usage or 0) // page_size)


def _pages(value: int, page_size: int) -> int:
    return min(value, MAX) // page_size
