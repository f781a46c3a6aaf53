"""Node allocatable, as far as memory goes.

memory.high and kubepods' memory.max use the absolute one, which knows neither the eviction
threshold nor hugepages; ``kubectl get node`` shows the other.
"""

from __future__ import annotations

from attrs import frozen

from memqos.kubelet_config import eviction_threshold_bytes
from memqos.memory_qos.config import ConfigErrorCode, MemoryQOSConfig


__all__ = ["Allocatable", "Node", "node_allocatable"]


@frozen(kw_only=True)
class Node:
    """The node that a plan is for.

    Attributes:
        capacity_bytes: MemTotal, None where it is not known.
        page_size: the base page, in bytes.
        cgroup_version: 1 or 2.
        swap_controller: whether cgroups have memory.swap.max; None: not known, and no
            memory.swap.max is planned then.
        swap_capacity_bytes: swap of the node.
        hugepage_bytes: all hugepages of the node.
    """

    capacity_bytes: int | None = None
    page_size: int = 4096
    cgroup_version: int = 2
    swap_controller: bool | None = None
    swap_capacity_bytes: int = 0
    hugepage_bytes: int = 0


@frozen(kw_only=True)
class Allocatable:
    """Bytes; None where the capacity is not known.

    Attributes:
        reservation: systemReserved + kubeReserved + hard eviction threshold.
        status: what ``kubectl get node`` shows as allocatable.
        absolute: capacity less systemReserved and kubeReserved.
        kubepods_max: memory.max of kubepods.
    """

    reservation: int | None
    status: int | None
    absolute: int | None
    kubepods_max: int | None


def node_allocatable(config: MemoryQOSConfig, node: Node) -> Allocatable:
    """Work out node allocatable; amounts that kubelet refuses count as 0."""
    capacity = node.capacity_bytes
    reserved = config.system_reserved_bytes + config.kube_reserved_bytes
    if capacity is None:
        return Allocatable(reservation=None, status=None, absolute=None, kubepods_max=None)
    refused = any(error.code is ConfigErrorCode.EVICTION_INVALID for error in config.errors)
    threshold = None if refused else config.kubelet.memory_available
    reservation = reserved + eviction_threshold_bytes(threshold, capacity)
    absolute = max(0, capacity - reserved)
    return Allocatable(
        reservation=reservation,
        status=max(0, max(0, capacity - reservation) - node.hugepage_bytes),
        absolute=absolute,
        kubepods_max=absolute if "pods" in config.kubelet.enforce_node_allocatable else capacity,
    )
