"""Waiting for a signal or a time, whichever comes first, without a handler that could race."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


__all__ = ["SignalClock", "exit_on_sigterm", "unblock_signals"]

_ENDS = {signal.SIGTERM, signal.SIGINT}
_AWAITED = {*_ENDS, signal.SIGHUP}


class SignalClock:
    """Blocks SIGTERM, SIGINT and SIGHUP, and hands them out between ticks.

    Once SIGTERM or SIGINT was handed out they stay blocked, so that another one does not disturb
    the end of the process and its exit status.
    """

    _ends = False

    def __enter__(self) -> Self:
        """Block the signals; threads started from here on inherit that."""
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        self._descriptor = _signal_descriptor()
        return self

    def __exit__(self, *_: object) -> None:
        """Let them through again, unless the process ends."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        if not self._ends:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def wait(self, deadline_ns: int) -> signal.Signals | None:
        """Wait for a signal until a monotonic time; None at that time."""
        left = max(0, deadline_ns - time.monotonic_ns())
        found = signal.sigtimedwait(_AWAITED, left / 1e9)
        if found is not None and found.si_signo == signal.SIGHUP:
            # The kernel hands it out first, and a storm of it would keep the others back.
            found = signal.sigtimedwait(_ENDS, 0) or found
        # Stopped and continued beyond the deadline, Python returns whatever lies on the stack.
        if found is None or found.si_signo not in _AWAITED:
            return None
        self._ends = self._ends or found.si_signo in _ENDS
        return signal.Signals(found.si_signo)

    @property
    def can_doze(self) -> bool:
        """Whether the system lets through what `doze` needs."""
        return self._descriptor is not None

    def doze(self, deadline_ns: int, alarms: Iterable[int]) -> None:
        """Sleep until a monotonic time, an alarm, or a signal, which `wait` will find.

        Args:
            deadline_ns: the time.
            alarms: descriptors on which something urgent (POLLPRI) may come.
        """
        poll = select.poll()
        if self._descriptor is not None:
            poll.register(self._descriptor, select.POLLIN)
        for alarm in alarms:
            poll.register(alarm, select.POLLPRI)
        poll.poll(max(0, deadline_ns - time.monotonic_ns()) / 1e6)

    @staticmethod
    def now_ns() -> int:
        """Return the monotonic time."""
        return time.monotonic_ns()


def _signal_descriptor() -> int | None:
    """Open what poll(2) can wait on (signalfd(2)); None where that is not let through."""
    libc = ctypes.CDLL(None)
    mask = ctypes.create_string_buffer(128)  # sigset_t of glibc and musl
    libc.sigemptyset(mask)
    for number in _AWAITED:
        libc.sigaddset(mask, number)
    descriptor = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
    return None if descriptor < 0 else int(descriptor)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a block as Ctrl-C does, by an exception, so that it can clean up."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if before is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, before)


def unblock_signals() -> None:
    """Let a program that is about to start be ended by the signals that `SignalClock` blocks."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
