"""memqos snapshot: every command answers on it as on the host."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cgroups import captured, write_tree
from tests.support.program import Answer, memqos


DRIFTED = Path(__file__).parents[2] / "examples" / "nodes" / "drifted"
KUBELET = "var/lib/kubelet"
STATE = f"{KUBELET}/memory_manager_state"
CONFIG = f"{KUBELET}/config.yaml"
NODE = "sys/devices/system/node/node1"
PAGES = f"{NODE}/hugepages/hugepages-2048kB/nr_hugepages"

Change = Callable[[Path], object]


def remove(name: str) -> Change:
    """Remove a file or directory."""

    def change(root: Path) -> None:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def put(name: str, text: str | bytes) -> Change:
    """Write a file."""
    return lambda root: (root / name).write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )


def add(name: str, text: str) -> Change:
    """Write something in front of a file."""
    return lambda root: (root / name).write_text(text + (root / name).read_text())


def turn(name: str, make: Callable[[Path], object]) -> Change:
    """Replace a file by something else."""

    def change(root: Path) -> None:
        remove(name)(root)
        make(root / name)

    return change


def move_away(root: Path) -> None:
    """Put kubelet's directory on another disk, behind an absolute link."""
    (root / "data").mkdir()
    (root / KUBELET).rename(root / "data/kubelet")
    (root / KUBELET).symlink_to("/data/kubelet")


CHANGES: dict[str, Change] = {
    "nothing": lambda _root: None,
    "no-checkpoint": remove(STATE),
    "no-kubelet": remove(KUBELET),
    "no-config": remove(CONFIG),
    "no-iomem": remove("proc/iomem"),
    "no-meminfo": remove("proc/meminfo"),
    "no-numa": remove("sys/devices/system/node"),
    "no-node1-meminfo": remove(f"{NODE}/meminfo"),
    "no-node1-hugepages": remove(f"{NODE}/hugepages"),
    "no-node1-pages": remove(PAGES),
    "bad-pages": put(PAGES, "many\n"),
    "bad-meminfo": put(f"{NODE}/meminfo", "nothing\n"),
    "hidden-iomem": put("proc/iomem", "00000000-00000000 : Kernel code\n"),
    "elsewhere": move_away,
    "checkpoint-too-large": put(STATE, b" " * (5 << 20)),
    "checkpoint-empty": put(STATE, b""),
    "checkpoint-is-a-directory": turn(STATE, Path.mkdir),
    "checkpoint-is-a-fifo": turn(STATE, os.mkfifo),
    "checkpoint-is-a-loop": turn(STATE, lambda path: path.symlink_to(path.name)),
    "checkpoint-leads-nowhere": turn(STATE, lambda path: path.symlink_to("nowhere")),
    "kubelet-leads-nowhere": turn(KUBELET, lambda path: path.symlink_to("/data/kubelet")),
    "kubelet-is-a-file": turn(KUBELET, Path.touch),
    "meminfo-is-a-fifo": turn(f"{NODE}/meminfo", os.mkfifo),
    "pages-are-a-fifo": turn(PAGES, os.mkfifo),
    "config-is-a-directory": turn(CONFIG, Path.mkdir),
    "config-leads-nowhere": turn(CONFIG, lambda path: path.symlink_to("nowhere")),
    "config-empty": put(CONFIG, ""),
    "config-broken": put(CONFIG, "memoryManagerPolicy: [\n"),
    "config-twice": add(CONFIG, "memoryManagerPolicy: None\n"),
    "config-list": put(CONFIG, "- Static\n"),
    "config-boolean": put(CONFIG, "memoryManagerPolicy: off\n"),
    "config-second": add(CONFIG, "kind: Other\nmemoryManagerPolicy: None\n---\n"),
    "config-of-another-kind": put(CONFIG, "apiVersion: v1\nkind: Other\n"),
}  # fmt: skip

COMMANDS = {
    "validate": ["validate-checkpoint"],
    "validate-flags": ["validate-checkpoint", "--memory-manager-policy", "None"],
    "derive": ["derive-tolerance"],
    "rebaseline": ["rebaseline-checkpoint"],
    "report": ["report-drift"],
}


def outcome(command: list[str], root: Path) -> tuple[int, Any]:
    """Run a command on a root; return what does not depend on where the root is."""
    where: list[str | Path] = [root] if command[0] == "report-drift" else ["--root", root]
    answer: Answer = memqos(*command, *where, "-o", "json")
    if not answer.out:
        assert answer.err.count("\n") == 1
        return answer.code, None
    fields = answer.json
    for name in ("warnings", "failures"):
        fields.pop(name, None)
    return answer.code, json.loads(json.dumps(fields).replace(str(root), "ROOT"))


@pytest.mark.parametrize("name", CHANGES)
def test_answers_are_those_of_the_host(name: str, tmp_path: Path) -> None:
    """Whatever is missing or broken on the host, no command takes its snapshot for another."""
    root = tmp_path / "host"
    shutil.copytree(DRIFTED, root)
    CHANGES[name](root)
    for target in (tmp_path / "saved", tmp_path / "saved.tar", tmp_path / "saved.tar.gz"):
        assert memqos("snapshot", "--root", root, target).code == 0
        for command in COMMANDS.values():
            assert outcome(command, target) == outcome(command, root), (target, command)


def test_a_tar_of_the_host_answers_like_it(tmp_path: Path) -> None:
    """A tar made by other means, with links in it, is followed as the host's directories are."""
    root = tmp_path / "host"
    shutil.copytree(DRIFTED, root)
    move_away(root)
    with tarfile.open(tmp_path / "host.tar", "w") as tar:
        tar.add(root, ".")
    assert outcome(COMMANDS["validate"], tmp_path / "host.tar") == outcome(
        COMMANDS["validate"], root
    )


MOUNTS = (
    "proc /proc proc rw 0 0\n"
    "//nas/share /mnt cifs rw,username=hunter2 0 0\n"
    "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,memory_recursiveprot 0 0\n"
)
V1_MOUNTS = (
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
)
POD = "5f0c9a1e-0002-4b6d-9c3a-0d2e6f7a0002"  # b1 of the captures
TREE_COMMANDS = [
    ["audit-cgroups"],
    ["audit-cgroups", "--rollback"],
    ["audit-cgroups", "--pod", "default/web"],
    ["effective-protection"],
    ["measure-events", "--interval", "1ms"],
    ["select-victim"],
]
V2_COMMANDS = ["effective-protection", "measure-events", "select-victim"]


def make_cgroup_host(root: Path) -> Path:
    """Make a node with a captured tree, one pod of which has its logs."""
    shutil.copytree(DRIFTED, root)
    more = {"cgroup.events": "populated 1\nfrozen 0\n", "memory.peak": "9641984\n"}
    tree = captured("oom-systemd", "t1-b1-after")
    write_tree(
        root / "sys/fs/cgroup", {path: {**files, **more} for path, files in tree.items() if files}
    )
    write_tree(
        root,
        {
            "sys/fs/cgroup": {"cgroup.controllers": "memory\n", "cgroup.procs": "1\n"},
            "proc/1": {"mounts": MOUNTS, "environ": "PASSWORD=hunter2"},
            "proc/sys/kernel": {"osrelease": "6.12.117\n"},
            "sys/kernel/mm/lru_gen": {"enabled": "0x0007\n"},
            f"var/log/pods/default_web_{POD}/web": {"0.log": "password: hunter2\n"},
        },
    )
    return root


def without_tree(root: Path) -> None:
    """Leave nothing of cgroups."""
    shutil.rmtree(root / "sys/fs/cgroup")
    (root / "proc/1/mounts").unlink()


def with_v1(root: Path) -> None:
    """Make it a hybrid hierarchy."""
    without_tree(root)
    write_tree(
        root,
        {
            "proc/1": {"mounts": V1_MOUNTS},
            "sys/fs/cgroup/memory": {"cgroup.procs": "1\n"},
            "sys/fs/cgroup/unified": {"cgroup.controllers": "cpu\n"},
        },
    )


def with_v1_alone(root: Path) -> None:
    """Make it a hybrid hierarchy that only its files tell."""
    with_v1(root)
    (root / "proc/1/mounts").unlink()


TREES: dict[str, Change] = {
    "whole": lambda _root: None,
    "no-mounts": remove("proc/1/mounts"),
    "mounts-of-our-own": lambda root: (root / "proc/1/mounts").rename(root / "proc/mounts"),
    "no-recursiveprot": lambda root: (root / "proc/1/mounts").write_text(
        MOUNTS.replace(",memory_recursiveprot", "")
    ),
    "old-kernel": put("proc/sys/kernel/osrelease", "5.4.0\n"),
    "no-mglru": put("sys/kernel/mm/lru_gen/enabled", "0x0000\n"),
    "nothing": without_tree,
    "marker-is-a-directory": turn("sys/fs/cgroup/cgroup.controllers", Path.mkdir),
    "hybrid": with_v1,
    "hybrid-no-mounts": with_v1_alone,
}


@pytest.mark.parametrize("name", TREES)
def test_tree_answers_are_those_of_the_host(name: str, tmp_path: Path) -> None:
    """The commands on a cgroup tree find in a snapshot all that they find on the host."""
    root = make_cgroup_host(tmp_path / "host")
    TREES[name](root)
    for target in (tmp_path / "saved", tmp_path / "saved.tar.gz"):
        assert memqos("snapshot", "--root", root, target).code == 0
        for command in TREE_COMMANDS:
            assert outcome(command, target) == outcome(command, root), (target, command)


def test_every_tree_command_has_something_to_say(tmp_path: Path) -> None:
    """The comparison above is not one of errors; the pod is known by its logs' name."""
    root = make_cgroup_host(tmp_path / "host")
    for command in TREE_COMMANDS:
        code, fields = outcome(command, root)
        assert code in (0, 1), command
        assert fields is not None, command


@pytest.mark.parametrize("change", [with_v1, with_v1_alone])
def test_there_is_no_answer_on_cgroup_v1(change: Change, tmp_path: Path) -> None:
    """Nobody is chosen, and nothing measured, in a tree whose memory is elsewhere."""
    root = make_cgroup_host(tmp_path / "host")
    change(root)
    for command in V2_COMMANDS:
        answer = memqos(command, "--root", root)
        assert (answer.code, answer.out) == (3, ""), command
        assert answer.err == (
            f"memqos: {root}/sys/fs/cgroup: a cgroup v1 hybrid hierarchy; this needs cgroup v2\n"
        )


def test_what_belongs_to_a_tree_holds_no_secrets(tmp_path: Path) -> None:
    """Of the mounts the cgroup ones, of logs the names, of processes nothing."""
    root = make_cgroup_host(tmp_path / "host")
    memqos("snapshot", "--root", root, tmp_path / "saved")
    saved = {
        str(path.relative_to(tmp_path / "saved")): path.read_bytes()
        for path in (tmp_path / "saved").rglob("*")
        if path.is_file()
    }
    assert all(b"hunter2" not in data for data in saved.values())
    assert saved["proc/1/mounts"] == MOUNTS.splitlines(keepends=True)[2].encode()
    assert not [name for name in saved if name.endswith(("cgroup.procs", ".log", "environ"))]


# What each of TREE_COMMANDS is refused by, where it is met.
REFUSED_BY = {
    "memory.min": {"audit-cgroups", "effective-protection"},
    "memory.events": {"measure-events"},
    "memory.pressure": {"audit-cgroups", "measure-events"},
    "memory.peak": {"select-victim"},
    "memory.swap.current": set(),
    "": {"audit-cgroups", "effective-protection", "measure-events", "select-victim"},
}


@contextmanager
def unreadable(place: Path) -> Iterator[None]:
    """Let a file or directory be one that may not be read, for root too."""
    real_open, real_scandir = os.open, os.scandir

    def check(path: Any) -> Any:
        if str(path) == str(place):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", lambda path, *more, **k: real_open(check(path), *more, **k))
        patch.setattr(os, "scandir", lambda path: real_scandir(check(path)))
        yield


@pytest.mark.parametrize("top", ["kubepods.slice", "."])
@pytest.mark.parametrize("name", REFUSED_BY)
def test_what_cannot_be_read_of_a_tree(name: str, top: str, tmp_path: Path) -> None:
    """A snapshot refuses the commands that the host refuses, and answers the others like it."""
    root = make_cgroup_host(tmp_path / "host")
    place = root / "sys/fs/cgroup" / top / name
    if name:
        place.touch()
    with unreadable(place):
        answers = [outcome(command, root) for command in TREE_COMMANDS]
        for target in ("saved", "saved.tar.gz", "again.tar"):
            source = tmp_path / "saved" if target == "again.tar" else root
            saved = memqos("snapshot", "--root", source, tmp_path / target)
            assert (saved.code, saved.err.count("\n")) == (0, 1)
            if source == root:
                assert saved.err.startswith(f"memqos: not saved: {place}: Permission denied")
    assert {
        command[0]
        for command, (code, _) in zip(TREE_COMMANDS, answers, strict=True)
        if code == 3  # no answer
    } == REFUSED_BY[name]
    for target in ("saved", "saved.tar.gz", "again.tar"):
        assert [outcome(command, tmp_path / target) for command in TREE_COMMANDS] == answers


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    """It is no file, and no cgroup either: nobody is chosen to die by such a name."""
    root = make_cgroup_host(tmp_path / "host")
    parent = root / "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice"
    before = outcome(["select-victim"], root)
    (parent / "memory.low").unlink()
    (parent / "memory.low").mkdir()
    memqos("snapshot", "--root", root, tmp_path / "saved.tar")
    for place in (root, tmp_path / "saved.tar"):
        assert outcome(["select-victim"], place) == before
        assert outcome(["audit-cgroups"], place) == (3, None)


@pytest.mark.parametrize("change", ["no-nodes", "node-broken"])
def test_the_size_of_a_machine_without_its_nodes(change: str, tmp_path: Path) -> None:
    """An audit needs /proc/meminfo alone, so that is saved whatever becomes of the NUMA nodes."""
    root = make_cgroup_host(tmp_path / "host")
    text = "MemTotal: 8388608 kB\nSwapTotal: 1024 kB\nHugetlb: 2048 kB\n"
    put("proc/meminfo", text)(root)
    if change == "no-nodes":
        remove("sys/devices/system/node")(root)
    else:
        put(f"{NODE}/meminfo", "garbage")(root)
    memqos("snapshot", "--root", root, tmp_path / "saved")
    assert (tmp_path / "saved/proc/meminfo").read_text() == text


@pytest.mark.parametrize(("target", "call"), [("saved", "rename"), ("saved.tar", "replace")])
def test_terminated(target: str, call: str, tmp_path: Path) -> None:
    """SIGTERM ends it as Ctrl-C does: nothing is left, and the exit status tells."""
    child = os.fork()
    if child == 0:
        code = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, call, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
            try:
                memqos("snapshot", "--root", DRIFTED, tmp_path / target)
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGTERM
    assert [place.name for place in tmp_path.rglob("*")] == (["saved"] if call == "rename" else [])


def test_without_the_tree(tmp_path: Path) -> None:
    """--no-cgroups saves what the checkpoint commands read, and nothing else."""
    root = make_cgroup_host(tmp_path / "host")
    target = tmp_path / "saved.tar"
    answer = memqos("snapshot", "--root", root, "--no-cgroups", target, "-o", "json")
    assert not [name for name in answer.json["files"] if "cgroup" in name or "mounts" in name]
    assert outcome(COMMANDS["validate"], target) == outcome(COMMANDS["validate"], root)


def make_capture(folder: Path, kind: str) -> Path:
    """Make something to compare with: a snapshot, a copy of a tree, or neither."""
    root = make_cgroup_host(folder / "old")
    if kind.startswith("v1"):
        with_v1(root)
    if kind.endswith("tree"):
        return root / "sys/fs/cgroup"
    target = folder / ("capture.tar" if kind.endswith("tar") else "capture")
    more = ["--no-cgroups"] if kind.startswith("none") else []
    assert memqos("snapshot", "--root", root, target, *more).code == 0
    return target


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tar", None),
        ("directory", None),
        ("tree", None),
        ("none-tar", "no cgroup tree in it"),
        ("none-directory", "no cgroup tree in it"),
        ("v1-tar", "a cgroup v1 hybrid hierarchy"),
        ("v1-directory", "a cgroup v1 hybrid hierarchy"),
        ("v1-tree", "a cgroup v1 hybrid hierarchy"),
    ],
)
def test_captures_to_compare_with(kind: str, message: str | None, tmp_path: Path) -> None:
    """What has no cgroup v2 tree in it is refused, not taken for one in which nothing happened."""
    root = make_cgroup_host(tmp_path / "host")
    capture = make_capture(tmp_path, kind)
    audited = memqos("audit-cgroups", "--root", root, "--before", capture)
    measured = memqos("measure-events", "--before", capture, "--after", root)
    if message is None:
        assert (audited.code, measured.code) == (0, 0)
        return
    for answer in (audited, measured):
        assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
        assert f"memqos: {capture}" in answer.err
        assert message in answer.err


def test_nothing_to_save(tmp_path: Path) -> None:
    """An empty root is one line, and an older snapshot stays what it was."""
    target = tmp_path / "saved.tar"
    target.write_bytes(b"old")
    (tmp_path / "empty").mkdir()
    for name in (target, "-"):
        answer = memqos("snapshot", "--root", tmp_path / "empty", name)
        assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert target.read_bytes() == b"old"


def test_what_is_broken_is_not_saved(tmp_path: Path) -> None:
    """A kubelet configuration that cannot be understood could hold anything."""
    root = tmp_path / "host"
    shutil.copytree(DRIFTED, root)
    put(CONFIG, "password: hunter2\nmemoryManagerPolicy: [\n")(root)
    memqos("snapshot", "--root", root, tmp_path / "saved.tar")
    assert b"hunter2" not in (tmp_path / "saved.tar").read_bytes()


def test_json(tmp_path: Path) -> None:
    """The document names what was saved."""
    answer = memqos("snapshot", "--root", DRIFTED, tmp_path / "saved.tar", "-o", "json")
    with tarfile.open(tmp_path / "saved.tar") as tar:
        names = sorted(member.name for member in tar if member.isreg())
    assert answer.json["files"] == names
    assert (answer.code, answer.json["missing"]) == (
        0,
        [f"{DRIFTED}/sys/fs/cgroup: no cgroup2 mount and no cgroup tree"],
    )


def test_standard_output() -> None:
    """`-` is the archive, and nothing else, on standard output."""
    from tests.support.program import run_program

    done = run_program("snapshot", "--root", DRIFTED, "-", text=False)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:  # type: ignore[arg-type]  # bytes
        assert STATE in tar.getnames()


def test_a_kubelet_directory_that_leads_nowhere_is_no_answer(tmp_path: Path) -> None:
    """A disk that is not mounted is not a node without a checkpoint."""
    root = tmp_path / "host"
    shutil.copytree(DRIFTED, root)
    CHANGES["kubelet-leads-nowhere"](root)
    answer = memqos("validate-checkpoint", "--root", root)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith(f"memqos: {root}/{KUBELET}")


def test_a_config_that_leads_nowhere_is_no_answer(tmp_path: Path) -> None:
    """A broken link is no missing configuration: nothing is assumed, on host or snapshot."""
    root = tmp_path / "host"
    shutil.copytree(DRIFTED, root)
    CHANGES["config-leads-nowhere"](root)
    memqos("snapshot", "--root", root, tmp_path / "saved.tar")
    for place in (root, tmp_path / "saved.tar"):
        answer = memqos("validate-checkpoint", "--root", place)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.startswith(f"memqos: {place}/{KUBELET}/")
