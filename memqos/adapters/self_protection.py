"""Staying alive when memory is short: locked pages, a low OOM score, systemd's watchdog."""

from __future__ import annotations

import ctypes
import os
import socket

from memqos.adapters.files import machine_error


__all__ = ["lock_memory", "lower_oom_score", "notify", "watchdog_seconds"]

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


def lock_memory() -> str | None:
    """Keep our pages in memory; return what went wrong, None if nothing did."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
        return None
    return os.strerror(ctypes.get_errno())


def lower_oom_score(score: int) -> str | None:
    """Set our oom_score_adj; return what went wrong, None if nothing did."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(score))
    except OSError as error:
        return str(machine_error("/proc/self/oom_score_adj", error))
    return None


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
            client.sendall(message.encode())
    except OSError:
        return  # systemd's own watchdog notices


def watchdog_seconds() -> float | None:
    """Return how often systemd wants to hear from us, None if it does not."""
    text = os.environ.get("WATCHDOG_USEC", "")
    if not text.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(text) / 1e6 / 2
