"""Comparing plans: what changes, and with which event."""

from typing import Any

from memqos.kubelet_config import parse_kubelet_config
from memqos.memory_qos.allocatable import Node
from memqos.memory_qos.compare import PlanChange, When, compare_plans
from memqos.memory_qos.config import MemoryQOSConfig, resolve_config
from memqos.memory_qos.plan import CgroupPlan, plan_cgroups
from memqos.pods import Pod, parse_pod


def side(minor: int = 37, **settings: Any) -> MemoryQOSConfig:
    """Make a configuration."""
    return resolve_config(parse_kubelet_config(settings), minor=minor)


def pod(request: str = "128Mi", limit: str | None = "256Mi") -> Pod:
    """Make a pod of one container."""
    resources: dict[str, Any] = {"requests": {"memory": request}}
    if limit:
        resources["limits"] = {"memory": limit}
    return parse_pod("Pod", {"name": "b"}, {"containers": [{"name": "c", "resources": resources}]})


def plan(config: MemoryQOSConfig, *pods: Pod, **node: Any) -> CgroupPlan:
    """Plan a node of 16Gi."""
    return plan_cgroups(config, Node(**({"capacity_bytes": 16 << 30} | node)), pods or (pod(),))


def changes(old: MemoryQOSConfig, new: MemoryQOSConfig, **node: Any) -> set[tuple[Any, ...]]:
    """Return the changes without their paths."""
    found = compare_plans(plan(old, **node), new, plan(new, **node))
    return {(item.role, item.file, item.before, item.after, item.when) for item in found}


RESERVED: dict[str, Any] = {
    "enforceNodeAllocatable": ["pods", "system-reserved"],
    "systemReserved": {"memory": "1Gi"},
    "systemReservedCgroup": "/system.slice",
}


def test_nothing_changes() -> None:
    """The same kubelet changes nothing."""
    assert changes(side(memoryThrottlingFactor=0.9), side(memoryThrottlingFactor=0.9)) == set()


def test_reservation() -> None:
    """A larger reservation is written to kubepods and its own cgroup at kubelet's start."""
    larger: dict[str, Any] = {**RESERVED, "systemReserved": {"memory": "2Gi"}}

    assert changes(side(**RESERVED), side(**larger)) == {
        ("kubepods", "memory.max", str(15 << 30), str(14 << 30), When.KUBELET_START),
        ("system-reserved", "memory.max", str(1 << 30), str(2 << 30), When.KUBELET_START),
        ("system-reserved", "memory.min", str(1 << 30), str(2 << 30), When.KUBELET_START),
    }


def test_a_cgroup_comes_and_goes() -> None:
    """Enforcing a reservation writes its cgroup; to stop leaves all as it is, for good."""
    without: dict[str, Any] = {"systemReserved": {"memory": "1Gi"}}

    assert changes(side(**without), side(**RESERVED)) == {
        ("system-reserved", "memory.max", None, str(1 << 30), When.KUBELET_START),
        ("system-reserved", "memory.min", None, str(1 << 30), When.KUBELET_START),
    }
    assert changes(side(**RESERVED), side(**without)) == {
        ("system-reserved", "memory.max", str(1 << 30), None, When.NEVER),
        ("system-reserved", "memory.min", str(1 << 30), None, When.NEVER),
    }


def test_allocatable_moves_memory_high() -> None:
    """A container without a limit is throttled relative to allocatable, once it is resized."""
    old = side(memoryThrottlingFactor=0.5)
    new = side(memoryThrottlingFactor=0.5, kubeReserved={"memory": "2Gi"})
    unlimited = pod("0", None)

    found = compare_plans(plan(old, unlimited), new, plan(new, unlimited))

    assert [(item.file, item.before, item.after, item.when) for item in found] == [
        ("memory.max", str(16 << 30), str(14 << 30), When.KUBELET_START),
        ("memory.high", str(8 << 30), str(7 << 30), When.RESIZE),
    ]


def test_swap() -> None:
    """LimitedSwap reaches a running container with its next resize."""
    # 128Mi of 16Gi is a 128th; so much of 4Gi of swap is 32Mi
    limited = side(memorySwap={"swapBehavior": "LimitedSwap"})

    found = changes(side(), limited, swap_controller=True, swap_capacity_bytes=4 << 30)

    assert found == {
        ("container:Pod/default/b/c", "memory.swap.max", "0", str(32 << 20), When.RESIZE)
    }


def test_oom_group() -> None:
    """SingleProcessOOMKill leaves memory.oom.group as it was until the container restarts."""
    found = changes(side(), side(singleProcessOOMKill=True))

    assert found == {
        ("container:Pod/default/b/c", "memory.oom.group", "1", "0", When.CONTAINER_RESTART)
    }


def test_paths_are_the_new_ones() -> None:
    """A change is found where the kubelet that comes has it."""
    new = side(cgroupRoot="/edge", memoryReservationPolicy="TieredReservation")

    found = compare_plans(plan(side()), new, plan(new))

    assert isinstance(found[0], PlanChange)
    assert {item.path.partition("/")[0] for item in found} == {"edge.slice"}
