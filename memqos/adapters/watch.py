"""One cycle of the OOM handler on a live node: read, decide, and kill if that was asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from attrs import define, evolve, field, frozen

from memqos.adapters.cgroup_tree import OOM_FILES, SWAP_FILES
from memqos.adapters.files import read_file
from memqos.adapters.kill import (
    KillOutcome,
    KillReport,
    holds_us,
    identify_target,
    kill_cgroup,
)
from memqos.adapters.oom_files import read_attributes, read_layout
from memqos.adapters.pressure_watch import PressureWatch
from memqos.errors import InputError, MachineError
from memqos.oom.action import ActionRecord, NoKill, trigger_context
from memqos.oom.config import OOMConfig
from memqos.oom.guards import Guards, guarded_candidates
from memqos.oom.handler import (
    Cycle,
    HandlerState,
    Outcome,
    run_cycle,
)
from memqos.oom.layout import LAYOUTS, TOPS, Layout, Tree, detect_layout
from memqos.oom.meminfo import meminfo_bytes
from memqos.oom.metrics import TRIGGER_FILES
from memqos.oom.rest import (
    after_rest,
    asked_spans,
    awaits_averages,
    is_steady,
    stays_quiet,
    watched_cgroups,
)
from memqos.oom.victim import MOUNT, Candidate, Scored


__all__ = ["Observation", "Watcher"]

# Values of cgroups that are gone are kept, as Talos does, until there are this many.
_MOST_PREVIOUS = 2_000


@frozen(kw_only=True)
class Observation:
    """One cycle, and what was done.

    Attributes:
        tree: what was read; with the candidates only when `Watcher.record` is set.
        cycle: what the policy says.
        action: what was done about it, None unless the trigger fired.
        available_bytes: MemAvailable, None where it was not needed.
    """

    tree: Tree
    cycle: Cycle
    action: ActionRecord | None
    available_bytes: int | None = None


@frozen(kw_only=True)
class _Rest:
    """A rest that begins: what is seen all the while, and what it was seen with.

    Attributes:
        seen: the last cycle.
        config: of that cycle.
        layout: of that cycle.
        awaits_averages: whether one must move before the trigger can fire.
    """

    seen: Observation
    config: OOMConfig
    layout: Layout
    awaits_averages: bool


@define(kw_only=True)
class Watcher:
    """The handler's memory between cycles.

    Attributes:
        mount: the cgroup2 mount.
        layout: which cgroups make up which class.
        follow_layout: whether each cycle detects the layout anew, as kubelet may make its cgroups
            only later; where it cannot be told, the last one stays.
        config: expressions, order, interval; may be replaced between cycles.
        guards: what is held back; may be replaced between cycles.
        xattrs: whether cgroups may say how they are to be treated.
        kill: whether victims are really killed.
        record: whether a sample reads the candidates too.
        meminfo: path of the node's ``meminfo``.
        before: called with a victim's path before it is killed.
        after: called with its path and outcome afterwards.
    """

    mount: str
    layout: Layout
    follow_layout: bool = False
    config: OOMConfig
    guards: Guards = field(factory=Guards)
    xattrs: bool = False
    kill: bool = False
    record: bool = False
    meminfo: str = "/proc/meminfo"
    before: Callable[[str], None] | None = None
    after: Callable[[str, str], None] | None = None
    _state: HandlerState = field(factory=HandlerState, init=False)
    _actions: int = field(default=0, init=False)
    # As they were when the candidates were read.
    _inodes: dict[str, int] = field(factory=dict, init=False)
    # Of the last cycle if further ones would be like it.
    _rest: _Rest | None = field(default=None, init=False)
    _left_out: bool = field(default=False, init=False)
    _pressure: PressureWatch = field(init=False)

    @_pressure.default
    def _new_pressure(self) -> PressureWatch:
        return PressureWatch(self.mount)

    def observe(self) -> Observation:
        """Run one cycle now; at rest that is no more than seeing that nothing has changed."""
        now = time.monotonic_ns()
        rest = self._rest
        if (
            rest is not None
            and self.config is rest.config
            and self._pressure.is_still()
            and stays_quiet(rest.config, rest.seen.cycle, now)
        ):
            self._left_out = True
            return rest.seen
        if rest is not None and self._left_out:
            self._state, self._left_out = after_rest(self._state, rest.config, rest.layout), False
        self._follow_layout()
        parts = self.layout.metrics
        names: tuple[str, ...] = TRIGGER_FILES
        if self.record:
            parts, names = (*parts, *self.layout.candidates), OOM_FILES
        # Where another layout may come, somebody may wait in one of its cgroups.
        layouts = LAYOUTS.values() if self.follow_layout else (self.layout,)
        watched = {path for layout in layouts for path in watched_cgroups(self.config, layout)}
        self._pressure.remember(watched, asked_spans(self.config))
        tree = read_layout(self.mount, parts, self._names(names))
        cycle = self._run_cycle(tree, now)
        while (own := self._own_victim(cycle)) is not None:
            self.guards = evolve(self.guards, own=self.guards.own | {own})
            cycle = self._run_cycle(tree, now)
        self._state = _pruned(cycle.state, tree)
        self._rest = None
        if cycle.outcome is not Outcome.FIRE:
            seen = Observation(tree=tree, cycle=cycle, action=None)
            if not self.record and is_steady(self.config, cycle):
                self._rest = _Rest(
                    seen=seen,
                    config=self.config,
                    layout=self.layout,
                    awaits_averages=awaits_averages(self.config, cycle),
                )
            return seen
        available = meminfo_bytes(self._meminfo(), "MemAvailable")
        action = self._act(cycle, available)
        # As in Talos: the time that the kill took does not count.
        self._state = evolve(self._state, last_trigger_ns=time.monotonic_ns())
        return Observation(tree=tree, cycle=cycle, action=action, available_bytes=available)

    def alarms(self) -> tuple[int, ...] | None:
        """Return what the kernel tells on when somebody waits, so that cycles can be left out.

        The kernel works out averages every two seconds. Where the trigger needs one to move, and
        nobody waited at the last cycle, it is enough to look so often, or once there is an alarm.

        Returns:
            Descriptors for poll(2), urgent (POLLPRI) then; None where each cycle is to be run: so
            it is in a dry run, which opens no file for writing.
        """
        rest = self._rest
        if (
            rest is not None
            and rest.awaits_averages
            and rest.config is self.config
            and self._left_out
            and self.kill
        ):
            return self._pressure.alarms()
        self.silence()
        return None

    def silence(self) -> None:
        """Have the kernel tell no more, as nobody will listen."""
        self._pressure.silence()

    def _run_cycle(self, tree: Tree, now: int) -> Cycle:
        return run_cycle(
            self.config,
            self.layout,
            self._state,
            tree,
            now,
            meminfo=self._meminfo() if self.config.swap else "",
            candidates=self._candidates,
        )

    def _own_victim(self, cycle: Cycle) -> str | None:
        """Return the victim's path if we run in it: another one is to be chosen then."""
        victim = cycle.selection.victim if cycle.selection else None
        path = "" if victim is None else victim.candidate.path.removeprefix(f"{MOUNT}/")
        return path if path and holds_us(self.mount, path) else None

    def _follow_layout(self) -> None:
        if not self.follow_layout:
            return
        tops = [top for top in TOPS if os.access(f"{self.mount}/{top}/", os.F_OK)]
        with suppress(InputError):
            layout = detect_layout(tops) if tops else self.layout
            if layout is not self.layout:  # its cgroups are new to us, but need not be new
                self.layout, self._state = layout, evolve(self._state, rested=frozenset())

    def _names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return (*names, *SWAP_FILES) if self.config.swap else names

    def _candidates(self) -> Iterator[Candidate]:
        self._inodes.clear()
        return guarded_candidates(
            read_layout(self.mount, self.layout.candidates, self._names(OOM_FILES), self._inodes),
            self.layout,
            self.guards,
            partial(read_attributes, self.mount) if self.xattrs else None,
        )

    def _act(self, cycle: Cycle, available: int | None) -> ActionRecord:
        record = ActionRecord(
            id=self._actions,
            time=time.time(),
            outcome=NoKill.NONE,
            trigger_context=trigger_context(cycle.values),
        )
        self._actions += 1
        victim = cycle.selection.victim if cycle.selection else None
        if victim is None:
            return record
        record = evolve(
            record,
            score=victim.score or 0.0,
            path=victim.candidate.path,
            oom_class=victim.candidate.oom_class,
        )
        floor = self.guards.available_bytes
        if floor is not None and available is not None and available >= floor:
            return evolve(record, outcome=NoKill.HELD_BACK)
        if not self.kill:
            return evolve(record, outcome=NoKill.DRY_RUN)
        report = self._kill(victim)
        return evolve(
            record,
            outcome=str(report.outcome),
            processes=tuple(command for _, command in report.processes),
            error=report.error,
        )

    def _kill(self, victim: Scored) -> KillReport:
        path = victim.candidate.path
        relative = path.removeprefix(f"{MOUNT}/")
        try:
            target = identify_target(
                self.mount, relative, self.layout.protected, self._inodes.get(relative)
            )
        except MachineError as error:
            return KillReport(outcome=KillOutcome.REFUSED, error=str(error))
        if self.before is not None:
            self.before(path)
        report = kill_cgroup(target)
        if self.after is not None:
            self.after(path, str(report.outcome))
        return report

    def recorded_proc(self) -> dict[str, str]:
        """Return the files of /proc that a recording has, as far as they can be read."""
        text = self._meminfo()
        return {"proc/meminfo": text} if text else {}

    def _meminfo(self) -> str:
        try:
            return read_file(self.meminfo).decode("ascii", "replace")
        except MachineError:
            return ""


def _pruned(state: HandlerState, tree: Tree) -> HandlerState:
    if len(state.previous) <= _MOST_PREVIOUS:
        return state
    kept = {path: figures for path, figures in state.previous.items() if path in tree}
    return evolve(state, previous=kept)
