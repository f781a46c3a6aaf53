"""Killing a cgroup, on a directory that looks like one; the real kernel is in tests/guest."""

import errno
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from memqos.adapters import kill
from memqos.adapters.kill import KillOutcome, KillTarget, identify_target, kill_cgroup
from memqos.errors import MachineError


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that may be killed."""
    process = subprocess.Popen(["sleep", "60"])
    # The kernel sets the command line up shortly after Popen has returned.
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


@pytest.fixture(params=[0, 256])
def handles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a kill hold a handle of no process, or of each, and not wait long for their end."""
    monkeypatch.setattr(kill, "_END_SECONDS", 0.05)
    monkeypatch.setattr(kill, "_MOST_HANDLES", request.param)


def cgroup(folder: Path, *pids: int, events: str = "populated 1\nfrozen 0\n") -> Path:
    """Make a directory with the files of a cgroup without cgroup.kill, as before Linux 5.14."""
    folder.mkdir(parents=True)
    (folder / "cgroup.events").write_text(events)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    (folder / "cgroup.freeze").write_text("0\n")
    return folder


def target(folder: Path) -> KillTarget:
    """Return a target as it is now."""
    return KillTarget(path=str(folder), inode=folder.stat().st_ino, place=str(folder.resolve()))


def identify(mount: Path, relative: str, *protected: str) -> KillTarget:
    """Identify a target that is as it was chosen."""
    folder = mount / relative
    inode = folder.stat().st_ino if folder.exists() else None
    return identify_target(str(mount), relative, protected, inode)


@contextmanager
def free_descriptors(number: int) -> Iterator[None]:
    """Leave us so many file descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


class TestIdentify:
    """What must never be killed is refused before anything is read."""

    def test_a_victim(self, tmp_path: Path) -> None:
        """A cgroup below the mount is taken with its inode."""
        folder = cgroup(tmp_path / "kubepods/besteffort/podx")
        found = identify(tmp_path, "kubepods/besteffort/podx", "kubepods")
        assert found == KillTarget(
            path=str(folder), inode=folder.stat().st_ino, place=str(folder.resolve())
        )

    @pytest.mark.parametrize("path", ["", "/", "..", "kubepods/..", "kubepods//podx", "./x"])
    def test_paths_that_leave_the_mount(self, tmp_path: Path, path: str) -> None:
        """The root itself and anything that is not plainly below it."""
        with pytest.raises(MachineError, match="refused"):
            identify(tmp_path, path)

    def test_a_class(self, tmp_path: Path) -> None:
        """A directory of victims is no victim."""
        cgroup(tmp_path / "kubepods")
        with pytest.raises(MachineError, match="a directory of cgroups"):
            identify(tmp_path, "kubepods", "kubepods")

    def test_a_link(self, tmp_path: Path) -> None:
        """A link leads to a cgroup that was not chosen."""
        cgroup(tmp_path / "system")
        (tmp_path / "podx").symlink_to("system")
        with pytest.raises(MachineError, match="leads elsewhere"):
            identify(tmp_path, "podx")

    @pytest.mark.parametrize("own", ["podx", "podx/memqos"])
    def test_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
        """Its own cgroup, and one above it."""
        cgroup(tmp_path / "podx")
        monkeypatch.setattr(kill, "cgroup_of", lambda *_: f"/{own}")
        with pytest.raises(MachineError, match="memqos itself"):
            identify(tmp_path, "podx")

    @pytest.mark.parametrize("own", ["kubepods/podx", "kubepods/podx/container"])
    def test_itself_in_a_container(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
    ) -> None:
        """In a cgroup namespace its name is the root's; the directory is the same one."""
        for path in ("kubepods/podx/container", "kubepods/pody"):
            (tmp_path / path).mkdir(parents=True)
        monkeypatch.setattr(kill, "cgroup_of", lambda *_: "/")
        monkeypatch.setattr(kill, "_OWN_MOUNT", str(tmp_path / own))
        with pytest.raises(MachineError, match="memqos itself"):
            identify(tmp_path, "kubepods/podx")
        other = tmp_path / "kubepods/pody"
        assert identify(tmp_path, "kubepods/pody") == target(other)

    def test_gone(self, tmp_path: Path) -> None:
        """It went away after it was chosen."""
        with pytest.raises(MachineError, match="No such file"):
            identify(tmp_path, "podx")

    def test_another_cgroup_than_was_chosen(self, tmp_path: Path) -> None:
        """A service that was restarted has its old name, and is another one."""
        folder = cgroup(tmp_path / "system/sshd")
        for inode in (folder.stat().st_ino + 1, None):
            with pytest.raises(MachineError, match="another cgroup by now"):
                identify_target(str(tmp_path), "system/sshd", (), inode)


class TestKill:
    """The kill tells what was really done."""

    def test_by_signals(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        """Without cgroup.kill, every process gets SIGKILL; here the list never empties."""
        folder = cgroup(tmp_path / "podx", sleeper.pid)
        report = kill_cgroup(target(folder))
        assert sleeper.wait() == -signal.SIGKILL
        assert report.method == "signals"
        # The pid stays in a list that no kernel updates, which is what a stuck process looks like.
        assert report.outcome is KillOutcome.FAILED
        assert report.left == (sleeper.pid,)
        assert (folder / "cgroup.freeze").read_text().startswith("0")

    def test_frozen_meanwhile(
        self, tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that nobody forks away from the signals, which are sent in between."""
        steps: list[object] = []
        send = signal.pidfd_send_signal

        def send_and_empty(descriptor: int, number: int) -> None:
            send(descriptor, number)
            steps.append(number)
            (folder / "cgroup.procs").write_text("")
            (folder / "cgroup.events").write_text("populated 0\n")

        monkeypatch.setattr(kill, "_freeze", lambda _folder, value: steps.append(value))
        monkeypatch.setattr(signal, "pidfd_send_signal", send_and_empty)
        folder = cgroup(tmp_path / "podx", sleeper.pid)
        assert kill_cgroup(target(folder)).outcome is KillOutcome.KILLED
        assert steps == [b"1", signal.SIGKILL, b"0"]

    def test_memory_is_released(
        self, tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By process_mrelease, for each process, once the signals are out."""
        released: list[int] = []
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0.05)
        monkeypatch.setattr(kill, "_release", lambda _handle: released.append(sleeper.wait(20)))
        kill_cgroup(target(cgroup(tmp_path / "podx", sleeper.pid)))
        assert released == [-signal.SIGKILL]

    def test_cannot_be_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the kernel calls populated is not killed because its list says nothing."""
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0.05)
        folder = cgroup(tmp_path / "podx")
        (folder / "cgroup.kill").write_text("")
        report = kill_cgroup(target(folder))
        assert (report.outcome, report.processes) == (KillOutcome.FAILED, ())
        assert report.error == "still there: 1 of 1 processes"

    @pytest.mark.usefixtures("handles")
    def test_moved_away(
        self, tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that has left the cgroup alive was not killed, though it had no handle."""
        folder = cgroup(tmp_path / "podx", sleeper.pid)

        def move(*_: object) -> tuple[str, None]:
            (folder / "cgroup.events").write_text("populated 0\n")
            return "cgroup.kill", None

        monkeypatch.setattr(kill, "_send", move)
        report = kill_cgroup(target(folder))
        assert (report.outcome, report.left) == (KillOutcome.FAILED, (sleeper.pid,))
        assert report.processes == ()

    def test_listed_twice(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        """As one is that goes from one list to the next while they are read."""
        folder = cgroup(tmp_path / "podx", sleeper.pid, sleeper.pid)
        before = [*Path("/proc/self/fd").iterdir()]
        report = kill_cgroup(target(folder))
        assert [*Path("/proc/self/fd").iterdir()] == before
        assert report.left == (sleeper.pid,)  # it is still in the list here

    @pytest.mark.usefixtures("handles")
    def test_nothing_can_be_read(
        self, tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody is said to be gone then."""
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0.05)
        victim = target(cgroup(tmp_path / "podx", sleeper.pid))
        with ExitStack() as stack:

            def take(*_: object) -> tuple[str, None]:
                stack.enter_context(free_descriptors(0))
                return "cgroup.kill", None

            monkeypatch.setattr(kill, "_send", take)
            report = kill_cgroup(victim)
        assert report.outcome is KillOutcome.FAILED
        assert report.processes == ()

    def test_the_list_cannot_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """We could be in it ourselves: then nobody is killed."""

        def refuse(*_: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(kill, "_open", refuse)
        monkeypatch.setattr(kill, "_send", lambda *_: pytest.fail("killed"))
        report = kill_cgroup(target(cgroup(tmp_path / "podx")))
        assert report.outcome is KillOutcome.FAILED
        assert report.error == "failed to list its processes: Too many open files"

    def test_empties(
        self,
        tmp_path: Path,
        sleeper: subprocess.Popen[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The command lines are those from before the kill."""
        folder = cgroup(tmp_path / "podx", sleeper.pid)
        send = signal.pidfd_send_signal

        def send_and_empty(descriptor: int, number: int) -> None:
            send(descriptor, number)
            (folder / "cgroup.events").write_text("populated 0\n")

        monkeypatch.setattr(signal, "pidfd_send_signal", send_and_empty)
        report = kill_cgroup(target(folder))
        assert report.outcome is KillOutcome.KILLED
        assert report.processes == ((sleeper.pid, "sleep 60"),)
        assert report.error is None

    def test_partly(
        self,
        tmp_path: Path,
        sleeper: subprocess.Popen[bytes],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """One that stays is told, not walked past."""
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0.05)
        other = subprocess.Popen(["sleep", "60"])
        folder = cgroup(tmp_path / "podx", sleeper.pid, other.pid)
        send = signal.pidfd_send_signal

        def send_and_drop(descriptor: int, number: int) -> None:
            send(descriptor, number)
            (folder / "cgroup.procs").write_text(f"{other.pid}\n")

        monkeypatch.setattr(signal, "pidfd_send_signal", send_and_drop)
        try:
            report = kill_cgroup(target(folder))
        finally:
            other.kill()
            other.wait()
        assert report.outcome is KillOutcome.PARTLY_KILLED
        assert [pid for pid, _ in report.processes] == [sleeper.pid]
        assert report.left == (other.pid,)
        assert report.error == "still there: 1 of 2 processes"

    def test_another_cgroup(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        """A directory that was made anew under the same name is another pod."""
        folder = cgroup(tmp_path / "podx", sleeper.pid)
        chosen = KillTarget(
            path=str(folder), inode=folder.stat().st_ino + 1, place=str(folder.resolve())
        )
        assert kill_cgroup(chosen).outcome is KillOutcome.REFUSED
        assert sleeper.poll() is None

    def test_moved(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        """The same directory elsewhere, behind a link, is not what was chosen."""
        folder = cgroup(tmp_path / "kubepods/podx", sleeper.pid)
        chosen = target(folder)
        (tmp_path / "kubepods").rename(tmp_path / "outside")
        (tmp_path / "kubepods").symlink_to("outside")
        assert kill_cgroup(chosen).outcome is KillOutcome.REFUSED
        assert sleeper.poll() is None

    def test_links_among_the_files(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        """What cgroup.kill leads to is not written."""
        folder = cgroup(tmp_path / "podx", sleeper.pid)
        (tmp_path / "precious").write_text("precious")
        (folder / "cgroup.kill").symlink_to(tmp_path / "precious")
        assert kill_cgroup(target(folder)).outcome is KillOutcome.FAILED
        assert (tmp_path / "precious").read_text() == "precious"
        assert sleeper.poll() is None

    def test_processes_elsewhere(self, tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
        """A link in place of the list of processes names nobody; a FIFO is not waited for."""
        (tmp_path / "procs").write_text(f"{sleeper.pid}\n")
        folder = cgroup(tmp_path / "podx", events="")
        procs = folder / "cgroup.procs"
        procs.unlink()
        procs.symlink_to(tmp_path / "procs")
        report = kill_cgroup(target(folder))
        assert (report.processes, report.left) == ((), ())
        procs.unlink()
        os.mkfifo(procs)
        report = kill_cgroup(target(folder))
        assert (report.processes, report.left) == ((), ())
        assert sleeper.poll() is None

    @pytest.mark.parametrize("line", ["-1", "-5", "99999999999999999999", "2147483648", "x", "0"])
    def test_odd_pids(self, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing that stands for many processes, or for none, is sent a signal."""
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0.05)
        sent: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, _number: sent.append(pid))
        folder = cgroup(tmp_path / "podx")
        (folder / "cgroup.procs").write_text(f"{line}\n")
        report = kill_cgroup(target(folder))
        assert (report.outcome, sent) == (KillOutcome.FAILED, [])
        assert report.error == "some processes are in a PID namespace that memqos does not see"

    def test_empty(self, tmp_path: Path) -> None:
        """Nothing is sent to a cgroup without processes."""
        report = kill_cgroup(target(cgroup(tmp_path / "podx", events="populated 0\n")))
        assert (report.outcome, report.method) == (KillOutcome.EMPTY, "")

    def test_no_cgroup(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing was killed where nothing can be."""
        folder = tmp_path / "podx"
        folder.mkdir()
        report = kill_cgroup(target(folder))
        assert (report.outcome, report.error) == (KillOutcome.FAILED, "it is no cgroup")
        vanished = target(folder)

        def access(path: str, _mode: int) -> bool:
            with suppress(OSError):
                folder.rmdir()
            return os.path.lexists(path)

        monkeypatch.setattr(os, "access", access)
        report = kill_cgroup(vanished)
        assert (report.outcome, report.error) == (KillOutcome.REFUSED, "it is gone")

    def test_gone(self, tmp_path: Path) -> None:
        """It went away between choice and kill."""
        report = kill_cgroup(
            KillTarget(path=str(tmp_path / "podx"), inode=1, place=str(tmp_path / "podx"))
        )
        assert report.outcome is KillOutcome.REFUSED
        assert report.error == "it is gone: No such file or directory"

    def test_itself(self, tmp_path: Path) -> None:
        """Processes move between cgroups: memqos may be in it by now."""
        folder = cgroup(tmp_path / "podx", os.getpid())
        assert kill_cgroup(target(folder)).outcome is KillOutcome.REFUSED

    def test_kill_file(self, tmp_path: Path) -> None:
        """cgroup.kill is written where it is there, and its failure is told."""
        folder = cgroup(tmp_path / "podx", events="")
        (folder / "cgroup.kill").write_text("")
        report = kill_cgroup(target(folder))
        assert (folder / "cgroup.kill").read_text() == "1"
        assert (report.outcome, report.method) == (KillOutcome.KILLED, "cgroup.kill")
        (folder / "cgroup.kill").unlink()
        (folder / "cgroup.kill").mkdir()
        report = kill_cgroup(target(folder))
        assert report.outcome is KillOutcome.FAILED
        assert report.error == "failed to send SIGKILL: Is a directory"

    @pytest.mark.parametrize("free", [2, 5, 24, 120])
    @pytest.mark.parametrize("number", [1, 4, 23, 2000])
    def test_more_processes_than_descriptors(
        self, free: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A fork bomb leaves descriptors for cgroup.kill and for what follows."""
        beyond = 2**22  # the most that a pid can be
        folder = cgroup(tmp_path / "podx", *range(beyond + 1, beyond + 1 + number))
        (folder / "cgroup.kill").write_text("")
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0)
        monkeypatch.setattr(os, "pidfd_open", lambda _pid: os.open(os.devnull, os.O_RDONLY))
        victim = target(folder)
        with free_descriptors(free):
            report = kill_cgroup(victim)
        assert (folder / "cgroup.kill").read_text() == "1"
        assert len(report.left) == number

    def test_no_descriptors_at_all(self, tmp_path: Path) -> None:
        """Which is not to say that the cgroup is gone."""
        victim = target(cgroup(tmp_path / "podx"))
        with free_descriptors(0):
            report = kill_cgroup(victim)
        assert report.outcome is KillOutcome.FAILED
        assert report.error == "failed to open: Too many open files"

    def test_another_pid_namespace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Processes that are not seen have pid 0, which to kill(2) is memqos' own group."""
        monkeypatch.setattr(kill, "_WAIT_SECONDS", 0)
        sent: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, _number: sent.append(pid))
        report = kill_cgroup(target(cgroup(tmp_path / "podx", 0, 0)))
        assert sent == []
        assert report.outcome is KillOutcome.FAILED
        assert "PID namespace" in (report.error or "")
