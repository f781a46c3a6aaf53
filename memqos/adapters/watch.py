"""One cycle of the OOM handler on a live node: read, decide, and kill if that was asked for."""

from __future__ import annotations

import re
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
from memqos.adapters.oom_files import KeptFile, list_tops, read_attributes, read_layout
from memqos.errors import InputError, MachineError
from memqos.oom.action import ActionRecord, NoKill, trigger_context
from memqos.oom.config import OOMConfig
from memqos.oom.guards import Guards, guarded_candidates
from memqos.oom.handler import (
    Cycle,
    HandlerState,
    Outcome,
    asked_spans,
    is_steady,
    rested,
    run_cycle,
    stays_quiet,
)
from memqos.oom.layout import Layout, Tree, detect_layout
from memqos.oom.meminfo import meminfo_bytes
from memqos.oom.metrics import is_pressure
from memqos.oom.victim import MOUNT, Candidate, Scored


__all__ = ["Observation", "Watcher"]

_TRIGGER_FILES = ("memory.pressure", "memory.current", "memory.peak", "memory.max")
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
    # What is seen, and with which configuration, while the root's pressure is as it was.
    _rest: Observation | None = field(default=None, init=False)
    _rest_config: OOMConfig | None = field(default=None, init=False)
    _rest_pressure: bytes = field(default=b"", init=False)
    _rested: bool = field(default=False, init=False)
    _root: KeptFile = field(init=False)

    @_root.default
    def _new_root(self) -> KeptFile:
        return KeptFile(f"{self.mount}/memory.pressure")

    def observe(self) -> Observation:
        """Run one cycle now; at rest that is no more than seeing that nothing has changed."""
        now = time.monotonic_ns()
        if (
            self._rest is not None
            and self.config is self._rest_config
            and self._is_at_rest(self._root.read())
            and stays_quiet(self.config, self._rest.cycle, now)
        ):
            self._rested = True
            return self._rest
        if self._rested:
            self._state, self._rested = rested(self._state), False
        if self.follow_layout:
            self._follow_layout()
        parts = self.layout.metrics
        names: tuple[str, ...] = _TRIGGER_FILES
        if self.record:
            parts, names = (*parts, *self.layout.candidates), OOM_FILES
        tree = read_layout(self.mount, parts, self._names(names))
        cycle = self._run_cycle(tree, now)
        while (own := self._own_victim(cycle)) is not None:
            self.guards = evolve(self.guards, own=self.guards.own | {own})
            cycle = self._run_cycle(tree, now)
        self._state = _pruned(cycle.state, tree)
        self._rest = None
        if cycle.outcome is not Outcome.FIRE:
            seen = Observation(tree=tree, cycle=cycle, action=None)
            pressure = tree[""].get("memory.pressure")
            if pressure is None or not is_pressure(pressure) or self.record:
                return seen
            if is_steady(self.config, cycle):
                self._rest, self._rest_config = seen, self.config
                self._rest_pressure = pressure.encode()
            return seen
        available = meminfo_bytes(self._meminfo(), "MemAvailable")
        action = self._act(cycle, available)
        # As in Talos: the time that the kill took does not count.
        self._state = evolve(self._state, last_trigger_ns=time.monotonic_ns())
        return Observation(tree=tree, cycle=cycle, action=action, available_bytes=available)

    def _is_at_rest(self, pressure: bytes | None) -> bool:
        """Tell whether the root's pressure is as it was, but for what nobody asks for."""
        if pressure == self._rest_pressure:  # nearly always
            return True
        spans = "|".join(asked_spans(self.config)).encode()
        before, now = (
            re.findall(rb"^\w+|(?:%b)=\S+" % spans, text or b"", re.MULTILINE)
            for text in (self._rest_pressure, pressure)
        )
        if before != now:
            return False
        self._rest_pressure = pressure or b""
        return True

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
        with suppress(InputError, MachineError):
            layout = detect_layout(list_tops(self.mount))
            if layout is not self.layout:  # its cgroups are new to us, but need not be new
                self.layout, self._state = layout, evolve(self._state, rested=False)

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
