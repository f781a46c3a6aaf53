"""Where ``memqos watch-oom`` tells what it does: lines, action log, recording, metrics."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from attrs import define, field

from memqos.adapters.action_log import ActionLog
from memqos.adapters.files import machine_error, write_atomically
from memqos.adapters.recorder import Recorder
from memqos.adapters.watch import Observation, Watcher
from memqos.errors import MachineError, MemqosError
from memqos.oom.action import ActionRecord, NoKill
from memqos_cli.output.oom_metrics import Counters
from memqos_cli.output.terminal import offer, printable


__all__ = ["WatchOutputs", "announce"]

# A write is an fsync, and nobody looks more often.
_TEXTFILE_SECONDS = 5
# A node that is too slow for the interval is late all the time.
_LATE_SECONDS = 10
_VERBS: Mapping[str, str] = {NoKill.DRY_RUN: "would kill", NoKill.HELD_BACK: "held back from"}


@define(kw_only=True)
class WatchOutputs:
    """Where a cycle is told.

    Attributes:
        is_sole: whether standard output is all there is: once nobody reads it, the watch is over.
    """

    is_sole: bool
    actions: ActionLog | None
    textfile: str | None
    recorder: Recorder | None = None
    counters: Counters = field(factory=Counters)
    _next_textfile: float = 0
    _next_late: float = 0
    _failed: dict[str, str] = field(factory=dict)
    _seen: Observation | None = None
    # Of the last cycle: as long as it stays the same, it is told once.
    _complaint: str | None = None

    def tell(self, seen: Observation, watcher: Watcher, seconds: float) -> None:
        """Tell one cycle, wherever that was asked for; a full disk must not end the watch.

        No output keeps another from being written. The action log, which is to last, comes first.
        """
        self.counters.add(seen.cycle, seen.action)
        if seen is not self._seen:  # at rest it is the same one
            self._seen = seen
            self._tell_news(seen, watcher, seconds)
        if seen.action is not None or seconds >= self._next_textfile:
            self._next_textfile = seconds + _TEXTFILE_SECONDS
            self.write_textfile()

    def _tell_news(self, seen: Observation, watcher: Watcher, seconds: float) -> None:
        complaint = _complaint(seen)
        if complaint is not None and complaint != self._complaint:
            announce(complaint)
        self._complaint = complaint
        if seen.action is not None:
            self._tell_action(seen.action)
            if watcher.guards.available_bytes is not None and seen.available_bytes is None:
                announce("MemAvailable cannot be read, and --unless-available holds nothing back")
        if self.recorder is not None:
            with self._telling("recording"):
                self.recorder.add(seconds, seen.tree, watcher.recorded_proc())

    def late(self, missed: int, seconds: float) -> None:
        """Count ticks that were missed, and tell it, but not all the time."""
        self.counters.late(missed)
        if seconds >= self._next_late:
            self._next_late = seconds + _LATE_SECONDS
            announce(f"a cycle was late and {missed} ticks were missed")

    def _tell_action(self, action: ActionRecord) -> None:
        if self.actions is not None:
            with self._telling("actions"):
                self.actions.add(action)
        with self._telling("output"):
            try:
                offer(sys.stdout, f"{_line(action)}\n")
            except BrokenPipeError:
                if self.is_sole:
                    raise
                raise MachineError("standard output", os.strerror(errno.EPIPE)) from None
            except OSError as error:
                raise machine_error("standard output", error) from error

    def write_textfile(self) -> None:
        """Write the metrics, if that was asked for."""
        if self.textfile is not None:
            with self._telling("textfile"):
                write_atomically(self.textfile, self.counters.render().encode())

    @contextmanager
    def _telling(self, name: str) -> Iterator[None]:
        """Tell what keeps an output from being written, once as long as it stays the same."""
        try:
            yield
        except MemqosError as error:
            if self._failed.get(name) != str(error):
                announce(f"cannot write: {error}")
            self._failed[name] = str(error)
        else:
            self._failed.pop(name, None)


def _complaint(seen: Observation) -> str | None:
    if "memory.pressure" not in seen.tree.get("", {}):
        return "the root's memory.pressure cannot be read: nobody is seen to wait for memory"
    return seen.cycle.error


def announce(text: str) -> None:
    """Write one line to standard error, if somebody reads it."""
    with suppress(OSError):
        offer(sys.stderr, f"memqos: {printable(text)}\n")


def _line(action: ActionRecord) -> str:
    if action.path is None:
        return "trigger fired: nobody is eligible"
    who = f"{printable(action.path)} (score {action.score:g})"
    verb = _VERBS.get(action.outcome)
    if verb is not None:
        return f"trigger fired: {verb} {who}"
    count = len(action.processes)
    error = "" if action.error is None else f": {printable(action.error)}"
    return f"trigger fired: {action.outcome} {who}, {count} processes gone{error}"
