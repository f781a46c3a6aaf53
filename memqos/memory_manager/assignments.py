"""Re-deriving the machine state from what containers hold.

Source: kubelet policy_static.go, validateState.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, permutations, product
from math import factorial, prod
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
    "Orders",
    "apply_assignments",
    "assignments",
    "other_orders",
]


# All orders of up to five pods with one container each are tried; of more, a few.
_MAX_ORDERS = 120
_MAX_SAMPLES = 16


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


class Orders(NamedTuple):
    """Other orders in which kubelet may apply assignments.

    Attributes:
        tried: the orders; none unless NUMA groups are joint.
        complete: whether these are all that can give another result.
    """

    tried: tuple[tuple[Assignment, ...], ...]
    complete: bool


def other_orders(items: tuple[Assignment, ...]) -> Orders:
    """List orders of pods, and of containers within a pod, that may give another result.

    They matter where NUMA groups are joint: two affinities overlap without being equal
    (kubernetes/kubernetes#113035). Of many, only some are tried.
    """
    joint = _joint_groups({_group(block) for item in items for block in item.blocks})
    if not joint:
        return Orders((), complete=True)
    moved: dict[str, list[Assignment]] = {}
    others = []
    for item in items:
        if any(_group(block) in joint for block in item.blocks):
            moved.setdefault(item.pod, []).append(item)
        else:
            others.append(item)
    pods = list(moved.values())
    count = factorial(min(len(pods), 20)) * prod(factorial(min(len(pod), 20)) for pod in pods)
    if count <= _MAX_ORDERS:
        orders = [
            tuple(chain.from_iterable(order))
            for pod_order in permutations(pods)
            for order in product(*(permutations(pod) for pod in pod_order))
        ]
    else:
        picked = pods[:: max(1, len(pods) // (_MAX_SAMPLES // 2))]
        rests = [(pod, [other for other in pods if other is not pod]) for pod in picked]
        by_pod = [[pod, *rest] for pod, rest in rests] + [[*rest, pod] for pod, rest in rests]
        by_pod.append([pod[::-1] for pod in reversed(pods)])
        orders = [tuple(chain.from_iterable(order)) for order in by_pod]
    first = tuple(others)
    return Orders(tuple(first + order for order in orders), complete=count <= _MAX_ORDERS)


def _group(block: Block) -> tuple[int, ...]:
    return tuple(sorted(block.numa_affinity or ()))


def _joint_groups(groups: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    by_node: dict[int, set[tuple[int, ...]]] = {}
    for group in groups:
        for node_id in group:
            by_node.setdefault(node_id, set()).add(group)
    return {group for sharing in by_node.values() if len(sharing) > 1 for group in sharing}


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
