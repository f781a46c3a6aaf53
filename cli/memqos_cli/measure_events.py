"""``memqos measure-events``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from memqos.adapters.cgroup_tree import EVENT_FILES, check_v2, read_mount, read_tree
from memqos.adapters.host import Host
from memqos.duration import parse_duration
from memqos.errors import InputError
from memqos.memory_qos.events import EventDelta, Reading, event_delta
from memqos.memory_qos.identity import NO_NAMES, Identity, PodNames
from memqos.memory_qos.tree import identify
from memqos_cli.cgroup_options import (
    Part,
    part_options,
    read_capture,
    reading_of,
)
from memqos_cli.exit_codes import YES
from memqos_cli.options import cgroup_root_option, debug_option, output_option, root_option
from memqos_cli.output.event_report import render
from memqos_cli.output.terminal import write


__all__ = ["command"]

_TREE = click.Path(readable=False)


def _interval(_ctx: Any, _param: Any, value: str) -> float:
    try:
        nanoseconds = parse_duration(value)
    except InputError as error:
        raise click.BadParameter(error.message) from None
    if not 0 < nanoseconds <= 24 * 3600 * 10**9:
        raise click.BadParameter(f"{value} is not between 1ns and 24h")
    return nanoseconds / 1e9


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@root_option
@cgroup_root_option
@part_options
@click.option(
    "--interval",
    default="10s",
    show_default=True,
    callback=_interval,
    metavar="DURATION",
    help="Time between the two readings.",
)
@click.option("--watch", is_flag=True, help="Go on, one report an interval, until Ctrl-C.")
@click.option(
    "--before", type=_TREE, metavar="DIR|TAR", help="With --after: two captures of a tree."
)
@click.option(
    "--after", type=_TREE, metavar="DIR|TAR", help="A later capture: nothing is waited for."
)
@output_option("prometheus")
@debug_option
def command(
    paths: tuple[str, ...],
    host: Host,
    cgroup_root: str | None,
    pods: str | None,
    pod: str | None,
    container: str | None,
    pid: int | None,
    interval: float,
    watch: bool,
    before: str | None,
    after: str | None,
    output: str,
) -> None:
    """Read memory.events, PSI and usage twice, and tell what happened in between.

    PATH is a cgroup, absolute within the mount, with all below it; the whole tree by default.
    Own counters (memory.events.local) are told apart from a whole subtree's, restarted containers
    from growth. With -o json and --watch each report is one document on one line. --before and
    --after compare two captures, of snapshots or of copies of the cgroup tree.

    \b
    Examples:
      memqos measure-events --interval 10s
      memqos measure-events --pod default/web --container nginx --watch
      memqos measure-events --before monday.tar --after tuesday.tar -o json
    """
    part = Part(pods_file=pods, pod=pod, container=container, pid=pid)
    part.check(paths)
    if (before is None) != (after is None):
        raise click.UsageError("--before and --after need each other")
    if before is not None and after is not None:
        if watch or pid is not None or cgroup_root is not None:
            raise click.UsageError("captures cannot be watched, and have no --pid of their own")
        write(_compare(before, after, paths, part, output))
        click.get_current_context().exit(YES)
    if cgroup_root is None:
        host.check()
    meter = _Meter(host, cgroup_root, capture=False)
    meter.choose(paths, part)
    old = meter.read()
    while True:
        time.sleep(interval)
        new = meter.read()
        labels = meter.labels(new)
        write(render(_deltas(old, new), interval, output, labels=labels, stream=watch))
        old = new
        if not watch:
            break
    click.get_current_context().exit(YES)


class _Meter:
    """Reads the same part of a tree again and again."""

    def __init__(self, host: Host, root: str | None, *, capture: bool) -> None:
        check_v2(host, root=root)
        self._host = host
        self._root = root
        self._capture = capture
        self._local_events = read_mount(host, root=root).is_local
        self._tops: tuple[str, ...] = ("/",)
        self._names: PodNames = NO_NAMES

    def choose(self, paths: tuple[str, ...], part: Part) -> None:
        """Set what is read."""
        self._names, _ = part.names(self._host, self._root)
        if paths:
            wanted = sorted({"/" + path.strip("/") for path in paths})
            # One that is below another is read with it.
            self._tops = tuple(
                path
                for path in wanted
                if not any(path.startswith(f"{other.rstrip('/')}/") for other in wanted)
            )
        elif part.pod is not None or part.pid is not None:
            self._tops = part.tops(self._host, self.identities(), self._names) or ("/",)

    def identities(self) -> Mapping[str, Identity]:
        """Tell what every cgroup of the tree is."""
        tree = read_tree(self._host, (), root=self._root)
        return identify(cgroup.path for cgroup in tree)

    def read(self) -> dict[str, Reading]:
        """Read it once; what has no counters is left out."""
        return {
            cgroup.path: reading_of(cgroup, local_events=self._local_events, capture=self._capture)
            for top in self._tops
            for cgroup in read_tree(self._host, EVENT_FILES, root=self._root, top=top)
            if cgroup.files
        }

    def labels(self, readings: Mapping[str, Reading]) -> Mapping[str, str]:
        """Call pods and containers by their names, as far as they are known."""
        if self._names is NO_NAMES:
            return {}
        # Parents first, from the root on: what a cgroup is depends on what it is in.
        paths = {path[:end] for path in readings for end in _ends(path)}
        found = identify(sorted(paths, key=lambda path: path.split("/")))
        return {path: self._names.label(item) for path, item in found.items()}


def _ends(path: str) -> list[int]:
    return [*(place for place, char in enumerate(path) if char == "/" and place), len(path)]


def _compare(before: str, after: str, paths: tuple[str, ...], part: Part, output: str) -> str:
    readings = []
    labels: Mapping[str, str] = {}
    for name in (before, after):
        host, root = read_capture(name)
        meter = _Meter(host, root, capture=True)
        meter.choose(paths, part)
        readings.append(meter.read())
        labels = meter.labels(readings[-1])
    return render(_deltas(*readings), None, output, labels=labels, stream=False)


def _deltas(old: Mapping[str, Reading], new: Mapping[str, Reading]) -> dict[str, EventDelta]:
    if not old and not new:
        raise InputError("no cgroup in it has memory.events, memory.pressure or memory.current")
    return {
        path: event_delta(old.get(path), new.get(path))
        for path in sorted({*old, *new}, key=lambda path: path.split("/"))
    }
