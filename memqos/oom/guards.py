"""What can be held back from the ranking on request; Talos itself has none of these."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from memqos.oom.layout import Layout, Tree
from memqos.oom.victim import MOUNT, Candidate, find_candidates


__all__ = ["Guards", "guarded_candidates"]


@frozen(kw_only=True)
class Guards:
    """All off by default.

    Attributes:
        skip_unpopulated: pass over cgroups without processes, which a kill would waste a cycle on.
        skip_unknown_limit: pass over cgroups whose memory.max cannot be read, which the default
            ranking takes for unlimited.
        protected_uids: of pods that are never chosen.
        available_bytes: do nothing while MemAvailable is at least this; None for no such guard.
    """

    skip_unpopulated: bool = False
    skip_unknown_limit: bool = False
    protected_uids: frozenset[str] = frozenset()
    available_bytes: int | None = None


def guarded_candidates(tree: Tree, layout: Layout, guards: Guards) -> Iterator[Candidate]:
    """Yield the candidates that no guard holds back, in the order of enumeration."""
    for candidate in find_candidates(tree, layout):
        path = candidate.path.removeprefix(f"{MOUNT}/")
        files = tree.get(path, {})
        if guards.skip_unpopulated and "populated 0" in files.get("cgroup.events", ""):
            continue
        if guards.skip_unknown_limit and not re.fullmatch(
            r"max|[0-9]+", files.get("memory.max", "").strip()
        ):
            continue
        # systemd's names of slices have _ where a UID has -.
        name = path.rpartition("/")[2].replace("_", "-")
        if any(uid in name for uid in guards.protected_uids):
            continue
        yield candidate
