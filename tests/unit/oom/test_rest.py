"""A node at rest: when a cycle need not be run, and what is forgotten meanwhile."""

import json

import pytest

from memqos.oom.action import trigger_context
from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.handler import Cycle, HandlerState, run_cycle
from memqos.oom.layout import LAYOUTS
from memqos.oom.rest import (
    after_rest,
    asked_spans,
    awaits_averages,
    is_alike,
    is_steady,
    is_unchanged,
    most_left_out,
    stays_quiet,
    watched_cgroups,
)


TALOS = LAYOUTS["talos"]
STILL = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
)


AVERAGES = ("avg60", "avg300")


def config(trigger: str | None = None) -> OOMConfig:
    """Check a configuration."""
    found = check_documents([], trigger=trigger, swap=True)
    assert isinstance(found, OOMConfig)
    return found


def last_of(chosen: OOMConfig, *texts: str, current: str = "5\n") -> Cycle:
    """Run a cycle for each text of system's pressure file; return the last."""
    state = HandlerState()
    for number, text in enumerate(texts):
        tree = {"": {"memory.pressure": STILL}, "system": {"memory.pressure": text}}
        tree["system"]["memory.current"] = current
        cycle = run_cycle(chosen, TALOS, state, tree, number * 10**9)
        state = cycle.state
    return cycle


def test_rest() -> None:
    """No rate, no average: the default trigger stays as it is."""
    chosen = config()
    cycle = last_of(chosen, STILL, STILL)
    assert is_steady(chosen, cycle)
    assert stays_quiet(chosen, cycle, 10**15)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ((STILL, STILL.replace("total=5", "total=6")), "somebody waited"),
        ((STILL, STILL.replace("avg10=0.00", "avg10=0.01")), "an average will come down"),
    ],
)
def test_unrest(texts: tuple[str, str], why: str) -> None:
    """What would change by itself, or has just changed."""
    assert not is_steady(config(), last_of(config(), *texts)), why


@pytest.mark.parametrize(
    ("trigger", "is_rest"),
    [
        ("memory_full_avg10 > 1.0 && d_qos_memory_some_total[System] > 1.0", True),
        ("qos_memory_full_avg300[System] > 1.0", False),
        ("d_qos_memory_full_avg300[System] > 1.0", False),
        ("d_memory_full_avg300 > 1.0", True),
    ],
)
def test_only_what_the_trigger_asks_for(trigger: str, is_rest: bool) -> None:
    """An average that comes down for minutes after a stall, in system and not in the root."""
    chosen = config(trigger)
    falling = STILL.replace("avg300=0.00", "avg300=0.01")
    assert is_steady(chosen, last_of(chosen, falling, falling)) is is_rest


@pytest.mark.parametrize(
    ("trigger", "spans"),
    [
        (None, {"total", "avg10"}),
        ("memory_full_avg300 > 1.0 && d_qos_memory_some_avg60[0] > 1.0", {"total", *AVERAGES}),
        ('time_since_trigger > duration("1h")', {"total"}),
    ],
)
def test_asked_spans(trigger: str | None, spans: set[str]) -> None:
    """The totals, and the averages that the trigger asks for, or their rates."""
    assert asked_spans(config(trigger)) == spans


# Of Talos 1.12 and 1.13.
OLDER = """\
(multiply_qos_vectors(d_qos_memory_full_total, {System: 8.0, Podruntime: 4.0}) > 3000.0 &&
multiply_qos_vectors(qos_memory_full_avg10, {System: 1.0, Podruntime: 1.0}) > 5.0) ||
(memory_full_avg10 > 75.0 && time_since_trigger > duration("10s"))"""


@pytest.mark.parametrize(
    ("trigger", "awaits"),
    [
        (None, True),
        (OLDER, True),
        ("memory_some_avg10 > 5.0", True),
        ("!(memory_some_avg10 <= 5.0)", True),
        ("d_memory_some_total > 1.0 && (memory_some_avg10 > 5.0 || false)", True),
        ("memory_some_avg10 > 5.0 || d_memory_some_total > 1.0", False),
        ("memory_some_avg10 < 5.0 && d_memory_some_total > 1.0", False),
        ("memory_some_avg10 < 5.0 && time_since_trigger > duration('1h')", False),
        ("d_memory_some_avg10 > 1.0", False),
        # Not looked into: to be careful is to run each cycle.
        ("memory_some_avg10 > 5.0 ? d_memory_some_total > 1.0 : false", False),
        ("1.0 / memory_some_avg10 > 5.0 && [1][1] > 0", False),
    ],
)
def test_awaits_averages(trigger: str | None, awaits: bool) -> None:
    """Whether totals and time alone can make it fire."""
    chosen = config(trigger)
    assert awaits_averages(chosen, last_of(chosen, STILL, STILL)) is awaits


@pytest.mark.parametrize(
    ("interval_ms", "watchdog_ms", "ticks"),
    [
        (500, None, 3),
        (500, 60_000, 3),
        (500, 3_999, 2),
        (500, 1_999, 0),
        (500, 0, 0),
        (1_000, None, 1),
        (1_001, None, 0),
        (3_000, None, 0),
        (1, None, 1999),
    ],
)
def test_most_left_out(interval_ms: int, watchdog_ms: int | None, ticks: int) -> None:
    """From one look to the next there are two seconds, or half the watchdog's time."""
    watchdog_ns = None if watchdog_ms is None else watchdog_ms * 10**6
    assert most_left_out(interval_ms * 10**6, watchdog_ns) == ticks


def test_a_falling_average_has_no_rate() -> None:
    """Nobody has read how far it came down during the rest; the log has 0 for it."""
    chosen = config()
    falling = STILL.replace("avg300=0.00", "avg300=9.00")
    state = after_rest(last_of(chosen, falling).state, chosen, TALOS)
    tree = {"system": {"memory.pressure": falling.replace("avg300=9.00", "avg300=3.00")}}
    values = run_cycle(chosen, TALOS, state, tree, 10**12).values
    assert values["qos_memory_full_avg300"][4] == 3.0
    context = json.loads(trigger_context(values))
    assert context["d_qos_memory_full_avg300"]["4"] == 0.0
    assert context["d_qos_memory_full_total"]["4"] == 0.0


@pytest.mark.parametrize(
    "trigger",
    [
        "qos_memory_current[System] > 1e12",
        "d_qos_memory_peak[System] > 1e12",
        "qos_memory_full_total[System] > 1e12",
        "swap_free > 1u && swap_total > 1u",
        "d_qos_memory_swap_current[Besteffort] > 1.0",
    ],
)
def test_triggers_that_use_more(trigger: str) -> None:
    """What moves without anybody waiting: usage, swap, a sum that a cgroup takes with it."""
    chosen = config(trigger)
    assert not is_steady(chosen, last_of(chosen, STILL, STILL))


def test_a_trigger_that_waits_for_a_time() -> None:
    """Time passes at rest, too."""
    chosen = config('time_since_trigger > duration("5s") && memory_full_avg10 < 1.0')
    cycle = last_of(chosen, STILL)
    assert not is_steady(chosen, cycle)  # it fired
    state = HandlerState(last_trigger_ns=0)
    tree = {"": {"memory.pressure": STILL}}
    cycle = run_cycle(chosen, TALOS, state, tree, 10**9)
    assert is_steady(chosen, cycle)
    assert stays_quiet(chosen, cycle, 4 * 10**9)
    assert not stays_quiet(chosen, cycle, 6 * 10**9)


def test_rates_of_figures_begin_anew() -> None:
    """After a rest the last usage is too old for a rate; the pressure is known to be the same."""
    chosen = config()
    state = after_rest(last_of(chosen, STILL, current="5\n").state, chosen, TALOS)
    moved = STILL.replace("total=5", "total=1005")
    tree = {"system": {"memory.pressure": moved, "memory.current": "500\n"}}
    values = run_cycle(chosen, TALOS, state, tree, 10**12).values
    assert values["d_qos_memory_current"][4] == 0.0
    assert values["d_qos_memory_full_total"][4] == 2000.0  # 1000 us in half a second


def test_what_began_meanwhile_had_no_pressure() -> None:
    """A cgroup made, or made anew, during the rest stood at 0 until the root's pressure moved."""
    chosen = config("d_qos_memory_full_total.exists(c, d_qos_memory_full_total[c] > 1e9)")
    state = after_rest(last_of(chosen, STILL).state, chosen, TALOS)
    text = STILL.replace("total=5", "total=1000")
    fewer = STILL.replace("total=5", "total=3")
    tree = {"kubepods/pod1": {"memory.pressure": text}, "system": {"memory.pressure": fewer}}
    rates = run_cycle(chosen, TALOS, state, tree, 10**12).values["d_qos_memory_full_total"]
    assert (rates[2], rates[4]) == (2000.0, 6.0)  # within half a second


def test_without_a_rest_there_is_no_rate() -> None:
    """Then nobody knows since when, as in Talos; and a total that went down shows as it is."""
    chosen = config()
    state = last_of(chosen, STILL).state
    fewer = STILL.replace("total=5", "total=3")
    tree = {"kubepods/pod1": {"memory.pressure": STILL}, "system": {"memory.pressure": fewer}}
    rates = run_cycle(chosen, TALOS, state, tree, 10**12).values["d_qos_memory_full_total"]
    assert (rates[2], rates[4]) == (0.0, -4.0)


@pytest.mark.parametrize(
    ("trigger", "paths"),
    [
        (None, ("init", "system", "podruntime")),
        ("qos_memory_full_avg10[Guaranteed] > 1.0", ("kubepods",)),
        ("qos_memory_full_avg10[?1].orValue(0.0) > 1.0", ("kubepods/burstable",)),
        ("d_memory_full_avg10 + qos_memory_full_avg10[0] > 1.0", ("", "kubepods/besteffort")),
        ('time_since_trigger > duration("1h")', ()),
        (
            "multiply_qos_vectors(qos_memory_full_avg10, {dyn(System): 1.0}) > 1.0",
            tuple(part.path for part in TALOS.metrics),
        ),
    ],
)
def test_watched_cgroups(trigger: str | None, paths: tuple[str, ...]) -> None:
    """Those of the classes that the trigger names; all where it may look at any."""
    assert watched_cgroups(config(trigger), TALOS) == paths


def test_is_unchanged() -> None:
    """But for numbers that nobody asks for."""
    before = STILL.encode()
    spans = {"total", "avg10"}
    assert is_unchanged(before, before, spans)
    assert is_unchanged(before, before.replace(b"avg300=0.00", b"avg300=1.00"), spans)
    for number in (b"avg10=0.00", b"total=7", b"total=5"):
        assert not is_unchanged(before, before.replace(number, b"avg10=1.00"), spans)
    assert not is_unchanged(before, before.split(b"full")[0], spans)
    assert not is_unchanged(b"", before, spans)


def test_is_alike() -> None:
    """Numbers come and go; what is cut off or something else is not whole."""
    before = STILL.encode()
    assert is_alike(before, before.replace(b"avg10=0.00", b"avg10=99.00"))
    for text in (b"", b"garbage\n", before.split(b"full")[0], before.replace(b"total", b"sum")):
        assert not is_alike(before, text)


def test_what_nobody_asks_for_is_forgotten() -> None:
    """It may have moved during the rest."""
    chosen = config()
    state = HandlerState()
    tree = {
        path: {"memory.pressure": STILL} for path in ("", "system", "kubepods", "kubepods/pod1")
    }
    state = after_rest(run_cycle(chosen, TALOS, state, tree, 0).state, chosen, TALOS)
    assert set(state.previous) == {"init", "system", "podruntime"}
    assert state.rested == {3, 4}


def test_a_failed_cycle_after_a_rest() -> None:
    """What is known of the rest counts in the next one: a total that went down began anew."""
    chosen = config()
    state = after_rest(last_of(chosen, STILL).state, chosen, TALOS)
    state = run_cycle(chosen, TALOS, state, {"": {"memory.pressure": "some avg10=0\n"}}, 0).state
    tree = {"system": {"memory.pressure": STILL.replace("total=5", "total=3")}}
    rates = run_cycle(chosen, TALOS, state, tree, 0).values["d_qos_memory_full_total"]
    assert rates[4] == 6.0
