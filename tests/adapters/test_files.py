"""Reading and writing files."""

import errno
import io
import os
import stat
import sys
from pathlib import Path

import pytest

from memqos.adapters.files import read_file, read_input, write_atomically
from memqos.errors import MachineError


def test_reads_a_file(tmp_path: Path) -> None:
    """A regular file is read whole, up to the limit."""
    path = tmp_path / "file"
    path.write_bytes(b"\0\xff" * 3_000_000)

    assert read_file(str(path)) == path.read_bytes()
    assert read_file(str(path), limit=6_000_000) == path.read_bytes()
    with pytest.raises(MachineError, match=f"{path}: larger than 5999999 bytes"):
        read_file(str(path), limit=5_999_999)


def test_reads_proc() -> None:
    """A file of /proc says that it has 0 bytes, and is read all the same."""
    assert b"MemTotal" in read_file("/proc/meminfo")


def test_fifo(tmp_path: Path) -> None:
    """A FIFO without a writer is refused and not waited for."""
    path = tmp_path / "fifo"
    os.mkfifo(path)

    with pytest.raises(MachineError, match="not a regular file"):
        read_file(str(path))


def test_devices_and_directories(tmp_path: Path) -> None:
    """Neither an endless device nor a directory is read."""
    with pytest.raises(MachineError, match="not a regular file"):
        read_file("/dev/zero")
    with pytest.raises(MachineError, match="is a directory"):
        read_file(str(tmp_path))


def test_too_large_is_not_read(tmp_path: Path) -> None:
    """A sparse file of a terabyte is given up at the limit."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(MachineError, match="larger than"):
        read_file(str(path))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("no", errno.ENOENT),
        ("file/no", errno.ENOTDIR),
        ("loop", errno.ELOOP),
        ("x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_errors_keep_their_number(name: str, number: int, tmp_path: Path) -> None:
    """What the system says is one error type with path and number."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(MachineError) as caught:
        read_file(str(tmp_path / name))

    assert caught.value.errno == number
    assert caught.value.path == str(tmp_path / name)


def test_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without permission is that error too (root has all permissions, so it is made)."""

    def deny(*_args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(MachineError, match="Permission denied") as caught:
        read_file("x")
    assert caught.value.errno == errno.EACCES


def test_nul_in_a_name() -> None:
    """A name that no file can have is that error too."""
    with pytest.raises(MachineError):
        read_file("a\0b")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is standard input, bounded like a file."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"12345")))
    assert read_input("-", limit=5) == b"12345"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"12345")))
    with pytest.raises(MachineError, match="standard input"):
        read_input("-", limit=4)


def test_writes_atomically(tmp_path: Path) -> None:
    """A file is replaced by a new one with the mode asked for, and nothing is left beside."""
    path = tmp_path / "out"
    path.write_text("old")
    before = path.stat().st_ino

    write_atomically(str(path), b"new", mode=0o600)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_ino != before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("step", ["fsync", "fchmod", "replace"])
def test_a_failed_write_leaves_everything(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step fails, the old file is intact and the temporary one gone."""
    path = tmp_path / "out"
    path.write_text("old")

    def fail(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(MachineError, match=f"{path}: No space left") as caught:
        write_atomically(str(path), b"new")

    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_an_interrupted_write_leaves_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves no temporary file."""

    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(str(tmp_path / "out"), b"new")

    assert [entry.name for entry in tmp_path.iterdir()] == []


def test_no_directory(tmp_path: Path) -> None:
    """A directory that is missing, or a target that is one, is one error."""
    (tmp_path / "folder").mkdir()
    for name in ("no/out", "folder"):
        with pytest.raises(MachineError):
            write_atomically(str(tmp_path / name), b"")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
