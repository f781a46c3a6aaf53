"""memory.swap.max: NoSwap and LimitedSwap."""

from __future__ import annotations

from memqos.memory_qos.allocatable import Node
from memqos.memory_qos.config import MemoryQOSConfig
from memqos.pods import Container, Pod, QOSClass, to_bytes


__all__ = ["swap_max"]


def swap_max(
    config: MemoryQOSConfig, node: Node, pod: Pod, container: Container, qos: QOSClass
) -> int:
    """Return memory.swap.max of a container in bytes."""
    request, limit = to_bytes(container.requests.memory), to_bytes(container.limits.memory)
    if (
        config.kubelet.swap_behavior != "LimitedSwap"
        or node.cgroup_version != 2
        or pod.critical
        or qos is not QOSClass.BURSTABLE
        or not (request or limit)
        or request == limit
        or not node.capacity_bytes
        or request > node.capacity_bytes
    ):
        return 0
    share = float(request) / float(node.capacity_bytes)
    return int(share * float(node.swap_capacity_bytes))
