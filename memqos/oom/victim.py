"""Who is killed: candidates, their scores, and the one that is chosen, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from attrs import frozen

from memqos.oom.classes import OOMClass
from memqos.oom.expression import Checked, EvaluationError
from memqos.oom.layout import Layout, Tree, children, expand
from memqos.oom.preference import Preference


__all__ = [
    "MOUNT",
    "Candidate",
    "Eligibility",
    "Scored",
    "Selection",
    "find_candidates",
    "score",
    "score_all",
    "select_victim",
]

#: Paths are absolute in expressions.
MOUNT = "/sys/fs/cgroup"
_MAX_INT64 = 2**63 - 1


class Candidate(NamedTuple):
    """A cgroup that could be killed; bytes, None for what is not reported or unlimited.

    Attributes:
        path: as the expression sees it, such as ``/sys/fs/cgroup/kubepods/besteffort/pod…``.
        oom_class: its class.
        current: memory.current.
        peak: memory.peak.
        max: memory.max.
        swap: memory.swap.current.
        preference: which group it belongs to.
    """

    path: str
    oom_class: OOMClass
    current: int | None = None
    peak: int | None = None
    max: int | None = None
    swap: int | None = None
    preference: Preference = Preference.PLAIN


class Eligibility(StrEnum):
    """Why a candidate can be chosen, or not."""

    ELIGIBLE = "eligible"
    LIMITED = "limited"
    NOT_POSITIVE = "score-not-positive"
    ERROR = "error"
    NEVER = "never"
    OTHER_PREFERENCE = "another-preference-goes-first"
    OTHER_CLASS = "a-less-important-class-goes-first"


class Scored(NamedTuple):
    """A candidate with its score, None where the expression failed."""

    candidate: Candidate
    score: float | None
    error: str | None
    eligibility: Eligibility

    @property
    def eligible(self) -> bool:
        """Whether it can be a victim at all, whatever the order of preferences and classes."""
        return self.eligibility in (
            Eligibility.ELIGIBLE,
            Eligibility.OTHER_PREFERENCE,
            Eligibility.OTHER_CLASS,
        )


@frozen(kw_only=True)
class Selection:
    """The choice.

    Attributes:
        victim: None when nothing is eligible.
        scored: every candidate, in the order of enumeration.
        tied: others with the victim's class and score; Talos picks one of them by chance.
    """

    victim: Scored | None
    scored: tuple[Scored, ...]
    tied: tuple[Scored, ...] = ()


def find_candidates(tree: Tree, layout: Layout) -> tuple[Candidate, ...]:
    """List the candidates of a tree: members of the classes, in Talos' order."""
    return tuple(
        Candidate(
            f"{MOUNT}/{path}",
            oom_class,
            _reported(tree, path, "memory.current"),
            _reported(tree, path, "memory.peak"),
            _reported(tree, path, "memory.max"),
            _reported(tree, path, "memory.swap.current"),
        )
        for path, oom_class in expand(layout.candidates, children(tree))
    )


def _reported(tree: Tree, path: str, name: str) -> int | None:
    """Read an int64; ``max``, fractions, negatives and garbage are not reported."""
    text = tree.get(path, {}).get(name, "").strip()
    if not re.fullmatch(r"\+?[0-9]{1,19}", text) or int(text) > _MAX_INT64:
        return None
    return int(text)


def score(candidate: Candidate, ranking: Checked) -> Scored:
    """Score one candidate; only scores above 0 are eligible."""
    values: dict[str, Any] = {
        "memory_max": candidate.max,
        "memory_current": candidate.current,
        "memory_peak": candidate.peak,
        "memory_swap_current": candidate.swap,
        "path": candidate.path,
        "class": int(candidate.oom_class),
    }
    try:
        value = float(ranking.evaluate(values))
    except EvaluationError as error:
        return Scored(candidate, None, str(error), Eligibility.ERROR)
    if candidate.preference is Preference.NEVER:
        return Scored(candidate, value, None, Eligibility.NEVER)
    if value > 0:
        return Scored(candidate, value, None, Eligibility.ELIGIBLE)
    limited = candidate.max is not None and "memory_max" in ranking.names
    reason = Eligibility.LIMITED if limited else Eligibility.NOT_POSITIVE
    return Scored(candidate, value, None, reason)


def score_all(candidates: Iterable[Candidate], ranking: Checked) -> tuple[Scored, ...]:
    """Score candidates in their order."""
    return tuple(score(candidate, ranking) for candidate in candidates)


def select_victim(scored: Iterable[Scored], *, strict: bool) -> Selection:
    """Choose the victim.

    Args:
        scored: the candidates.
        strict: the least important class with an eligible candidate goes first.

    The first preference with an eligible candidate goes before the others. Ties go by class, then
    larger memory.current, then path; Talos leaves them to chance.
    """
    every = _first_group(scored, "preference", Eligibility.OTHER_PREFERENCE)
    if strict:
        every = _first_group(every, "oom_class", Eligibility.OTHER_CLASS)
    eligible = [item for item in every if item.eligibility is Eligibility.ELIGIBLE]
    if not eligible:
        return Selection(victim=None, scored=every)
    best = min(eligible, key=_order)
    tied = tuple(item for item in eligible if item.score == best.score and item is not best)
    return Selection(victim=best, scored=every, tied=tied)


def _first_group(scored: Iterable[Scored], by: str, reason: Eligibility) -> tuple[Scored, ...]:
    """Pass over the eligible ones for a reason, but for those with the lowest value."""
    every, group = tuple(scored), attrgetter(f"candidate.{by}")
    eligible = [item for item in every if item.eligibility is Eligibility.ELIGIBLE]
    first = min(map(group, eligible), default=None)
    return tuple(
        item._replace(eligibility=reason)
        if item.eligibility is Eligibility.ELIGIBLE and group(item) != first
        else item
        for item in every
    )


def _order(item: Scored) -> tuple[float, int, int, str]:
    candidate = item.candidate
    return (
        -(item.score or 0.0),
        int(candidate.oom_class),
        -(candidate.current or 0),
        candidate.path,
    )
