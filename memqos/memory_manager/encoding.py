"""The checkpoint file as kubelet's Go writes it, byte for byte.

Compact, struct fields in declaration order, map keys sorted as strings (node ids too).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from memqos.gojson import quote
from memqos.memory_manager.checksum import content_checksum, data_checksum
from memqos.memory_manager.state import (
    Block,
    CheckpointContent,
    ContainerAssignments,
    MachineState,
    MemoryTable,
    NUMANodeState,
    PodAssignments,
)


__all__ = ["encode_v1", "encode_v2", "encode_v3", "machine_state_document"]

K = TypeVar("K")
V = TypeVar("V")


def encode_v1(content: CheckpointContent) -> str:
    """Write format v1 with its checksum; pod entries are left out."""
    checksum = content_checksum(content, pod_entries=False)
    return f'{{{_v1_fields(content)},"checksum":{checksum}}}'


def encode_v2(content: CheckpointContent) -> str:
    """Write format v2 with its checksum."""
    checksum = content_checksum(content, pod_entries=True)
    return f'{{{_v1_fields(content)}{_pod_entries(content.pod_entries)},"checksum":{checksum}}}'


def encode_v3(content: CheckpointContent) -> str:
    """Write format v3: the v1 compatibility copy, then ``data`` and ``dataChecksum``."""
    data = f"{{{_v1_fields(content)}{_pod_entries(content.pod_entries)}}}"
    return f'{encode_v1(content)[:-1]},"data":{quote(data)},"dataChecksum":{data_checksum(data)}}}'


def machine_state_document(
    state: MachineState | None,
) -> dict[str, dict[str, object] | None] | None:
    """Return a machine state as plain data in the checkpoint's own form and key order."""
    if state is None:
        return None
    return {str(node_id): _node_document(state[node_id]) for node_id in sorted(state)}


def _node_document(node: NUMANodeState | None) -> dict[str, object] | None:
    if node is None:
        return None
    tables = node.memory_map
    return {
        "numberOfAssignments": node.number_of_assignments,
        "memoryMap": None
        if tables is None
        else {name: _table_document(tables[name]) for name in sorted(tables)},
        "cells": None if node.cells is None else list(node.cells),
    }


def _table_document(table: MemoryTable | None) -> dict[str, int] | None:
    if table is None:
        return None
    return {
        "total": table.total,
        "systemReserved": table.system_reserved,
        "allocatable": table.allocatable,
        "reserved": table.reserved,
        "free": table.free,
    }


def _v1_fields(content: CheckpointContent) -> str:
    state = _mapping(content.machine_state, _node)
    entries = f',"entries":{_entries(content.entries)}' if content.entries else ""
    return f'"policyName":{quote(content.policy_name)},"machineState":{state}{entries}'


def _entries(entries: ContainerAssignments) -> str:
    return _mapping(entries, lambda containers: _mapping(containers, _blocks))


def _pod_entries(entries: PodAssignments | None) -> str:
    if not entries:
        return ""
    text = _mapping(
        entries, lambda blocks: f'{{"memoryBlocks":{_blocks(blocks)}}}' if blocks else "{}"
    )
    return f',"podEntries":{text}'


def _mapping(values: Mapping[K, V] | None, write: Callable[[V], str]) -> str:
    if values is None:
        return "null"
    named = sorted((str(key), value) for key, value in values.items())
    return "{" + ",".join(f"{quote(name)}:{write(value)}" for name, value in named) + "}"


def _node(node: NUMANodeState | None) -> str:
    if node is None:
        return "null"
    return (
        f'{{"numberOfAssignments":{node.number_of_assignments},'
        f'"memoryMap":{_mapping(node.memory_map, _table)},"cells":{_integers(node.cells)}}}'
    )


def _table(table: MemoryTable | None) -> str:
    document = _table_document(table)
    if document is None:
        return "null"
    return "{" + ",".join(f'"{name}":{value}' for name, value in document.items()) + "}"


def _blocks(blocks: tuple[Block, ...] | None) -> str:
    return "null" if blocks is None else "[" + ",".join(_block(block) for block in blocks) + "]"


def _block(block: Block) -> str:
    return (
        f'{{"numaAffinity":{_integers(block.numa_affinity)},'
        f'"type":{quote(block.type)},"size":{block.size}}}'
    )


def _integers(values: tuple[int, ...] | None) -> str:
    return "null" if values is None else "[" + ",".join(map(str, values)) + "]"
