"""Saving the files that the commands read, so that they can run elsewhere.

Nothing else is saved: what belongs to a snapshot is found out by running the commands' own
readers. Of the kubelet configuration only the fields that memqos reads are kept, of the mount
table the cgroup mounts, of the pods' logs the names.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import BinaryIO

from attrs import define, field

from memqos.adapters.archive import Room, TooLargeError
from memqos.adapters.cgroup_tree import (
    CGROUP_MARKERS,
    CGROUP_MOUNT,
    LOG_DIRECTORIES,
    MOUNT_TABLES,
    TREE_FILES,
    read_mglru,
    read_mount,
    read_tree,
)
from memqos.adapters.documents import read_documents
from memqos.adapters.files import MAX_INPUT_BYTES, machine_error, replacing
from memqos.adapters.host import Host
from memqos.adapters.kubelet_node import kubelet_document
from memqos.adapters.node import (
    CHECKPOINT,
    KUBELET_CONFIG,
    read_capacity,
    read_checkpoint,
    read_image,
    read_kernel,
    read_machine,
)
from memqos.adapters.roots import compression_of
from memqos.errors import InputError, MachineError, MemqosError
from memqos.kubelet_config import FIELDS


__all__ = ["Snapshot", "save_snapshot", "take_snapshot", "write_archive"]

_STAGE = ".memqos-"


@define
class Snapshot:
    """The files of a host, while they are collected.

    Attributes:
        files: path below the root to content.
        directories: paths that were listed. An empty one in place of a file stands for a file
            that is there and could not be saved: without it, the host would look as if it had
            none, and get another answer.
        missing: what could not be read, one sentence each.
    """

    files: dict[str, bytes] = field(factory=dict)
    directories: set[str] = field(factory=set)
    missing: list[str] = field(factory=list)


class _Recorder(Host):
    """Passes reads on to another host and keeps what was read."""

    def __init__(self, host: Host, snapshot: Snapshot) -> None:
        super().__init__(host.root)
        self._host = host
        self._snapshot = snapshot

    def read(self, path: str, *, limit: int = MAX_INPUT_BYTES) -> bytes:
        data = self._host.read(path, limit=limit)
        self._snapshot.files[path] = data
        return data

    def list(self, path: str) -> list[str]:
        names = self._host.list(path)
        self._snapshot.directories.add(path)
        return names

    def exists(self, path: str) -> bool:
        found = self._host.exists(path)
        if found:  # the readers ask for directories only
            self._snapshot.directories.add(path)
        return found


def take_snapshot(host: Host, *, cgroups: bool = True) -> Snapshot:
    """Read everything that the commands read, as far as it is there.

    Args:
        host: the node.
        cgroups: whether to read the cgroup tree and what belongs to it.
    """
    snapshot = Snapshot()
    recorder = _Recorder(host, snapshot)
    readers: tuple[Callable[[Host], object], ...] = (read_machine, read_image)
    for reader in readers:
        files, directories = dict(snapshot.files), set(snapshot.directories)
        try:
            reader(recorder)
        except MachineError as error:
            snapshot.missing.append(str(error))
            # What was read up to there would be another machine.
            snapshot.files, snapshot.directories = files, directories
        except InputError as error:
            snapshot.missing.append(f"{error}; it is saved as it is")
    try:
        read_checkpoint(recorder)
    except MachineError as error:
        snapshot.missing.append(str(error))
        if _is_there(host, CHECKPOINT):
            snapshot.directories.add(CHECKPOINT)
    try:
        snapshot.files[KUBELET_CONFIG] = _reduced_config(host)
    except MemqosError as error:
        snapshot.missing.append(str(error))
        if _is_there(host, KUBELET_CONFIG):
            snapshot.directories.add(KUBELET_CONFIG)
    if cgroups:
        for read in (read_capacity, read_kernel, read_mglru):  # None is an answer
            read(recorder)
        _add_cgroups(host, snapshot)
    return snapshot


def _add_cgroups(host: Host, snapshot: Snapshot) -> None:
    for table in MOUNT_TABLES:
        with suppress(MachineError):
            # Of other mounts even the options are nobody's business.
            lines = host.read(table).splitlines(keepends=True)
            snapshot.files[table] = b"".join(line for line in lines if _is_cgroup(line))
            break
    version = read_mount(host).version
    if version is None:
        place = host.display(CGROUP_MOUNT)
        snapshot.missing.append(f"{place}: no cgroup2 mount and no cgroup tree")
    if version == 2:
        try:
            _add_tree(host, snapshot)
        except MachineError as error:
            snapshot.missing.append(str(error))
    for marker in (f"{CGROUP_MOUNT}/{name}" for name in CGROUP_MARKERS):
        if host.exists(marker) and marker not in snapshot.directories:
            snapshot.files[marker] = b""  # that it is there is all
    for folder in LOG_DIRECTORIES:
        with suppress(MachineError):
            snapshot.directories |= {f"{folder}/{name}" for name in host.list(folder)}


def _is_cgroup(line: bytes) -> bool:
    return line.split(b" ")[2:3] in ([b"cgroup"], [b"cgroup2"])


def _add_tree(host: Host, snapshot: Snapshot) -> None:
    problems: list[str] = []

    def stand_in(path: str, error: MachineError) -> None:
        """Let whoever reads what could not be read be refused, as on the host."""
        problems.append(str(error))
        known = path.rpartition("/")[2] in TREE_FILES
        places = [path] if known else [f"{path.rstrip('/')}/{name}" for name in TREE_FILES]
        snapshot.directories |= {f"{CGROUP_MOUNT}{place}" for place in places}

    for cgroup in read_tree(host, TREE_FILES, unreadable=stand_in):
        folder = f"{CGROUP_MOUNT}{cgroup.path}".rstrip("/")
        snapshot.directories.add(folder)
        for name, text in cgroup.files.items():
            snapshot.files[f"{folder}/{name}"] = text.encode()
    if problems:
        more = f", and {len(problems) - 1} more of the tree" if len(problems) > 1 else ""
        snapshot.missing.append(f"{problems[0]}{more}")


def _is_there(host: Host, path: str) -> bool:
    """Tell a file that cannot be read or understood from one that does not exist."""
    try:
        host.read(path)
    except MachineError as error:
        return error.errno != errno.ENOENT or host.is_link(path)
    return True


def _reduced_config(host: Host) -> bytes:
    """Keep the fields that memqos reads: others can hold secrets, such as staticPodURLHeader."""
    source = host.display(KUBELET_CONFIG)
    document = kubelet_document(read_documents(host.read(KUBELET_CONFIG), source))
    if document is None:
        return b"{}\n"
    if not isinstance(document.data, dict):
        raise InputError("not an object", source=source, line=document.line)
    reduced = {name: document.data[name] for name in FIELDS if name in document.data}
    return json.dumps(reduced, indent=2).encode() + b"\n"


def save_snapshot(snapshot: Snapshot, target: str) -> None:
    """Write a snapshot as a tar archive (by the name's ending) or a new directory.

    Readable by its owner alone: ``/proc/iomem`` tells where the kernel lies.

    Raises:
        MachineError: it cannot be written, is too large for an archive, or a directory of that
            name is not empty.
    """
    compression = compression_of(target)
    if compression is not None:
        with replacing(target, mode=0o600) as file:
            write_archive(snapshot, file, target, compression=compression)
        return
    try:
        os.makedirs(target, mode=0o700, exist_ok=True)
        with _locked(target) as alone:
            _clear(target, alone=alone)
            _save_directory(snapshot, target)
    except OSError as error:
        raise machine_error(target, error) from error


@contextmanager
def _locked(target: str) -> Iterator[bool]:
    """Keep other runs out, with a lock that dies with its holder.

    Gives False where there are no locks, as on some network file systems.
    """
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        alone = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MachineError(target, "another memqos is writing it") from None
        except OSError:
            alone = False
        yield alone
    finally:
        os.close(descriptor)


def _clear(target: str, *, alone: bool) -> None:
    """Make sure that a directory is empty, but for what a run left that was killed."""
    from shutil import rmtree

    names = os.listdir(target)
    if names and not (alone and all(name.startswith(_STAGE) for name in names)):
        raise MachineError(target, "the directory is not empty")
    for name in names:
        rmtree(os.path.join(target, name))


def _save_directory(snapshot: Snapshot, target: str) -> None:
    """Fill a directory; whenever that ends early, what is there does not pass for a snapshot."""
    from shutil import rmtree
    from tempfile import mkdtemp

    stage = mkdtemp(prefix=_STAGE, dir=target)
    made = [stage]
    try:
        for path in sorted(snapshot.directories):
            os.makedirs(os.path.join(stage, path), exist_ok=True)
        for path, data in sorted(snapshot.files.items()):
            place = os.path.join(stage, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "xb", opener=_private) as file:
                file.write(data)
        # At once, but for a power failure or SIGKILL in between; kubelet's files come last.
        for name in sorted(os.listdir(stage)):
            made.append(os.path.join(target, name))
            os.rename(os.path.join(stage, name), made[-1])
        os.rmdir(stage)
    except BaseException:
        for place in made:
            rmtree(place, ignore_errors=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write_archive(
    snapshot: Snapshot, file: BinaryIO, target: str, *, compression: str = ""
) -> None:
    """Write the tar archive of a snapshot.

    Args:
        snapshot: what is written.
        file: where it is written to.
        target: what that is called.
        compression: as tarfile calls it.

    Raises:
        MachineError: memqos would not read so large an archive.
    """
    now = int(time.time())  # a fraction would cost an extended header for each file
    room = Room()
    try:
        with tarfile.open(fileobj=file, mode=f"w:{compression}") as tar:  # type: ignore[call-overload]  # one of four
            folders = ((path, None) for path in sorted(_folders(snapshot)))
            for path, data in chain(folders, sorted(snapshot.files.items())):
                room.hold(path, data or b"")
                entry = tarfile.TarInfo(path)
                entry.mtime = now
                if data is None:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o700
                else:
                    entry.size, entry.mode = len(data), 0o600
                tar.format = _format(entry)
                tar.addfile(entry, io.BytesIO(data or b""))
                tar.members.clear()  # or it keeps them all
                room.reach(tar.offset)
    except TooLargeError:
        raise MachineError(target, "too large for an archive; save a directory instead") from None


def _format(entry: tarfile.TarInfo) -> int:
    """Return the format without extended headers, larger than most files, if that will do."""
    try:
        entry.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")
    except ValueError:  # the name is too long, or is not ASCII
        return tarfile.PAX_FORMAT
    return tarfile.USTAR_FORMAT


def _folders(snapshot: Snapshot) -> set[str]:
    """Return the directories of a snapshot, with those that lead to others and to files."""
    found = set(snapshot.directories)
    for path in (*snapshot.directories, *snapshot.files):
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found
