"""Transitions: events one by one; the vectors test whole sequences."""

from typing import Any

import pytest

from memqos.kubelet_config import parse_kubelet_config
from memqos.memory_qos.allocatable import Node
from memqos.memory_qos.config import MemoryQOSConfig, resolve_config
from memqos.memory_qos.plan import CgroupPlan, plan_cgroups
from memqos.memory_qos.transition import KERNEL_DEFAULTS, Event, after, initial_state
from memqos.pods import Pod, parse_pod


POD, CONTAINER = "pod:Pod/default/b", "container:Pod/default/b/c"
TIERED: dict[str, Any] = {
    "memoryReservationPolicy": "TieredReservation",
    "memoryThrottlingFactor": 0.9,
}


def config(minor: int = 37, **settings: Any) -> MemoryQOSConfig:
    """Make a configuration with the gate on."""
    gates = {"featureGates": {"MemoryQoS": True}}
    return resolve_config(parse_kubelet_config(gates | settings), minor=minor)


def pod(request: str, limit: str) -> Pod:
    """Make a Burstable pod of one container."""
    resources = {"requests": {"memory": request}, "limits": {"memory": limit}}
    return parse_pod("Pod", {"name": "b"}, {"containers": [{"name": "c", "resources": resources}]})


def plan(chosen: MemoryQOSConfig, request: str = "128Mi", limit: str = "256Mi") -> CgroupPlan:
    """Plan a node of 16Gi with one pod."""
    return plan_cgroups(chosen, Node(capacity_bytes=16 << 30), [pod(request, limit)])


def test_initial_state() -> None:
    """What a plan does not write has the kernel's default."""
    state = initial_state(plan(config()))

    assert state[POD] == {**KERNEL_DEFAULTS, "memory.max": "268435456"}
    assert state["qos:besteffort"] == KERNEL_DEFAULTS


@pytest.mark.parametrize("event", [Event.KUBELET_RESTART, Event.KUBELET_UPGRADE])
def test_running_pods_outlive_kubelet(event: Event) -> None:
    """A kubelet's start touches no file of a pod or container that runs."""
    state = initial_state(plan(config(**TIERED)))
    off = config(featureGates={"MemoryQoS": False})

    found = after(state, event, off, plan(off))

    assert (found[POD], found[CONTAINER]) == (state[POD], state[CONTAINER])


@pytest.mark.parametrize(
    ("minor", "request_bytes", "expected"),
    [
        # the limit changes: 1.37 follows with the pod's protection, 1.36 with memory.max alone
        (37, ("192Mi", "512Mi"), ("201326592", "536870912")),
        (36, ("192Mi", "512Mi"), ("134217728", "536870912")),
        # the request alone changes: neither release writes the pod's cgroup
        (37, ("192Mi", "256Mi"), ("134217728", "268435456")),
        (36, ("192Mi", "256Mi"), ("134217728", "268435456")),
    ],
)
def test_resize_of_a_pod(
    minor: int, request_bytes: tuple[str, str], expected: tuple[str, str]
) -> None:
    """The pod's memory.low follows a resize only from 1.37, and only with memory.max."""
    chosen = config(minor, **TIERED)

    found = after(initial_state(plan(chosen)), Event.RESIZE, chosen, plan(chosen, *request_bytes))

    assert (found[POD]["memory.low"], found[POD]["memory.max"]) == expected
    assert found[CONTAINER]["memory.low"] == "201326592"
    # kubepods and burstable follow within a minute
    assert found["qos:burstable"]["memory.low"] == "201326592"


def test_resize_with_an_old_runtime() -> None:
    """A runtime that ignores the unified map on update writes memory.max and nothing else."""
    chosen = config(**TIERED)

    found = after(
        initial_state(plan(chosen)),
        Event.RESIZE,
        chosen,
        plan(chosen, "192Mi", "512Mi"),
        unified_update=False,
    )

    before = initial_state(plan(chosen))[CONTAINER]
    assert found[CONTAINER] == {**before, "memory.max": "536870912"}


def test_container_restart() -> None:
    """A new container starts from the kernel's defaults, below the old pod cgroup."""
    state = initial_state(plan(config(**TIERED)))
    none = config()

    found = after(state, Event.CONTAINER_RESTART, none, plan(none))

    assert found[CONTAINER]["memory.high"] == "max"
    assert found[CONTAINER]["memory.low"] == "0"
    assert found[POD]["memory.low"] == "134217728"


def test_gate_off_in_136() -> None:
    """Kubelet 1.36 never resets kubepods and burstable; 1.37 does once, at its start."""
    state = initial_state(plan(config(36, **TIERED)))
    for minor, expected in ((36, "134217728"), (37, "0")):
        off = config(minor, featureGates={"MemoryQoS": False})
        for event in (Event.KUBELET_RESTART, Event.QOS_RECONCILE):
            found = after(state, event, off, plan(off))
            wanted = expected if event is Event.KUBELET_RESTART else "134217728"
            assert found["qos:burstable"]["memory.low"] == wanted


def test_unknown_roles_and_files_stay() -> None:
    """What the state does not name is not added, and what no plan names is kept."""
    chosen = config()
    state = {"pod:other": {"memory.low": "7"}, "kubepods": {"memory.min": "7"}}

    found = after(state, Event.KUBELET_RESTART, chosen, plan(chosen))

    assert found == {"pod:other": {"memory.low": "7"}, "kubepods": {"memory.min": "0"}}
