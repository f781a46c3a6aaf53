"""memqos snapshot: every command answers on it as on the host."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    assert (answer.code, answer.json["missing"]) == (0, [])


def test_standard_output() -> None:
    """`-` is the archive, and nothing else, on standard output."""
    from tests.support.program import run_program

    done = run_program("snapshot", "--root", DRIFTED, "-", text=False)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:  # type: ignore[arg-type]  # bytes
        assert STATE in tar.getnames()


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
