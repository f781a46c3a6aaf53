"""kubelet's checks of reservedMemory."""

from collections.abc import Mapping

import pytest

from memqos.kubelet_config import MemoryReservation
from memqos.memory_manager.machine import Machine, NUMANode
from memqos.memory_manager.reasons import Reason, Refusal
from memqos.memory_manager.reserved import check_reserved_memory
from memqos.quantity import parse_quantity


MACHINE = Machine(tuple(NUMANode(node, 2**37) for node in range(4)), 2**39)


def check(reserved: list[tuple[int, dict[str, str]]], wanted: Mapping[str, str]) -> object:
    """Check a configuration written with quantities."""
    items = tuple(
        MemoryReservation(node, {name: parse_quantity(text) for name, text in limits.items()})
        for node, limits in reserved
    )
    return check_reserved_memory(
        items, {name: parse_quantity(text) for name, text in wanted.items()}, MACHINE
    )


def refusal(reserved: list[tuple[int, dict[str, str]]], wanted: Mapping[str, str]) -> Refusal:
    """Check a configuration that is expected to be refused."""
    result = check(reserved, wanted)
    assert isinstance(result, Refusal), result
    return result


def test_worked_example() -> None:
    """100Mi + 16696Mi + 100Mi is four times 4224Mi."""
    reserved = [(node, {"memory": "4224Mi"}) for node in range(4)]

    assert check(reserved, {"memory": "16896Mi"}) == {
        node: {"memory": 4224 * 2**20} for node in range(4)
    }


def test_a_node_may_have_none() -> None:
    """A reservation may be on one node only; notations need not match."""
    assert check([(0, {"memory": "10340Mi"})], {"memory": "10842275840"}) == {
        0: {"memory": 10842275840}
    }


def test_unknown_node_comes_first() -> None:
    """A node that is not there is refused before any sum."""
    result = refusal([(0, {"memory": "1"}), (7, {"memory": "1Gi"})], {"memory": "5Gi"})

    assert result == Refusal(
        Reason.RESERVED_MEMORY_UNKNOWN_NODE,
        "the reserved memory configuration references a NUMA node 7 that does not exist on this "
        "machine",
    )


@pytest.mark.parametrize(
    ("reserved", "wanted", "resource", "found", "expected"),
    [
        ([(0, {"memory": "1Gi"})], {"memory": "1124Mi"}, "memory", "1Gi", "1124Mi"),
        ([(0, {"memory": "1Gi"})], {}, "memory", "1Gi", "0"),
        ([], {"memory": "100Mi"}, "memory", "0", "100Mi"),
        ([(0, {"memory": "1024Mi"})], {"memory": "1G"}, "memory", "1Gi", "1G"),
        # Exact decimals: rounded to bytes both would be 1.
        ([(0, {"memory": "0.5"})], {"memory": "1"}, "memory", "500m", "1"),
        (
            [(0, {"memory": "1Gi", "hugepages-2Mi": "10Mi"})],
            {"memory": "1Gi"},
            "hugepages-2Mi",
            "10Mi",
            "0",
        ),
        (
            [(0, {"memory": "1Gi"})],
            {"memory": "1Gi", "hugepages-1Gi": "1Gi"},
            "hugepages-1Gi",
            "0",
            "1Gi",
        ),
    ],
)
def test_sums_must_match(
    reserved: list[tuple[int, dict[str, str]]],
    wanted: Mapping[str, str],
    resource: str,
    found: str,
    expected: str,
) -> None:
    """Over all nodes each resource must add up to Node Allocatable's reservation exactly."""
    assert refusal(reserved, wanted) == Refusal(
        Reason.RESERVED_MEMORY_MISMATCH,
        f'the total amount "{found}" of type "{resource}" is not equal to the value "{expected}" '
        "determined by Node Allocatable feature",
    )


def test_cpu_reservations_do_not_count() -> None:
    """Only memory and hugepages of the node reservation are looked at."""
    assert check([(0, {"memory": "1Gi"})], {"memory": "1Gi", "cpu": "500m"}) == {
        0: {"memory": 2**30}
    }


def test_amounts_are_whole_bytes() -> None:
    """A fraction of a byte is refused once the sums match."""
    result = refusal([(0, {"memory": "0.5"}), (1, {"memory": "0.5"})], {"memory": "1"})

    assert result.reason is Reason.RESERVED_MEMORY_MISMATCH
    assert result.message.startswith("could not covert a variable of type Quantity to int64")


@pytest.mark.parametrize(
    ("reserved", "wanted"),
    [
        ([], {}),
        ([(0, {"hugepages-2Mi": "2Mi"})], {"hugepages-2Mi": "2Mi"}),
        ([(0, {"memory": "1Gi"}), (1, {"memory": "-1Gi"})], {}),
    ],
)
def test_some_memory_must_be_reserved(
    reserved: list[tuple[int, dict[str, str]]], wanted: Mapping[str, str]
) -> None:
    """No memory at all, or hugepages alone, is refused last."""
    assert refusal(reserved, wanted) == Refusal(
        Reason.NO_SYSTEM_RESERVED_MEMORY,
        "[memorymanager] you should specify the system reserved memory",
    )
