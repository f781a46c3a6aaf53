"""memqos.adapters.state_file: whatever goes wrong, the old file or the new one."""

import errno
import fcntl
import hashlib
import os
import signal
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memqos.adapters import state_file
from memqos.adapters.host import Host
from memqos.adapters.state_file import (
    StateFileError,
    remove_leftovers,
    replace_checkpoint,
    running_kubelet,
)
from memqos.errors import MachineError


OLD = b'{"policyName":"old"}' * 1000
NEW = b'{"policyName":"new!"}' * 1000
NAME = "memory_manager_state"
CALLS = [
    "open",
    "read",
    "write",
    "fstat",
    "fchown",
    "fchmod",
    "getxattr",
    "setxattr",
    "removexattr",
    "fsync",
    "close",
    "rename",
    "unlink",
]


class Faulty:
    """Stands in for the os module, and does something at the n-th system call."""

    def __init__(self, at: int, fault: Callable[[], None]) -> None:
        self.at = at
        self.fault = fault
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                if name == "write":  # a part of it got out
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                if name == "close":  # the descriptor is gone even when close fails
                    real(*arguments)
                self.fault()
            return real(*arguments, **keywords)

        return call


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return a checkpoint file with kubelet's mode."""
    path = tmp_path / "kubelet" / NAME
    path.parent.mkdir()
    path.write_bytes(OLD)
    path.chmod(0o600)
    return path


def replace(path: Path, *, backup_dir: Path | None = None) -> str | None:
    """Replace OLD by NEW, with the backup beside it unless told otherwise."""
    where = path.parent if backup_dir is None else backup_dir
    return replace_checkpoint(str(path), expected=OLD, new=NEW, backup_dir=str(where))


def leftovers(path: Path) -> list[str]:
    """List what is beside the checkpoint and is no backup."""
    names = (entry.name for entry in path.parent.iterdir())
    return sorted(name for name in names if name != NAME and ".backup-" not in name)


def check_recovery(path: Path) -> None:
    """Check that no third state exists, and that the next run finishes the work."""
    assert path.read_bytes() in (OLD, NEW)
    for backup in path.parent.glob(f"{NAME}.backup-*"):
        assert backup.read_bytes() == OLD
    if path.read_bytes() == OLD:
        replace(path)
    else:
        remove_leftovers(str(path), backup_dir=None)
    assert path.read_bytes() == NEW
    assert leftovers(path) == []


def outcome(path: Path) -> str | None:
    """Replace OLD by NEW and return the error in words, None where there was none."""
    try:
        replace(path)
    except MachineError as error:
        return str(error)
    return None


def count_calls(monkeypatch: pytest.MonkeyPatch, path: Path) -> int:
    """Count the system calls of a run without faults, and undo the run."""
    counter = Faulty(0, lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(state_file, "os", counter)
        backup = replace(path)
    assert backup is not None
    Path(backup).unlink()
    path.write_bytes(OLD)
    return counter.count


def test_replaces_and_keeps_owner_and_mode(checkpoint: Path) -> None:
    """The new content stands there with the old mode and owner, the old in the backup."""
    if os.geteuid() == 0:
        os.chown(checkpoint, 1234, 2345)
    before = checkpoint.stat()
    backup = replace(checkpoint)
    after = checkpoint.stat()
    assert checkpoint.read_bytes() == NEW
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert backup is not None
    assert Path(backup).read_bytes() == OLD
    assert Path(backup).stat().st_mode == before.st_mode
    assert leftovers(checkpoint) == []


def test_backup_elsewhere_or_none(checkpoint: Path, tmp_path: Path) -> None:
    """The backup goes to the directory asked for, or is left out."""
    target = tmp_path / "backups"
    target.mkdir()
    backup = replace(checkpoint, backup_dir=target)
    assert backup is not None
    assert Path(backup).parent == target
    assert [entry.name for entry in checkpoint.parent.iterdir()] == [NAME]
    checkpoint.write_bytes(OLD)
    assert replace_checkpoint(str(checkpoint), expected=OLD, new=NEW, backup_dir=None) is None


def test_killed_at_every_system_call(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill -9 before any system call leaves the old or the new file, and the next run works."""
    total = count_calls(monkeypatch, checkpoint)
    assert total > 20
    for at in range(1, total + 1):
        checkpoint.write_bytes(OLD)
        child = os.fork()
        if child == 0:
            killer = Faulty(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            monkeypatch.setattr(state_file, "os", killer)
            try:
                replace(checkpoint)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), at
        check_recovery(checkpoint)
        for backup in checkpoint.parent.glob(f"{NAME}.backup-*"):
            backup.unlink()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_errors_at_every_system_call(
    code: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a broken one, a read-only one: an error in one line, and no third state."""

    def fail() -> None:
        raise OSError(code, os.strerror(code))

    total = count_calls(monkeypatch, checkpoint)
    for at in range(1, total + 1):
        checkpoint.write_bytes(OLD)
        with monkeypatch.context() as patch:
            patch.setattr(state_file, "os", Faulty(at, fail))
            said = outcome(checkpoint)
        assert said is None or (os.strerror(code) in said and "\n" not in said)
        assert said is None or checkpoint.read_bytes() == OLD or "was replaced" in said
        check_recovery(checkpoint)


def test_refuses_a_symbolic_link(checkpoint: Path, tmp_path: Path) -> None:
    """A link is not followed, and its target stays as it is."""
    link = tmp_path / "link"
    link.symlink_to(checkpoint)
    with pytest.raises(StateFileError, match="symbolic link"):
        replace(link)
    assert checkpoint.read_bytes() == OLD


def test_refuses_what_changed_since_it_was_read(checkpoint: Path) -> None:
    """A file that kubelet wrote meanwhile stays."""
    for content in (b"", OLD[:-1], OLD + b" ", b"x" * len(OLD)):
        checkpoint.write_bytes(content)
        with pytest.raises(StateFileError, match="changed since it was read"):
            replace(checkpoint)
        assert checkpoint.read_bytes() == content
        assert leftovers(checkpoint) == []


def test_refuses_what_is_no_file(tmp_path: Path) -> None:
    """A FIFO is refused without waiting for a writer."""
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(StateFileError, match="not a regular file"):
        replace(tmp_path / NAME)


def test_a_second_run_says_so(checkpoint: Path) -> None:
    """While one run holds the lock, another refuses."""
    holder = os.open(checkpoint.parent, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(StateFileError, match="another memqos"):
            replace(checkpoint)
    finally:
        os.close(holder)
    assert replace(checkpoint) is not None


def test_no_place_for_the_backup(checkpoint: Path, tmp_path: Path) -> None:
    """Without a place for the backup nothing is written, and the message names that place."""
    (tmp_path / "file").touch()
    for name, says in (("nowhere", "No such file"), ("file", "Not a directory")):
        with pytest.raises(MachineError, match=f"^{tmp_path}/{name}: {says}"):
            replace(checkpoint, backup_dir=tmp_path / name)
    digest = hashlib.sha256(OLD).hexdigest()[:12]
    (tmp_path / f"{NAME}.backup-{digest}").mkdir()
    with pytest.raises(MachineError, match=f"^{tmp_path}/{NAME}.backup-{digest}: Is a directory"):
        replace(checkpoint, backup_dir=tmp_path)
    assert checkpoint.read_bytes() == OLD
    assert leftovers(checkpoint) == []
    assert [entry.name for entry in tmp_path.iterdir() if "memqos" in entry.name] == []


def test_checkpoints_that_share_a_directory_of_backups(tmp_path: Path) -> None:
    """The half-written backup of another checkpoint is left alone, and neither is mixed up."""
    backups = tmp_path / "backups"
    backups.mkdir()
    paths = [tmp_path / name / NAME for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(OLD)
    names = []
    real = os.fsync

    def spy(descriptor: int) -> None:
        names.append({entry.name for entry in backups.iterdir()})
        real(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", spy)
        for path in paths:
            replace(path, backup_dir=backups)
            (backups / f"{NAME}.backup-{hashlib.sha256(OLD).hexdigest()[:12]}").unlink()
    temporary = [name for found in names for name in found if name.endswith(".memqos")]
    assert len(temporary) == len(set(temporary)) == 2


def test_a_backup_elsewhere_that_was_cut_short(checkpoint: Path, tmp_path: Path) -> None:
    """A temporary file in the directory of backups goes with the next run, work or not."""
    backups = tmp_path / "backups"
    backups.mkdir()
    for work in (True, False):
        checkpoint.write_bytes(OLD)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))  # noqa: B010
                replace(checkpoint, backup_dir=backups)
            os._exit(0)
        os.waitpid(child, 0)
        assert [entry for entry in backups.iterdir() if entry.name.endswith(".memqos")]
        if work:
            replace(checkpoint, backup_dir=backups)
        else:
            remove_leftovers(str(checkpoint), backup_dir=str(backups))
        assert [entry for entry in backups.iterdir() if entry.name.endswith(".memqos")] == []


def test_nothing_left_needs_no_right_to_write(checkpoint: Path) -> None:
    """Where nothing was left, nothing is asked of the file system, such as a read-only one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", lambda *_, **__: pytest.fail("asked"))
        remove_leftovers(str(checkpoint), backup_dir=str(checkpoint.parent))
    remove_leftovers("/no/such/directory/file", backup_dir="/no/such")


def test_leftovers_of_a_run_at_work_stay(checkpoint: Path) -> None:
    """A temporary file that another run is writing is not touched."""
    temporary = checkpoint.parent / f".{NAME}.memqos"
    temporary.touch()
    holder = os.open(checkpoint.parent, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        remove_leftovers(str(checkpoint), backup_dir=None)
        assert temporary.exists()
    finally:
        os.close(holder)
    remove_leftovers(str(checkpoint), backup_dir=None)
    assert not temporary.exists()


def test_removed_since_it_was_read(checkpoint: Path) -> None:
    """A file that is gone meanwhile is not made again."""
    checkpoint.unlink()
    with pytest.raises(StateFileError, match="has been removed"):
        replace(checkpoint)
    assert list(checkpoint.parent.iterdir()) == []


@pytest.mark.parametrize("length", [200, 240, 255])
@pytest.mark.parametrize("letter", ["x", "ä"])
def test_long_names(letter: str, length: int, tmp_path: Path) -> None:
    """A name as long as the file system allows leaves room for what stands beside it."""
    path = tmp_path / (letter * (length // len(letter.encode())))
    path.write_bytes(OLD)
    saved = replace(path)
    assert saved is not None
    assert Path(saved).read_bytes() == OLD
    assert path.read_bytes() == NEW
    assert len(list(tmp_path.iterdir())) == 2


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Pack entries of tag, permissions and id into a list, in the kernel's own form."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
GRANT = acl(
    (USER_OBJ, 6, NOBODY), (USER, 4, 1234), (GROUP_OBJ, 0, NOBODY), (MASK, 4, NOBODY),
    (OTHER, 0, NOBODY),
)  # fmt: skip


def set_acl(path: Path, kind: str) -> None:
    """Grant user 1234 to read, where the file system has access control lists."""
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", GRANT)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")


def test_keeps_the_access_control_list(checkpoint: Path) -> None:
    """The list comes along: without it, the mode would let the group read."""
    set_acl(checkpoint, "access")
    saved = replace(checkpoint)
    assert saved is not None
    for path in (str(checkpoint), saved):
        assert os.getxattr(path, "system.posix_acl_access") == GRANT
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o640


def test_inherits_no_access_control_list(checkpoint: Path) -> None:
    """The directory's default list does not get to a file that had none."""
    set_acl(checkpoint.parent, "default")
    checkpoint.chmod(0o640)
    replace(checkpoint)
    assert "system.posix_acl_access" not in os.listxattr(checkpoint)
    assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o640


def test_keeps_the_selinux_context_or_fails(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context that cannot be given to the new file leaves the old one in place."""
    contexts = {"old": b"kubelet_t"}

    def getxattr(descriptor: int, name: str) -> bytes:
        if name != "security.selinux":
            raise OSError(errno.ENODATA, "No data available")
        size = os.fstat(descriptor).st_size
        return contexts["old"] if size == len(OLD) else contexts.get("new", b"var_t")

    def setxattr(_descriptor: int, name: str, value: bytes) -> None:
        assert (name, value) == ("security.selinux", contexts["old"])
        if "new" not in contexts:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "getxattr", getxattr)
    monkeypatch.setattr(os, "setxattr", setxattr)
    with pytest.raises(MachineError, match="Permission denied"):
        replace_checkpoint(str(checkpoint), expected=OLD, new=NEW, backup_dir=None)
    assert checkpoint.read_bytes() == OLD
    assert leftovers(checkpoint) == []
    contexts["new"] = b"kubelet_t"  # as policy has it already: nothing to set
    replace_checkpoint(str(checkpoint), expected=OLD, new=NEW, backup_dir=None)
    assert checkpoint.read_bytes() == NEW


def processes(root: Path, *commands: tuple[str, str]) -> Iterator[Path]:
    """Make a proc with processes of (comm, NUL-separated command line)."""
    for pid, (comm, line) in enumerate(commands, 1):
        folder = root / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{comm}\n", encoding="utf-8")
        (folder / "cmdline").write_text(line, encoding="utf-8")
        yield folder


@pytest.mark.parametrize(
    ("comm", "line", "found"),
    [
        ("kubelet", "/usr/bin/kubelet\0--config=x\0", True),
        ("hyperkube", "/hyperkube\0kubelet\0", True),
        ("k3s-server", "/usr/local/bin/k3s server\0", True),
        ("kubelite", "/snap/kubelite\0", True),
        ("bash", "bash\0-c\0kubelet\0", False),
        ("grep", "grep\0kubelet\0", False),
        ("kubelet-exporte", "/bin/kubelet-exporter\0", False),
    ],
)
def test_finds_a_running_kubelet(tmp_path: Path, comm: str, line: str, found: bool) -> None:
    """Kubelet and the programs that contain it are found by name, others are not."""
    list(processes(tmp_path, ("init", "/sbin/init\0"), (comm, line)))
    assert running_kubelet(Host(str(tmp_path))) == (2 if found else None)


def test_a_process_that_ends_meanwhile(tmp_path: Path) -> None:
    """A process without files any more is skipped."""
    list(processes(tmp_path, ("systemd", "/sbin/init\0")))
    (tmp_path / "proc" / "99").mkdir(parents=True)
    assert running_kubelet(Host(str(tmp_path))) is None


@pytest.mark.parametrize(
    ("commands", "known"),
    [
        ([("systemd", "/sbin/init\0")], True),
        ([("init", "/sbin/init\0")], True),
        ([("runit", "runit\0"), ("kthreadd", "")], True),
        ([("sh", "sh\0"), ("memqos", "memqos\0")], False),
    ],
)
def test_a_container_does_not_show_the_host(
    tmp_path: Path, commands: list[tuple[str, str]], known: bool
) -> None:
    """Among a container's own processes there is no kubelet, and that tells nothing."""
    list(processes(tmp_path, *commands))
    if known:
        assert running_kubelet(Host(str(tmp_path))) is None
    else:
        with pytest.raises(MachineError, match="shows a part of the processes"):
            running_kubelet(Host(str(tmp_path)))


def test_hidden_processes(tmp_path: Path) -> None:
    """Where the first process is hidden (hidepid=2), kubelet may be too."""
    folder = tmp_path / "proc" / "4711"
    folder.mkdir(parents=True)
    (folder / "comm").write_text("sh\n", encoding="utf-8")
    (folder / "cmdline").write_text("sh\0", encoding="utf-8")
    with pytest.raises(MachineError, match="shows a part of the processes"):
        running_kubelet(Host(str(tmp_path)))


def test_no_processes_is_no_answer(tmp_path: Path) -> None:
    """A proc without processes tells nothing about kubelet."""
    (tmp_path / "proc").mkdir()
    with pytest.raises(MachineError, match="no processes"):
        running_kubelet(Host(str(tmp_path)))
