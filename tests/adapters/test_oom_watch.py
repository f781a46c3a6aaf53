"""What watch-oom stands on: recording, serving metrics, signals, systemd."""

import json
import os
import resource
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from memqos.adapters import self_protection
from memqos.adapters.metrics_server import MetricsServer
from memqos.adapters.oom_files import list_tops, read_layout, read_recording
from memqos.adapters.recorder import Recorder
from memqos.adapters.self_protection import notify, watchdog_seconds
from memqos.adapters.signals import SignalClock
from memqos.errors import MachineError
from memqos.oom.classes import OOMClass
from memqos.oom.layout import Part


class TestReadLayout:
    """Only what the layout names is read."""

    def test_parts(self, tmp_path: Path) -> None:
        """Directories of a part, those that match, and the root; what is missing is empty."""
        for name in ("system/a", "system/b", "other/c", "kubepods"):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "memory.current").write_text("1\n")
        (tmp_path / "memory.current").write_text("9\n")
        (tmp_path / "system/link").symlink_to("a")
        parts = (
            Part("system", OOMClass.SYSTEM, each=True, skip="b"),
            Part("kubepods", OOMClass.GUARANTEED),
            Part("gone", OOMClass.GUARANTEED),
            Part("gone", OOMClass.GUARANTEED, each=True),
        )
        assert read_layout(str(tmp_path), parts, ("memory.current", "memory.max")) == {
            "": {"memory.current": "9\n"},
            "system/a": {"memory.current": "1\n"},
            "kubepods": {"memory.current": "1\n"},
            "gone": {},
        }

    def test_tops(self, tmp_path: Path) -> None:
        """A mount that is not there is an error, unlike an empty one."""
        (tmp_path / "b").mkdir()
        (tmp_path / "a").mkdir()
        (tmp_path / "file").write_text("")
        assert list_tops(str(tmp_path)) == ["a", "b"]
        with pytest.raises(MachineError, match="No such file"):
            list_tops(str(tmp_path / "gone"))


class TestRecorder:
    """A recording is whole lines, whatever happens."""

    def test_is_read_back(self, tmp_path: Path) -> None:
        """What was added is what replay-oom sees."""
        path = tmp_path / "r.jsonl"
        recorder = Recorder(str(path), limit=1 << 20)
        recorder.add(0.5, {"system": {"memory.current": "1\n"}}, {"proc/meminfo": "x"})
        recorder.close()
        (sample,) = read_recording(str(path))
        assert sample.seconds == 0.5
        assert sample.tree == {"system": {"memory.current": "1\n"}}
        assert sample.proc == {"proc/meminfo": "x"}
        assert path.stat().st_mode & 0o777 == 0o600

    def test_rotates(self, tmp_path: Path) -> None:
        """At the limit the file moves to .1; no line is lost or halved."""
        path = tmp_path / "r.jsonl"
        recorder = Recorder(str(path), limit=100)
        for number in range(3):
            recorder.add(float(number), {"a" * 30: {}}, {})
        recorder.close()
        found = [json.loads(line)["t"] for line in path.read_text().splitlines()]
        before = [json.loads(line)["t"] for line in Path(f"{path}.1").read_text().splitlines()]
        assert (before, found) == ([1.0], [2.0])

    def test_no_room(self, tmp_path: Path) -> None:
        """Half a line is taken back."""
        path = tmp_path / "r.jsonl"
        recorder = Recorder(str(path), limit=1 << 20)
        recorder.add(0.0, {}, {})
        before = path.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
            with pytest.raises(MachineError):
                recorder.add(1.0, {}, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, ignored)
        assert path.read_bytes() == before
        recorder.close()

    def test_follows_no_link(self, tmp_path: Path) -> None:
        """As root in a directory of others, a link must not choose the file."""
        (tmp_path / "r").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(MachineError):
            Recorder(str(tmp_path / "r"), limit=1)


class TestMetricsServer:
    """Prometheus scrapes it."""

    def test_metrics(self) -> None:
        """The text of the last cycle, and 404 for the rest."""
        server = MetricsServer("127.0.0.1", 0)
        try:
            server.text = "memqos_x 1\n"
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
                assert answer.read() == b"memqos_x 1\n"
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            with pytest.raises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
            failed.value.close()
            assert failed.value.code == 404
            with pytest.raises(MachineError, match="in use"):
                MetricsServer("127.0.0.1", server.port)
        finally:
            server.close()


class TestSignalClock:
    """A signal ends the wait, a time does too."""

    def test_time(self) -> None:
        """No signal."""
        with SignalClock() as clock:
            assert clock.wait(clock.now_ns() + 1_000_000) is None
            assert clock.wait(0) is None

    def test_signal(self) -> None:
        """One that came before the wait is not lost."""
        with SignalClock() as clock:
            # To this thread: others of the test runner do not block it.
            signal.pthread_kill(threading.get_ident(), signal.SIGHUP)
            assert clock.wait(clock.now_ns() + 10**9) is signal.SIGHUP

    def test_signal_meanwhile(self) -> None:
        """One that comes during the wait ends it."""
        with SignalClock() as clock:
            main = threading.get_ident()
            threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGTERM)).start()
            before = time.monotonic()
            assert clock.wait(clock.now_ns() + 20 * 10**9) is signal.SIGTERM
            assert time.monotonic() - before < 10


class TestSystemd:
    """sd_notify(3)."""

    @pytest.mark.parametrize("abstract", [False, True])
    def test_notify(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
        """A datagram to the socket that systemd names, in a file or an abstract one."""
        name = f"@memqos-test-{os.getpid()}" if abstract else str(tmp_path / "s")
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(f"\0{name[1:]}" if abstract else name)
            notify("READY=1")
            assert server.recv(64) == b"READY=1"

    def test_nobody_listens(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without systemd nothing happens."""
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "s"))
        notify("READY=1")
        monkeypatch.delenv("NOTIFY_SOCKET")
        notify("READY=1")

    def test_watchdog(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half of the time limit, if it is meant for this process."""
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        assert watchdog_seconds() is None
        monkeypatch.setenv("WATCHDOG_USEC", "3000000")
        assert watchdog_seconds() == 1.5
        monkeypatch.setenv("WATCHDOG_PID", "1")
        assert watchdog_seconds() is None


def test_lower_oom_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The score is written where it can be, and a refusal is a sentence."""
    place = tmp_path / "oom_score_adj"
    real = open

    def elsewhere(_path: str, *arguments: str, **more: str) -> object:
        return real(place, *arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(self_protection, "open", elsewhere, raising=False)
    assert self_protection.lower_oom_score(-900) is None
    assert place.read_text() == "-900"
    place.unlink()
    place.mkdir()
    assert "Is a directory" in str(self_protection.lower_oom_score(-900))
