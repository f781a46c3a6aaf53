"""kubelet's checks of ``reservedMemory``, before it reads any state."""

from __future__ import annotations

from collections.abc import Mapping

from memqos.kubelet_config import MemoryReservation
from memqos.memory_manager.machine import Machine, SystemReserved
from memqos.memory_manager.reasons import Reason, Refusal
from memqos.memory_manager.state import MEMORY, is_hugepages
from memqos.quantity import Quantity


__all__ = ["check_reserved_memory"]


def check_reserved_memory(
    reserved_memory: tuple[MemoryReservation, ...],
    node_reservation: Mapping[str, Quantity],
    machine: Machine,
) -> SystemReserved | Refusal:
    """Apply the checks of the Static policy, in kubelet's order.

    Args:
        reserved_memory: as configured.
        node_reservation: systemReserved + kubeReserved + hard eviction threshold, per resource.
        machine: whose NUMA nodes must exist.

    Returns:
        The bytes reserved per NUMA node, or kubelet's refusal.
    """
    known = {node.id for node in machine.nodes}
    for item in reserved_memory:
        if item.numa_node not in known:
            return Refusal(
                Reason.RESERVED_MEMORY_UNKNOWN_NODE,
                "the reserved memory configuration references a NUMA node "
                f"{item.numa_node} that does not exist on this machine",
            )
    totals: dict[str, int] = {}
    reserved: dict[int, dict[str, int]] = {}
    for item in reserved_memory:
        for resource, quantity in item.limits.items():
            totals[resource] = totals.get(resource, 0) + quantity.nanos
            reserved.setdefault(item.numa_node, {})[resource] = quantity.value
    resources = {name for name in node_reservation if name == MEMORY or is_hugepages(name)}
    for resource in sorted(resources | set(totals)):
        total = totals.get(resource, 0)
        wanted = node_reservation.get(resource, Quantity(0))
        if total != wanted.nanos:
            found = _sum_like(total, resource, reserved_memory)
            return Refusal(
                Reason.RESERVED_MEMORY_MISMATCH,
                f'the total amount "{found}" of type "{resource}" is not equal to the value '
                f'"{wanted}" determined by Node Allocatable feature',
            )
    for item in reserved_memory:
        for resource, quantity in item.limits.items():
            if not quantity.is_integer:
                return Refusal(
                    Reason.RESERVED_MEMORY_MISMATCH,
                    f"could not covert a variable of type Quantity to int64: {resource} "
                    f"{quantity} on NUMA node {item.numa_node} is not a whole number of bytes",
                )
    if sum(amounts.get(MEMORY, 0) for amounts in reserved.values()) <= 0:
        return Refusal(
            Reason.NO_SYSTEM_RESERVED_MEMORY,
            "[memorymanager] you should specify the system reserved memory",
        )
    return reserved


def _sum_like(nanos: int, resource: str, items: tuple[MemoryReservation, ...]) -> Quantity:
    """Give a sum the notation of its first summand, as Go's Quantity.Add does."""
    for item in items:
        if resource in item.limits:
            return Quantity(nanos, item.limits[resource].format)
    return Quantity(nanos)
