"""Comparing the stored machine state with the expected one: exactly, and within a bound.

kubelet walks Go maps in random order, so which difference it logs first is random. Here the order
is fixed: node count, then node ids ascending, then resources by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve, frozen

from memqos.memory_manager.reasons import Reason
from memqos.memory_manager.state import (
    UINT64,
    MachineState,
    MemoryTable,
    NUMANodeState,
    is_hugepages,
)


__all__ = ["Difference", "compare_exactly", "compare_within"]

Cells: TypeAlias = tuple[int, ...]
#: stored, expected
States: TypeAlias = tuple[MachineState, MachineState]
Tables: TypeAlias = tuple[MemoryTable, MemoryTable]
Check: TypeAlias = "Callable[[int, Cells, str, Tables], Difference | None]"


@frozen(kw_only=True)
class Difference:
    """The first difference.

    Attributes:
        reason: its code.
        field: the field in the checkpoint's spelling, None when a whole node or resource differs.
        node: NUMA node id, None when the node sets differ.
        resource: resource name, None when the difference is not about one.
        recorded: the value in the checkpoint, None if there is none.
        expected: the value that this machine gives, None if there is none.
    """

    reason: Reason
    field: str | None = None
    node: int | None = None
    resource: str | None = None
    recorded: object = None
    expected: object = None


def compare_exactly(
    stored: MachineState, expected: MachineState, *, per_node: bool = False
) -> Difference | None:
    """Compare as kubelet does without a tolerance.

    Args:
        stored: the checkpoint's state.
        expected: the state re-derived on this machine.
        per_node: as kubelet up to 1.31 did, compare `free` and `reserved` of each node by itself
            instead of their sums over the node's group (kubernetes/kubernetes#127074).
    """

    def check(node_id: int, cells: Cells, resource: str, tables: Tables) -> Difference | None:
        recorded, wanted = tables
        group = (node_id,) if per_node else cells
        return (
            _field(Reason.TOTAL_DIFFERS, "total", recorded.total, wanted.total)
            or _system_reserved(tables)
            or _field(
                Reason.ALLOCATABLE_DIFFERS,
                "allocatable",
                recorded.allocatable,
                wanted.allocatable,
            )
            or _sums(Reason.GROUP_FREE_DIFFERS, "free", states, group, resource)
            or _sums(Reason.GROUP_RESERVED_DIFFERS, "reserved", states, group, resource)
        )

    states = (stored, expected)
    return _compare(states, check)


def compare_within(
    stored: MachineState, expected: MachineState, bound_bytes: int
) -> Difference | None:
    """Compare as KEP-6232 does with a tolerance: only `memory` totals may drift, within the bound.

    Each node stands by itself, growth counts like loss, and the bound itself is inside.
    """

    def check(_node_id: int, cells: Cells, resource: str, tables: Tables) -> Difference | None:
        found = _system_reserved(tables)
        if found is None and is_hugepages(resource):
            found = _hugepages(tables) or _sums(
                Reason.HUGEPAGES_DIFFER, "free", states, cells, resource
            )
        elif found is None:
            found = _drift(tables, bound_bytes)
        return found or _sums(Reason.GROUP_RESERVED_DIFFERS, "reserved", states, cells, resource)

    states = (stored, expected)
    return _compare(states, check)


def _compare(states: States, check: Check) -> Difference | None:
    stored, expected = states
    node_sets = Difference(
        reason=Reason.NODE_SET_DIFFERS, recorded=sorted(stored), expected=sorted(expected)
    )
    if len(stored) != len(expected):
        return node_sets
    for node_id in sorted(stored):
        if node_id not in expected:
            return node_sets
        node, other = stored[node_id], expected[node_id]
        if node is None or other is None:
            return Difference(reason=Reason.KUBELET_WOULD_PANIC, node=node_id)
        found = _structure(node, other) or _resources(node_id, node, other, check)
        if found is not None:
            return evolve(found, node=node_id)
    return None


def _resources(
    node_id: int, node: NUMANodeState, other: NUMANodeState, check: Check
) -> Difference | None:
    recorded, wanted = node.memory_map or {}, other.memory_map or {}
    for resource in sorted(recorded):
        table, other_table = recorded[resource], wanted.get(resource)
        found = (
            Difference(reason=Reason.RESOURCE_SET_DIFFERS, recorded=resource)
            if table is None or other_table is None
            else check(node_id, node.cells or (), resource, (table, other_table))
        )
        if found is not None:
            return evolve(found, resource=resource)
    return None


def _structure(node: NUMANodeState, other: NUMANodeState) -> Difference | None:
    if node.number_of_assignments != other.number_of_assignments:
        return Difference(
            reason=Reason.ASSIGNMENT_COUNT_DIFFERS,
            field="numberOfAssignments",
            recorded=node.number_of_assignments,
            expected=other.number_of_assignments,
        )
    cells, other_cells = sorted(node.cells or ()), sorted(other.cells or ())
    if cells != other_cells:
        return Difference(
            reason=Reason.CELLS_DIFFER, field="cells", recorded=cells, expected=other_cells
        )
    names, other_names = sorted(node.memory_map or ()), sorted(other.memory_map or ())
    if len(names) != len(other_names):
        return Difference(reason=Reason.RESOURCE_SET_DIFFERS, recorded=names, expected=other_names)
    return None


def _system_reserved(tables: Tables) -> Difference | None:
    recorded, wanted = tables
    return _field(
        Reason.SYSTEM_RESERVED_DIFFERS,
        "systemReserved",
        recorded.system_reserved,
        wanted.system_reserved,
    )


def _hugepages(tables: Tables) -> Difference | None:
    recorded, wanted = tables
    return _field(Reason.HUGEPAGES_DIFFER, "total", recorded.total, wanted.total) or _field(
        Reason.HUGEPAGES_DIFFER, "allocatable", recorded.allocatable, wanted.allocatable
    )


def _drift(tables: Tables, bound_bytes: int) -> Difference | None:
    recorded, wanted = tables
    for field, old, new in (
        ("total", recorded.total, wanted.total),
        ("allocatable", recorded.allocatable, wanted.allocatable),
    ):
        if abs(old - new) > bound_bytes:
            return _field(Reason.DRIFT_EXCEEDS_BOUND, field, old, new)
    return None


def _sums(
    reason: Reason, field: str, states: States, cells: Cells, resource: str
) -> Difference | None:
    recorded, wanted = (_group_sum(state, cells, resource, field) for state in states)
    if recorded is None or wanted is None:
        return Difference(reason=Reason.KUBELET_WOULD_PANIC)
    return _field(reason, field, recorded, wanted)


def _group_sum(state: MachineState, cells: Cells, resource: str, field: str) -> int | None:
    """Sum over a group, modulo 2^64; None where kubelet would follow a nil pointer."""
    total = 0
    for node_id in cells:
        node = state.get(node_id)
        table = None if node is None else (node.memory_map or {}).get(resource)
        if table is None:
            return None
        total += table.free if field == "free" else table.reserved
    return total & UINT64


def _field(reason: Reason, field: str, recorded: int, expected: int) -> Difference | None:
    if recorded == expected:
        return None
    return Difference(reason=reason, field=field, recorded=recorded, expected=expected)
