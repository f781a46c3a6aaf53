"""Reading a cgroup v2 tree: one pass, whatever vanishes meanwhile."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from memqos.adapters.archive import Archive
from memqos.adapters.files import machine_error
from memqos.adapters.host import Host
from memqos.errors import MachineError
from memqos.memory_qos.identity import PodNames, names_of_logs


__all__ = [
    "AUDIT_FILES",
    "CGROUP_MARKERS",
    "CGROUP_MOUNT",
    "EVENT_FILES",
    "LOG_DIRECTORIES",
    "MOUNT_TABLES",
    "OOM_FILES",
    "PROTECTION_FILES",
    "SWAP_FILES",
    "TREE_FILES",
    "CgroupFiles",
    "Mount",
    "cgroup_of",
    "check_v2",
    "read_log_names",
    "read_meminfo",
    "read_mglru",
    "read_mount",
    "read_tree",
]

CGROUP_MOUNT = "sys/fs/cgroup"
#: By these files a tree is told from a directory, and its version.
CGROUP_MARKERS = ("cgroup.controllers", "memory/cgroup.procs", "unified/cgroup.controllers")
#: Process 1 sees the host's mounts, if it may be seen.
MOUNT_TABLES = ("proc/1/mounts", "proc/mounts")
#: Of pods and of containers, named after them.
LOG_DIRECTORIES = ("var/log/pods", "var/log/containers")

#: What a cgroup's protection is computed from.
PROTECTION_FILES = ("memory.current", "memory.min", "memory.low")
#: What an audit compares and judges.
AUDIT_FILES = (
    *PROTECTION_FILES,
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "memory.pressure",
)
#: What changes under load.
EVENT_FILES = ("memory.current", "memory.events", "memory.events.local", "memory.pressure")
#: What the OOM policy works on.
OOM_FILES = ("memory.pressure", "memory.current", "memory.peak", "memory.max", "cgroup.events")
#: And where its expressions may use the variables of swap.
SWAP_FILES = ("memory.swap.current",)
#: All that any command reads of a cgroup.
TREE_FILES = frozenset({*AUDIT_FILES, *EVENT_FILES, *OOM_FILES, *SWAP_FILES})

_LARGEST = 256 * 1024
_CHUNK = 16 * 1024  # more than nearly all files; much larger buffers cost more than the read
_MEMINFO = "proc/meminfo"
_LRU_GEN = "sys/kernel/mm/lru_gen/enabled"

# What a cgroup that goes away under the reader answers with, and files that cannot be read.
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EINVAL)


class CgroupFiles(NamedTuple):
    """One cgroup: its path (absolute within the mount), inode, and the texts of its files."""

    path: str
    inode: int
    files: Mapping[str, str]


class Mount(NamedTuple):
    """How cgroups are mounted.

    Attributes:
        version: 1 or 2; None if it cannot be told.
        hybrid: cgroup v1 with a cgroup2 mount beside it.
        options: of the cgroup2 mount, None if they are not known.
    """

    version: int | None
    hybrid: bool
    options: tuple[str, ...] | None

    @property
    def recursive(self) -> bool | None:
        """Whether memory_recursiveprot is set, None if it is not known."""
        return None if self.options is None else "memory_recursiveprot" in self.options

    @property
    def is_local(self) -> bool:
        """Whether memory_localevents makes memory.events count a cgroup alone."""
        return "memory_localevents" in (self.options or ())


def _raise(_path: str, error: MachineError) -> None:
    raise error


def read_tree(
    host: Host,
    names: Collection[str],
    *,
    root: str | None = None,
    top: str = "/",
    unreadable: Callable[[str, MachineError], None] = _raise,
) -> Iterator[CgroupFiles]:
    """Walk a cgroup tree, parents before children, siblings by name.

    Links are no cgroups, and neither are directories with the name of one of `TREE_FILES`.

    Args:
        host: whose tree it is, unless `root` is given.
        names: the files to read; those that a cgroup lacks are left out.
        root: a directory that holds the tree.
        top: where to begin, absolute within the mount.
        unreadable: takes a file or cgroup that cannot be read for another reason than that it
            vanished meanwhile, absolute within the mount, and the error; by default raises it.

    Raises:
        MachineError: there is no `top`, or as `unreadable` does.
    """
    if root is None and isinstance(host, Archive):
        yield from _walk_archive(host, names, top, unreadable)
        return
    base = host.resolve(CGROUP_MOUNT) if root is None else root
    start = os.path.join(base, top.lstrip("/")) if top != "/" else base
    wanted = frozenset(names)
    try:
        inode = os.stat(start).st_ino
    except OSError as error:
        raise machine_error(start, error) from error
    except ValueError as error:  # a NUL in the name
        raise MachineError(start, str(error)) from error
    # A stack, not recursion: (path within the mount, directory, inode).
    todo = [(top, start, inode)]
    while todo:
        path, place, inode = todo.pop()
        try:
            with os.scandir(place) as entries:
                inner, files = [], []
                for entry in entries:
                    if entry.name in wanted:
                        files.append(entry.name)
                    elif entry.name not in TREE_FILES and entry.is_dir(follow_symlinks=False):
                        inner.append((entry.name, entry.inode()))
        except OSError as error:
            if path == top or error.errno not in _GONE:
                unreadable(path, machine_error(place, error))
            continue
        stem = "" if path == "/" else path
        yield CgroupFiles(path, inode, _read(place, stem, files, unreadable))
        inner.sort(reverse=True)
        todo += [(f"{stem}/{name}", f"{place}/{name}", number) for name, number in inner]


def _read(
    place: str, stem: str, names: Iterable[str], unreadable: Callable[[str, MachineError], None]
) -> Mapping[str, str]:
    texts = {}
    for name in names:
        path = f"{place}/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, _CHUNK)
                while len(data) % _CHUNK == 0 and data and len(data) < _LARGEST:
                    more = os.read(descriptor, _CHUNK)
                    if not more:
                        break
                    data += more
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _GONE:
                unreadable(f"{stem}/{name}", machine_error(path, error))
            continue
        texts[name] = data.decode("ascii", "replace")
    return texts


def _walk_archive(
    host: Archive,
    names: Collection[str],
    top: str,
    unreadable: Callable[[str, MachineError], None],
) -> Iterator[CgroupFiles]:
    todo = [top]
    while todo:
        path = todo.pop()
        stem = "" if path == "/" else path
        place = f"{CGROUP_MOUNT}{stem}"
        texts, inner = {}, []
        for name in host.list(place):
            if name in names:
                try:
                    texts[name] = host.read(f"{place}/{name}").decode("ascii", "replace")
                except MachineError as error:
                    if error.errno not in _GONE:
                        unreadable(f"{stem}/{name}", error)
            elif name not in TREE_FILES and host.is_directory(f"{place}/{name}"):
                inner.append(f"{stem}/{name}")
        yield CgroupFiles(path, 0, texts)
        todo += reversed(inner)


def read_mount(host: Host, *, root: str | None = None) -> Mount:
    """Tell how cgroups are mounted, by the mount table and by what stands there."""
    if root is not None:
        is_v2 = os.path.exists(os.path.join(root, "cgroup.controllers"))
        # A captured tree may lack the root's own files; a v1 one has a directory a controller,
        # and a hybrid one a cgroup2 mount beside them.
        is_v1 = not is_v2 and os.path.exists(os.path.join(root, "memory", "cgroup.procs"))
        unified = os.path.exists(os.path.join(root, "unified", "cgroup.controllers"))
        if is_v1 or (unified and not is_v2):
            return Mount(1, hybrid=unified, options=None)
        return Mount(2, hybrid=False, options=None)
    v1 = v2 = hybrid = False
    options = None
    for line in _mounts(host):
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        if fields[2] == "cgroup2" and fields[1].endswith(("/cgroup", "/unified")):
            v2 = v2 or fields[1].endswith("/cgroup")
            hybrid = hybrid or fields[1].endswith("/unified")
            options = tuple(fields[3].split(","))
        elif fields[2] == "cgroup":
            v1 = True
    if v2 or (not v1 and host.exists(f"{CGROUP_MOUNT}/cgroup.controllers")):
        return Mount(2, hybrid=False, options=options)
    if v1 or host.exists(f"{CGROUP_MOUNT}/memory/cgroup.procs"):
        hybrid = hybrid or host.exists(f"{CGROUP_MOUNT}/unified/cgroup.controllers")
        return Mount(1, hybrid=hybrid, options=options)
    return Mount(None, hybrid=False, options=None)


def check_v2(host: Host, *, root: str | None = None) -> None:
    """Make sure that cgroups are those of cgroup v2, as far as that can be told.

    Raises:
        MachineError: the memory controller is on cgroup v1.
    """
    mount = read_mount(host, root=root)
    if mount.version == 1:
        kind = "hybrid hierarchy" if mount.hybrid else "hierarchy"
        place = host.display(CGROUP_MOUNT) if root is None else root
        raise MachineError(place, f"a cgroup v1 {kind}; this needs cgroup v2")


def _mounts(host: Host) -> list[str]:
    for table in MOUNT_TABLES:
        try:
            return host.read_text(table).splitlines()
        except MachineError:
            continue
    return []


def read_log_names(host: Host) -> PodNames:
    """Read which pods a node runs off the names of their log directories.

    kubelet calls them ``NAMESPACE_NAME_UID``, and the links to a container's log
    ``POD_NAMESPACE_CONTAINER-ID.log``; nothing in them is read.
    """
    return names_of_logs(*(_list(host, folder) for folder in LOG_DIRECTORIES))


def _list(host: Host, folder: str) -> list[str]:
    try:
        return host.list(folder)
    except MachineError:
        return []


def read_meminfo(host: Host, name: str) -> int | None:
    """Read a line of ``/proc/meminfo``, such as SwapTotal, in bytes; None where there is none."""
    try:
        match = re.search(
            rf"^{name}:\s+([0-9]{{1,15}}) kB$", host.read_text(_MEMINFO), re.MULTILINE
        )
    except MachineError:
        return None
    return None if match is None else int(match[1]) * 1024


def read_mglru(host: Host) -> bool | None:
    """Tell whether the multi-generational LRU is on, None where it cannot be told."""
    try:
        return int(host.read_text(_LRU_GEN).strip(), 16) & 1 == 1
    except (MachineError, ValueError):
        return None


def cgroup_of(host: Host, pid: int) -> str:
    """Return the cgroup v2 path of a process.

    Raises:
        MachineError: there is no such process, or it has none.
    """
    for line in host.read_text(f"proc/{pid}/cgroup").splitlines():
        if line.startswith("0::/"):
            return line[3:].rstrip("/") or "/"
    raise MachineError(host.display(f"proc/{pid}/cgroup"), "no cgroup v2 line")
