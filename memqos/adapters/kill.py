"""Killing one cgroup, whole, and telling what was really killed.

Everything that could go wrong is checked again between the choice and the kill.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum

from attrs import frozen

from memqos.adapters.cgroup_tree import cgroup_of
from memqos.adapters.files import machine_error
from memqos.adapters.host import Host
from memqos.errors import MachineError


__all__ = ["KillOutcome", "KillReport", "KillTarget", "holds_us", "identify_target", "kill_cgroup"]

_PROCESS_MRELEASE = 448
_PID = re.compile(rb"[1-9][0-9]{0,8}\n?")
# None of a cgroup's files is a link, nor makes a reader wait.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# One of them at least has every cgroup that can be killed.
_FILES = ("cgroup.kill", "cgroup.procs", "cgroup.events")
# Where our own cgroup namespace is mounted, whichever mount is watched.
_OWN_MOUNT = "/sys/fs/cgroup"
_WAIT_SECONDS = 2.0
_STEP_SECONDS = 0.02
_END_SECONDS = 1.0
_LONGEST_COMMAND = 4096
_MOST_HANDLES = 256
# Of a list of processes: it is gone, or is that of a threaded cgroup.
_UNLISTED = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# What follows needs two at a time, other threads (metrics) some more.
_SPARE_DESCRIPTORS = 8


class KillOutcome(StrEnum):
    """What came of it."""

    KILLED = "killed"
    PARTLY_KILLED = "partly-killed"
    EMPTY = "empty"
    REFUSED = "refused"
    FAILED = "failed"


@frozen(kw_only=True)
class KillTarget:
    """A cgroup as it was when it was chosen.

    Attributes:
        path: of its directory.
        inode: of its directory: another one means another cgroup.
        place: of its directory, no links in it: another one means that it was moved.
    """

    path: str
    inode: int
    place: str


@frozen(kw_only=True)
class KillReport:
    """What was really done.

    Attributes:
        outcome: in one word.
        processes: (pid, command line) of those that were in the cgroup and are gone.
        left: pids that are still there.
        method: ``cgroup.kill``, ``signals``, or empty where nothing was sent.
        error: in words, None if nothing went wrong.
    """

    outcome: KillOutcome
    processes: tuple[tuple[int, str], ...] = ()
    left: tuple[int, ...] = ()
    method: str = ""
    error: str | None = None


def identify_target(
    mount: str, relative: str, protected: Collection[str], inode: int | None
) -> KillTarget:
    """Look at a cgroup that was chosen, and refuse what must never be killed.

    Args:
        mount: the cgroup2 mount.
        relative: the victim's path below it.
        protected: directories that are only parents of victims.
        inode: of its directory when it was chosen, None if it was not there.

    Raises:
        MachineError: it is outside of the mount, the root, a class' directory, our own cgroup or
            one above it, or it is gone, or another one has its name by now.
    """
    parts = relative.split("/")
    path = os.path.join(mount, *parts)
    if any(part in ("", ".", "..") for part in parts):
        raise MachineError(path, "refused: not a cgroup below the mount")
    if relative in protected:
        raise MachineError(path, "refused: a directory of cgroups, not a victim")
    place = os.path.realpath(path)
    if place != os.path.join(os.path.realpath(mount), *parts):
        raise MachineError(path, "refused: it leads elsewhere")
    if holds_us(mount, relative):
        raise MachineError(path, "refused: memqos itself runs in it")
    try:
        found = os.stat(path).st_ino
    except OSError as error:
        raise machine_error(path, error) from error
    if found != inode:
        raise MachineError(path, "refused: it is another cgroup by now")
    return KillTarget(path=path, inode=found, place=place)


def holds_us(mount: str, relative: str) -> bool:
    """Tell whether this process runs in a cgroup, or in one below it."""
    try:
        own = cgroup_of(Host(), os.getpid()).strip("/")
    except MachineError:
        return False  # no cgroup v2: the list of processes decides
    return f"{own}/".startswith(f"{relative}/") or _holds(
        os.path.join(mount, relative), os.path.join(_OWN_MOUNT, own)
    )


def kill_cgroup(target: KillTarget) -> KillReport:
    """Kill every process of a cgroup, and wait until they are gone."""
    try:
        folder = os.open(target.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return KillReport(outcome=KillOutcome.REFUSED, error=f"it is gone: {error.strerror}")
        return KillReport(outcome=KillOutcome.FAILED, error=f"failed to open: {error.strerror}")
    handles: dict[int, int] = {}
    try:
        if (
            os.fstat(folder).st_ino != target.inode
            or os.path.realpath(target.path) != target.place
        ):
            return KillReport(outcome=KillOutcome.REFUSED, error="it is another cgroup by now")
        if not any(os.access(f"{target.path}/{name}", os.F_OK) for name in _FILES):
            if not os.path.exists(target.path):
                return KillReport(outcome=KillOutcome.REFUSED, error="it is gone")
            return KillReport(outcome=KillOutcome.FAILED, error="it is no cgroup")
        if _is_populated(folder) is False:
            return KillReport(outcome=KillOutcome.EMPTY, error="it has no processes any more")
        try:
            pids = _pids(target.path)
        except OSError as error:
            return KillReport(outcome=KillOutcome.FAILED, error=_unlisted(error))
        if os.getpid() in pids:
            return KillReport(outcome=KillOutcome.REFUSED, error="memqos itself runs in it")
        commands = [(pid, _command(pid)) for pid in pids]
        handles = _pidfds(folder, pids)
        method, problem = _send(folder, target.path, handles)
        if problem is not None and method == "":
            return KillReport(outcome=KillOutcome.FAILED, error=problem)
        for descriptor in handles.values():
            _release(descriptor)
        left = _wait(folder, target.path)
        # Those that went to another cgroup.
        left += [pid for pid in _alive(pids, handles) if pid not in left]
        killed = tuple((pid, text) for pid, text in commands if pid not in left)
        outcome = KillOutcome.PARTLY_KILLED if left else KillOutcome.KILLED
        if left and not killed:
            outcome = KillOutcome.FAILED
        if left and problem is None:
            problem = f"still there: {len(left)} of {max(len(left), len(pids))} processes"
        return KillReport(
            outcome=outcome, processes=killed, left=tuple(left), method=method, error=problem
        )
    finally:
        for descriptor in (*handles.values(), folder):
            os.close(descriptor)


def _holds(path: str, own: str) -> bool:
    """Tell by the inode whether a cgroup, or one below it, is ours.

    In a container's own cgroup namespace, the name of ours says nothing on the node's mount.
    """
    try:
        ours = os.stat(own)
        return any(os.path.samestat(ours, os.stat(folder)) for folder, _, _ in os.walk(path))
    except OSError:
        return False  # not mounted, or gone meanwhile: the list of processes decides


def _is_populated(folder: int) -> bool | None:
    """Tell what cgroup.events says, None where it says nothing: the list of processes decides."""
    try:
        descriptor = os.open("cgroup.events", os.O_RDONLY | _FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        found = re.search(rb"^populated ([01])$", os.read(descriptor, 4096), re.MULTILINE)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if found is None else found[1] == b"1"


def _pids(path: str) -> list[int]:
    """List the processes of a cgroup and all below it, each once; 0 for those we cannot see.

    Raises:
        OSError: who is there cannot be told, as when descriptors or memory are short.
    """

    def check(error: OSError) -> None:
        if error.errno not in _UNLISTED:
            raise error

    found: list[int] = []
    for folder, _, files in os.walk(path, onerror=check):
        if "cgroup.procs" in files:
            try:
                with open(os.path.join(folder, "cgroup.procs"), "rb", opener=_open) as file:
                    found += [int(line) if _PID.fullmatch(line) else 0 for line in file]
            except OSError as error:
                check(error)
    # The kernel may list one twice, and one may go from one list to the next meanwhile.
    return [*dict.fromkeys(filter(None, found)), *(pid for pid in found if not pid)]


def _unlisted(error: OSError) -> str:
    return f"failed to list its processes: {error.strerror}"


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | _FLAGS)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(_LONGEST_COMMAND)
    except OSError:
        return ""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def _pidfds(folder: int, pids: list[int]) -> dict[int, int]:
    """Open handles of the first processes, and leave descriptors for what follows."""
    handles: dict[int, int] = {}
    spare: list[int] = []
    try:
        with suppress(OSError):  # these are all that there are
            while len(spare) < _SPARE_DESCRIPTORS:
                spare.append(os.dup(folder))
        for pid in pids[:_MOST_HANDLES]:
            with suppress(OSError):  # it has ended, or there are no more, or no pidfds at all
                handles[pid] = os.pidfd_open(pid)
    finally:
        for descriptor in spare:
            os.close(descriptor)
    return handles


def _send(folder: int, path: str, handles: dict[int, int]) -> tuple[str, str | None]:
    """Send SIGKILL to all: by cgroup.kill, or frozen one by one before Linux 5.14."""
    try:
        descriptor = os.open("cgroup.kill", os.O_WRONLY | _FLAGS, dir_fd=folder)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.ENOENT:
            return "", f"failed to send SIGKILL: {error.strerror}"
    else:
        return "cgroup.kill", None
    _freeze(folder, b"1")
    failed = None
    try:
        for _ in range(3):  # processes that were forked before the freeze took hold
            try:
                pids = _pids(path)
            except OSError as error:
                failed = _unlisted(error)
                break
            for pid in pids:
                if pid in (0, os.getpid()):  # to kill(2), 0 is memqos itself and those around it
                    failed = "some processes are in a PID namespace that memqos does not see"
                    continue
                try:
                    if pid in handles:
                        signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
                    else:
                        os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                except OSError as error:
                    failed = f"failed to send SIGKILL to {pid}: {error.strerror}"
    finally:
        _freeze(folder, b"0")
    return "signals", failed


def _freeze(folder: int, value: bytes) -> None:
    try:
        descriptor = os.open("cgroup.freeze", os.O_WRONLY | _FLAGS, dir_fd=folder)
    except OSError:
        return
    try:
        os.write(descriptor, value)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _release(descriptor: int) -> None:
    """Let the kernel free the memory at once; ESRCH (it is gone already) is the usual answer."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(_PROCESS_MRELEASE, descriptor, 0)


def _wait(folder: int, path: str) -> list[int]:
    """Wait until nobody is left; return who is, 0 for whom we cannot see."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        is_populated = _is_populated(folder)
        try:
            left = _pids(path) if is_populated is not False else []
        except OSError:
            left = [0]  # who knows
        if not left and not is_populated:
            return []
        if time.monotonic() >= deadline:
            return left or [0]
        time.sleep(_STEP_SECONDS)


def _alive(pids: Iterable[int], handles: Mapping[int, int]) -> list[int]:
    """Return which processes have not ended: a cgroup is empty a little before they have."""
    deadline = time.monotonic() + _END_SECONDS
    found = []
    for pid in pids:
        handle = handles.get(pid)
        try:
            opened = os.pidfd_open(pid) if handle is None else handle
        except OSError as error:
            if error.errno in _SHORTAGES:
                found.append(pid)  # who knows
            continue  # it has ended, or is one of those that we cannot see
        try:
            poll = select.poll()
            poll.register(opened, select.POLLIN)
            if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
                found.append(pid)
        finally:
            if handle is None:
                os.close(opened)
    return found
