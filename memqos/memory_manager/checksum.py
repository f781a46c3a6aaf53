"""The checkpoint checksum: FNV-1a over go-spew's ``%#v`` dump of the content.

Source: kubelet checkpointmanager and go-spew 1.1.1, checked against both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from memqos.memory_manager.state import (
    Block,
    CheckpointContent,
    MemoryTable,
    NUMANodeState,
)


__all__ = [
    "STRUCT_NAME",
    "STRUCT_NAME_V1",
    "content_checksum",
    "data_checksum",
    "dump",
    "fnv1a_32",
]

#: The type name in the dump, whatever the format.
STRUCT_NAME = "MemoryManagerCheckpoint"
#: What one 1.36-era revision wrote instead. Whether a release did is not known; newer kubelets
#: refuse such a file.
STRUCT_NAME_V1 = "MemoryManagerCheckpointV1"

K = TypeVar("K")
V = TypeVar("V")


def fnv1a_32(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash."""
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def content_checksum(
    content: CheckpointContent, *, pod_entries: bool, struct_name: str = STRUCT_NAME
) -> int:
    """Return the checksum of a v1 (``pod_entries=False``) or v2 checkpoint."""
    return fnv1a_32(dump(content, pod_entries=pod_entries, struct_name=struct_name).encode())


def data_checksum(data: str) -> int:
    """Return v3's ``dataChecksum`` of the decoded ``data`` string."""
    return fnv1a_32(b"(string)" + data.encode())


def dump(content: CheckpointContent, *, pod_entries: bool, struct_name: str = STRUCT_NAME) -> str:
    """Render the text that is hashed: go-spew's ``%#v`` of a pointer to the checkpoint struct."""
    writer = _Writer()
    writer.text(f"(*state.{struct_name}){{PolicyName:")
    writer.scalar("string", content.policy_name)
    writer.text(" MachineState:")
    writer.mapping("state.NUMANodeMap", content.machine_state, writer.node)
    writer.text(" Entries:")
    writer.mapping("state.ContainerMemoryAssignments", content.entries, writer.containers)
    if pod_entries:
        writer.text(" PodEntries:")
        writer.mapping("state.PodMemoryAssignments", content.pod_entries, writer.pod_entry)
    writer.text(" Checksum:")
    writer.scalar("checksum.Checksum", 0)
    writer.text("}")
    return "".join(writer.parts)


class _Writer:
    """Writes go-spew's form.

    go-spew leaves out the type of map keys, map values and slice elements by setting a flag
    before each. The next value of any kind clears it, except a nil pointer: after one, the next
    value that would show its type loses it. `hide_type` is that flag.
    """

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.hide_type = False

    def text(self, text: str) -> None:
        self.parts.append(text)

    def open(self, type_name: str) -> None:
        if not self.hide_type:
            self.parts.append(f"({type_name})")
        self.hide_type = False

    def scalar(self, type_name: str, value: str | int) -> None:
        self.open(type_name)
        self.parts.append(str(value))

    def mapping(
        self, type_name: str, values: Mapping[K, V] | None, write: Callable[[V], None]
    ) -> None:
        self.open(type_name)
        if values is None:
            self.text("<nil>")
            return
        self.text("map[")
        # Integers by value; strings by UTF-8 bytes, which is the order of code points.
        for number, key in enumerate(sorted(values)):  # type: ignore[type-var]
            self.text(f" {key}:" if number else f"{key}:")
            self.hide_type = True
            write(values[key])
        self.text("]")

    def sequence(
        self, type_name: str, values: tuple[V, ...] | None, write: Callable[[V], None]
    ) -> None:
        self.open(type_name)
        if values is None:
            self.text("<nil>")
            return
        self.text("[")
        for number, value in enumerate(values):
            if number:
                self.text(" ")
            self.hide_type = True
            write(value)
        self.text("]")

    def pointer(self, value: V | None, write: Callable[[V], None]) -> None:
        if value is None:
            self.text("<nil>")
        else:
            self.text("<*>{")
            self.hide_type = False
            write(value)
            self.text("}")

    def integers(self, values: tuple[int, ...] | None) -> None:
        self.sequence("[]int", values, lambda value: self.scalar("int", value))

    def node(self, node: NUMANodeState | None) -> None:
        self.pointer(node, self._node_fields)

    def _node_fields(self, node: NUMANodeState) -> None:
        self.text("NumberOfAssignments:")
        self.scalar("int", node.number_of_assignments)
        self.text(" MemoryMap:")
        self.mapping(
            "map[v1.ResourceName]*state.MemoryTable",
            node.memory_map,
            lambda table: self.pointer(table, self._table_fields),
        )
        self.text(" Cells:")
        self.integers(node.cells)

    def _table_fields(self, table: MemoryTable) -> None:
        self.text("TotalMemSize:")
        self.scalar("uint64", table.total)
        self.text(" SystemReserved:")
        self.scalar("uint64", table.system_reserved)
        self.text(" Allocatable:")
        self.scalar("uint64", table.allocatable)
        self.text(" Reserved:")
        self.scalar("uint64", table.reserved)
        self.text(" Free:")
        self.scalar("uint64", table.free)

    def containers(self, containers: Mapping[str, tuple[Block, ...] | None] | None) -> None:
        self.mapping("map[string][]state.Block", containers, self.blocks)

    def pod_entry(self, blocks: tuple[Block, ...] | None) -> None:
        self.open("state.PodEntry")
        self.text("{MemoryBlocks:")
        self.blocks(blocks)
        self.text("}")

    def blocks(self, blocks: tuple[Block, ...] | None) -> None:
        self.sequence("[]state.Block", blocks, self._block)

    def _block(self, block: Block) -> None:
        self.open("state.Block")
        self.text("{NUMAAffinity:")
        self.integers(block.numa_affinity)
        self.text(" Type:")
        self.scalar("v1.ResourceName", block.type)
        self.text(" Size:")
        self.scalar("uint64", block.size)
        self.text("}")
