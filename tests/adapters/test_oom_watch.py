"""What watch-oom stands on: recording, serving metrics, signals, systemd."""

import errno
import json
import os
import resource
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from memqos.adapters import hooks, oom_files, self_protection
from memqos.adapters.metrics_server import MetricsServer
from memqos.adapters.oom_files import (
    list_tops,
    read_attributes,
    read_layout,
    read_preferences,
    read_recording,
)
from memqos.adapters.recorder import Recorder
from memqos.adapters.self_protection import notify, reserved_memory, watchdog_ns
from memqos.adapters.watch import Watcher
from memqos.errors import InputError, MachineError
from memqos.oom.classes import OOMClass
from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.layout import Part, detect_layout
from memqos.oom.preference import Preference


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


class TestFollowLayout:
    """A watcher may start before kubelet has made its cgroups."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> Path:
        """Return a mount where systemd runs, and kubelet does not."""
        for name in ("init.scope", "system.slice"):
            (tmp_path / "mount" / name).mkdir(parents=True)
        return tmp_path / "mount"

    @staticmethod
    def watcher(node: Path, *, follow_layout: bool) -> Watcher:
        """Make one that starts now."""
        config = check_documents([])
        assert isinstance(config, OOMConfig)
        layout = detect_layout(list_tops(str(node)))
        return Watcher(
            mount=str(node), layout=layout, config=config, follow_layout=follow_layout, record=True
        )

    def test_kubelet_comes_later(self, node: Path) -> None:
        """From then on its pods are seen."""
        watcher = self.watcher(node, follow_layout=True)
        watcher.observe()
        assert watcher.layout.name == "cgroupfs"
        pod = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"
        (node / pod).mkdir(parents=True)
        assert pod in watcher.observe().tree
        assert watcher.layout.name == "systemd"

    def test_it_cannot_be_told(self, node: Path) -> None:
        """Where both drivers' cgroups stand, or none can be listed, the last layout stays."""
        (node / "kubepods.slice").mkdir()
        watcher = self.watcher(node, follow_layout=True)
        (node / "kubepods").mkdir()
        watcher.observe()
        assert watcher.layout.name == "systemd"
        node.rename(node.with_name("gone"))
        watcher.observe()
        assert watcher.layout.name == "systemd"

    def test_it_was_named(self, node: Path) -> None:
        """Then nothing is detected."""
        watcher = self.watcher(node, follow_layout=False)
        (node / "kubepods.slice").mkdir()
        watcher.observe()
        assert watcher.layout.name == "cgroupfs"


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

    def test_rotation_fails(self, tmp_path: Path) -> None:
        """The number of the descriptor is not used again, and recording begins anew."""
        path = tmp_path / "r.jsonl"
        recorder = Recorder(str(path), limit=60)
        recorder.add(0.0, {"a" * 30: {}}, {})
        (tmp_path / "r.jsonl.1").mkdir()
        with pytest.raises(MachineError):
            recorder.add(1.0, {"a" * 30: {}}, {})
        (tmp_path / "r.jsonl.1").rmdir()
        other = tmp_path / "other"
        with other.open("w"):
            recorder.add(2.0, {"a" * 30: {}}, {})
            recorder.close()
            recorder.close()
        assert other.read_text() == ""
        assert [json.loads(line)["t"] for line in path.read_text().splitlines()] == [2.0]

    @pytest.mark.parametrize("gone", ["renamed", "removed"])
    def test_the_name_is_taken_away(self, gone: str, tmp_path: Path) -> None:
        """As by logrotate: a new file is begun under the name."""
        path = tmp_path / "r.jsonl"
        recorder = Recorder(str(path), limit=1 << 20)
        recorder.add(0.0, {}, {})
        path.rename(tmp_path / "old") if gone == "renamed" else path.unlink()
        recorder.add(1.0, {}, {})
        recorder.close()
        assert [json.loads(line)["t"] for line in path.read_text().splitlines()] == [1.0]

    @pytest.mark.parametrize("size", [0, 1, 3, 20, 100_000])
    def test_half_a_line(self, size: int, tmp_path: Path) -> None:
        """What a power loss has left of the last line is cut off."""
        path = tmp_path / "r.jsonl"
        line = json.dumps({"t": 0.0, "tree": {"a" * 200_000: {}}}, separators=(",", ":"))
        path.write_text(f"{line}\n{line[:size]}")
        recorder = Recorder(str(path), limit=1 << 30)
        recorder.add(1.0, {}, {})
        recorder.close()
        assert [json.loads(line)["t"] for line in path.read_text().splitlines()] == [0.0, 1.0]
        path.write_text(line[:size])
        recorder = Recorder(str(path), limit=1 << 30)
        recorder.close()
        assert path.read_text() == ""

    @pytest.mark.parametrize("text", ["x", "kind: OOMConfig\n", '{"id":"0"}\n'])
    def test_another_file(self, text: str, tmp_path: Path) -> None:
        """It is not appended to."""
        path = tmp_path / "precious"
        path.write_text(text)
        with pytest.raises(MachineError, match="is no recording"):
            Recorder(str(path), limit=1)
        assert path.read_text() == text

    @pytest.mark.parametrize("is_read", [False, True])
    def test_fifo(self, tmp_path: Path, is_read: bool) -> None:
        """It cannot be rotated, and its reader might never read: refused, and not waited for."""
        path = tmp_path / "fifo"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if is_read else None
        try:
            with pytest.raises(MachineError, match="is not a regular file"):
                Recorder(str(path), limit=1)
        finally:
            if reader is not None:
                os.close(reader)


class TestMetricsServer:
    """Prometheus scrapes it."""

    def test_metrics(self) -> None:
        """The text of the last cycle, and 404 for the rest."""
        server = MetricsServer("127.0.0.1", 0, lambda: "memqos_x 1\n")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
                assert answer.read() == b"memqos_x 1\n"
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            with pytest.raises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
            failed.value.close()
            assert failed.value.code == 404
            with pytest.raises(MachineError, match="in use"):
                MetricsServer("127.0.0.1", server.port, str)
        finally:
            server.close()

    @pytest.mark.parametrize("address", ["::1", "::"])
    def test_ipv6(self, address: str) -> None:
        """An address of the other family, told in brackets, as in a URL."""
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        server = MetricsServer(address, 0, lambda: "memqos_x 1\n")
        try:
            assert server.place == f"[{address}]:{server.port}"
            with urllib.request.urlopen(f"http://[::1]:{server.port}/metrics") as answer:
                assert answer.read() == b"memqos_x 1\n"
            with pytest.raises(MachineError, match=rf"^\[{address}\]:{server.port}: .*in use"):
                MetricsServer(address, server.port, str)
        finally:
            server.close()

    def test_no_ipv6(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel without it knows no such sockets."""

        def refuse(family: int, *_: object) -> None:
            assert family == socket.AF_INET6
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

        monkeypatch.setattr(socket, "socket", refuse)
        with pytest.raises(MachineError) as failed:
            MetricsServer("::1", 9810, str)
        assert str(failed.value) == "[::1]:9810: Address family not supported by protocol"

    def test_clients_that_fail(self, capfd: pytest.CaptureFixture[str]) -> None:
        """No traceback: one for each broken scrape would drown the kills."""
        asked = threading.Event()

        def render() -> str:
            asked.set()
            raise ValueError

        server = MetricsServer("127.0.0.1", 0, render)
        try:
            with socket.create_connection(("127.0.0.1", server.port), 20) as client:
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert client.recv(1) == b""
        finally:
            server.close()
        assert asked.is_set()
        assert capfd.readouterr().err == ""

    def test_many_clients(self) -> None:
        """Beyond 16 at a time they are sent away, so that descriptors are left for the watch."""
        server = MetricsServer("127.0.0.1", 0, lambda: "memqos_x 1\n")
        place = ("127.0.0.1", server.port)
        try:
            with ExitStack() as stack:
                for _ in range(16):
                    stack.enter_context(socket.create_connection(place, 20))
                with socket.create_connection(place, 20) as late:
                    assert late.recv(1) == b""
            for _ in range(200):  # until their threads have noticed
                with suppress(OSError), urllib.request.urlopen(f"http://{server.place}/metrics"):
                    break
                time.sleep(0.05)
            else:
                pytest.fail("no room again")
        finally:
            server.close()

    def test_no_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where none can be started for a while, there is room again afterwards."""
        server = MetricsServer("127.0.0.1", 0, lambda: "memqos_x 1\n")
        start = threading.Thread.start

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError

        try:
            monkeypatch.setattr(threading.Thread, "start", refuse)
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", server.port), 20) as client:
                    assert client.recv(1) == b""
            monkeypatch.setattr(threading.Thread, "start", start)
            with urllib.request.urlopen(f"http://{server.place}/metrics") as answer:
                assert answer.read() == b"memqos_x 1\n"
        finally:
            server.close()

    def test_no_name_is_looked_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It would wait for DNS, which a node that starves may not answer."""
        monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("asks for its name"))
        MetricsServer("127.0.0.1", 0, str).close()


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

    def test_nobody_reads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A full socket is not waited for."""
        path = tmp_path / "s"
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(str(path))

            def fill() -> None:
                for _ in range(2_000):
                    notify("WATCHDOG=1")

            thread = threading.Thread(target=fill, daemon=True)
            thread.start()
            thread.join(20)
            assert not thread.is_alive()

    def test_nobody_listens(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without systemd nothing happens."""
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "s"))
        notify("READY=1")
        monkeypatch.delenv("NOTIFY_SOCKET")
        notify("READY=1")

    def test_watchdog(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The time limit, if it is meant for this process."""
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        assert watchdog_ns() is None
        monkeypatch.setenv("WATCHDOG_USEC", "3000000")
        assert watchdog_ns() == 3_000_000_000
        monkeypatch.setenv("WATCHDOG_PID", "1")
        assert watchdog_ns() is None
        monkeypatch.delenv("WATCHDOG_PID")
        monkeypatch.setenv("WATCHDOG_USEC", "soon")
        assert watchdog_ns() is None


UID = "5f0c9a1e-0000-4000-8000-00000000000a"


class TestPreferences:
    """A file of the operator, and what cgroups say of themselves."""

    def test_file(self, tmp_path: Path) -> None:
        """A fault names the file and the line."""
        path = tmp_path / "pods"
        assert read_preferences(None) == {}
        path.write_text(f"{UID} never\n")
        assert read_preferences(str(path)) == {UID: Preference.NEVER}
        path.write_bytes(b"# \xff\n\xff\n")
        with pytest.raises(InputError, match=f"{path}: line 2: expected a pod's UID"):
            read_preferences(str(path))
        with pytest.raises(MachineError, match="No such file"):
            read_preferences(str(tmp_path / "gone"))

    @pytest.mark.parametrize(
        ("owner", "expected"),
        [
            (0, ("user.oomd_omit", "trusted.oomd_prefer")),
            (1000, ("trusted.oomd_prefer",)),
            (None, ()),
        ],
    )
    def test_attributes(
        self, monkeypatch: pytest.MonkeyPatch, owner: int | None, expected: tuple[str, ...]
    ) -> None:
        """Only "1" is set, errors are not, and user.… counts on root's directories only."""
        texts = {"user.oomd_omit": b"1", "trusted.oomd_prefer": b"1", "user.oomd_avoid": b"0"}

        def stat(path: str) -> SimpleNamespace:
            assert path == "/mount/system/x"
            if owner is None:
                raise FileNotFoundError
            return SimpleNamespace(st_uid=owner)

        def getxattr(path: str, name: str) -> bytes:
            assert path == "/mount/system/x"
            if name not in texts:
                raise OSError(errno.ENODATA, "No data available")
            return texts[name]

        fake = SimpleNamespace(path=os.path, stat=stat, getxattr=getxattr)
        monkeypatch.setattr(oom_files, "os", fake)
        assert read_attributes("/mount", "system/x") == expected

    def test_attributes_of_a_real_directory(self, tmp_path: Path) -> None:
        """Without any, on whatever file system this is."""
        assert read_attributes(str(tmp_path), "") == ()
        assert read_attributes(str(tmp_path), "gone") == ()


@pytest.fixture
def oom_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a file that stands for /proc/self/oom_score_adj."""
    place = tmp_path / "oom_score_adj"
    monkeypatch.setattr(self_protection, "_OOM_SCORE", str(place))
    return place


def test_lower_oom_score(oom_score: Path) -> None:
    """The score is written where it can be, and a refusal is a sentence."""
    oom_score.write_text("0\n")
    assert self_protection.lower_oom_score(-900) is None
    assert oom_score.read_text() == "-900"
    oom_score.unlink()
    oom_score.mkdir()
    assert "is a directory" in str(self_protection.lower_oom_score(-900))


def test_a_refused_oom_score(oom_score: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CAP_SYS_RESOURCE, the kernel lets nobody go below where it started."""

    def refuse(_path: str, _value: int) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    oom_score.write_text("0\n")
    monkeypatch.setattr(self_protection, "_write", refuse)
    assert self_protection.lower_oom_score(-900) == f"{oom_score}: Permission denied"


@pytest.mark.parametrize("before", ["-997\n", "-1000\n", "-900\n"])
def test_a_lower_oom_score_stays(oom_score: Path, before: str) -> None:
    """Kubelet gives critical pods -997, which -900 would make easier to kill."""
    oom_score.write_text(before)
    assert self_protection.lower_oom_score(-900) is None
    assert oom_score.read_text() == before


@pytest.mark.parametrize(
    ("before", "after"), [("-900\n", "0"), ("0\n", "0\n"), ("999\n", "999\n"), (None, None)]
)
def test_hooks_get_no_lowered_score(
    oom_score: Path, tmp_path: Path, before: str | None, after: str | None
) -> None:
    """A hook gives up a score that protects it, keeps any other, and runs in any case."""
    if before is not None:
        oom_score.write_text(before)
    command = f"touch {tmp_path}/ran"
    assert hooks.run_hook(command, 20, victim="/v", outcome="") is None
    assert (tmp_path / "ran").exists()
    assert (oom_score.read_text() if oom_score.exists() else None) == after


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", None),
        (" ", "names no program"),
        ("sh -c 'exit 3'", "exit status 3"),
        ("sh -c 'kill -9 $$'", "ended by signal 9"),
    ],
)
def test_hooks_that_fail_are_told(command: str, expected: str | None) -> None:
    """That a hook did not do its work is no secret."""
    assert hooks.run_hook(command, 20, victim="/v", outcome="") == expected


def test_hooks_that_take_too_long_end_whole(tmp_path: Path) -> None:
    """What they have started ends too: it would pile up, kill by kill."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = f"sh -c 'sleep 1000 > {fifo} & wait'"
        assert hooks.run_hook(command, 1, victim="/v", outcome="") == (
            "timed out after 1 s, and was killed"
        )
        os.set_blocking(descriptor, True)
        assert os.read(descriptor, 1) == b""  # nobody has it open any more
    finally:
        os.close(descriptor)


class TestReservedMemory:
    """memory.min of our own cgroup, on directories that look like it."""

    @pytest.fixture
    def own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """Return our own cgroup, whose ancestor has something to share."""
        monkeypatch.setattr(self_protection, "cgroup_of", lambda *_: "/a.slice/own.service")
        monkeypatch.setattr(self_protection, "_resident_bytes", lambda: 36 << 20)
        own = tmp_path / "a.slice/own.service"
        own.mkdir(parents=True)
        (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
        (own / "memory.min").write_text("4096\n")
        (tmp_path / "a.slice/memory.min").write_text("209715200\n")
        return own

    def test_raised_and_put_back(self, own: Path, tmp_path: Path) -> None:
        """36 MiB and the margin of 64, until the end."""
        with reserved_memory(str(tmp_path)) as problem:
            assert problem is None
            assert (own / "memory.min").read_text() == str(100 << 20)
        assert (own / "memory.min").read_text() == "4096"

    def test_put_back_after_a_fault(self, own: Path, tmp_path: Path) -> None:
        """Whatever ends the watch."""
        with pytest.raises(KeyboardInterrupt), reserved_memory(str(tmp_path)):
            raise KeyboardInterrupt
        assert (own / "memory.min").read_text() == "4096"

    def test_others_decide(self, own: Path, tmp_path: Path) -> None:
        """What somebody else has written meanwhile stays, and a cgroup may be gone by then."""
        with reserved_memory(str(tmp_path)):
            (own / "memory.min").write_text("8192\n")
        assert (own / "memory.min").read_text() == "8192\n"
        with reserved_memory(str(tmp_path)):
            (own / "memory.min").unlink()

    @pytest.mark.parametrize("memory_min", ["4096\n", "209715200\n"])
    def test_void(self, own: Path, tmp_path: Path, memory_min: str) -> None:
        """An ancestor with 0 is told, whether memory.min is ours or was there before."""
        (own / "memory.min").write_text(memory_min)
        (tmp_path / "a.slice/memory.min").write_text("0\n")
        with reserved_memory(str(tmp_path)) as problem:
            assert problem == "memory.min of a.slice is 0, so that of our cgroup is worth nothing"

    @pytest.mark.parametrize("processes", ["", "1\n", "garbage\n"])
    def test_shared(self, own: Path, tmp_path: Path, processes: str) -> None:
        """A cgroup that holds others is not ours to protect, and nothing is said."""
        with (own / "cgroup.procs").open("a") as file:
            file.write(processes)
        (own / "memory.min").write_text("0\n" if processes else "max\n")
        before = (own / "memory.min").read_text()
        with reserved_memory(str(tmp_path)) as problem:
            assert problem is None
            assert (own / "memory.min").read_text() == before

    def test_no_such_file(self, own: Path, tmp_path: Path) -> None:
        """No memory controller, no cgroup v2, another mount: nothing is said."""
        (own / "memory.min").unlink()
        with reserved_memory(str(tmp_path)) as problem:
            assert problem is None
        with reserved_memory(str(tmp_path / "gone")) as problem:
            assert problem is None
        assert not (own / "memory.min").exists()

    @pytest.mark.parametrize(
        ("number", "told"), [(errno.EROFS, False), (errno.ENOENT, False), (errno.EACCES, True)]
    )
    def test_refused(
        self,
        own: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        number: int,
        told: bool,
    ) -> None:
        """A read-only mount is the rule in a pod; a lack of rights is told."""

        def refuse(_path: str, _value: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(self_protection, "_write", refuse)
        with reserved_memory(str(tmp_path)) as problem:
            expected = f"{own}/memory.min: {os.strerror(number)}"
            assert problem == (expected if told else None)
        assert (own / "memory.min").read_text() == "4096\n"

    def test_resident_bytes(self) -> None:
        """Python alone is some MiB, and less than the peak."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        assert 4 << 20 < self_protection._resident_bytes() <= peak + (8 << 20)
