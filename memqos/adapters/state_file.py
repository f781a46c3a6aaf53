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
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from memqos.adapters.host import Host
from memqos.errors import MachineError


__all__ = ["StateFileError", "beside", "remove_leftovers", "replace_checkpoint", "running_kubelet"]

# What a mode does not hold: the SELinux context, and access control lists.
_SELINUX = "security.selinux"
_ACL = "system.posix_acl_access"
_ABSENT = (errno.ENODATA, errno.EOPNOTSUPP)

_LONGEST_NAME = 255

# Clearer words than the system's.
_SAID = {errno.EBUSY: "is a mount of its own; give the file that is mounted there"}

# Programs that are kubelet or contain it.
_KUBELETS = frozenset({"kubelet", "k3s", "k3s-server", "k3s-agent", "kubelite", "microshift"})

# The first process of a machine or of a container that works like one.
_INITS = frozenset({"systemd", "init"})


class StateFileError(MachineError):
    """The file is not in a state in which it may be replaced; nothing was written."""


class _Likeness(NamedTuple):
    """What the new file has in common with the old one."""

    status: os.stat_result
    attributes: dict[str, bytes | None]


def running_kubelet(host: Host) -> int | None:
    """Look for a kubelet among the host's processes; return its pid.

    Raises:
        MachineError: the processes in sight are none, or not all of the host, so nothing is known.
    """
    proc = host.display("proc")
    pids = sorted(int(name) for name in host.list("proc") if name.isascii() and name.isdigit())
    if not pids:
        raise MachineError(proc, "shows no processes")
    names: dict[int, str] = {}
    for pid in pids:
        try:
            command = host.read_text(f"proc/{pid}/cmdline").split("\0")
            name = names[pid] = host.read_text(f"proc/{pid}/comm").strip()
        except MachineError:
            continue  # it ended meanwhile
        program = os.path.basename(command[0])
        hyperkube = program == "hyperkube" and command[1:2] == ["kubelet"]
        if name in _KUBELETS or program in _KUBELETS or hyperkube:
            return pid
    if names.get(1) not in _INITS and names.get(2) != "kthreadd":
        raise MachineError(proc, "shows a part of the processes, those of a container or a user")
    return None


def replace_checkpoint(
    path: str, *, expected: bytes, new: bytes, backup_dir: str | None
) -> str | None:
    """Replace a checkpoint by a new one.

    Keeps owner, mode, access control list and SELinux context. The backup is named after the old
    content, so that it is made once. A temporary file of an earlier run that was killed is
    removed.

    Args:
        path: the checkpoint.
        expected: its content when it was read; anything else there now is refused.
        new: the new content.
        backup_dir: where the backup goes, None for no backup.

    Returns:
        The backup's path.

    Raises:
        StateFileError: a symbolic link, changed since it was read, or another run is writing.
        MachineError: the system refused; the old file is in place unless the message says so.
    """
    directory, name = beside(path), os.path.basename(path)
    temporary = _temporary(name)
    with _locked(directory, path) as folder:
        with _naming(path):
            _remove(temporary, folder)
            like = _check_unchanged(path, name, folder, expected)
        saved = None
        if backup_dir is not None:
            saved = _back_up(path, folder, expected, like, backup_dir)
        with _naming(path):
            _write(temporary, folder, new, like)
            try:
                _check_unchanged(path, name, folder, expected)
            except BaseException:
                _remove(temporary, folder)
                raise
            _rename(temporary, name, folder)
        with _naming(path, "was replaced, but it may not last through a power failure: "):
            os.fsync(folder)
        return saved


def beside(path: str) -> str:
    """Return the directory of a file."""
    return os.path.dirname(path) or "."


def remove_leftovers(path: str, *, backup_dir: str | None) -> None:
    """Remove what an earlier run left that was killed while it wrote.

    Raises:
        MachineError: there is something left, and the system refused to remove it.
    """
    directory, name = beside(path), os.path.basename(path)
    places = [(directory, _temporary(name))]
    if backup_dir is not None:
        places.append((backup_dir, _temporary(name, _key(path))))
    left = [place for place in places if os.path.lexists(os.path.join(*place))]
    if not left:
        return
    with suppress(StateFileError), _locked(directory, path):  # another run needs it
        for folder_name, temporary in left:
            with _naming(os.path.join(folder_name, temporary)), _opened(folder_name) as folder:
                _remove(temporary, folder)


@contextmanager
def _naming(path: str, prefix: str = "") -> Iterator[None]:
    """Name the file in what the system says."""
    try:
        yield
    except OSError as error:
        text = _SAID.get(error.errno or 0) or error.strerror or str(error)
        raise MachineError(path, f"{prefix}{text}", error.errno) from error


def _temporary(name: str, key: str = "") -> str:
    ending = f"{key and '.'}{key}.memqos"
    return f".{_fit(name, 1 + len(ending))}{ending}"


def _key(path: str) -> str:
    """Tell checkpoints apart that share a directory of backups, which may be a network's."""
    place = f"{os.uname().nodename}\0{os.path.realpath(path)}"
    return _digest(os.fsencode(place))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _fit(name: str, more: int) -> str:
    """Shorten a name to which `more` bytes are added, if it is too long for a file system."""
    data = os.fsencode(name)
    if len(data) + more <= _LONGEST_NAME:
        return name
    digest = _digest(data)
    return f"{data[: _LONGEST_NAME - more - len(digest) - 1].decode(errors='ignore')}~{digest}"


def _back_up(path: str, folder: int, data: bytes, like: _Likeness, directory: str) -> str:
    name = os.path.basename(path)
    ending = f".backup-{_digest(data)}"
    backup = _fit(name, len(ending)) + ending
    saved = os.path.join(directory, backup)
    with ExitStack() as stack:
        with _naming(directory):
            target = stack.enter_context(_opened(directory))
        with _naming(saved):
            # Next to the checkpoint the lock is ours; elsewhere others may be at work.
            own = os.path.samestat(os.fstat(folder), os.fstat(target))
            temporary = _temporary(name, "" if own else _key(path))
            _remove(temporary, target)
            _write(temporary, target, data, like)
            _rename(temporary, backup, target)
            os.fsync(target)
    return saved


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        with suppress(OSError):  # nothing was written through it
            os.close(descriptor)


@contextmanager
def _locked(directory: str, path: str) -> Iterator[int]:
    """Hold a lock on the directory itself: it leaves no file behind, and dies with us."""
    with ExitStack() as stack:
        with _naming(directory):
            descriptor = stack.enter_context(_opened(directory))
        try:
            with _naming(directory, "cannot be locked: "):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except MachineError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise StateFileError(path, "another memqos is re-baselining it") from None
        yield descriptor


def _check_unchanged(path: str, name: str, folder: int, expected: bytes) -> _Likeness:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StateFileError(path, "is a symbolic link; give the file itself") from None
        if error.errno == errno.ENOENT:
            raise StateFileError(path, "has been removed since it was read") from None
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
        attributes = _attributes(descriptor)
    finally:
        with suppress(OSError):  # nothing was written through it
            os.close(descriptor)
    if found != expected:
        raise StateFileError(path, "has changed since it was read")
    return _Likeness(status, attributes)


def _attributes(descriptor: int) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in (_SELINUX, _ACL):
        try:
            found[name] = os.getxattr(descriptor, name)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            found[name] = None
    return found


def _write(name: str, folder: int, data: bytes, like: _Likeness) -> None:
    """Write a new file durably, with all that the old one has in common with it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            _make_alike(descriptor, like)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _remove(name, folder)
        raise


def _make_alike(descriptor: int, like: _Likeness) -> None:
    made, wanted = os.fstat(descriptor), like.status
    if (wanted.st_uid, wanted.st_gid) != (made.st_uid, made.st_gid):
        os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
    for name, found in _attributes(descriptor).items():
        value = like.attributes[name]
        if value == found:
            continue
        if value is not None:
            try:
                os.setxattr(descriptor, name, value)
            except OSError as error:
                # A backup on another file system may have to do without.
                if error.errno != errno.EOPNOTSUPP:
                    raise
        elif name == _ACL:  # inherited from the directory
            os.removexattr(descriptor, name)
    os.fchmod(descriptor, stat.S_IMODE(wanted.st_mode))


def _rename(old: str, new: str, folder: int) -> None:
    try:
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(old, folder)
        raise


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
