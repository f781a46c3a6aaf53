"""The exact comparison, and the tolerant one."""

from typing import Any

import pytest

from memqos.memory_manager.comparison import Difference, compare_exactly, compare_within
from memqos.memory_manager.reasons import Reason
from memqos.memory_manager.state import MachineState, MemoryTable, NUMANodeState


MEMORY = MemoryTable(1000, 100, 800, 50, 750)
PAGES = MemoryTable(100, 0, 100, 20, 80)
NODE = NUMANodeState(3, {"memory": MEMORY, "hugepages-2Mi": PAGES}, (0, 1))
STATE: dict[int, NUMANodeState] = {0: NODE, 1: NODE}


def change(node: int, resource: str, **fields: int) -> MachineState:
    """Change fields of one table of STATE."""
    old = STATE[node]
    assert old.memory_map
    table = old.memory_map[resource]
    assert table
    return STATE | {
        node: old._replace(memory_map={**old.memory_map, resource: table._replace(**fields)})
    }


def place(found: Difference | None) -> tuple[Any, ...]:
    """Return what a difference is about."""
    assert found is not None
    return found.reason, found.node, found.resource, found.field


def test_equal() -> None:
    """A state equals itself, with and without a bound."""
    assert compare_exactly(STATE, STATE) is None
    assert compare_within(STATE, STATE, 1) is None


ONE = NODE._replace(cells=(1,))
ALONE: dict[int, NUMANodeState] = {0: NODE._replace(cells=(0,)), 1: ONE}

NODES = [
    ({}, Reason.NODE_SET_DIFFERS, None),
    ({1: ONE}, Reason.NODE_SET_DIFFERS, None),
    ({1: ONE, 2: NODE}, Reason.NODE_SET_DIFFERS, None),
    ({0: None}, Reason.NODE_SET_DIFFERS, None),
    ({1: ONE._replace(number_of_assignments=-3)}, Reason.ASSIGNMENT_COUNT_DIFFERS, 1),
    ({1: ONE._replace(cells=(0, 1))}, Reason.CELLS_DIFFER, 1),
    ({1: ONE._replace(cells=(1, 1))}, Reason.CELLS_DIFFER, 1),
    ({1: ONE._replace(cells=())}, Reason.CELLS_DIFFER, 1),
    ({1: ONE._replace(cells=None)}, Reason.CELLS_DIFFER, 1),
    ({1: ONE._replace(memory_map={"memory": MEMORY})}, Reason.RESOURCE_SET_DIFFERS, 1),
    ({1: ONE._replace(memory_map=None)}, Reason.RESOURCE_SET_DIFFERS, 1),
    (
        {1: ONE._replace(memory_map={"memory": MEMORY, "hugepages-1Gi": PAGES})},
        Reason.RESOURCE_SET_DIFFERS,
        1,
    ),
    ({1: None}, Reason.KUBELET_WOULD_PANIC, 1),
]


@pytest.mark.parametrize(("changed", "reason", "node"), NODES)
def test_structure_is_exact_with_any_bound(
    changed: MachineState, reason: Reason, node: int | None
) -> None:
    """Nodes, counts, cells and resource names must be equal whatever the bound."""
    kept = ALONE if reason is not Reason.NODE_SET_DIFFERS else {}
    stored: MachineState = {**kept, **changed}
    for found in (compare_exactly(stored, ALONE), compare_within(stored, ALONE, 2**63)):
        assert found is not None
        assert (found.reason, found.node) == (reason, node)


def test_cells_compare_as_sorted_lists() -> None:
    """The order of cells does not matter, and nil is empty."""
    assert compare_exactly(STATE | {1: NODE._replace(cells=(1, 0))}, STATE) is None
    alone = {0: NODE._replace(cells=None)}
    assert compare_exactly(alone, {0: NODE._replace(cells=())}) is None


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"total": 1001}, Reason.TOTAL_DIFFERS, "total"),
        ({"system_reserved": 101}, Reason.SYSTEM_RESERVED_DIFFERS, "systemReserved"),
        ({"allocatable": 801}, Reason.ALLOCATABLE_DIFFERS, "allocatable"),
        ({"free": 751}, Reason.GROUP_FREE_DIFFERS, "free"),
        ({"reserved": 51}, Reason.GROUP_RESERVED_DIFFERS, "reserved"),
        ({"total": 999, "system_reserved": 1, "free": 0}, Reason.TOTAL_DIFFERS, "total"),
        ({"free": 749, "reserved": 51}, Reason.GROUP_FREE_DIFFERS, "free"),
    ],
)
def test_exact_tables(fields: dict[str, int], reason: Reason, field: str) -> None:
    """Total, then systemReserved, allocatable, group free, group reserved."""
    found = compare_exactly(change(0, "memory", **fields), STATE)

    assert place(found) == (reason, 0, "memory", field)


def test_nodes_ascend_and_hugepages_come_before_memory() -> None:
    """The first difference is that of the lowest node, then of the first resource by name."""
    first = change(0, "memory", total=1)
    both = {0: first[0], 1: change(1, "hugepages-2Mi", total=1)[1]}
    assert place(compare_exactly(both, STATE))[1:3] == (0, "memory")
    second = {0: NODE, 1: both[1]}
    assert place(compare_exactly(second, STATE))[1:3] == (1, "hugepages-2Mi")


def test_free_and_reserved_are_group_sums_since_1_32() -> None:
    """Another split within a group is equal; up to 1.31 it was not."""
    stored = {
        0: change(0, "memory", reserved=60, free=740)[0],
        1: change(1, "memory", reserved=40, free=760)[1],
    }

    assert compare_exactly(stored, STATE) is None
    assert place(compare_exactly(stored, STATE, per_node=True)) == (
        Reason.GROUP_FREE_DIFFERS,
        0,
        "memory",
        "free",
    )


def test_group_sums_are_over_the_stored_cells() -> None:
    """Both sums are taken over the cells of the stored node, modulo 2^64."""
    single = {0: NODE._replace(cells=(0,)), 1: NODE._replace(cells=(1,))}
    wrapped = {
        node: NUMANodeState(0, {"memory": MemoryTable(0, 0, 0, 0, free)}, (0, 1))
        for node, free in ((0, 2**64 - 1), (1, 3))
    }
    plain = {
        node: NUMANodeState(0, {"memory": MemoryTable(0, 0, 0, 0, free)}, (0, 1))
        for node, free in ((0, 1), (1, 1))
    }

    assert compare_exactly(single, single) is None
    assert compare_exactly(wrapped, plain) is None


def test_a_group_without_a_common_resource_panics() -> None:
    """Kubelet follows a nil pointer when a node of the group lacks the resource."""
    bare = NODE._replace(memory_map={"memory": MEMORY})
    state = {0: NODE, 1: bare}

    assert place(compare_exactly(state, state))[:3] == (
        Reason.KUBELET_WOULD_PANIC,
        0,
        "hugepages-2Mi",
    )
    assert place(compare_within(state, state, 9))[0] is Reason.KUBELET_WOULD_PANIC


def test_cells_of_a_node_that_is_not_there_panic() -> None:
    """The same where the group names a node without a state."""
    state = {0: NODE._replace(cells=(0, 5))}

    assert place(compare_exactly(state, state))[0] is Reason.KUBELET_WOULD_PANIC


@pytest.mark.parametrize(
    ("fields", "bound", "field"),
    [
        ({"total": 990}, 10, None),
        ({"total": 1010}, 10, None),
        ({"total": 989}, 10, "total"),
        ({"total": 1011}, 10, "total"),
        ({"allocatable": 810}, 10, None),
        ({"allocatable": 811}, 10, "allocatable"),
        ({"allocatable": 2**64 - 5}, 900, "allocatable"),
        ({"free": 0}, 1, None),
    ],
)
def test_bound_of_memory(fields: dict[str, int], bound: int, field: str | None) -> None:
    """Total and allocatable may differ by the bound, either way and inclusive; free may differ."""
    found = compare_within(change(1, "memory", **fields), STATE, bound)

    if field is None:
        assert found is None
    else:
        assert place(found) == (Reason.DRIFT_EXCEEDS_BOUND, 1, "memory", field)


def test_no_netting_across_nodes() -> None:
    """Each node stands by itself, even where the sum is kept."""
    stored = {0: change(0, "memory", total=900)[0], 1: change(1, "memory", total=1100)[1]}

    assert place(compare_within(stored, STATE, 99))[:3] == (
        Reason.DRIFT_EXCEEDS_BOUND,
        0,
        "memory",
    )
    assert compare_within(stored, STATE, 100) is None


@pytest.mark.parametrize(
    ("resource", "fields", "reason"),
    [
        ("memory", {"system_reserved": 101}, Reason.SYSTEM_RESERVED_DIFFERS),
        ("hugepages-2Mi", {"system_reserved": 1}, Reason.SYSTEM_RESERVED_DIFFERS),
        ("hugepages-2Mi", {"total": 101}, Reason.HUGEPAGES_DIFFER),
        ("hugepages-2Mi", {"allocatable": 101}, Reason.HUGEPAGES_DIFFER),
        ("hugepages-2Mi", {"free": 81}, Reason.HUGEPAGES_DIFFER),
        ("hugepages-2Mi", {"reserved": 21}, Reason.GROUP_RESERVED_DIFFERS),
        ("memory", {"reserved": 51}, Reason.GROUP_RESERVED_DIFFERS),
    ],
)
def test_what_no_bound_allows(resource: str, fields: dict[str, int], reason: Reason) -> None:
    """Reservations, hugepages and what a group holds stay exact."""
    found = compare_within(change(0, resource, **fields), STATE, 2**62)

    assert place(found)[:3] == (reason, 0, resource)
