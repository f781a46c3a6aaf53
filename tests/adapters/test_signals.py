"""memqos.adapters.signals: waiting for a signal or a time."""

import signal
import subprocess
import sys
import threading
import time

import pytest

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
