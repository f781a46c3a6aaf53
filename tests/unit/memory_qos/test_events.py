"""Deltas between two readings, and what is made of them; on captures of real kernels."""

from collections.abc import Mapping

import pytest

from memqos.cgroup import Pressure, PressureLine, parse_flat, parse_pressure
from memqos.memory_qos.events import (
    EventDelta,
    Reading,
    State,
    event_delta,
    event_findings,
    tree_findings,
)
from memqos.memory_qos.findings import FindingCode
from tests.support.cgroups import captured, scenario


def reading(files: Mapping[str, str]) -> Reading:
    """Parse the files of one cgroup."""

    def flat(name: str) -> Mapping[str, int] | None:
        return parse_flat(files[name]) if name in files else None

    text = files.get("memory.pressure")
    return Reading(
        None,
        flat("memory.events"),
        flat("memory.events.local"),
        None if text is None else parse_pressure(text),
        int(files["memory.current"]) if "memory.current" in files else None,
    )


def deltas(name: str, before: str, after: str) -> dict[str, EventDelta]:
    """Compare two points in time of a scenario."""
    old, new = captured(name, before), captured(name, after)
    return {
        path: event_delta(reading(old.get(path, {})), reading(files))
        for path, files in new.items()
    }


def told(name: str, before: str, after: str) -> set[tuple[str, str, str]]:
    """Return code, severity and the cgroup: `b1` for a pod, `b1.c` for its container."""
    names = {path: f"{key}.c" for key, path in scenario(name)["containers"].items()}
    names |= {path: key for key, path in scenario(name)["pods"].items()}
    return {
        (str(item.code), str(item.severity), names.get(item.path or "", item.path or ""))
        for item in tree_findings(deltas(name, before, after))
    }


# --- deltas --------------------------------------------------------------------------------------


def test_growth() -> None:
    """Each counter by itself; one that a reading lacks began at 0 in the other."""
    delta = event_delta(
        Reading(events={"high": 2}, usage=10), Reading(events={"high": 5, "new": 1}, usage=4)
    )

    assert (delta.state, delta.events, delta.local) == (State.SAME, {"high": 3, "new": 1}, None)
    assert (delta.usage, delta.usage_change) == (4, -6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Reading("1", {"high": 500}), Reading("2", {"high": 600})),
        (Reading("1", {"high": 500}), Reading("1", {"high": 2})),
        (Reading(None, {"high": 500}), Reading(None, {"high": 2})),
    ],
    ids=["another id", "a counter fell", "no ids"],
)
def test_reset(before: Reading, after: Reading) -> None:
    """A restarted container is a new cgroup: its counters are the growth, never negative."""
    delta = event_delta(before, after)

    assert delta.state is State.RESET
    assert delta.events == after.events
    assert [item.code for item in event_findings("/c", delta)] == [FindingCode.COUNTER_RESET]


def test_new_and_vanished() -> None:
    """A new cgroup counts from 0; of one that is gone nothing is known."""
    new = event_delta(None, Reading("1", {"oom_kill": 2}, {"oom_kill": 2}))
    gone = event_delta(Reading("1", {"oom_kill": 2}), None)

    assert (new.state, new.local, new.usage_change) == (State.NEW, {"oom_kill": 2}, None)
    assert (gone.state, gone.events, gone.usage) == (State.VANISHED, None, None)


def test_unknown_is_not_zero() -> None:
    """A file that one reading lacks gives no growth."""
    delta = event_delta(Reading(), Reading(events={"high": 5}, usage=1))

    assert (delta.events, delta.stall_full_us, delta.usage_change) == (None, None, None)


# --- the scenarios -------------------------------------------------------------------------------


def test_a_high_count_with_stalls() -> None:
    """Anonymous memory grows past memory.high: 245 a second, 48 % stalled, and no OOM ever."""
    assert told("high-systemd", "t1-over-high", "t2-throttled") == {
        ("livelock-suspected", "error", "b1.c"),
        ("throttled", "warning", "b1.c"),
        ("pressure", "warning", "b1.c"),
    }


def test_a_high_count_without_stalls() -> None:
    """At first the same counter says little: nothing has stalled yet."""
    found = list(tree_findings(deltas("high-systemd", "t0-before", "t1-over-high")))

    assert [(item.code, item.actual) for item in found] == [("throttled", "245")]
    assert "little harm: full pressure is 0 %" in found[0].message


def test_page_cache_past_high_is_no_livelock() -> None:
    """632 events in 3 s, 0.17 s stalled: the pressure average is still that of what was before."""
    found = told("high-systemd", "t3-after-kill", "t4-page-cache-over-high")

    assert found == {("throttled", "warning", "b1.c"), ("pressure", "warning", "b1.c")}


@pytest.mark.parametrize("name", ["oom-systemd", "oom-cgroupfs-6.1"])
def test_oom_in_a_leaf(name: str) -> None:
    """The pod meets its limit first: max and oom are its own, the kills are the container's."""
    found = list(tree_findings(deltas(name, "t0-b1-before", "t1-b1-after")))
    pod, container = scenario(name)["pods"]["b1"], scenario(name)["containers"]["b1"]

    assert {(item.code, item.path, item.actual) for item in found} >= {
        (FindingCode.OOM, pod, "1"),
        (FindingCode.OOM_KILL, container, "3"),
    }
    messages = {item.code: item.message for item in found}
    assert "the OOM killer struck 3 times below" in messages[FindingCode.OOM]
    # Two processes and memory.oom.group: the first victim counts twice.
    assert "struck 3 times here, the whole cgroup once" in messages[FindingCode.OOM_KILL]
    assert f"that of {pod}" in messages[FindingCode.OOM_KILL]


def test_unkillable() -> None:
    """The oom counter grows, oom_kill does not: nothing can be killed there."""
    found = list(tree_findings(deltas("oomstuck-systemd", "t0-stuck", "t1-3s-later")))
    stuck = next(item for item in found if item.code is FindingCode.OOM)

    assert stuck.path == scenario("oomstuck-systemd")["pods"]["b1"]
    assert stuck.actual == "496"
    assert "nothing was killed" in stuck.message
    assert "cgroup.kill" in (stuck.remedy or "")
    assert FindingCode.OOM_KILL not in {item.code for item in found}


def test_global_oom() -> None:
    """Where no limit was met the node ran short: oom_kill grows, oom does not."""
    found = list(tree_findings(deltas("minoom-global", "t0-before", "t1-after-oom")))

    assert [item.code for item in found] == [FindingCode.OOM_KILL]
    assert "the node" in found[0].message


def test_low_breached_is_told_at_the_cgroup_itself() -> None:
    """Without memory.events.local own counters are a parent's less its children's."""
    found = told("protect-full", "t0-full-before", "t2-full-settled")

    assert ("low-breached", "warning", "b1.c") in found
    assert {place for code, _, place in found if code == "low-breached"} == {"b1.c"}


def test_idle() -> None:
    """Where nothing happens nothing is told."""
    assert told("idle-systemd", "t0", "t0") == set()
    assert told("idle-cgroupfs", "t0", "t0") == set()


# --- rules ---------------------------------------------------------------------------------------


def pressed(avg10: float, total: int = 0) -> Pressure:
    """Return pressure with all tasks stalled."""
    line = PressureLine(avg10, 0.0, 0.0, total)
    return Pressure(line, line)


@pytest.mark.parametrize(
    ("stall_us", "expected"), [(999_999, False), (1_000_000, True), (None, True)]
)
def test_livelock_needs_a_stall_between_the_readings(stall_us: int | None, expected: bool) -> None:
    """More than 10 % of the last 10 s is at least a second, or it is not of this interval."""
    before = Reading(local={"high": 0}, pressure=None if stall_us is None else pressed(0.0, 0))
    after = Reading(local={"high": 9}, pressure=pressed(10.01, stall_us or 0))
    codes = {item.code for item in event_findings("/c", event_delta(before, after))}

    assert (FindingCode.LIVELOCK_SUSPECTED in codes) is expected


@pytest.mark.parametrize("key", ["max", "oom", "oom_kill"])
def test_livelock_never_reaches_the_limit(key: str) -> None:
    """Where the limit is reached the OOM killer ends it."""
    after = Reading(local={"high": 9, key: 1}, pressure=pressed(90.0))
    delta = event_delta(Reading(local={"high": 0, key: 0}), after)

    assert FindingCode.LIVELOCK_SUSPECTED not in {
        item.code for item in event_findings("/c", delta)
    }


def test_pressure_is_told_at_the_lowest_cgroups() -> None:
    """A parent's pressure is its child's; where the child has none it is its own."""
    calm, tense = (
        event_delta(Reading(), Reading(pressure=pressed(0.0))),
        event_delta(Reading(), Reading(pressure=pressed(6.0))),
    )
    both = tree_findings({"/a": tense, "/a/b": tense})
    own = tree_findings({"/a": tense, "/a/b": calm})

    assert [item.path for item in both] == ["/a/b"]
    assert [item.path for item in own] == ["/a"]


def test_a_dead_childs_kills_are_known_by_its_pod() -> None:
    """The container is gone, and its counters with it; the pod's memory.events has them."""
    pod = event_delta(
        Reading(events={"oom": 0, "oom_kill": 0}, local={"oom": 0, "oom_kill": 0}),
        Reading(events={"oom": 1, "oom_kill": 2}, local={"oom": 1, "oom_kill": 0}),
    )
    found = list(tree_findings({"/p": pod, "/p/c": event_delta(Reading(), None)}))

    assert [item.code for item in found] == [FindingCode.OOM]
    assert "struck 2 times below" in found[0].message
