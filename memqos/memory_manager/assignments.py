"""Re-deriving the machine state from what containers hold.

Source: kubelet policy_static.go, validateState.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import NamedTuple

from attrs import frozen

from memqos.memory_manager.reasons import Reason
from memqos.memory_manager.state import (
    Block,
    ContainerAssignments,
    MachineState,
    MemoryTable,
    NUMANodeState,
    PodAssignments,
)


__all__ = [
    "Assignment",
    "AssignmentFailure",
    "apply_assignments",
    "assignments",
    "other_orders",
]


class Assignment(NamedTuple):
    """The blocks of one container, or of one pod as a whole (`container` empty)."""

    pod: str
    container: str
    blocks: tuple[Block, ...]


@frozen(kw_only=True)
class AssignmentFailure:
    """An assignment that the machine cannot hold any more.

    Attributes:
        reason: one of the three ``assignment_…`` codes.
        message: kubelet's.
        pod: pod UID.
        container: container name, empty for a pod-level block.
        node: the NUMA node that is missing or lacks the resource, else None.
        resource: the resource, None when the node itself is missing.
        missing_bytes: what does not fit.
    """

    reason: Reason
    message: str
    pod: str
    container: str
    node: int | None = None
    resource: str | None = None
    missing_bytes: int | None = None


def assignments(
    entries: ContainerAssignments, pod_entries: PodAssignments | None
) -> tuple[Assignment, ...]:
    """List the blocks to apply, in sorted order (kubelet's own order is random).

    Args:
        entries: container blocks by pod UID.
        pod_entries: pod blocks, None with PodLevelResourceManagers off. They replace the
            container blocks of a pod that is in `entries`; others are never looked at.
    """
    result = []
    for pod in sorted(entries):
        pod_blocks = (pod_entries or {}).get(pod)
        if pod_blocks:
            result.append(Assignment(pod, "", pod_blocks))
            continue
        containers = entries[pod] or {}
        result += [
            Assignment(pod, container, containers[container] or ())
            for container in sorted(containers)
        ]
    return tuple(result)


def other_orders(
    items: tuple[Assignment, ...],
) -> Iterator[tuple[Assignment, ...]]:
    """Yield orders that may give another result; none unless NUMA groups are joint.

    Groups are joint when two affinities overlap without being equal
    (kubernetes/kubernetes#113035). All orders of up to four joint assignments are tried; of more,
    each one first and each one last.
    """
    groups = {frozenset(block.numa_affinity or ()) for item in items for block in item.blocks}
    joint = {a for a in groups for b in groups if a != b and a & b}
    moved = [
        item
        for item in items
        if any(frozenset(block.numa_affinity or ()) in joint for block in item.blocks)
    ]
    others = tuple(item for item in items if item not in moved)
    if len(moved) <= 4:
        orders: Iterable[tuple[Assignment, ...]] = permutations(moved)
    else:
        rests = [(one, tuple(item for item in moved if item is not one)) for one in moved]
        orders = [(one, *rest) for one, rest in rests] + [(*rest, one) for one, rest in rests]
        orders.append(tuple(reversed(moved)))
    if joint:
        for order in orders:
            yield others + order


def apply_assignments(
    state: MachineState, items: Iterable[Assignment]
) -> MachineState | AssignmentFailure:
    """Apply assignments to an idle machine's state, in the order given.

    A block's nodes are filled in the order of its affinity; `cells` becomes the affinity of the
    last block that touched the node.
    """
    nodes = {node_id: node for node_id, node in state.items() if node is not None}
    for item in items:
        for block in item.blocks:
            failure = _apply(nodes, item, block)
            if failure is not None:
                return failure
    return nodes


def _apply(
    nodes: dict[int, NUMANodeState], item: Assignment, block: Block
) -> AssignmentFailure | None:
    where = f"[memorymanager] (pod: {item.pod}, container: {item.container})"
    request = block.size
    for node_id in block.numa_affinity or ():
        node = nodes.get(node_id)
        if node is None:
            return AssignmentFailure(
                reason=Reason.ASSIGNMENT_NUMA_MISSING,
                message=f"{where} the memory assignment uses the NUMA that does not exist",
                pod=item.pod,
                container=item.container,
                node=node_id,
            )
        tables: Mapping[str, MemoryTable | None] = node.memory_map or {}
        table = tables.get(block.type)
        if table is None:
            return AssignmentFailure(
                reason=Reason.ASSIGNMENT_RESOURCE_MISSING,
                message=f"{where} the memory assignment uses memory resource that does not exist",
                pod=item.pod,
                container=item.container,
                node=node_id,
                resource=block.type,
            )
        taken = min(request, table.free)
        request -= taken
        table = MemoryTable(
            table.total,
            table.system_reserved,
            table.allocatable,
            table.reserved + taken,
            table.free - taken,
        )
        nodes[node_id] = NUMANodeState(
            node.number_of_assignments + 1, {**tables, block.type: table}, block.numa_affinity
        )
    if request > 0:
        return AssignmentFailure(
            reason=Reason.ASSIGNMENT_DOES_NOT_FIT,
            message=f"{where} the memory assignment does not fit the machine state",
            pod=item.pod,
            container=item.container,
            resource=block.type,
            missing_bytes=request,
        )
    return None
