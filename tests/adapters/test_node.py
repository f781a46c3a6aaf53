"""Reading a node."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from memqos.adapters.host import Host
from memqos.adapters.node import read_checkpoint, read_image, read_machine
from memqos.errors import InputError, MachineError
from memqos.memory_manager.machine import Hugepages, NUMANode
from tests.support.boots import Boot, boots, configs


NODES = "sys/devices/system/node"


def make_node(root: Path, number: int, kib: int, **pages: str) -> Path:
    """Make one NUMA node as the kernel shows it."""
    folder = root / NODES / f"node{number}"
    folder.mkdir(parents=True)
    (folder / "meminfo").write_text(
        f"Node {number} MemTotal:       {kib} kB\nNode {number} MemFree:        1 kB\n"
    )
    for size, count in pages.items():
        place = folder / f"hugepages/hugepages-{size.removeprefix('k')}kB"
        place.mkdir(parents=True)
        (place / "nr_hugepages").write_text(count)
    return folder


@pytest.mark.parametrize("boot", [b for c in configs() for b in boots(c)], ids=lambda b: b.name)
def test_captured_boots(boot: Boot) -> None:
    """Nodes, MemTotals, hugepages and the image of a real boot are what its files say."""
    machine, warnings = read_machine(Host(str(boot.root)))

    assert warnings == ()
    assert {node.id: node.memory_bytes for node in machine.nodes} == boot.memory
    assert {
        node.id: {size.page_size_kib: size.pages for size in node.hugepages}
        for node in machine.nodes
    } == boot.hugepages
    # The kernel's own total is that of its nodes.
    assert machine.capacity_bytes == sum(boot.memory.values())
    assert read_image(Host(str(boot.root))).tolerance_bytes == boot.bound


def test_holes_and_order(tmp_path: Path) -> None:
    """Node numbers may have holes, and are read as numbers; other names are no nodes."""
    for number in (10, 2, 0):
        make_node(tmp_path, number, 4)
    for name in ("nodes", "node", "node1x", "xnode1", "power"):
        (tmp_path / NODES / name).mkdir()

    machine, _ = read_machine(Host(str(tmp_path)))

    assert [node.id for node in machine.nodes] == [0, 2, 10]
    assert machine.capacity_bytes == 3 * 4096


def test_capacity(tmp_path: Path) -> None:
    """The capacity is that of /proc/meminfo where there is one."""
    make_node(tmp_path, 0, 4)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  5 kB\n")

    assert read_machine(Host(str(tmp_path)))[0].capacity_bytes == 5120


def test_memoryless_node(tmp_path: Path) -> None:
    """A node without memory is a node, with its hugepage sizes."""
    make_node(tmp_path, 0, 0, k2048="0\n", k1048576="3")

    assert read_machine(Host(str(tmp_path)))[0].nodes == (
        NUMANode(0, 0, (Hugepages(1048576, 3), Hugepages(2048, 0))),
    )


def failing(number: int, part: str) -> Callable[[Host, str], str]:
    """Make a reader that fails for paths with `part`."""
    read = Host.read_text

    def read_text(self: Host, path: str) -> str:
        if part in path:
            raise MachineError(path, os.strerror(number), number)
        return read(self, path)

    return read_text


def test_unreadable_meminfo_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A meminfo with an I/O error counts 0 bytes, with a warning, as in cAdvisor."""
    make_node(tmp_path, 0, 4)
    make_node(tmp_path, 1, 4)
    monkeypatch.setattr(Host, "read_text", failing(errno.EIO, "node1/meminfo"))

    machine, warnings = read_machine(Host(str(tmp_path)))

    assert [node.memory_bytes for node in machine.nodes] == [4096, 0]
    assert len(warnings) == 1
    assert "node1/meminfo" in warnings[0]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_permission_is_no_answer(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without permission nothing is guessed."""
    make_node(tmp_path, 0, 4)
    monkeypatch.setattr(Host, "read_text", failing(number, "meminfo"))

    with pytest.raises(MachineError) as caught:
        read_machine(Host(str(tmp_path)))
    assert caught.value.errno == number


def test_vanishing_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that goes away while it is read is left out, with a warning."""
    make_node(tmp_path, 0, 4)
    gone = make_node(tmp_path, 1, 4)
    read = Host.read_text

    def read_text(self: Host, path: str) -> str:
        if "node1" in path:
            shutil.rmtree(gone, ignore_errors=True)
        return read(self, path)

    monkeypatch.setattr(Host, "read_text", read_text)
    machine, warnings = read_machine(Host(str(tmp_path)))

    assert [node.id for node in machine.nodes] == [0]
    assert "vanished" in warnings[0]


def test_vanishing_hugepages(tmp_path: Path) -> None:
    """Without a hugepages directory there are no hugepage resources."""
    make_node(tmp_path, 0, 4)

    assert read_machine(Host(str(tmp_path)))[0].nodes[0].hugepages == ()


@pytest.mark.parametrize("text", ["", "x\n", "-1\n", "1.5\n"])
def test_bad_number_of_hugepages(text: str, tmp_path: Path) -> None:
    """A number that is none is an error that names the file."""
    make_node(tmp_path, 0, 4, k2048=text)

    with pytest.raises(InputError) as caught:
        read_machine(Host(str(tmp_path)))
    assert caught.value.source == (
        f"{tmp_path}/{NODES}/node0/hugepages/hugepages-2048kB/nr_hugepages"
    )


def test_bad_meminfo(tmp_path: Path) -> None:
    """A meminfo without MemTotal is an error that names the file."""
    (make_node(tmp_path, 0, 4) / "meminfo").write_text("nothing\n")

    with pytest.raises(InputError) as caught:
        read_machine(Host(str(tmp_path)))
    assert caught.value.source == f"{tmp_path}/{NODES}/node0/meminfo"


def test_no_nodes(tmp_path: Path) -> None:
    """Without nodes there is no answer, but the way to one."""
    with pytest.raises(MachineError, match="--machine-info"):
        read_machine(Host(str(tmp_path)))
    (tmp_path / NODES).mkdir(parents=True)
    with pytest.raises(MachineError, match="--machine-info"):
        read_machine(Host(str(tmp_path)))


def test_checkpoint(tmp_path: Path) -> None:
    """No file in kubelet's directory is no checkpoint; no directory is an error."""
    host = Host(str(tmp_path))
    with pytest.raises(MachineError, match="no such directory"):
        read_checkpoint(host)
    folder = tmp_path / "var/lib/kubelet"
    folder.mkdir(parents=True)
    assert read_checkpoint(host) is None
    (folder / "memory_manager_state").write_bytes(b"x")
    assert read_checkpoint(host) == b"x"
    assert read_checkpoint(host, str(tmp_path / "no")) is None


def test_image(tmp_path: Path) -> None:
    """Without iomem there is an error."""
    with pytest.raises(MachineError):
        read_image(Host(str(tmp_path)))
