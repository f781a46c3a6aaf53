"""Walking cgroup trees: whatever vanishes, cannot be read, is deep, or lies in an archive."""

import errno
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memqos.adapters.cgroup_tree import (
    cgroup_of,
    read_log_names,
    read_meminfo,
    read_mglru,
    read_mount,
    read_tree,
)
from memqos.adapters.host import Host
from memqos.adapters.roots import open_host
from memqos.errors import MachineError
from memqos.memory_qos.identity import NO_NAMES
from tests.support.cgroups import capture, captured, write_tree


NAMES = ("memory.min", "memory.current")


def walk(root: Path, names: tuple[str, ...] = NAMES, top: str = "/") -> list[str]:
    """List the paths of a walk."""
    return [item.path for item in read_tree(Host(), names, root=str(root), top=top)]


def test_parents_first_siblings_by_name(tmp_path: Path) -> None:
    """The order is that of a reader; files that are not asked for are not read."""
    write_tree(tmp_path, {"/b": {"memory.min": "1", "x": "2"}, "/a/c": {}, "/a-a": {}, "/a/b": {}})

    assert walk(tmp_path) == ["/", "/a", "/a/b", "/a/c", "/a-a", "/b"]
    found = {item.path: item.files for item in read_tree(Host(), NAMES, root=str(tmp_path))}
    assert found["/b"] == {"memory.min": "1"}


def test_from_a_cgroup_on(tmp_path: Path) -> None:
    """A walk can begin further down."""
    write_tree(tmp_path, {"/a/b/c": {}, "/d": {}})

    assert walk(tmp_path, top="/a/b") == ["/a/b", "/a/b/c"]


def test_a_capture_is_read_as_it_is(tmp_path: Path) -> None:
    """What was written of a real kernel's tree comes back byte for byte."""
    names = ("memory.current", "memory.events", "memory.pressure")
    root = capture(tmp_path, "idle-systemd", "t0")
    found = {item.path: dict(item.files) for item in read_tree(Host(), names, root=str(root))}

    assert found == {
        path: {name: text for name, text in files.items() if name in names}
        for path, files in captured("idle-systemd", "t0").items()
    }


def test_deep_and_wide(tmp_path: Path) -> None:
    """Sixty levels and ten thousand siblings are walked."""
    (tmp_path / "/".join(["d"] * 60)).mkdir(parents=True)
    for number in range(10_000):
        (tmp_path / f"w{number:05}").mkdir()
    found = walk(tmp_path)

    assert len(found) == 10_061
    assert max(path.count("/") for path in found) == 60


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a directory is no cgroup; it could lead in a circle."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/loop").symlink_to(tmp_path)

    assert walk(tmp_path) == ["/", "/a"]


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    """A tar of a tree is walked like the tree: links to files are read, others are passed over.

    Sixty links lead to 2^30 paths, if they are followed.
    """
    mount = tmp_path / "host/sys/fs/cgroup"
    write_tree(mount, {"/a": {"memory.min": "1"}, **{f"/d{number}": {} for number in range(31)}})
    for number in range(30):
        for name in ("x", "y"):
            (mount / f"d{number}" / name).symlink_to(f"../d{number + 1}")
    (mount / "d30/memory.min").symlink_to("../a/memory.min")
    with tarfile.open(tmp_path / "host.tar", "w") as tar:
        tar.add(tmp_path / "host/sys", "sys")
    trees = [
        {item.path: item.files for item in read_tree(open_host(str(tmp_path / name)), NAMES)}
        for name in ("host", "host.tar")
    ]

    assert trees[0] == trees[1]
    assert len(trees[0]) == 33
    assert trees[0]["/d30"] == {"memory.min": "1"}


def test_a_linked_tree_in_an_archive(tmp_path: Path) -> None:
    """The mount itself may be a link, and so may what leads to it."""
    write_tree(tmp_path / "host/data/cgroup", {"/a/b": {"memory.min": "1"}})
    (tmp_path / "host/sys").mkdir()
    (tmp_path / "host/sys/fs").symlink_to("/data")
    with tarfile.open(tmp_path / "host.tar", "w") as tar:
        tar.add(tmp_path / "host", ".")
    found = {item.path: item.files for item in read_tree(open_host(f"{tmp_path}/host.tar"), NAMES)}

    assert found == {"/": {}, "/a": {}, "/a/b": {"memory.min": "1"}}


def test_strange_names(tmp_path: Path) -> None:
    """Spaces, control characters and bytes that are no text stay what they are."""
    for name in (b"a b", b"\x1b[31m", b"\xff\xfe", b"new\nline"):
        (tmp_path / os.fsdecode(name)).mkdir()

    assert sorted(map(os.fsencode, walk(tmp_path))) == [
        b"/", b"/\x1b[31m", b"/a b", b"/new\nline", b"/\xff\xfe",
    ]  # fmt: skip


def test_long_files(tmp_path: Path) -> None:
    """A file longer than one read comes whole."""
    text = "key 1\n" * 10_000
    write_tree(tmp_path, {"/a": {"memory.min": text}})

    assert [
        item.files.get("memory.min") for item in read_tree(Host(), NAMES, root=str(tmp_path))
    ] == [None, text]


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, call: str, part: str, number: int) -> Iterator[None]:
    """Make a call of os fail for paths that hold a part."""
    real = getattr(os, call)

    def fail(path: str, *arguments: int) -> object:
        if part in str(path):
            raise OSError(number, os.strerror(number), path)
        return real(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        yield


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP])
def test_what_vanishes_is_left_out(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOENT by path, ENODEV of an open file, EOPNOTSUPP without PSI: the file is not there."""
    write_tree(tmp_path, {"/a": {"memory.min": "1", "memory.current": "2"}, "/b": {}})
    with failing(monkeypatch, "open", "a/memory.min", number):
        found = {item.path: item.files for item in read_tree(Host(), NAMES, root=str(tmp_path))}
    with failing(monkeypatch, "scandir", "/a", number):
        paths = walk(tmp_path)

    assert found["/a"] == {"memory.current": "2"}
    assert paths == ["/", "/b"]


@pytest.mark.parametrize("call", ["open", "scandir"])
def test_what_cannot_be_read_is_an_error(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that may not be read is not taken for one that is not there."""
    write_tree(tmp_path, {"/a/b": {"memory.min": "1"}})
    with failing(monkeypatch, call, "a/b", errno.EACCES), pytest.raises(MachineError, match="a/b"):
        walk(tmp_path)


def test_no_root(tmp_path: Path) -> None:
    """A root that is not there is an error, however it is given."""
    with pytest.raises(MachineError, match="nowhere"):
        walk(tmp_path / "nowhere")
    with pytest.raises(MachineError, match="cgroup"):
        list(read_tree(Host(str(tmp_path)), NAMES))
    with pytest.raises(MachineError):
        walk(tmp_path, top="/a\0b")


def test_archive(tmp_path: Path) -> None:
    """A snapshot in a tar archive gives the same tree."""
    write_tree(tmp_path / "host/sys/fs/cgroup", captured("high-systemd", "t0-before"))
    with tarfile.open(tmp_path / "host.tar", "w") as tar:
        tar.add(tmp_path / "host/sys", "sys")
    trees = [
        [(item.path, item.files) for item in read_tree(open_host(str(tmp_path / name)), NAMES)]
        for name in ("host", "host.tar")
    ]

    assert trees[0] == trees[1]
    assert len(trees[0]) == 5
    with pytest.raises(MachineError):
        list(read_tree(open_host(str(tmp_path / "host.tar")), NAMES, top="/nowhere"))


# --- the mount -----------------------------------------------------------------------------------

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate,memory_recursiveprot 0 0\n"
UNIFIED = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
V1 = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        (V2, (2, False, True)),
        (V2.replace(",memory_recursiveprot", ""), (2, False, False)),
        (V1, (1, False, None)),
        (V1 + UNIFIED, (1, True, False)),
        ("", (None, False, None)),
        ("garbage\n\n", (None, False, None)),
    ],
)
def test_mount_table(
    mounts: str, expected: tuple[int | None, bool, bool | None], tmp_path: Path
) -> None:
    """Version, hybrid and memory_recursiveprot by the mount table."""
    write_tree(tmp_path, {"/proc/1": {"mounts": mounts}})
    mount = read_mount(Host(str(tmp_path)))

    assert (mount.version, mount.hybrid, mount.recursive) == expected


def test_local_events(tmp_path: Path) -> None:
    """memory_localevents is told from the table of the process itself, too."""
    write_tree(tmp_path, {"/proc": {"mounts": V2.replace("nsdelegate", "memory_localevents")}})

    assert read_mount(Host(str(tmp_path))).is_local


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["cgroup.controllers"], (2, False)),
        (["memory/cgroup.procs"], (1, False)),
        (["memory/cgroup.procs", "unified/cgroup.controllers"], (1, True)),
        ([], (2, False)),
    ],
)
def test_mount_by_what_is_there(
    files: list[str], expected: tuple[int, bool], tmp_path: Path
) -> None:
    """Without a table the tree speaks; a tree that was given is cgroup v2 unless it shows v1."""
    for name in files:
        (tmp_path / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / name).touch()
    given = read_mount(Host(), root=str(tmp_path / "sys/fs/cgroup"))
    found = read_mount(Host(str(tmp_path)))

    assert (given.version, given.hybrid, given.recursive) == (*expected, None)
    assert (found.version, found.hybrid) == (expected if files else (None, False))


# --- what else is read ---------------------------------------------------------------------------


def test_cgroup_of_a_process(tmp_path: Path) -> None:
    """The v2 line counts, among those of v1."""
    write_tree(
        tmp_path,
        {"/proc/1": {"cgroup": "4:memory:/x\n0::/kubepods/a\n"}, "/proc/2": {"cgroup": "0::/\n"}},
    )

    assert [cgroup_of(Host(str(tmp_path)), pid) for pid in (1, 2)] == ["/kubepods/a", "/"]
    write_tree(tmp_path, {"/proc/3": {"cgroup": "4:memory:/x\n"}})
    for pid, message in ((3, "no cgroup v2 line"), (4, "proc/4/cgroup")):
        with pytest.raises(MachineError, match=message):
            cgroup_of(Host(str(tmp_path)), pid)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0x0007\n", True), ("0x0000\n", False), ("0x0006\n", False), ("?\n", None), (None, None)],
)
def test_mglru(text: str | None, expected: bool | None, tmp_path: Path) -> None:
    """The first bit is the main switch; without the file it is not known."""
    if text is not None:
        write_tree(tmp_path, {"/sys/kernel/mm/lru_gen": {"enabled": text}})

    assert read_mglru(Host(str(tmp_path))) is expected


def test_meminfo(tmp_path: Path) -> None:
    """A line in bytes, or unknown."""
    assert read_meminfo(Host(str(tmp_path)), "SwapTotal") is None
    write_tree(tmp_path, {"/proc": {"meminfo": "MemTotal: 9 kB\nSwapTotal:       8 kB\n"}})
    assert read_meminfo(Host(str(tmp_path)), "SwapTotal") == 8192
    assert read_meminfo(Host(str(tmp_path)), "Hugetlb") is None


def test_no_logs(tmp_path: Path) -> None:
    """A host without kubelet's logs has no names."""
    assert read_log_names(Host(str(tmp_path))) == NO_NAMES
