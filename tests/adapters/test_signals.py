"""memqos.adapters.signals: waiting for a signal or a time."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from memqos.adapters import signals
from memqos.adapters.signals import SignalClock


PROGRAM = """\
from memqos.adapters.signals import SignalClock
with SignalClock() as clock:
    print("waiting", flush=True)
    print(clock.wait(clock.now_ns() + 200_000_000), flush=True)
"""


def test_stopped_beyond_the_deadline() -> None:
    """One that was stopped, or its machine paused, goes on where it was: no signal came."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        child.send_signal(signal.SIGCONT)
        assert child.stdout.read() == "None\n"
    assert child.returncode == 0


def test_interrupted_wait_that_gives_rubbish(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no signal that was waited for is none."""
    rubbish = signal.struct_siginfo((1681889104, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: rubbish)
    with SignalClock() as clock:
        assert clock.wait(0) is None


def test_a_signal_comes_first() -> None:
    """A signal ends the wait, and is the answer."""
    with SignalClock() as clock:
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)  # others do not block it
        assert clock.wait(clock.now_ns() + 10**10) is signal.SIGHUP


def ring(far: socket.socket, _waiting: int) -> None:
    """Send what is urgent."""
    far.send(b"!", socket.MSG_OOB)


def end(_far: socket.socket, waiting: int) -> None:
    """Send a signal to the thread that waits: others do not block it."""
    signal.pthread_kill(waiting, signal.SIGTERM)


def chat(far: socket.socket, _waiting: int) -> None:
    """Send what is not urgent, and let the time pass."""
    far.send(b".")


@pytest.mark.parametrize(
    ("event", "seconds", "found"),
    [(ring, 20, None), (end, 20, signal.SIGTERM), (chat, 0.2, None)],
)
def test_doze(
    event: Callable[[socket.socket, int], None],
    seconds: float,
    found: signal.Signals | None,
) -> None:
    """An alarm ends it, a signal, which is found by the next wait, or the time."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as far,
        SignalClock() as clock,
    ):
        threading.Timer(0.05, event, (far, threading.get_ident())).start()
        start = time.monotonic()
        clock.doze(clock.now_ns() + round(seconds * 1e9), [client.fileno()])
        passed = time.monotonic() - start
        assert passed >= 0.2 if event is chat else passed < 10
        assert clock.wait(0) is found
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_signal_that_came_before() -> None:
    """There is no sleep then."""
    with SignalClock() as clock:
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        start = time.monotonic()
        clock.doze(clock.now_ns() + 20 * 10**9, ())
        assert time.monotonic() - start < 10
        assert clock.wait(0) is signal.SIGHUP


def test_without_signalfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a sandbox does not let it through, there is no doze that a signal would not end."""
    with SignalClock() as clock:
        assert clock.can_doze
    monkeypatch.setattr(signals, "_signal_descriptor", lambda: None)
    with SignalClock() as clock:
        assert not clock.can_doze


def test_its_descriptor_is_closed() -> None:
    """No watch leaves one behind."""
    with SignalClock() as clock:
        descriptor = clock._descriptor
        assert descriptor is not None
        os.fstat(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
