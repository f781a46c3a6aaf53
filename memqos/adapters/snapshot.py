"""Saving the files that the commands read, so that they can run elsewhere.

Nothing else is saved: what belongs to a snapshot is found out by running the commands' own
readers. Of the kubelet configuration only the fields that memqos reads are kept.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable

from attrs import define, field

from memqos.adapters.documents import read_documents
from memqos.adapters.files import MAX_INPUT_BYTES, machine_error, write_atomically
from memqos.adapters.host import Host
from memqos.adapters.node import KUBELET_CONFIG, read_checkpoint, read_image, read_machine
from memqos.errors import MachineError, MemqosError
from memqos.kubelet_config import FIELDS


__all__ = ["Snapshot", "save_snapshot", "take_snapshot"]

_ARCHIVES = (".tar", ".tar.gz", ".tgz")


@define
class Snapshot:
    """The files of a host, while they are collected.

    Attributes:
        files: path below the root to content.
        directories: paths that were listed.
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


def take_snapshot(host: Host) -> Snapshot:
    """Read everything that the commands read, as far as it is there."""
    snapshot = Snapshot()
    recorder = _Recorder(host, snapshot)
    readers: tuple[Callable[[Host], object], ...] = (
        read_machine,
        read_image,
        read_checkpoint,
        _read_config,
    )
    for reader in readers:
        try:
            reader(recorder)
        except MemqosError as error:
            snapshot.missing.append(str(error))
    config = snapshot.files.pop(KUBELET_CONFIG, None)
    if config is not None:
        snapshot.files[KUBELET_CONFIG] = _reduce_config(config, host.display(KUBELET_CONFIG))
    return snapshot


def _read_config(host: Host) -> object:
    return read_documents(host.read(KUBELET_CONFIG), host.display(KUBELET_CONFIG))


def _reduce_config(data: bytes, source: str) -> bytes:
    """Keep the fields that memqos reads: others can hold secrets, such as staticPodURLHeader."""
    try:
        documents = read_documents(data, source)
    except MemqosError:
        return b"{}\n"
    kept = next((doc.data for doc in documents if isinstance(doc.data, dict)), {})
    reduced = {name: kept[name] for name in FIELDS if name in kept}
    return json.dumps(reduced, indent=2).encode() + b"\n"


def save_snapshot(snapshot: Snapshot, target: str) -> None:
    """Write a snapshot as a tar archive (by the name's ending) or a new directory.

    Readable by its owner alone: ``/proc/iomem`` tells where the kernel lies.

    Raises:
        MachineError: it cannot be written, or a directory of that name is not empty.
    """
    if target.endswith(_ARCHIVES):
        write_atomically(
            target, archive_bytes(snapshot, gzip=not target.endswith(".tar")), mode=0o600
        )
        return
    try:
        os.makedirs(target, mode=0o700, exist_ok=True)
        if os.listdir(target):
            raise MachineError(target, "the directory is not empty")
        for path in sorted(snapshot.directories):
            os.makedirs(os.path.join(target, path), exist_ok=True)
        for path, data in sorted(snapshot.files.items()):
            place = os.path.join(target, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            write_atomically(place, data, mode=0o600)
    except OSError as error:
        raise machine_error(target, error) from error


def archive_bytes(snapshot: Snapshot, *, gzip: bool) -> bytes:
    """Make the tar archive of a snapshot in memory."""
    buffer = io.BytesIO()
    now = time.time()
    with tarfile.open(fileobj=buffer, mode="w:gz" if gzip else "w") as tar:
        for path in sorted(snapshot.directories):
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o700, now
            tar.addfile(entry)
        for path, data in sorted(snapshot.files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(data), 0o600, now
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
