"""Two readings of a cgroup's counters: what happened between them.

``memory.events`` counts a cgroup with its descendants, ``memory.events.local`` itself; to blame a
level takes the latter. A restarted container is a new cgroup whose counters begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from memqos.cgroup import Pressure
from memqos.memory_qos.findings import Finding, FindingCode, Severity
from memqos.memory_qos.protection import parent_of


__all__ = [
    "Blame",
    "EventDelta",
    "Reading",
    "State",
    "event_delta",
    "event_findings",
    "tree_findings",
]

#: KEP-2570: "significant throttling", and what it suspects a livelock from.
PRESSURE_SIGNIFICANT = 5.0
PRESSURE_LIVELOCK = 10.0
_AVG10_US = 10 * 10**6


class Reading(NamedTuple):
    """One reading; None for what could not be read.

    Attributes:
        id: tells one cgroup from a later one of the same path, such as its inode.
        events: ``memory.events``.
        local: ``memory.events.local``.
        pressure: ``memory.pressure``.
        usage: ``memory.current`` in bytes.
    """

    id: str | None = None
    events: Mapping[str, int] | None = None
    local: Mapping[str, int] | None = None
    pressure: Pressure | None = None
    usage: int | None = None


class State(StrEnum):
    """What became of a cgroup between two readings."""

    SAME = "same"
    RESET = "reset"
    NEW = "new"
    VANISHED = "vanished"


class EventDelta(NamedTuple):
    """What happened in a cgroup.

    Attributes:
        state: whether it is the same cgroup.
        events: growth of each counter, descendants included; None if unknown.
        local: growth of the cgroup's own counters; None if unknown.
        stall_some_us: microseconds in which some task waited for memory; None if unknown.
        stall_full_us: microseconds in which all did; None if unknown.
        pressure: the later reading.
        usage: the later reading, bytes.
        usage_change: bytes, None if unknown.
    """

    state: State
    events: Mapping[str, int] | None
    local: Mapping[str, int] | None
    stall_some_us: int | None
    stall_full_us: int | None
    pressure: Pressure | None
    usage: int | None
    usage_change: int | None


_EMPTY = Reading(events={}, local={})


def event_delta(before: Reading | None, after: Reading | None) -> EventDelta:
    """Compare two readings of one path; None where the cgroup was not there.

    A different id, or any counter that went down, is a reset: the later values are the growth.
    """
    if after is None:
        return EventDelta(State.VANISHED, None, None, None, None, None, None, None)
    if before is None:
        state, old = State.NEW, _EMPTY
    elif _is_reset(before, after):
        state, old = State.RESET, _EMPTY
    else:
        state, old = State.SAME, before
    fresh = state is not State.SAME
    return EventDelta(
        state,
        _growth(old.events, after.events),
        _growth(old.local, after.local),
        _stall(None if fresh else before, after, "some"),
        _stall(None if fresh else before, after, "full"),
        after.pressure,
        after.usage,
        None
        if fresh or before is None or before.usage is None or after.usage is None
        else after.usage - before.usage,
    )


def _is_reset(before: Reading, after: Reading) -> bool:
    if before.id is not None and after.id is not None and before.id != after.id:
        return True
    pairs = ((before.events, after.events), (before.local, after.local))
    return any(
        new[key] < value
        for old, new in pairs
        if old is not None and new is not None
        for key, value in old.items()
        if key in new
    )


def _growth(
    old: Mapping[str, int] | None, new: Mapping[str, int] | None
) -> Mapping[str, int] | None:
    if new is None or old is None:
        return None
    return {key: value - old.get(key, 0) for key, value in new.items()}


def _stall(before: Reading | None, after: Reading, kind: str) -> int | None:
    new = getattr(after.pressure, kind, None)
    if new is None:
        return None
    if before is None:
        return int(new.total_us)
    old = getattr(before.pressure, kind, None)
    return None if old is None else max(0, new.total_us - old.total_us)


class Blame(NamedTuple):
    """What a cgroup's own counters do not tell.

    Attributes:
        local: growth of its own counters, where they had to be estimated; else None.
        killed: processes killed in it and below it.
        above: the nearest ancestor that met its own limit, None for none.
    """

    local: Mapping[str, int] | None = None
    killed: int = 0
    above: str | None = None


_ALONE = Blame()


def tree_findings(deltas: Mapping[str, EventDelta]) -> Iterator[Finding]:
    """Yield what an audit says of a tree: each thing once, at the cgroup it is the matter of.

    Where there is no memory.events.local, own counters are estimated: a parent's less its
    children's. Pressure and reclaim below memory.low are told at the lowest cgroups with it.

    Args:
        deltas: by path, absolute within the mount.
    """
    children: dict[str, list[str]] = {}
    for path in deltas:
        children.setdefault(parent_of(path), []).append(path)
    local = {path: _own(path, deltas, children.get(path, ())) for path in deltas}
    killed: dict[str, int] = {}
    for path in sorted(deltas, key=_depth, reverse=True):
        own = (local[path] or {}).get("oom_kill", 0)
        total = own + sum(killed[child] for child in children.get(path, ()))
        killed[path] = max(total, (deltas[path].events or {}).get("oom_kill", 0))
    for path, delta in deltas.items():
        above = parent_of(path)
        while above and not (local.get(above) or {}).get("oom"):
            above = parent_of(above)
        blame = Blame(local[path], killed[path], above or None)
        inner = children.get(path, ())
        below = set()
        if any(_is_pressed(deltas[child]) for child in inner):
            below.add(FindingCode.PRESSURE)
        if any((local[child] or {}).get("low") for child in inner):
            below.add(FindingCode.LOW_BREACHED)  # reclaim counts each level that it passes
        for finding in event_findings(path, delta, blame):
            if finding.code not in below:
                yield finding


def _depth(path: str) -> int:
    return path.rstrip("/").count("/")


def _own(
    path: str, deltas: Mapping[str, EventDelta], children: Iterable[str]
) -> Mapping[str, int] | None:
    delta = deltas[path]
    if delta.local is not None or delta.events is None:
        return delta.local
    return {
        key: max(0, value - sum((deltas[child].events or {}).get(key, 0) for child in children))
        for key, value in delta.events.items()
    }


def _is_pressed(delta: EventDelta) -> bool:
    full = delta.pressure.full if delta.pressure is not None else None
    return full is not None and full.avg10 > PRESSURE_SIGNIFICANT


def event_findings(path: str, delta: EventDelta, blame: Blame = _ALONE) -> Iterator[Finding]:
    """Yield what an audit says of a delta: own counters only, so that nothing counts twice.

    Args:
        path: the cgroup.
        delta: what happened in it.
        blame: what happened around it.
    """
    counts = delta.local if delta.local is not None else blame.local or {}

    def grown(key: str) -> int:
        return counts.get(key, 0)

    def finding(
        code: FindingCode, severity: Severity, message: str, value: object, remedy: str | None
    ) -> Finding:
        return Finding(
            code=code,
            severity=severity,
            path=path,
            message=message,
            actual=str(value),
            remedy=remedy,
        )

    if delta.state is State.RESET:
        yield finding(
            FindingCode.COUNTER_RESET,
            Severity.INFO,
            "the cgroup was made anew (a container restart): counters began at 0",
            "reset",
            None,
        )
    full = delta.pressure.full if delta.pressure is not None else None
    # Averages outlive what caused them: they must come from between the readings.
    stall = delta.stall_full_us
    recent = stall is None or stall >= PRESSURE_LIVELOCK / 100 * _AVG10_US
    stalled = full is not None and full.avg10 > PRESSURE_LIVELOCK and recent
    flat = not any(map(grown, ("max", "oom", "oom_kill")))
    if full is not None and stalled and grown("high") and flat:
        yield finding(
            FindingCode.LIVELOCK_SUSPECTED,
            Severity.ERROR,
            f"all tasks stall ({full.avg10:g} % of 10 s) at memory.high, and neither its limit "
            "nor the OOM killer is ever reached",
            full.avg10,
            "raise memory.high (a higher memoryThrottlingFactor, limit or request), or restart it",
        )
    if grown("high"):
        yield finding(
            FindingCode.THROTTLED,
            Severity.WARNING,
            f"throttled at memory.high {_times(grown('high'))}{_harm(delta)}",
            grown("high"),
            "none is needed while pressure is low; else raise the limit or the factor",
        )
    if grown("max"):
        yield finding(
            FindingCode.MAX_HIT,
            Severity.WARNING,
            f"ran into memory.max {_times(grown('max'))}; reclaim that then succeeds counts, too",
            grown("max"),
            "raise the memory limit if pressure or OOM kills come with it",
        )
    if grown("oom_kill"):
        group = grown("oom_group_kill")
        whole = f", the whole cgroup {_times(group)}" if group else ""
        yield finding(
            FindingCode.OOM_KILL,
            Severity.ERROR,
            f"the OOM killer struck {_times(grown('oom_kill'))} here{whole}; "
            + _limit_met(grown("oom"), blame.above),
            grown("oom_kill"),
            "raise the limit that was met, or find what fills it",
        )
    elif grown("oom"):
        killed = blame.killed
        yield finding(
            FindingCode.OOM,
            Severity.ERROR,
            f"{_failed(grown('oom'))} at its memory.max"
            + (
                f", and the OOM killer struck {_times(killed)} below"
                if killed
                else ", and nothing was killed: processes with oom_score_adj -1000 look like that"
            ),
            grown("oom"),
            "raise the limit, or find what fills it"
            if killed
            else "write 1 to its cgroup.kill, or restart the pod: the OOM killer will not end it",
        )
    if grown("low"):
        yield finding(
            FindingCode.LOW_BREACHED,
            Severity.WARNING,
            f"reclaimed below memory.low {_times(grown('low'))} (not by how much): it is no "
            "floor, least of all under MGLRU, or is over-committed",
            grown("low"),
            "protect with memory.min what must stay: a Guaranteed pod under TieredReservation",
        )
    if full is not None and full.avg10 > PRESSURE_SIGNIFICANT:
        yield finding(
            FindingCode.PRESSURE,
            Severity.WARNING,
            f"all tasks stalled for memory {full.avg10:g} % of the last 10 s"
            + ("" if stall is None else f", {stall / 1e6:.2f} s between the readings"),
            full.avg10,
            "see what throttles or limits it; give it memory",
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _failed(count: int) -> str:
    return "1 allocation failed" if count == 1 else f"{count} allocations failed"


def _harm(delta: EventDelta) -> str:
    """Say what a count of memory.high means: by itself nothing, with PSI a lot."""
    full = delta.pressure.full if delta.pressure is not None else None
    stall = (
        "" if delta.stall_full_us is None else f" and stalled {delta.stall_full_us / 1e6:.2f} s"
    )
    if full is None:
        return f"{stall}; without pressure (PSI) that says little of harm"
    if full.avg10 > PRESSURE_SIGNIFICANT:
        return f"{stall}, with full pressure at {full.avg10:g} %"
    return f"{stall}, with little harm: full pressure is {full.avg10:g} %"


def _limit_met(own: int, above: str | None) -> str:
    if own:
        return f"its own limit was met ({_failed(own)})"
    if above is not None:
        return (
            f"the limit that was met is that of {above} (with one container the pod, which pays "
            "for its sandbox as well, meets the limit first)"
        )
    return "neither its own limit nor one seen above it was met: the node, or more, ran short"
