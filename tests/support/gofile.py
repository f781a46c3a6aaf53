"""The checkpoint as kubelet's Go writes it, from the specification alone.

A second implementation, on plain data, to test the first with: sections 2 (the hashed dump) and 3
(the bytes of the file) of the description of the checkpoint.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from tests.support.vectors import fnv1a


__all__ = ["go_file"]

Document: TypeAlias = "dict[str, Any]"

_TABLE = ("total", "systemReserved", "allocatable", "reserved", "free")
_TABLE_NAMES = ("TotalMemSize", "SystemReserved", "Allocatable", "Reserved", "Free")


def go_file(content: Document, version: str) -> str:
    """Write a checkpoint of format v1, v2 or v3 with its checksums."""
    if version == "v3":
        data = _text(_ordered(content, pods=True))
        copy = _ordered(content, pods=False) | {"checksum": _checksum(content, pods=False)}
        return _text(copy | {"data": data, "dataChecksum": fnv1a(b"(string)" + data.encode())})
    pods = version == "v2"
    return _text(_ordered(content, pods=pods) | {"checksum": _checksum(content, pods=pods)})


def _text(value: object) -> str:
    """Serialise: compact, and the five characters that encoding/json escapes beside the usual."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _ordered(content: Document, *, pods: bool) -> Document:
    """Lay out the fields in declaration order, maps by name, empty optional fields left out."""
    state = {
        node: {
            "numberOfAssignments": value["numberOfAssignments"],
            "memoryMap": {
                name: {field: table[field] for field in _TABLE}
                for name, table in sorted(value["memoryMap"].items())
            },
            "cells": value["cells"],
        }
        for node, value in sorted(content["machineState"].items())
    }
    found: Document = {"policyName": content["policyName"], "machineState": state}
    if content.get("entries"):
        found["entries"] = {
            pod: {
                name: [_block(block) for block in blocks] for name, blocks in sorted(each.items())
            }
            for pod, each in sorted(content["entries"].items())
        }
    if pods and content.get("podEntries"):
        found["podEntries"] = {
            pod: {"memoryBlocks": [_block(block) for block in entry["memoryBlocks"]]}
            for pod, entry in sorted(content["podEntries"].items())
        }
    return found


def _block(block: Document) -> Document:
    return {name: block[name] for name in ("numaAffinity", "type", "size")}


def _checksum(content: Document, *, pods: bool) -> int:
    nodes = sorted(content["machineState"].items(), key=lambda item: int(item[0]))
    state = " ".join(f"{node}:<*>{_dump_node(value)}" for node, value in nodes)
    entries = " ".join(
        f"{pod}:map[{' '.join(f'{name}:{_dump_blocks(b)}' for name, b in sorted(each.items()))}]"
        for pod, each in sorted(content.get("entries", {}).items())
    )
    fields = [
        f"PolicyName:(string){content['policyName']}",
        f"MachineState:(state.NUMANodeMap)map[{state}]",
        f"Entries:(state.ContainerMemoryAssignments)map[{entries}]",
    ]
    if pods:
        listed = " ".join(
            f"{pod}:{{MemoryBlocks:([]state.Block){_dump_blocks(entry['memoryBlocks'])}}}"
            for pod, entry in sorted(content.get("podEntries", {}).items())
        )
        fields.append(f"PodEntries:(state.PodMemoryAssignments)map[{listed}]")
    fields.append("Checksum:(checksum.Checksum)0")
    return fnv1a(f"(*state.MemoryManagerCheckpoint){{{' '.join(fields)}}}".encode())


def _dump_node(node: Document) -> str:
    tables = " ".join(
        f"{name}:<*>{{"
        + " ".join(
            f"{go}:(uint64){table[field]}" for go, field in zip(_TABLE_NAMES, _TABLE, strict=True)
        )
        + "}"
        for name, table in sorted(node["memoryMap"].items())
    )
    return (
        f"{{NumberOfAssignments:(int){node['numberOfAssignments']} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{tables}] "
        f"Cells:([]int){_dump_list(node['cells'])}}}"
    )


def _dump_list(numbers: list[int]) -> str:
    return f"[{' '.join(map(str, numbers))}]"


def _dump_blocks(blocks: list[Document]) -> str:
    return (
        "["
        + " ".join(
            f"{{NUMAAffinity:([]int){_dump_list(block['numaAffinity'])} "
            f"Type:(v1.ResourceName){block['type']} Size:(uint64){block['size']}}}"
            for block in blocks
        )
        + "]"
    )
