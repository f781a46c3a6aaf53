"""What the commands on a live cgroup tree share: which part of it, and what it is called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import click
from attrs import frozen

from memqos.adapters.archive import Archive
from memqos.adapters.cgroup_tree import (
    CGROUP_MOUNT,
    EVENT_FILES,
    CgroupFiles,
    cgroup_of,
    check_v2,
    read_log_names,
    read_tree,
)
from memqos.adapters.host import Host
from memqos.adapters.manifest_files import read_manifests
from memqos.adapters.roots import open_host
from memqos.cgroup import parse_flat, parse_pressure, parse_size
from memqos.errors import InputError, MachineError
from memqos.manifests import ManifestReader
from memqos.memory_qos.events import Reading
from memqos.memory_qos.identity import NO_NAMES, Identity, PodNames, names_of_pods
from memqos.memory_qos.tree import find_pod
from memqos.pods import Pod
from memqos_cli.output.terminal import note


__all__ = [
    "Part",
    "is_below",
    "part_options",
    "read_capture",
    "read_pods",
    "reading_of",
    "sizes_of",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_SIZES = (
    "memory.current",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
)


@frozen(kw_only=True)
class Part:
    """The part of a tree that was asked for.

    Attributes:
        pods_file: a PodList, None for none.
        pod: ``namespace/name`` or a UID.
        container: its name.
        pid: a process.
    """

    pods_file: str | None
    pod: str | None
    container: str | None
    pid: int | None

    def check(self, *others: Collection[str]) -> None:
        """Refuse what contradicts itself.

        Raises:
            click.UsageError: it does.
        """
        if self.container is not None and self.pod is None:
            raise click.UsageError("--container needs --pod")
        given = [self.pod is not None, self.pid is not None, *map(bool, others)]
        if given.count(True) > 1:
            names = "PATH, --pod and --pid" if others else "--pod and --pid"
            raise click.UsageError(f"{names} exclude each other")

    def names(self, host: Host, cgroup_root: str | None) -> tuple[PodNames, tuple[Pod, ...]]:
        """Return what pods are called, by the PodList or by the node's log directories."""
        if self.pods_file is not None:
            pods = read_pods(self.pods_file)
            return names_of_pods(pods), pods
        return (NO_NAMES if cgroup_root is not None else read_log_names(host)), ()

    def tops(
        self, host: Host, identities: Mapping[str, Identity], names: PodNames
    ) -> tuple[str, ...] | None:
        """Return the cgroups that were asked for, None for all.

        Raises:
            InputError: there are none.
            MachineError: there is no such process.
        """
        if self.pod is not None:
            return find_pod(identities, names, self.pod, self.container)
        if self.pid is None:
            return None
        path = cgroup_of(host, self.pid)
        if path not in identities:
            raise InputError(f"its cgroup {path} is not in the tree", source=f"--pid {self.pid}")
        return (path,)


def part_options(command: Command) -> Command:
    """Add --pods, --pod, --container and --pid, of which a command makes a `Part`."""
    for option in (
        click.option("--pid", type=click.IntRange(1), help="The cgroup of a process alone."),
        click.option(
            "--container", metavar="NAME|ID", help="With --pod: one of its containers alone."
        ),
        click.option("--pod", metavar="NAMESPACE/NAME|UID", help="One pod alone."),
        click.option(
            "--pods",
            type=click.Path(readable=False, allow_dash=True),
            metavar="FILE",
            help="A PodList, of the API or of kubelet.",
        ),
    ):
        command = option(command)
    return command


def read_pods(name: str) -> tuple[Pod, ...]:
    """Read the pods of a PodList; what is no pod is left out, with a note.

    Raises:
        MachineError: it cannot be read.
        InputError: it cannot be understood.
    """
    reader = ManifestReader()
    read_manifests([name], reader, directories=False)
    pods = tuple(item.pod for item in reader.workloads())
    found = tuple(pod for pod in pods if pod.kind == "Pod" and pod.uid is not None)
    if len(found) < len(pods):
        note(f"{name}: left out {len(pods) - len(found)} objects that are no pods with a UID")
    if not found:
        note(f"{name}: no pods in it")
    return found


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Tell whether a cgroup is one of some, or below one."""
    return any(top in (path, "/") or path.startswith(f"{top}/") for top in tops)


def sizes_of(cgroup: CgroupFiles) -> Mapping[str, int]:
    """Read the sizes of a cgroup, as far as they are there.

    Raises:
        InputError: one is no size.
    """
    found = {}
    for name in _SIZES:
        text = cgroup.files.get(name)
        if text:
            found[name] = _parse(cgroup, name, text, parse_size)
    return found


def _parse(cgroup: CgroupFiles, name: str, text: str, parser: Callable[[str], Any]) -> Any:
    try:
        return parser(text)
    except InputError as error:
        raise error.locate(source=f"{cgroup.path.rstrip('/')}/{name}") from None


def reading_of(cgroup: CgroupFiles, *, local_events: bool, capture: bool) -> Reading:
    """Parse the counters of a cgroup.

    Args:
        cgroup: its files.
        local_events: whether memory.events counts the cgroup alone (memory_localevents).
        capture: a copy of the files, whose inode tells nothing.
    """

    def parse(name: str, parser: Callable[[str], Any]) -> Any:
        text = cgroup.files.get(name)
        return _parse(cgroup, name, text, parser) if text else None

    events = parse("memory.events", parse_flat)
    local = parse("memory.events.local", parse_flat)
    return Reading(
        None if capture else str(cgroup.inode),
        events,
        events if local is None and local_events else local,
        parse("memory.pressure", parse_pressure),
        parse("memory.current", parse_size),
    )


def read_capture(name: str) -> tuple[Host, str | None]:
    """Open a capture: a snapshot with sys/fs/cgroup in it, or a directory that is such a tree.

    Returns:
        What `read_tree` takes.

    Raises:
        MachineError: neither, or one of cgroup v1.
    """
    host = open_host(name)
    host.check()
    root = None
    if not host.exists(CGROUP_MOUNT):
        if isinstance(host, Archive):
            raise _no_tree(name)
        root = name
    check_v2(host, root=root)
    if not any(cgroup.files for cgroup in read_tree(host, EVENT_FILES, root=root)):
        raise _no_tree(name)
    return host, root


def _no_tree(name: str) -> MachineError:
    return MachineError(name, "no cgroup tree in it: nothing has a memory.current")
