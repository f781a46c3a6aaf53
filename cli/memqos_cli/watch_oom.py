"""``memqos watch-oom``."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import click
from attrs import define, evolve, field

from memqos.adapters.files import read_file, write_atomically
from memqos.adapters.hooks import run_hook
from memqos.adapters.host import Host
from memqos.adapters.oom_files import list_tops, read_preferences
from memqos.adapters.recorder import Recorder
from memqos.adapters.self_protection import (
    lock_memory,
    lower_oom_score,
    notify,
    reserved_memory,
    watchdog_seconds,
)
from memqos.adapters.signals import SignalClock
from memqos.adapters.watch import Observation, Watcher
from memqos.errors import InputError, MemqosError
from memqos.oom.action import ActionRecord, NoKill, append_record, record_line
from memqos.oom.config import OOMConfig
from memqos.oom.guards import Guards
from memqos.oom.preference import Preference
from memqos.quantity import parse_quantity
from memqos_cli.exit_codes import YES
from memqos_cli.oom_options import (
    choose_layout,
    config_option,
    duration_option,
    layout_option,
    load_config,
    preferences_option,
    problem_line,
    require_valid,
    swap_option,
    xattrs_option,
)
from memqos_cli.options import cgroup_root_option, debug_option, root_option
from memqos_cli.output.oom_metrics import Counters
from memqos_cli.output.terminal import note, printable, write


__all__ = ["command"]

# Above sshd and systemd-journald, below everything that may be chosen.
_OOM_SCORE = -900
# A write is an fsync, and nobody looks more often.
_TEXTFILE_SECONDS = 5
_VERBS: Mapping[str, str] = {NoKill.DRY_RUN: "would kill", NoKill.HELD_BACK: "held back from"}
_ADDRESS = re.compile(r"(?:\[([^][]+)\]|([^][:]*)):([0-9]{1,5})")


def _address(_ctx: Any, _param: Any, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match[3]) > 65535:
        raise click.BadParameter(f"{value!r} is not of the form ADDR:PORT, [IPV6]:PORT or :PORT")
    return match[1] or match[2] or "127.0.0.1", int(match[3])


def _size(_ctx: Any, _param: Any, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        size = parse_quantity(value).value
    except MemqosError as error:
        raise click.BadParameter(str(error)) from None
    if size <= 0:
        raise click.BadParameter(f"{value} is not above 0")
    return size


@click.command()
@root_option
@cgroup_root_option
@layout_option
@config_option
@swap_option
@click.option("--kill", is_flag=True, help="Really kill; without it, only say who would die.")
@click.option("--once", is_flag=True, help="Run two cycles, an interval apart, and end.")
@click.option("--record", metavar="FILE", help="Write what replay-oom takes.")
@click.option(
    "--record-size",
    default="64Mi",
    show_default=True,
    callback=_size,
    help="Size at which the recording is moved to FILE.1.",
)
@click.option("--actions", metavar="FILE", help="Keep the last 50 actions, as JSON Lines.")
@click.option(
    "--listen",
    metavar="[ADDR]:PORT",
    callback=_address,
    help="Serve Prometheus metrics; ADDR is 127.0.0.1 unless given, IPv6 stands in brackets.",
)
@click.option("--textfile", metavar="FILE", help="Write metrics for node_exporter.")
@click.option(
    "--before-kill", metavar="COMMAND", help="Run before a kill; $MEMQOS_VICTIM is its path."
)
@click.option(
    "--after-kill", metavar="COMMAND", help="Run after a kill; see also $MEMQOS_OUTCOME."
)
@duration_option("--hook-timeout", "Time limit of each of these.  [default: 2s]")
@click.option("--skip-unpopulated", is_flag=True, help="Pass over cgroups without processes.")
@click.option(
    "--skip-unknown-limit", is_flag=True, help="Pass over cgroups whose memory.max is unreadable."
)
@click.option(
    "--protect-uid", "protected", multiple=True, metavar="UID", help="Never this pod; repeatable."
)
@preferences_option
@xattrs_option
@click.option(
    "--unless-available",
    metavar="QUANTITY",
    callback=_size,
    help="Hold back while MemAvailable is at least this.",
)
@click.option(
    "--protect-self/--no-protect-self",
    default=None,
    help="Lock our memory, lower our OOM score, and raise memory.min of our own cgroup if nothing "
    "else runs in it.  [default: with --kill]",
)
@debug_option
def command(
    host: Host,
    cgroup_root: str | None,
    layout: str,
    config: str | None,
    swap: bool,
    kill: bool,
    once: bool,
    record: str | None,
    record_size: int,
    actions: str | None,
    listen: tuple[str, int] | None,
    textfile: str | None,
    before_kill: str | None,
    after_kill: str | None,
    hook_timeout: int | None,
    skip_unpopulated: bool,
    skip_unknown_limit: bool,
    protected: tuple[str, ...],
    preferences: str | None,
    xattrs: bool,
    unless_available: int | None,
    protect_self: bool | None,
) -> None:
    """Watch a live node, and say whom the OOM handler would kill; kill with --kill.

    Each cycle collects the metrics, evaluates the trigger and, if it fires, chooses one cgroup.
    SIGTERM ends it, SIGHUP reads the configuration and the preferences again. With `--layout auto`
    each cycle looks anew, so that it may start before kubelet does.

    \b
    Examples:
      memqos watch-oom --record storm.jsonl
      memqos watch-oom --config oom.yaml --kill --actions /var/lib/memqos/actions.jsonl
      memqos watch-oom --preferences pods.txt --xattrs
      memqos watch-oom --config swap.yaml --swap-variables --record swap.jsonl
    """
    checked = require_valid(load_config(config, swap=swap))
    mount = cgroup_root or host.resolve("sys/fs/cgroup")
    hook_seconds = (hook_timeout or 2_000_000_000) / 1e9
    watcher = Watcher(
        mount=mount,
        layout=choose_layout(layout, list_tops(mount)),
        follow_layout=layout == "auto",
        config=checked,
        guards=Guards(
            skip_unpopulated=skip_unpopulated,
            skip_unknown_limit=skip_unknown_limit,
            preferences=_preferences(preferences, protected),
            available_bytes=unless_available,
        ),
        xattrs=xattrs,
        kill=kill,
        record=record is not None,
        meminfo=host.resolve("proc/meminfo"),
        before=partial(_hook, before_kill, hook_seconds),
        after=partial(_hook, after_kill, hook_seconds),
    )
    reloads = [partial(_reload_config, watcher, config)]
    if preferences is not None:
        reloads.append(partial(_reload_preferences, watcher, preferences, protected))
    with ExitStack() as stack:
        clock = stack.enter_context(SignalClock())
        if kill if protect_self is None else protect_self:
            problems = (
                lock_memory(),
                lower_oom_score(_OOM_SCORE),
                stack.enter_context(reserved_memory(mount)),
            )
            for problem in filter(None, problems):
                note(f"cannot protect itself: {problem}")
        outputs = _Outputs(actions=actions, textfile=textfile)
        if actions is not None:
            import tempfile  # noqa: F401  # for the first action: memory is short then
        if record is not None:
            outputs.recorder = Recorder(record, limit=record_size)
            stack.callback(outputs.recorder.close)
        if listen is not None:
            from memqos.adapters.metrics_server import MetricsServer  # 3 MiB that few need

            server = MetricsServer(*listen, outputs.counters.render)
            stack.callback(server.close)
            note(f"serving metrics on {server.place}")
        _loop(watcher, clock, outputs, reloads=reloads, cycles=2 if once else None)
        outputs.write_textfile()
    click.get_current_context().exit(YES)


@define(kw_only=True)
class _Outputs:
    """Where a cycle is told."""

    actions: str | None
    textfile: str | None
    recorder: Recorder | None = None
    counters: Counters = field(factory=Counters)
    _records: tuple[ActionRecord, ...] = ()
    _next_textfile: float = 0

    def tell(self, seen: Observation, watcher: Watcher, seconds: float) -> None:
        """Tell one cycle, wherever that was asked for; a full disk must not end the watch."""
        self.counters.add(seen.cycle, seen.action)
        if seen.cycle.error is not None:
            note(seen.cycle.error)
        if seen.action is not None:
            write(f"{_line(seen.action)}\n")
            self._records = append_record(self._records, seen.action)
        try:
            if seen.action is not None and self.actions is not None:
                lines = "".join(f"{record_line(record)}\n" for record in self._records)
                write_atomically(self.actions, lines.encode(), mode=0o600)
            if self.recorder is not None:
                meminfo = read_file(watcher.meminfo).decode("ascii", "replace")
                self.recorder.add(seconds, seen.tree, {"proc/meminfo": meminfo})
        except MemqosError as error:
            note(f"cannot write: {error}")
        if seen.action is not None or seconds >= self._next_textfile:
            self._next_textfile = seconds + _TEXTFILE_SECONDS
            self.write_textfile()

    def write_textfile(self) -> None:
        """Write the metrics, if that was asked for."""
        try:
            if self.textfile is not None:
                write_atomically(self.textfile, self.counters.render().encode())
        except MemqosError as error:
            note(f"cannot write: {error}")


def _loop(
    watcher: Watcher,
    clock: SignalClock,
    outputs: _Outputs,
    *,
    reloads: Iterable[Callable[[], None]],
    cycles: int | None,
) -> None:
    start = tick = clock.now_ns()
    done = 0
    notify("READY=1")
    pets = watchdog_seconds() is not None
    while True:
        found = clock.wait(tick)
        if found is signal.SIGHUP:
            notify(f"RELOADING=1\nMONOTONIC_USEC={clock.now_ns() // 1000}")
            for reload in reloads:
                reload()
            notify("READY=1")
            continue
        if found is not None:
            notify("STOPPING=1")
            return
        layout = watcher.layout.name
        seen = watcher.observe()
        if watcher.layout.name != layout:
            note(f"the layout is {watcher.layout.name} now; it was {layout}")
        outputs.tell(seen, watcher, (tick - start) / 1e9)
        if pets:
            notify("WATCHDOG=1")
        done += 1
        if done == cycles:
            return
        tick += watcher.config.interval_ns
        late = clock.now_ns() - tick
        if late > 0:
            # Ticks that were missed are dropped, and the next keeps to the grid.
            missed = late // watcher.config.interval_ns + 1
            tick += missed * watcher.config.interval_ns
            outputs.counters.late(missed)
            note(f"a cycle was late and {missed} ticks were missed")


def _reload_config(watcher: Watcher, name: str | None) -> None:
    """Take a new configuration; a bad one is told and leaves the old in force."""
    try:
        _require_file(name)
        checked = load_config(name, swap=watcher.config.swap)
    except MemqosError as error:
        note(f"the configuration stays as it was: {error}")
        return
    if isinstance(checked, OOMConfig):
        watcher.config = checked
        note("the configuration was read again")
        return
    for problem in checked:
        note(f"the configuration stays as it was: {problem_line(problem)}")


def _reload_preferences(watcher: Watcher, name: str, protected: Iterable[str]) -> None:
    """Take new preferences; bad ones are told and leave the old in force."""
    try:
        _require_file(name)
        preferences = _preferences(name, protected)
    except MemqosError as error:
        note(f"the preferences stay as they were: {error}")
        return
    watcher.guards = evolve(watcher.guards, preferences=preferences)
    note("the preferences were read again")


def _require_file(name: str | None) -> None:
    if name == "-":
        raise InputError("standard input cannot be read again")


def _preferences(name: str | None, protected: Iterable[str]) -> dict[str, Preference]:
    return {**read_preferences(name), **dict.fromkeys(protected, Preference.NEVER)}


def _hook(command: str | None, seconds: float, path: str, outcome: str = "") -> None:
    problem = command and run_hook(command, seconds, victim=path, outcome=outcome)
    if problem:
        note(f"hook {command!r}: {problem}")


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
