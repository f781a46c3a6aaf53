"""Prometheus metrics of ``memqos watch-oom``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import define, field

from memqos.adapters.kill import KillOutcome
from memqos.oom.action import ActionRecord, NoKill
from memqos.oom.handler import Cycle, Outcome
from memqos_cli.output.prometheus import Metric, render


__all__ = ["Counters"]


def _zeros(names: Iterable[str]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 0))


@define
class Counters:
    """What has happened since the start.

    Every outcome is there from the start, with 0: to Prometheus' increase(), a series that begins
    with 1 has not increased.
    """

    _cycles: Counter[str] = field(factory=lambda: _zeros(Outcome), init=False)
    _actions: Counter[str] = field(factory=lambda: _zeros((*NoKill, *KillOutcome)), init=False)
    _processes: int = field(default=0, init=False)
    _late: int = field(default=0, init=False)

    def add(self, cycle: Cycle, action: ActionRecord | None) -> None:
        """Count a cycle and what was done."""
        self._cycles[cycle.outcome] += 1
        if action is not None:
            self._actions[action.outcome] += 1
            self._processes += len(action.processes)

    def left_out(self, ticks: int) -> None:
        """Count ticks that needed no cycle to know that the trigger does not fire."""
        self._cycles[Outcome.NO_FIRE] += ticks

    def late(self, ticks: int) -> None:
        """Count ticks that were missed."""
        self._late += ticks

    def render(self) -> str:
        """Write them as Prometheus text."""
        return render(
            (
                Metric(
                    "memqos_oom_cycles_total",
                    "Cycles of the OOM handler, by outcome.",
                    tuple(({"outcome": name}, n) for name, n in sorted(self._cycles.items())),
                    "counter",
                ),
                Metric(
                    "memqos_oom_actions_total",
                    "Firings of the trigger, by what was done.",
                    tuple(({"outcome": name}, n) for name, n in sorted(self._actions.items())),
                    "counter",
                ),
                Metric(
                    "memqos_oom_killed_processes_total",
                    "Processes that were killed.",
                    (({}, self._processes),),
                    "counter",
                ),
                Metric(
                    "memqos_oom_missed_ticks_total",
                    "Ticks that were missed because a cycle was late.",
                    (({}, self._late),),
                    "counter",
                ),
            )
        )
