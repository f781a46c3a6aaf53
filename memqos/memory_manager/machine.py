"""The machine as kubelet sees it through cAdvisor, and the state it expects of it when idle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from attrs import frozen

from memqos import fields
from memqos.errors import InputError
from memqos.memory_manager.state import MEMORY, UINT64, MachineState, MemoryTable, NUMANodeState
from memqos.quantity import bytes_quantity


__all__ = [
    "Hugepages",
    "Machine",
    "NUMANode",
    "SystemReserved",
    "default_state",
    "parse_hugepages_directory",
    "parse_machine_info",
    "parse_mem_total",
]

_MEM_TOTAL = r"MemTotal:\s*([0-9]+) kB"
_HUGEPAGES_DIRECTORY = r"hugepages-([0-9]+)kB"

#: NUMA node id to resource name to bytes set aside for the system.
SystemReserved = Mapping[int, Mapping[str, int]]


class Hugepages(NamedTuple):
    """Pages of one size on one node."""

    page_size_kib: int
    pages: int

    @property
    def resource(self) -> str:
        """The resource name, such as ``hugepages-2Mi``."""
        return f"hugepages-{bytes_quantity(self.page_size_kib * 1024)}"

    @property
    def total_bytes(self) -> int:
        """Bytes in all pages, modulo 2^64."""
        return self.pages * self.page_size_kib * 1024 & UINT64


class NUMANode(NamedTuple):
    """One NUMA node: its MemTotal in bytes, hugepages included, and its hugepages."""

    id: int
    memory_bytes: int
    hugepages: tuple[Hugepages, ...] = ()


@frozen
class Machine:
    """The NUMA nodes, and the whole machine's MemTotal in bytes."""

    nodes: tuple[NUMANode, ...]
    capacity_bytes: int


def parse_mem_total(text: str) -> int:
    """Read MemTotal in bytes from ``nodeN/meminfo`` or ``/proc/meminfo``.

    Raises:
        InputError: there is no MemTotal line.
    """
    match = re.search(_MEM_TOTAL, text)
    if match is None or len(match[1]) > 20:
        raise InputError("no 'MemTotal: … kB' line; cAdvisor would find no NUMA topology")
    return int(match[1]) * 1024 & UINT64


def parse_hugepages_directory(name: str, nr_hugepages: str) -> Hugepages:
    """Read one ``nodeN/hugepages/hugepages-<k>kB`` directory and its ``nr_hugepages``.

    Raises:
        InputError: the name or the number is not of that form.
    """
    match = re.fullmatch(_HUGEPAGES_DIRECTORY, name)
    pages = nr_hugepages.strip()
    if match is None:
        raise InputError(f"{name!r} is not of the form hugepages-<size>kB")
    if not re.fullmatch(r"[0-9]{1,20}", pages):
        raise InputError(f"nr_hugepages is {pages[:40]!r}, not a number")
    return Hugepages(int(match[1]), int(pages))


def parse_machine_info(document: object) -> Machine:
    """Read a cAdvisor MachineInfo document from plain data.

    Uses ``topology[].node_id``, ``memory`` (bytes), ``hugepages[].page_size`` (KiB) and
    ``num_pages``, and ``memory_capacity`` (bytes; the sum of the nodes where it is missing).

    Raises:
        InputError: a field is missing or has another type; `path` says which.
    """
    top = fields.mapping(document, "$")
    if not isinstance(top.get("topology"), list):
        raise InputError("expected cAdvisor's MachineInfo with its NUMA nodes", path="$.topology")
    nodes: dict[int, NUMANode] = {}
    for index, item in enumerate(fields.items(top["topology"], "$.topology")):
        path = f"$.topology[{index}]"
        node = fields.mapping(item, path)
        hugepages = []
        for number, size in enumerate(fields.items(node.get("hugepages"), f"{path}.hugepages")):
            place = f"{path}.hugepages[{number}]"
            pages = fields.mapping(size, place)
            hugepages.append(
                Hugepages(
                    _unsigned(pages, "page_size", place), _unsigned(pages, "num_pages", place)
                )
            )
        node_id = _unsigned(node, "node_id", path)
        if node_id in nodes:
            raise InputError(f"NUMA node {node_id} is given twice", path=path)
        nodes[node_id] = NUMANode(node_id, _unsigned(node, "memory", path), tuple(hugepages))
    capacity = sum(node.memory_bytes for node in nodes.values())
    if "memory_capacity" in top:
        capacity = _unsigned(top, "memory_capacity", "$")
    return Machine(tuple(nodes[node_id] for node_id in sorted(nodes)), capacity)


def _unsigned(members: Mapping[str, object], name: str, path: str) -> int:
    return fields.integer(members.get(name), f"{path}.{name}", low=0, high=UINT64)


def default_state(machine: Machine, reserved: SystemReserved) -> MachineState:
    """Build the state of a machine on which nothing is assigned; modulo 2^64, unchecked."""
    return {node.id: _default_node(node, reserved.get(node.id, {})) for node in machine.nodes}


def _default_node(node: NUMANode, reserved: Mapping[str, int]) -> NUMANodeState:
    tables = {}
    hugepage_bytes = 0
    for hugepages in node.hugepages:
        total = hugepages.total_bytes
        hugepage_bytes += total
        tables[hugepages.resource] = _idle_table(total, reserved.get(hugepages.resource, 0), 0)
    tables[MEMORY] = _idle_table(node.memory_bytes, reserved.get(MEMORY, 0), hugepage_bytes)
    return NUMANodeState(0, tables, (node.id,))


def _idle_table(total: int, reserved: int, hugepage_bytes: int) -> MemoryTable:
    allocatable = total - reserved - hugepage_bytes & UINT64
    return MemoryTable(total, reserved & UINT64, allocatable, 0, allocatable)
