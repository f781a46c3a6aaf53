"""memqos.adapters.signals: waiting for a signal or a time."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

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


@pytest.fixture(autouse=True)
def mask() -> Iterator[set[int]]:
    """Return the signals that are blocked, and block those alone afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield before
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_mask(mask: set[int]) -> None:
    """After SIGTERM signals stay blocked: a second one must not change how that ends."""
    awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    for number, blocked in ((signal.SIGHUP, mask), (signal.SIGTERM, mask | awaited)):
        with SignalClock() as clock:
            signal.pthread_kill(threading.get_ident(), number)
            assert clock.wait(clock.now_ns() + 10**9) is number
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


def test_time() -> None:
    """No signal."""
    with SignalClock() as clock:
        assert clock.wait(clock.now_ns() + 1_000_000) is None
        assert clock.wait(0) is None


def test_signal() -> None:
    """One that came before the wait is not lost."""
    with SignalClock() as clock:
        # To this thread: others of the test runner do not block it.
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
        assert clock.wait(clock.now_ns() + 10**10) is signal.SIGHUP


def test_signal_meanwhile() -> None:
    """One that comes during the wait ends it."""
    with SignalClock() as clock:
        main = threading.get_ident()
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGTERM)).start()
        before = time.monotonic()
        assert clock.wait(clock.now_ns() + 20 * 10**9) is signal.SIGTERM
        assert time.monotonic() - before < 10


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
