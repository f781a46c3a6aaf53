"""memqos.adapters.{snapshot,archive}: what is saved answers like the host it came from."""

import io
import shutil
import stat
import tarfile
from pathlib import Path

import pytest

from memqos.adapters.archive import Archive
from memqos.adapters.host import Host
from memqos.adapters.node import KUBELET_CONFIG, read_checkpoint, read_image, read_machine
from memqos.adapters.roots import open_host
from memqos.adapters.snapshot import save_snapshot, take_snapshot
from memqos.errors import MachineError


EXAMPLES = Path(__file__).parents[2] / "examples" / "nodes"


@pytest.mark.parametrize("name", ["node.tar", "node.tar.gz", "node.tgz", "node"])
def test_answers_like_the_host(tmp_path: Path, name: str) -> None:
    """An archive and a directory give the readers what the host gave them."""
    host = Host(str(EXAMPLES / "drifted"))
    target = str(tmp_path / name)
    save_snapshot(take_snapshot(host), target)
    saved = open_host(target)
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
    assert [text for text in snapshot.missing if "iomem" in text] == snapshot.missing
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
