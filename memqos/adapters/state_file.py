"""Replacing kubelet's checkpoint: atomically, durably, or not at all.

Whatever happens between two system calls, the path holds the old file or the new one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from memqos.adapters.files import machine_error
from memqos.adapters.host import Host
from memqos.errors import MachineError


__all__ = ["StateFileError", "beside", "remove_leftovers", "replace_checkpoint", "running_kubelet"]

_SELINUX = "security.selinux"

# Programs that are kubelet or contain it.
_KUBELETS = frozenset({"kubelet", "k3s", "k3s-server", "k3s-agent", "kubelite", "microshift"})


class StateFileError(MachineError):
    """The file is not in a state in which it may be replaced; nothing was written."""


def running_kubelet(host: Host) -> int | None:
    """Look for a kubelet among the host's processes; return its pid.

    Raises:
        MachineError: no process can be seen, so nothing is known.
    """
    pids = sorted(int(name) for name in host.list("proc") if name.isascii() and name.isdigit())
    if not pids:
        raise MachineError(host.display("proc"), "shows no processes")
    for pid in pids:
        try:
            command = host.read_text(f"proc/{pid}/cmdline").split("\0")
            name = host.read_text(f"proc/{pid}/comm").strip()
        except MachineError:
            continue  # it ended meanwhile
        program = os.path.basename(command[0])
        if name in _KUBELETS or program in _KUBELETS or command[1:2] == ["kubelet"]:
            return pid
    return None


def replace_checkpoint(
    path: str, *, expected: bytes, new: bytes, backup_dir: str | None
) -> str | None:
    """Replace a checkpoint by a new one.

    Keeps owner, mode and SELinux context. The backup is named after the old content, so that it
    is made once. A temporary file of an earlier run that was killed is removed.

    Args:
        path: the checkpoint.
        expected: its content when it was read; anything else there now is refused.
        new: the new content.
        backup_dir: where the backup goes, None for no backup.

    Returns:
        The backup's path.

    Raises:
        StateFileError: a symbolic link, changed since it was read, or another run is writing.
        MachineError: the system refused; the old file is in place.
    """
    directory, name = beside(path), os.path.basename(path)
    try:
        with _locked(directory, path) as folder:
            _remove(_temporary(name), folder)
            status = _check_unchanged(path, name, folder, expected)
            saved = None
            if backup_dir is not None:
                digest = hashlib.sha256(expected).hexdigest()[:12]
                saved = os.path.join(backup_dir, f"{name}.backup-{digest}")
                with _opened(backup_dir) as target:
                    _remove(_temporary(name), target)
                    _write(_temporary(name), target, expected, status, path)
                    _rename(_temporary(name), os.path.basename(saved), target)
            _write(_temporary(name), folder, new, status, path)
            try:
                _check_unchanged(path, name, folder, expected)
            except BaseException:
                _remove(_temporary(name), folder)
                raise
            _rename(_temporary(name), name, folder)
            return saved
    except OSError as error:
        raise machine_error(path, error) from error


def beside(path: str) -> str:
    """Return the directory of a file."""
    return os.path.dirname(path) or "."


def remove_leftovers(path: str) -> None:
    """Remove what an earlier run left that was killed while it wrote.

    Raises:
        StateFileError: another run is writing.
        MachineError: the system refused.
    """
    directory, name = beside(path), os.path.basename(path)
    try:
        with _locked(directory, path) as folder:
            _remove(_temporary(name), folder)
    except OSError as error:
        raise machine_error(path, error) from error


def _temporary(name: str) -> str:
    return f".{name}.memqos"


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _locked(directory: str, path: str) -> Iterator[int]:
    """Hold a lock on the directory itself: it leaves no file behind, and dies with us."""
    with _opened(directory) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateFileError(path, "another memqos is re-baselining it") from None
        yield descriptor


def _check_unchanged(path: str, name: str, folder: int, expected: bytes) -> os.stat_result:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StateFileError(path, "is a symbolic link; give the file itself") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StateFileError(path, "is not a regular file")
        found = bytearray()
        while chunk := os.read(descriptor, 1 << 20):
            found += chunk
            if len(found) > len(expected):
                break
    finally:
        os.close(descriptor)
    if found != expected:
        raise StateFileError(path, "has changed since it was read")
    return status


def _write(name: str, folder: int, data: bytes, like: os.stat_result, path: str) -> None:
    """Write a new file durably, with the owner, mode and SELinux context of the old one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        made = os.fstat(descriptor)
        if (like.st_uid, like.st_gid) != (made.st_uid, made.st_gid):
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        with suppress(OSError):  # no SELinux here
            os.setxattr(descriptor, _SELINUX, os.getxattr(path, _SELINUX))
        os.fsync(descriptor)
    except BaseException:
        _remove(name, folder)
        raise
    finally:
        os.close(descriptor)


def _rename(old: str, new: str, folder: int) -> None:
    try:
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(old, folder)
        raise
    os.fsync(folder)


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
