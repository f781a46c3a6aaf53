"""What can be held back from the ranking on request; Talos itself has none of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import Factory, frozen

from memqos.oom.layout import Layout, Tree
from memqos.oom.preference import Preference, preference_of
from memqos.oom.victim import MOUNT, Candidate, find_candidates


__all__ = ["Guards", "guarded_candidates"]


@frozen(kw_only=True)
class Guards:
    """All off by default.

    Attributes:
        skip_unpopulated: pass over cgroups without processes, which a kill would waste a cycle on.
        skip_unknown_limit: pass over cgroups whose memory.max cannot be read, which the default
            ranking takes for unlimited.
        preferences: of pods, by UID.
        protected: UIDs of pods that are never chosen, or parts of them.
        own: paths below the mount of cgroups in which the watcher itself runs: never chosen.
        available_bytes: do nothing while MemAvailable is at least this; None for no such guard.
    """

    skip_unpopulated: bool = False
    skip_unknown_limit: bool = False
    preferences: Mapping[str, Preference] = Factory(dict)
    protected: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    available_bytes: int | None = None


def guarded_candidates(
    tree: Tree,
    layout: Layout,
    guards: Guards,
    attributes: Callable[[str], Iterable[str]] | None = None,
) -> Iterator[Candidate]:
    """Yield the candidates that no guard holds back, in the order of enumeration.

    Those that are never to be chosen are among them, so that it can be told why they are not.

    Args:
        tree: the cgroups' files.
        layout: which cgroups make up which class.
        guards: what is held back or preferred.
        attributes: tells a path's extended attributes (see `memqos.oom.preference`); None where
            they do not count.
    """
    for candidate in find_candidates(tree, layout):
        path = candidate.path.removeprefix(f"{MOUNT}/")
        files = tree.get(path, {})
        if guards.skip_unpopulated and "populated 0" in files.get("cgroup.events", ""):
            continue
        if guards.skip_unknown_limit and not re.fullmatch(
            r"max|[0-9]+", files.get("memory.max", "").strip()
        ):
            continue
        given = () if attributes is None else attributes(path)
        preference = preference_of(path, guards.preferences, given, guards.protected)
        if path in guards.own:
            preference = Preference.NEVER
        yield candidate._replace(preference=preference)
