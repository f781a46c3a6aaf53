"""memqos.adapters.{snapshot,archive}: what is saved answers like the host it came from."""

import errno
import fcntl
import gzip
import io
import os
import shutil
import signal
import stat
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memqos.adapters import archive
from memqos.adapters.archive import Archive
from memqos.adapters.host import Host
from memqos.adapters.node import KUBELET_CONFIG, read_checkpoint, read_image, read_machine
from memqos.adapters.roots import open_host
from memqos.adapters.snapshot import Snapshot, save_snapshot, take_snapshot
from memqos.errors import MachineError


EXAMPLES = Path(__file__).parents[2] / "examples" / "nodes"


ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".TAR", ".Tar.GZ")


@pytest.mark.parametrize("name", [*(f"node{ending}" for ending in ENDINGS), "node", "node.tar.d"])
def test_answers_like_the_host(tmp_path: Path, name: str) -> None:
    """An archive and a directory give the readers what the host gave them."""
    host = Host(str(EXAMPLES / "drifted"))
    target = str(tmp_path / name)
    save_snapshot(take_snapshot(host), target)
    saved = open_host(target)
    assert isinstance(saved, Archive) is name.lower().endswith(ENDINGS)
    assert read_machine(saved) == read_machine(host)
    assert read_image(saved) == read_image(host)
    assert read_checkpoint(saved) == read_checkpoint(host)


def test_saves_no_secrets(tmp_path: Path) -> None:
    """Files that no command reads stay out, and other fields of the kubelet configuration."""
    root = tmp_path / "host"
    shutil.copytree(EXAMPLES / "drifted", root)
    with (root / KUBELET_CONFIG).open("a", encoding="utf-8") as file:
        file.write("staticPodURLHeader:\n  Authorization: [hunter2]\n")
    (root / "proc" / "1").mkdir()
    (root / "proc" / "1" / "environ").write_text("PASSWORD=hunter2", encoding="utf-8")
    snapshot = take_snapshot(Host(str(root)))
    assert all(b"hunter2" not in data for data in snapshot.files.values())
    assert sorted(snapshot.files)[:2] == ["proc/iomem", "proc/meminfo"]
    assert b"reservedMemory" in snapshot.files[KUBELET_CONFIG]


def test_says_what_is_missing(tmp_path: Path) -> None:
    """What cannot be read is named, the rest is saved."""
    root = tmp_path / "host"
    shutil.copytree(EXAMPLES / "drifted", root)
    (root / "proc" / "iomem").unlink()
    snapshot = take_snapshot(Host(str(root)))
    assert [text for text in snapshot.missing if "iomem" not in text] == [
        f"{root}/sys/fs/cgroup: no cgroup2 mount and no cgroup tree"
    ]
    assert len(snapshot.missing) == 2
    assert "var/lib/kubelet/memory_manager_state" in snapshot.files


def test_a_host_without_checkpoint_stays_one(tmp_path: Path) -> None:
    """Kubelet's empty directory is saved, so that the answer stays "no checkpoint"."""
    root = tmp_path / "host"
    shutil.copytree(EXAMPLES / "drifted", root)
    (root / "var/lib/kubelet/memory_manager_state").unlink()
    target = str(tmp_path / "node.tar")
    save_snapshot(take_snapshot(Host(str(root))), target)
    assert read_checkpoint(open_host(target)) is None


def test_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """The archive has mode 0600: it tells where the kernel lies."""
    target = tmp_path / "node.tar"
    save_snapshot(take_snapshot(Host(str(EXAMPLES / "drifted"))), str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_refuses_a_directory_in_use(tmp_path: Path) -> None:
    """Nothing is mixed into a directory that has files."""
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="not empty"):
        save_snapshot(take_snapshot(Host(str(EXAMPLES / "drifted"))), str(tmp_path))


def make_tar(path: Path, *members: tuple[str, bytes | str]) -> Archive:
    """Make an archive of (name, content) files and (name, link target) links, and open it."""
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return Archive(str(path))


def test_archive_layouts(tmp_path: Path) -> None:
    """Leading ./ and missing directory entries make no difference."""
    host = make_tar(tmp_path / "x.tar", ("./a/b/c", b"1"), ("/a/d", b"2"), ("a/../e", b"3"))
    assert host.list("") == ["a", "e"]
    assert host.list("a") == ["b", "d"]
    assert host.read("a/b/c") == b"1"
    assert host.read("/a//d") == b"2"
    assert host.exists("a/b")
    assert not host.exists("a/x")


def test_archive_links_stay_inside(tmp_path: Path) -> None:
    """Links are followed within the archive, and loops end."""
    host = make_tar(
        tmp_path / "x.tar",
        ("etc/passwd", b"archive"),
        ("var/up", "../../../etc/passwd"),
        ("var/root", "/etc/passwd"),
        ("var/loop", "loop"),
    )
    assert host.read("var/up") == b"archive"
    assert host.read("var/root") == b"archive"
    with pytest.raises(MachineError, match="too many levels"):
        host.read("var/loop")


def test_archive_errors(tmp_path: Path) -> None:
    """A directory, a missing file, a large file and a broken archive are one-line errors."""
    host = make_tar(tmp_path / "x.tar", ("a/b", b"12345"))
    for path, message in (("a", "is a directory"), ("c", "No such file"), ("a/b", "larger than")):
        with pytest.raises(MachineError, match=message):
            host.read(path, limit=4)
    with pytest.raises(MachineError, match="Not a directory"):
        host.list("a/b")
    (tmp_path / "broken.tar").write_bytes(b"\x1f\x8b" + b"x" * 600)
    with pytest.raises(MachineError, match="neither a directory nor a tar archive"):
        open_host(str(tmp_path / "broken.tar"))


def test_archive_links_in_the_middle(tmp_path: Path) -> None:
    """A linked directory is followed, as the host's own would be, and a hard link is its file."""
    host = make_tar(
        tmp_path / "x.tar",
        ("data/kubelet/state", b"1"),
        ("var/lib/kubelet", "/data/kubelet"),
        ("var/up", "lib/../../data"),
        ("var/nowhere", "/no"),
    )
    assert host.read("var/lib/kubelet/state") == b"1"
    assert host.read("var/up/kubelet/state") == b"1"
    assert host.read("var/lib/kubelet/../kubelet/state") == b"1"
    assert host.list("var/lib/kubelet") == ["state"]
    assert (host.exists("var/lib/kubelet"), host.is_link("var/lib/kubelet")) == (True, True)
    assert (host.exists("var/nowhere"), host.is_link("var/nowhere")) == (False, True)
    assert not host.is_link("var/lib/kubelet/state")
    with pytest.raises(MachineError) as caught:
        host.read("data/kubelet/state/x")
    assert caught.value.errno == errno.ENOTDIR
    with tarfile.open(tmp_path / "hard.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a/file"))
        entry = tarfile.TarInfo("b/file")
        entry.type, entry.linkname = tarfile.LNKTYPE, "a/file"
        tar.addfile(entry)
    assert Archive(str(tmp_path / "hard.tar")).read("b/file") == b""


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_archive_special_files(tmp_path: Path, kind: bytes) -> None:
    """A device or FIFO is there, and is no file: not the same as none."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        entry = tarfile.TarInfo("a/state")
        entry.type = kind
        tar.addfile(entry)
    host = Archive(str(tmp_path / "x.tar"))
    assert host.exists("a/state")
    with pytest.raises(MachineError, match="is not a regular file"):
        host.read("a/state")


def test_archive_duplicates(tmp_path: Path) -> None:
    """Of members with one name the last counts, as when tar unpacks them."""
    host = make_tar(tmp_path / "x.tar", ("a/b", b"1"), ("./a/b", b"2"), ("/a/c/../b", b"3"))
    assert (host.read("a/b"), host.list("a")) == (b"3", ["b"])


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_archive_cut_short(tmp_path: Path, name: str) -> None:
    """An archive that ends early, even between two members, is not taken for a smaller one."""
    path = tmp_path / name
    save_snapshot(take_snapshot(Host(str(EXAMPLES / "drifted"))), str(path))
    data = path.read_bytes()
    whole = len(data) if name.endswith("gz") else len(data.rstrip(b"\0"))
    for length in range(0, whole, 512 if name.endswith("tar") else 7):
        path.write_bytes(data[:length])
        with pytest.raises(MachineError, match=r"damaged or incomplete|nor a tar archive"):
            Archive(str(path))


@pytest.mark.parametrize("ending", ["tar.gz", "tar.bz2", "tar.xz"])
def test_damaged_content_of_a_compressed_archive(tmp_path: Path, ending: str) -> None:
    """A checksum that stands at the very end is looked at."""
    path = tmp_path / f"x.{ending}"
    with tarfile.open(path, f"w:{ending.rpartition('.')[2]}") as tar:  # type: ignore[call-overload]  # three modes
        tar.add(EXAMPLES / "drifted", ".")
    assert Archive(str(path)).exists(KUBELET_CONFIG)
    data = bytearray(path.read_bytes())
    data[-6 if ending == "tar.gz" else len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(MachineError, match=r"damaged or incomplete|nor a tar archive"):
        Archive(str(path))


def header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """Make a header block with a size field as given."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size.ljust(12, b"\0")
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


HUGE = b"%011o" % (1 << 32)
NEGATIVE = b"\xff" * 10 + b"\xfe\x00"  # -512


@pytest.mark.parametrize("size", [HUGE, NEGATIVE], ids=["huge", "negative"])
@pytest.mark.parametrize("kind", [b"0", b"L", b"x", b"g", b"S"])
def test_hostile_sizes(tmp_path: Path, kind: bytes, size: bytes) -> None:
    """A size that leads backwards or far away ends in an error, neither a loop nor full memory."""
    path = tmp_path / "x.tar.gz"
    blocks = header("first", b"0") + header("x", size, kind) * 50
    path.write_bytes(gzip.compress(blocks + bytes(40 << 20)))
    with pytest.raises(MachineError) as caught:
        Archive(str(path))
    assert "\n" not in str(caught.value)


def test_nested_extended_headers(tmp_path: Path) -> None:
    """Thousands of extended headers in a row are an error like any other."""
    path = tmp_path / "x.tar"
    path.write_bytes(header("x", b"0", b"x") * 5000 + bytes(1024))
    with pytest.raises(MachineError, match=r"nor a tar archive|damaged"):
        Archive(str(path))


def make_large(path: Path, kind: str) -> None:
    """Make an archive that is small on disk and large in memory."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        if kind == "deep":
            for number in range(1000):
                tar.addfile(tarfile.TarInfo(f"{number}/{'a/' * 20_000}x"))
        elif kind in ("many", "nameless"):
            for number in range(2000):
                tar.addfile(tarfile.TarInfo(f"{number}" if kind == "many" else "."))
        else:
            for number in range(40):
                entry = tarfile.TarInfo(f"{number}")
                entry.size = 4 << 20
                tar.addfile(entry, io.BytesIO(bytes(entry.size)))


@pytest.mark.parametrize("kind", ["deep", "many", "bomb", "nameless"])
def test_large_archives(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of an archive is limited, in names as well as in bytes."""
    if kind in ("many", "nameless"):
        monkeypatch.setattr(archive, "_MAX_HELD", 1 << 18)
    path = tmp_path / "x.tar.gz"
    make_large(path, kind)
    tracemalloc.start()
    try:
        with pytest.raises(MachineError, match="too large for a snapshot"):
            Archive(str(path))
        assert tracemalloc.get_traced_memory()[1] < 2 * archive._MAX_HELD
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("last", ["x", "é", "\U0001f600"])
def test_large_links(tmp_path: Path, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of links count, with all of the memory that a text takes: one character decides."""
    monkeypatch.setattr(archive, "_MAX_HELD", 8 << 20)
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for number in range(20):
            entry = tarfile.TarInfo(f"{number}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "x" * (1 << 20) + last
            tar.addfile(entry)
    tracemalloc.start()
    try:
        with pytest.raises(MachineError, match="too large for a snapshot"):
            Archive(str(path))
        assert tracemalloc.get_traced_memory()[1] < 4 * archive._MAX_HELD
    finally:
        tracemalloc.stop()


def small_files(number: int) -> Snapshot:
    """Make a snapshot of many small files, as a tree of cgroups is."""
    return Snapshot(files={f"tree/é{n:05}/memory.current": b"4096\n" for n in range(number)})


@pytest.mark.parametrize(
    ("limit", "values"),
    [("_MAX_HELD", range(1 << 16, 1 << 17, 1 << 11)), ("_MAX_BYTES", range(0, 4 << 20, 1 << 17))],
)
def test_what_is_written_can_be_read(
    limit: str, values: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that memqos would refuse is not made, and an older one stays what it was."""
    whole, path = tmp_path / "whole.tar", tmp_path / "x.tar"
    save_snapshot(small_files(200), str(whole))

    def said(step: Callable[[], object]) -> str:
        try:
            step()
        except MachineError as error:
            return str(error)
        return ""

    outcomes = []
    for value in values:
        monkeypatch.setattr(archive, limit, value)
        path.write_bytes(b"old")
        refused = said(lambda: save_snapshot(small_files(200), str(path)))
        unread = said(lambda: Archive(str(whole)))
        assert refused in ("", f"{path}: too large for an archive; save a directory instead")
        assert unread in ("", f"{whole}: too large for a snapshot")
        assert (path.read_bytes() == b"old") is (refused != "")
        outcomes.append((not refused, not unread))
    assert outcomes[0] == (False, False)
    assert outcomes[-1] == (True, True)
    # Of the length, the writer leaves a MiB for the end.
    assert outcomes.count((False, True)) == (8 if limit == "_MAX_BYTES" else 0)
    assert (True, False) not in outcomes


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("proc/meminfo", 2),
        (f"{'x' * 155}/{'y' * 100}", 2),  # the most, in two fields of a header
        (f"{'x' * 155}/{'y' * 101}", 4),
        ("proc/é", 4),
        ("proc/\udcff", 4),
    ],
)
def test_extended_headers(name: str, blocks: int, tmp_path: Path) -> None:
    """A file has one only where its name needs it, as few names of cgroups do."""
    path = tmp_path / "x.tar"
    save_snapshot(Snapshot(files={name: b"1\n"}), str(path))
    folder, _, _ = name.rpartition("/")
    with tarfile.open(path) as tar:
        file, end = tar.getmember(name), tar.getmember(folder).offset_data
    assert file.offset_data + 512 - end == blocks * 512
    assert Archive(str(path)).read(name) == b"1\n"


def test_an_archive_is_not_made_in_memory(tmp_path: Path) -> None:
    """It is written as it is made: of 6 MB only little is ever held."""
    snapshot, path = small_files(2_000), tmp_path / "x.tar"
    tracemalloc.start()
    try:
        save_snapshot(snapshot, str(path))
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 4
    finally:
        tracemalloc.stop()


def test_large_members_are_not_held(tmp_path: Path) -> None:
    """A file that no command would read is passed over, however large or sparse it is."""
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("large")
        entry.size = 20 << 20
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
        tar.addfile(tarfile.TarInfo("small"))
    host = Archive(str(path))
    assert host.read("small") == b""
    with pytest.raises(MachineError, match="larger than"):
        host.read("large")


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A snapshot that could not be finished leaves nothing that passes for one."""
    snapshot = take_snapshot(Host(str(EXAMPLES / "drifted")))
    target = tmp_path / "node"
    real = os.open
    for last in range(len(snapshot.files)):
        done = 0

        def fail(path: str, flags: int, *mode: int, last: int = last, **more: Any) -> int:
            nonlocal done
            done += bool(flags & os.O_CREAT)
            if done > last and flags & os.O_CREAT:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(path, flags, *mode, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", fail)
            with pytest.raises(MachineError, match="No space left"):
                save_snapshot(snapshot, str(target))
        assert list(target.iterdir()) == []
    save_snapshot(snapshot, str(target))
    assert sorted(entry.name for entry in target.iterdir()) == ["proc", "sys", "var"]


def test_a_killed_snapshot_is_none(tmp_path: Path) -> None:
    """A directory that was not finished has no kubelet in it, so there is no answer to get."""
    snapshot = take_snapshot(Host(str(EXAMPLES / "drifted")))
    target = tmp_path / "node"
    child = os.fork()
    if child == 0:
        with suppress(BaseException), pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rename", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            save_snapshot(snapshot, str(target))
        os._exit(0)
    os.waitpid(child, 0)
    assert [entry.name[:8] for entry in target.iterdir()] == [".memqos-"]
    with pytest.raises(MachineError, match="no such directory"):
        read_checkpoint(Host(str(target)))
    save_snapshot(snapshot, str(target))  # which clears up
    assert sorted(entry.name for entry in target.iterdir()) == ["proc", "sys", "var"]


def test_two_runs_at_once(tmp_path: Path) -> None:
    """What another run is at is not cleared up, and neither is what does not look like one's."""
    snapshot = take_snapshot(Host(str(EXAMPLES / "drifted")))
    (tmp_path / ".memqos-x").mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(MachineError, match="another memqos is writing it"):
            save_snapshot(snapshot, str(tmp_path))
    finally:
        os.close(descriptor)
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="the directory is not empty"):
        save_snapshot(snapshot, str(tmp_path))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".memqos-x", "file"]


def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has none a snapshot is saved all the same, and nothing cleared up."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    snapshot = take_snapshot(Host(str(EXAMPLES / "drifted")))
    save_snapshot(snapshot, str(tmp_path / "node"))
    (tmp_path / "other/.memqos-x").mkdir(parents=True)
    with pytest.raises(MachineError, match="the directory is not empty"):
        save_snapshot(snapshot, str(tmp_path / "other"))
