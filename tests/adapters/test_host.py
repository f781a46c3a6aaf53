"""A host's files under a root."""

import errno
from pathlib import Path

import pytest

from memqos.adapters.host import Host
from memqos.errors import MachineError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a root beside a file that is outside it."""
    (tmp_path / "outside").write_text("outside")
    place = tmp_path / "root"
    (place / "etc").mkdir(parents=True)
    (place / "etc/file").write_text("inside")
    return place


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("link", "etc/file"),
        ("link", "/etc/file"),
        ("link", "/../../etc/file"),
        ("link", "../../../etc/file"),
        ("link", "./etc//./file"),
        ("etc/link", "file"),
        ("etc/link", "../etc/file"),
        ("etc/link", "/etc/../etc/file"),
    ],
)
def test_links_stay_inside(link: str, target: str, root: Path) -> None:
    """A link is followed within the root, absolute ones and `..` too."""
    (root / link).symlink_to(target)

    assert Host(str(root)).read_text(link) == "inside"


def test_linked_directories(root: Path) -> None:
    """Links in the middle of a path and links to links are followed."""
    (root / "a").symlink_to("/b")
    (root / "b").symlink_to("etc")
    host = Host(str(root))

    assert host.read_text("a/file") == "inside"
    assert host.list("a") == ["file"]
    assert host.exists("a/file")
    assert not host.exists("a/no")


def test_links_that_lead_nowhere(root: Path) -> None:
    """What does not exist behind a link does not exist; the link itself is one all the same."""
    (root / "a").symlink_to("/nowhere")
    (root / "b").symlink_to("b")
    (root / "c").symlink_to("etc")
    host = Host(str(root))

    assert [host.exists(name) for name in ("a", "b", "c", "etc")] == [False, False, True, True]
    assert [host.is_link(name) for name in ("a", "b", "c", "etc")] == [True, True, True, False]
    assert not host.is_link("c/file")
    assert host.place("c/file") == f"{root}/etc/file"
    assert host.place("a") == f"{root}/a"


@pytest.mark.parametrize("path", ["", ".", "..", "etc/..", "../..", "etc/../../.."])
def test_the_root_itself(path: str, root: Path) -> None:
    """However a path leads up, it ends at the root."""
    assert Host(str(root)).resolve(path) == str(root)
    assert Host(f"{root}/").resolve(f"{path}/etc") == f"{root}/etc"


def test_outside_is_not_reached(root: Path, tmp_path: Path) -> None:
    """Neither `..` nor a link reaches a file beside the root."""
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "up").symlink_to("../outside")
    host = Host(str(root))

    for path in ("link", "up", "../outside", "etc/../../outside"):
        with pytest.raises(MachineError) as caught:
            host.read(path)
        assert caught.value.errno == errno.ENOENT


def test_loops(root: Path) -> None:
    """A loop ends in an error that names the path."""
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("/a")
    (root / "c").symlink_to("c/c")

    for path in ("a", "b", "c", "a/x"):
        with pytest.raises(MachineError, match=f"{root}/{path}: too many levels"):
            Host(str(root)).read(path)


def test_the_real_root() -> None:
    """The default root is the machine itself."""
    host = Host()

    assert "MemTotal" in host.read_text("proc/meminfo")
    assert host.display("proc/meminfo") == "/proc/meminfo"


def test_check(root: Path) -> None:
    """A root is a directory."""
    Host(str(root)).check()
    for wrong in (root / "etc/file", root / "no"):
        with pytest.raises(MachineError, match="not a directory"):
            Host(str(wrong)).check()


def test_listing(root: Path) -> None:
    """Names are sorted; what is no directory is an error with its number."""
    for name in ("b", "a", "10", "9"):
        (root / "etc" / name).touch()

    assert Host(str(root)).list("etc") == ["10", "9", "a", "b", "file"]
    with pytest.raises(MachineError) as caught:
        Host(str(root)).list("no")
    assert caught.value.errno == errno.ENOENT


def test_text_with_other_bytes(root: Path) -> None:
    """Bytes that are not UTF-8 are replaced."""
    (root / "etc/file").write_bytes(b"a\xffb")

    assert Host(str(root)).read_text("etc/file") == "a\ufffdb"
