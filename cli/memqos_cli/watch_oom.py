"""``memqos watch-oom``."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import click
from attrs import evolve

from memqos.adapters.action_log import ActionLog
from memqos.adapters.cgroup_tree import CGROUP_MOUNT, check_v2, read_mglru
from memqos.adapters.host import Host
from memqos.adapters.oom_files import list_tops, read_oom_documents, read_preferences
from memqos.adapters.recorder import Recorder
from memqos.adapters.self_protection import (
    leave_openssl_out,
    lock_memory,
    lower_oom_score,
    notify,
    release_memory,
    reserved_memory,
    watchdog_ns,
)
from memqos.adapters.signals import SignalClock
from memqos.adapters.watch import Watcher
from memqos.errors import InputError, MemqosError
from memqos.oom.config import DEFAULT_TRIGGER, OOMConfig, check_documents, is_oom_config
from memqos.oom.rest import most_left_out
from memqos.quantity import parse_quantity
from memqos_cli.exit_codes import INTERRUPTED, YES
from memqos_cli.oom_options import (
    choose_layout,
    config_option,
    duration_option,
    guard_options,
    layout_option,
    load_config,
    problem_line,
    read_guards,
    require_valid,
    swap_option,
    xattrs_option,
)
from memqos_cli.options import (
    cgroup_root_option,
    debug_option,
    require_one_stdin,
    root_option,
)
from memqos_cli.output.terminal import note
from memqos_cli.output.watch_outputs import WatchOutputs, announce


__all__ = ["command"]

# Above sshd and systemd-journald, below everything that may be chosen.
_OOM_SCORE = -900
_MGLRU = (
    "the multi-generational LRU is on: services that read again what was reclaimed may not count "
    "as waiting under it, and the default trigger may stay silent"
)
_ADDRESS = re.compile(r"(?:\[([^][]+)\]|([^][:]*)):([0-9]{1,5})")


def _address(_ctx: Any, _param: Any, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    match = _ADDRESS.fullmatch(value)
    if match is None or not value.isascii() or int(match[3]) > 65535:
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


def _command(_ctx: Any, _param: Any, value: str | None) -> str | None:
    try:
        if value is not None and not "".join(shlex.split(value)[:1]):
            raise click.BadParameter(f"{value!r} names no program")
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from None
    return value


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
    "--before-kill",
    metavar="COMMAND",
    callback=_command,
    help="Run before a kill; $MEMQOS_VICTIM is its path.",
)
@click.option(
    "--after-kill",
    metavar="COMMAND",
    callback=_command,
    help="Run after a kill; see also $MEMQOS_OUTCOME.",
)
@duration_option("--hook-timeout", "Time limit of each of these.", default="2s", above_zero=True)
@guard_options
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
    hook_timeout: int,
    preferences: str | None,
    xattrs: bool,
    unless_available: int | None,
    protect_self: bool | None,
    **guarding: Any,
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
    require_one_stdin(config, preferences)
    if actions is not None and actions == textfile:
        raise click.UsageError("--actions and --textfile name the same file")
    leave_openssl_out()
    checked = require_valid(load_config(config, swap=swap))
    mount = host.resolve(CGROUP_MOUNT) if cgroup_root is None else cgroup_root
    check_v2(host, root=cgroup_root)
    if checked.trigger.text == DEFAULT_TRIGGER and read_mglru(host):
        note(_MGLRU)
    hook_seconds = hook_timeout / 1e9
    try:
        chosen = choose_layout(layout, list_tops(mount))
    except InputError as error:
        raise error.locate(source=mount) from None
    watcher = Watcher(
        mount=mount,
        layout=chosen,
        follow_layout=layout == "auto",
        config=checked,
        guards=evolve(
            read_guards(preferences=preferences, **guarding), available_bytes=unless_available
        ),
        xattrs=xattrs,
        kill=kill,
        record=record is not None,
        meminfo=host.resolve("proc/meminfo"),
        before=_hook(before_kill, hook_seconds),
        after=_hook(after_kill, hook_seconds),
    )
    reloads = [partial(_reload_config, watcher, config)]
    if preferences is not None:
        reloads.append(partial(_reload_preferences, watcher, preferences))
    with ExitStack() as stack:
        clock = stack.enter_context(SignalClock())
        release_memory()
        if kill if protect_self is None else protect_self:
            problems = (
                lock_memory(),
                lower_oom_score(_OOM_SCORE),
                stack.enter_context(reserved_memory(mount)),
            )
            for problem in filter(None, problems):
                note(f"cannot protect itself: {problem}")
        log = None if actions is None else ActionLog(actions)
        is_sole = not (kill or actions or textfile or record or listen)
        outputs = WatchOutputs(is_sole=is_sole, actions=log, textfile=textfile)
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
        ended = _loop(watcher, clock, outputs, reloads=reloads, cycles=2 if once else None)
        outputs.write_textfile()
    click.get_current_context().exit(INTERRUPTED if ended is signal.SIGINT else YES)


def _loop(
    watcher: Watcher,
    clock: SignalClock,
    outputs: WatchOutputs,
    *,
    reloads: Iterable[Callable[[], None]],
    cycles: int | None,
) -> signal.Signals | None:
    """Watch until a signal, which is returned, or for so many cycles."""
    start = tick = clock.now_ns()
    done = 0
    notify("READY=1")
    watchdog = watchdog_ns()
    while True:
        found = clock.wait(tick)
        if found is signal.SIGHUP:
            notify(f"RELOADING=1\nMONOTONIC_USEC={clock.now_ns() // 1000}")
            for reload in reloads:
                reload()
            release_memory()
            notify("READY=1")
            now = clock.now_ns()
            tick = min(tick, now + watcher.config.interval_ns)
            if now < tick:  # else it is time for a cycle, whatever comes next
                continue
        elif found is not None:
            notify("STOPPING=1")
            return found
        layout = watcher.layout.name
        seen = watcher.observe()
        if watcher.layout.name != layout:
            announce(f"the layout is {watcher.layout.name} now; it was {layout}")
        outputs.tell(seen, watcher, (tick - start) / 1e9)
        if watchdog is not None:
            notify("WATCHDOG=1")
        done += 1
        if done == cycles:
            return None
        tick += watcher.config.interval_ns
        late = clock.now_ns() - tick
        if late > 0:
            # Ticks that were missed are dropped, and the next keeps to the grid.
            missed = late // watcher.config.interval_ns + 1
            tick += missed * watcher.config.interval_ns
            outputs.late(missed, (tick - start) / 1e9)
        left_out = _doze(watcher, clock, tick, watchdog)
        outputs.counters.left_out(left_out)
        tick += left_out * watcher.config.interval_ns


def _doze(watcher: Watcher, clock: SignalClock, tick: int, watchdog: int | None) -> int:
    """Sleep as long as the kernel keeps watch; return how many ticks need no cycle."""
    interval = watcher.config.interval_ns
    most = most_left_out(interval, watchdog)
    if not most or not clock.can_doze:
        watcher.silence()
        return 0
    if (alarms := watcher.alarms()) is None:
        return 0
    clock.doze(tick + most * interval, alarms)
    return min(most, max(0, -((tick - clock.now_ns()) // interval)))


def _reload_config(watcher: Watcher, name: str | None) -> None:
    """Take a new configuration; a bad one is told and leaves the old in force."""
    try:
        _require_file(name)
        documents = read_oom_documents(name)
        checked = check_documents(documents, swap=watcher.config.swap)
    except MemqosError as error:
        announce(f"the configuration stays as it was: {error}")
        return
    if isinstance(checked, OOMConfig):
        watcher.config = checked
        announce("the configuration was read again")
        if name is not None and not any(map(is_oom_config, documents)):
            announce(f"{name}: no OOMConfig in it: Talos' defaults apply")
        return
    for problem in checked:
        announce(f"the configuration stays as it was: {problem_line(problem)}")


def _reload_preferences(watcher: Watcher, name: str) -> None:
    """Take new preferences; bad ones are told and leave the old in force."""
    try:
        _require_file(name)
        preferences = read_preferences(name)
    except MemqosError as error:
        announce(f"the preferences stay as they were: {error}")
        return
    watcher.guards = evolve(watcher.guards, preferences=preferences)
    announce("the preferences were read again")


def _require_file(name: str | None) -> None:
    if name == "-":
        raise InputError("standard input cannot be read again")


def _hook(command: str | None, seconds: float) -> Callable[..., None] | None:
    if command is None:
        return None
    from memqos.adapters.hooks import run_hook  # half a MiB that few need

    def run(path: str, outcome: str = "") -> None:
        problem = run_hook(command, seconds, victim=path, outcome=outcome)
        if problem:
            announce(f"hook {command!r}: {problem}")

    return run
