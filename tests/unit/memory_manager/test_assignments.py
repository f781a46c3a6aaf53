"""Re-deriving what containers hold."""

from typing import Any

from memqos.memory_manager.assignments import (
    Assignment,
    AssignmentFailure,
    Orders,
    apply_assignments,
    assignments,
    other_orders,
)
from memqos.memory_manager.reasons import Reason
from memqos.memory_manager.state import Block, MachineState, MemoryTable, NUMANodeState


def idle(*sizes: int) -> MachineState:
    """Make nodes with `sizes` bytes of free memory each."""
    return {
        node: NUMANodeState(0, {"memory": MemoryTable(size, 0, size, 0, size)}, (node,))
        for node, size in enumerate(sizes)
    }


def block(size: int, *affinity: int, type_: str = "memory") -> Block:
    """Make a block."""
    return Block(affinity, type_, size)


def pod(name: str, *blocks: Block) -> Assignment:
    """Make a pod with one container."""
    return Assignment(name, "c", blocks)


def after(state: MachineState, *items: Assignment) -> dict[int, tuple[int, Any, int, int]]:
    """Apply, and return (count, cells, reserved, free) per node."""
    result = apply_assignments(state, items)
    assert not isinstance(result, AssignmentFailure), result
    found = {}
    for node_id, node in result.items():
        assert node
        assert node.memory_map
        table = node.memory_map["memory"]
        assert table
        found[node_id] = (node.number_of_assignments, node.cells, table.reserved, table.free)
    return found


def failure(state: MachineState, *items: Assignment) -> AssignmentFailure:
    """Apply, and return the failure that is expected."""
    result = apply_assignments(state, items)
    assert isinstance(result, AssignmentFailure)
    return result


def test_nodes_fill_in_the_order_of_the_affinity() -> None:
    """The first node of the stored affinity is filled first, and the whole affinity is kept."""
    assert after(idle(10, 10), pod("p", block(12, 1, 0))) == {
        0: (1, (1, 0), 2, 8),
        1: (1, (1, 0), 10, 0),
    }


def test_a_full_node_is_passed_but_counted() -> None:
    """A node without free memory takes nothing, and counts the block."""
    assert after(idle(0, 10, 10), pod("p", block(5, 0, 1, 2))) == {
        0: (1, (0, 1, 2), 0, 0),
        1: (1, (0, 1, 2), 5, 5),
        2: (1, (0, 1, 2), 0, 10),
    }


def test_a_zero_size_block_counts() -> None:
    """A block of an init container whose memory was reused has size 0 and counts."""
    assert after(idle(10), pod("p", block(0, 0), block(4, 0))) == {0: (2, (0,), 4, 6)}


def test_a_repeated_node_counts_twice() -> None:
    """A node named twice counts twice and is filled once."""
    assert after(idle(10), pod("p", block(10, 0, 0))) == {0: (2, (0, 0), 10, 0)}


def test_empty_affinity() -> None:
    """Without nodes a size of 0 is nothing, and more does not fit."""
    assert after(idle(10), pod("p", block(0))) == {0: (0, (0,), 0, 10)}
    assert after(idle(10), pod("p", Block(None, "memory", 0))) == {0: (0, (0,), 0, 10)}
    assert failure(idle(10), pod("p", block(1))).reason is Reason.ASSIGNMENT_DOES_NOT_FIT


def test_the_last_block_sets_the_cells() -> None:
    """A node's group is the affinity of the last block that touched it."""
    items = (pod("a", block(1, 0, 1)), pod("b", block(1, 0)))

    assert {node: cells for node, (_, cells, _, _) in after(idle(9, 9), *items).items()} == {
        0: (0,),
        1: (0, 1),
    }


def test_fits_to_the_byte() -> None:
    """All that is free fits, one byte more does not."""
    assert after(idle(5, 5), pod("p", block(10, 0, 1)))[1] == (1, (0, 1), 5, 0)
    short = failure(idle(5, 5), pod("p", block(11, 0, 1)))
    assert short == AssignmentFailure(
        reason=Reason.ASSIGNMENT_DOES_NOT_FIT,
        message="[memorymanager] (pod: p, container: c) the memory assignment does not fit the "
        "machine state",
        pod="p",
        container="c",
        resource="memory",
        missing_bytes=1,
    )


def test_missing_node() -> None:
    """A node that is gone is reported even where nothing is left to place."""
    found = failure(idle(10), pod("p", block(0, 0, 4)))

    assert (found.reason, found.node, found.resource) == (Reason.ASSIGNMENT_NUMA_MISSING, 4, None)
    assert found.message == (
        "[memorymanager] (pod: p, container: c) the memory assignment uses the NUMA that does "
        "not exist"
    )


def test_missing_resource() -> None:
    """A resource that the node lacks is reported, also for a block of size 0."""
    found = failure(idle(10), pod("p", block(0, 0, type_="hugepages-1Gi")))

    assert (found.reason, found.node, found.resource) == (
        Reason.ASSIGNMENT_RESOURCE_MISSING,
        0,
        "hugepages-1Gi",
    )
    assert found.message == (
        "[memorymanager] (pod: p, container: c) the memory assignment uses memory resource that "
        "does not exist"
    )


def test_pods_and_containers_are_sorted() -> None:
    """Sorted order, and nil containers or blocks are nothing."""
    one = block(1, 0)

    assert assignments({"b": {"y": (one,), "x": None}, "a": None, "c": {}}, None) == (
        Assignment("b", "x", ()),
        Assignment("b", "y", (one,)),
    )


def test_pod_level_blocks_replace_the_containers() -> None:
    """With the gate a pod's own blocks win, unless empty; pods without entry are unseen."""
    one, two = block(1, 0), block(2, 0)
    entries = {"a": {"c": (one,)}, "b": {"c": (one,)}, "c": {"c": (one,)}, "d": {}}
    pods = {"a": (two,), "b": (), "c": None, "d": (two,), "unseen": (two,)}

    assert assignments(entries, pods) == (
        Assignment("a", "", (two,)),
        Assignment("b", "c", (one,)),
        Assignment("c", "c", (one,)),
        Assignment("d", "", (two,)),
    )
    assert [item.container for item in assignments(entries, None)] == ["c", "c", "c"]


def test_orders_only_for_joint_groups() -> None:
    """Disjoint or identical groups give one result in any order."""
    items = (pod("a", block(1, 0, 1)), pod("b", block(1, 1, 0)), pod("c", block(1, 2)))

    assert other_orders(items) == Orders((), complete=True)


def test_joint_groups_are_tried_in_every_order() -> None:
    """Up to four joint assignments all orders are tried."""
    items = tuple(
        pod(name, block(1, *cells))
        for name, cells in zip("abc", [(0,), (0, 1), (1,)], strict=True)
    )
    orders = {
        tuple(item.pod for item in order)
        for order in other_orders((*items, pod("z", block(1, 5)))).tried
    }

    assert {order for order in orders if order[0] == "z"} == orders
    assert {order[1:] for order in orders} == {
        ("a", "b", "c"),
        ("a", "c", "b"),
        ("b", "a", "c"),
        ("b", "c", "a"),
        ("c", "a", "b"),
        ("c", "b", "a"),
    }


def test_containers_of_a_pod_stay_together() -> None:
    """Kubelet walks pod by pod, so no order mixes the containers of two pods."""
    items = tuple(
        Assignment(name, container, (block(1, *cells),))
        for name, cells in (("a", (0,)), ("b", (0, 1)))
        for container in ("x", "y")
    )
    found = other_orders(items)

    assert found.complete
    assert len(found.tried) == 2 * 2 * 2
    assert all(order[0].pod == order[1].pod for order in found.tried)


def test_a_repeated_node_makes_groups_joint() -> None:
    """[0,0] and [0] leave other cells behind, so their order matters."""
    items = (pod("a", block(1, 0, 0)), pod("b", block(1, 0)))

    assert len(other_orders(items).tried) == 2


def test_many_joint_groups_are_sampled() -> None:
    """Of more orders than can be tried a bounded number is, and the answer says so."""
    items = tuple(pod(f"p{number:04}", block(1, 0, number + 1)) for number in range(2000))

    found = other_orders(items)

    assert not found.complete
    assert 2 < len(found.tried) < 50
    assert all(set(order) == set(items) for order in found.tried)
