"""Cycles that need not be run: nobody of whom the trigger asks waits for memory.

A task that waits for memory counts in its cgroup and in all above it. So while the pressure file
of a cgroup says the same, nobody below waits: rates of totals stay 0, and so do averages that have
come down to it. The root's file alone decides most of the time, on a node of any size; where it
moves, those of the classes that the trigger asks for do.

Three things are not seen: that a total goes down where a cgroup ends; that an average rises after
the last wait, until it does in the file that is watched, too, as the kernel works averages out
every two seconds, those of each file at times of their own; and waits of a few milliseconds on a
machine with a hundred busy processors, as a total is the mean over processors, each weighed by how
long its tasks were not idle (kernel/sched/psi.c).

A trigger that needs an average to move can have the kernel keep watch, and look every two seconds.
The kernel does not tell of a wait shorter than two ticks of its clock, unless it tells of another
within half a second. The next look, or the next alarm, finds it, and all of it counts as waited in
one interval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from memqos.oom.classes import OOMClass
from memqos.oom.config import OOMConfig
from memqos.oom.expression import Checked, EvaluationError, weaken
from memqos.oom.handler import Cycle, HandlerState, Outcome
from memqos.oom.layout import Layout, children, expand
from memqos.oom.metrics import PRESSURE_NAMES, known_at_rest, metric_names


__all__ = [
    "after_rest",
    "asked_spans",
    "awaits_averages",
    "is_alike",
    "is_steady",
    "is_unchanged",
    "most_left_out",
    "stays_quiet",
    "watched_cgroups",
]


def is_steady(config: OOMConfig, cycle: Cycle) -> bool:
    """Tell whether further cycles are like this one, but for the time, while the node is at rest.

    Args:
        config: of the cycle.
        cycle: the last one.
    """
    if cycle.outcome is not Outcome.NO_FIRE or not config.trigger.names.isdisjoint(_RESTLESS):
        return False
    asked = config.trigger.names & _AT_REST
    # The rate of an average that is not 0 changes by itself.
    asked |= {name.removeprefix("d_") for name in asked if not name.endswith("_total")}
    classes = _asked_classes(config)
    return not any(_is_moving(cycle.values[name], classes) for name in asked)


def stays_quiet(config: OOMConfig, cycle: Cycle, now_ns: int) -> bool:
    """Tell whether the trigger does not fire later on, with all but the time as it was."""
    last = cycle.state.last_trigger_ns
    if last is None:
        return True  # time_since_trigger is as it was, too
    try:
        return not config.trigger.evaluate({**cycle.values, "time_since_trigger": now_ns - last})
    except EvaluationError:
        return False


def awaits_averages(config: OOMConfig, cycle: Cycle) -> bool:
    """Tell whether an average must move before the trigger can fire, whatever all else does."""
    try:
        return not _at_averages(config.trigger).evaluate(cycle.values)
    except EvaluationError:
        return False


def most_left_out(interval_ns: int, watchdog_ns: int | None) -> int:
    """Return how many ticks in a row may pass without a look while the kernel keeps watch.

    The kernel works out averages every two seconds (kernel/sched/psi.c).

    Args:
        interval_ns: between two ticks.
        watchdog_ns: within which a sign of life is expected, None for no such time.
    """
    longest = _AVERAGING_NS if watchdog_ns is None else min(_AVERAGING_NS, watchdog_ns // 2)
    return max(0, longest // interval_ns - 1)


def watched_cgroups(config: OOMConfig, layout: Layout) -> tuple[str, ...]:
    """Return the directories whose pressure files decide about a rest; ``""`` is the root.

    One that does not exist has nobody in it who could wait.
    """
    classes = _asked_classes(config)
    tops = [part.path for part in layout.metrics if part.oom_class in classes]
    return tuple(dict.fromkeys(["", *tops] if _asks_for_node(config) else tops))


def asked_spans(config: OOMConfig) -> frozenset[str]:
    """Return which numbers of a pressure file decide about a rest.

    The totals always do, as they move with whoever waits. An average moves up to two seconds
    later, so it does where the trigger asks for it.
    """
    asked = config.trigger.names & PRESSURE_NAMES
    return frozenset({"total", *(name.rpartition("_")[2] for name in asked)})


def is_unchanged(before: bytes, now: bytes, spans: Iterable[str]) -> bool:
    """Tell whether a pressure file is as it was, but for the numbers that nobody asks for."""
    if before == now:  # nearly always
        return True
    pattern = rb"^\w+|(?:%b)=\S+" % "|".join(sorted(spans)).encode()
    return re.findall(pattern, before, re.MULTILINE) == re.findall(pattern, now, re.MULTILINE)


def is_alike(before: bytes, now: bytes) -> bool:
    """Tell whether a pressure file is whole as the one before was: only digits may differ."""
    return before.translate(None, b"0123456789") == now.translate(None, b"0123456789")


def after_rest(state: HandlerState, config: OOMConfig, layout: Layout) -> HandlerState:
    """Return the state after cycles that were not run.

    Rates of figures of memory begin anew, and so does all of which the trigger does not ask.
    """
    classes = _asked_classes(config)
    parts = tuple(part for part in layout.metrics if part.oom_class in classes)
    kept = {path for path, _ in expand(parts, children(state.previous))}
    if _asks_for_node(config):
        kept.add("")
    return HandlerState(
        previous={
            path: known_at_rest(figures)
            for path, figures in state.previous.items()
            if path in kept
        },
        last_trigger_ns=state.last_trigger_ns,
        rested=classes,
    )


_AVERAGING_NS = 2_000_000_000
_AVERAGES = frozenset(
    name for name in PRESSURE_NAMES if not name.startswith("d_") and not name.endswith("_total")
)
# What is 0 at rest, and what can change all the same: figures of memory, and sums of totals, which
# go down with a cgroup.
_AT_REST = _AVERAGES | {name for name in PRESSURE_NAMES if name.startswith("d_")}
_RESTLESS = frozenset((*metric_names(swap=True), "swap_total", "swap_free")) - _AT_REST


@lru_cache(maxsize=1)  # it compiles
def _at_averages(trigger: Checked) -> Checked:
    return weaken(trigger, trigger.names - _AVERAGES)


def _asked_classes(config: OOMConfig) -> frozenset[OOMClass]:
    keys = config.trigger.keys
    return frozenset(key for key in OOMClass if keys is None or key in keys)


def _asks_for_node(config: OOMConfig) -> bool:
    asked = config.trigger.names & PRESSURE_NAMES
    return any("qos_" not in name for name in asked)


def _is_moving(value: Any, classes: Iterable[OOMClass]) -> bool:
    return any(value[key] for key in classes) if isinstance(value, Mapping) else bool(value)
