"""Staying alive when memory is short: locked and reserved pages, a low OOM score, a watchdog."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import cast

from memqos.adapters.cgroup_tree import cgroup_of
from memqos.adapters.files import machine_error, read_file
from memqos.adapters.host import Host
from memqos.cgroup import parse_size
from memqos.errors import MachineError, MemqosError
from memqos.oom.reserve import reserve_bytes, void_ancestor


__all__ = [
    "leave_openssl_out",
    "lock_memory",
    "lower_oom_score",
    "notify",
    "raise_oom_score",
    "release_memory",
    "reserved_memory",
    "watchdog_ns",
]

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_OOM_SCORE = "/proc/self/oom_score_adj"
# A file that is gone, and one of a container's cgroup, which is mounted read-only.
_NOT_OURS = (errno.ENOENT, errno.EROFS)
# What hashlib takes from Python itself, all of which it wants.
_SHA2 = ("_sha256", "_sha512") if sys.version_info < (3, 12) else ("_sha2",)
_HASHES = ("_md5", "_sha1", *_SHA2, "_sha3", "_blake2")


def leave_openssl_out() -> None:
    """Keep 3.5 MB out of memory: lark loads hashlib for a cache that nobody uses here.

    Without OpenSSL's, hashlib has hashes of its own, but for some distributions'.
    """
    if all(map(find_spec, _HASHES)):
        cast("dict[str, object]", sys.modules).setdefault("_hashlib", None)  # refuses the import


def release_memory() -> None:
    """Give back what is no longer used: expressions are read with much more than they need later.

    They are full of cycles, too.
    """
    gc.collect()
    with suppress(AttributeError):  # musl has none
        ctypes.CDLL(None).malloc_trim(0)


def lock_memory() -> str | None:
    """Keep our pages in memory; return what went wrong, None if nothing did."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
        return None
    return f"its memory cannot be locked: {os.strerror(ctypes.get_errno())}"


def lower_oom_score(score: int) -> str | None:
    """Set our oom_score_adj unless it is lower; return what went wrong, None if nothing did."""
    try:
        if int(read_file(_OOM_SCORE)) > score:  # kubelet gives critical pods -997
            _write(_OOM_SCORE, score)
    except MachineError as error:
        return str(error)
    except OSError as error:
        return str(machine_error(_OOM_SCORE, error))
    return None


def raise_oom_score() -> None:
    """Set our oom_score_adj to 0 if it is lower.

    For a child that inherits it: a hook that eats memory must not outlive everything else. It
    imports nothing and takes no lock, as becomes the time between fork and exec.
    """
    with suppress(OSError):
        descriptor = os.open(_OOM_SCORE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            is_lower = os.read(descriptor, 16).startswith(b"-")
        finally:
            os.close(descriptor)
        if is_lower:
            _write(_OOM_SCORE, 0)


@contextmanager
def reserved_memory(mount: str) -> Iterator[str | None]:
    """Raise memory.min of our own cgroup if it holds nothing else, and put it back afterwards.

    Yields what is to be told, None if nothing is. That we have no cgroup of our own, or cannot
    write to it, is nothing: in a pod, whose cgroups kubelet owns, it is the rule.
    """
    try:
        path = cgroup_of(Host(), os.getpid()).strip("/")
        folder = os.path.join(mount, path)
        processes = [int(pid) for pid in read_file(f"{folder}/cgroup.procs").split()]
    except (MachineError, ValueError):
        yield None
        return
    before = _memory_min(folder)
    wanted = reserve_bytes(
        cgroup=path,
        processes=processes,
        pid=os.getpid(),
        memory_min=before,
        resident_bytes=_resident_bytes(),
    )
    problem = None if wanted is None else _set_memory_min(folder, wanted)
    if problem is None and _memory_min(folder):
        above = void_ancestor(_ancestors(mount, path))
        problem = above and f"memory.min of {above} is 0, so that of our cgroup is worth nothing"
    try:
        yield problem
    finally:
        if wanted is not None and before is not None and _memory_min(folder) == wanted:
            _set_memory_min(folder, before)  # unless somebody else has decided since


def _ancestors(mount: str, path: str) -> Iterator[tuple[str, int | None]]:
    while path := path.rpartition("/")[0]:
        yield path, _memory_min(os.path.join(mount, path))


def _memory_min(folder: str) -> int | None:
    try:
        return parse_size(read_file(f"{folder}/memory.min").decode("ascii", "replace"))
    except MemqosError:
        return None


def _set_memory_min(folder: str, size: int) -> str | None:
    path = f"{folder}/memory.min"
    try:
        _write(path, size)
    except OSError as error:
        return None if error.errno in _NOT_OURS else str(machine_error(path, error))
    return None


def _resident_bytes() -> int:
    return int(read_file("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _write(path: str, value: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def notify(message: str) -> None:
    """Tell systemd (``READY=1``, ``WATCHDOG=1``, ``RELOADING=1``…), where it asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
            client.connect(address)
            # systemd may be stopped, or starved as we are: to wait for it would end the watch.
            client.send(message.encode(), socket.MSG_DONTWAIT)
    except OSError:
        return  # systemd's own watchdog notices


def watchdog_ns() -> int | None:
    """Return how long systemd waits to hear from us (``WatchdogSec=``), None for ever."""
    pid = str(os.getpid())
    if os.environ.get("WATCHDOG_PID", pid) != pid:
        return None
    with suppress(KeyError, ValueError):
        return int(os.environ["WATCHDOG_USEC"]) * 1000
    return None
