"""Hazards: each code when it should fire, and beside it when it should not."""

from collections.abc import Mapping
from typing import Any

import pytest

from memqos import fields
from memqos.kubelet_config import parse_kubelet_config
from memqos.memory_qos.allocatable import Node
from memqos.memory_qos.compare import compare_plans
from memqos.memory_qos.config import MemoryQOSConfig, resolve_config
from memqos.memory_qos.hazards import (
    Hazard,
    HazardCode,
    Severity,
    find_change_hazards,
    find_hazards,
)
from memqos.memory_qos.paths import Driver
from memqos.memory_qos.plan import plan_cgroups
from memqos.pods import Pod, parse_pod


TIERED: dict[str, Any] = {"memoryReservationPolicy": "TieredReservation"}
FACTOR: dict[str, Any] = {"memoryThrottlingFactor": 0.9}
ON: dict[str, Any] = {"featureGates": {"MemoryQoS": True}}
OFF: dict[str, Any] = {"featureGates": {"MemoryQoS": False}}
SYSTEM: dict[str, Any] = {
    "enforceNodeAllocatable": ["pods", "system-reserved"],
    "systemReserved": {"memory": "1Gi"},
    "systemReservedCgroup": "/system.slice",
}


def config(minor: int = 37, **settings: Any) -> MemoryQOSConfig:
    """Make a configuration."""
    return resolve_config(parse_kubelet_config(settings), minor=minor)


def resources(request: str | None = None, limit: str | None = None) -> dict[str, Any]:
    """Make resources of a container."""
    named = {"requests": request, "limits": limit}
    return {name: {"memory": value} for name, value in named.items() if value is not None}


def pod(*containers: Mapping[str, Any], status: Any = None, **spec: Any) -> Pod:
    """Make a pod of containers with these resources."""
    items = [{"name": f"c{n}", "resources": item} for n, item in enumerate(containers)]
    return parse_pod("Pod", {"name": "p"}, {"containers": items, **spec}, status)


GUARANTEED = {
    "requests": {"cpu": "1", "memory": "1Gi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}


def hazards(
    settings: Mapping[str, Any],
    *pods: Pod,
    minor: int = 37,
    kernel: str | None = None,
    driver: Driver = Driver.SYSTEMD,
    **node: Any,
) -> dict[HazardCode, Hazard]:
    """Return code to hazard on a node of 16Gi."""
    machine = Node(**({"capacity_bytes": 16 << 30} | node))
    chosen = config(minor, **settings)
    plan = plan_cgroups(chosen, machine, pods, driver)
    found = list(find_hazards(chosen, machine, pods, plan, driver=driver, kernel=kernel))
    return {HazardCode(item.code): item for item in found}


SMALL = pod(resources("64Mi", "256Mi"))
SLICE = {"cgroupRoot": "/edge.slice"}
PLAIN = pod({})

# code, severity, arguments with which it is found, arguments with which it is not
CASES: list[Any] = [
    ("cgroup-v1", "warning", ({}, {"cgroup_version": 1}), ({}, {})),
    ("cgroup-v1", "warning", ({}, {"cgroup_version": 1}), (OFF, {"cgroup_version": 1})),
    # no finite memory.high: only kubelet's own warning
    ("kernel-livelock", "info", ({}, {"kernel": "5.8.18"}), ({}, {"kernel": "5.9.0"})),
    (
        "kernel-livelock",
        "warning",
        (FACTOR, {"kernel": "4.18.0-553.el8", "pods": [SMALL]}),
        (OFF, {"kernel": "4.18.0"}),
    ),
    ("capacity-unknown", "warning", ({}, {"capacity_bytes": None}), ({}, {})),
    (
        "reservation-exceeds-capacity",
        "error",
        # 1Gi and the default threshold of 100Mi
        ({"kubeReserved": {"memory": "1Gi"}}, {"capacity_bytes": 1 << 30}),
        ({"kubeReserved": {"memory": "1Gi"}}, {"capacity_bytes": (1 << 30) + (100 << 20)}),
    ),
    ("gate-not-planned", "info", ({"featureGates": {"QOSReserved": True}}, {}), ({}, {})),
    ("factor-one", "info", ({"memoryThrottlingFactor": 1.0}, {}), (FACTOR, {})),
    (
        "factor-one",
        "info",
        ({"memoryThrottlingFactor": 1}, {}),
        ({"memoryThrottlingFactor": 1}, {"cgroup_version": 1}),
    ),
    (
        "throttled-without-swap",
        "warning",
        (FACTOR, {"pods": [SMALL], "swap_controller": True}),
        (FACTOR, {"pods": [SMALL], "swap_controller": True, "swap_capacity_bytes": 1}),
    ),
    (
        "throttled-without-swap",
        "warning",
        (FACTOR, {"pods": [SMALL], "swap_controller": True}),
        (FACTOR, {"pods": [SMALL]}),  # nothing is known of swap
    ),
    (
        "throttled-without-swap",
        "warning",
        (FACTOR, {"pods": [SMALL], "swap_controller": True}),
        ({}, {"pods": [SMALL], "swap_controller": True}),
    ),
    ("cgroup-root-slice", "warning", (SLICE, {}), (SLICE, {"driver": Driver.CGROUPFS})),
    ("cgroup-root-slice", "warning", (SLICE, {}), ({"cgroupRoot": "/edge"}, {})),
    (
        "cgroup-root-underscore",
        "error",
        ({"cgroupRoot": "/my_root"}, {}),
        ({"cgroupRoot": "/my_root"}, {"driver": Driver.CGROUPFS}),
    ),
    (
        "pods-not-enforced",
        "info",
        ({"enforceNodeAllocatable": [], "kubeReserved": {"memory": "1Gi"}}, {}),
        ({"kubeReserved": {"memory": "1Gi"}}, {}),
    ),
    (
        "pods-not-enforced",
        "info",
        ({"enforceNodeAllocatable": [], "kubeReserved": {"memory": "1Gi"}}, {}),
        ({"enforceNodeAllocatable": []}, {}),
    ),
    ("reserved-limited", "info", (SYSTEM | OFF, {}), (SYSTEM, {})),
    ("reserved-protected", "warning", (SYSTEM, {}), (SYSTEM | OFF, {})),
    ("reserved-protected", "warning", (SYSTEM, {}), (SYSTEM, {"minor": 36})),
    ("reserved-protected", "warning", (SYSTEM | ON, {"minor": 36}), ({}, {})),
    (
        "reserved-nested",
        "warning",
        (SYSTEM | {"systemReservedCgroup": "/kube-reserved.slice"}, {}),
        (SYSTEM, {}),
    ),
    (
        "reserved-service",
        "error",
        (SYSTEM | {"systemReservedCgroup": "/system.slice/kubelet.service"}, {}),
        (
            SYSTEM | {"systemReservedCgroup": "/system.slice/kubelet.service"},
            {"driver": Driver.CGROUPFS},
        ),
    ),
    (
        "protection-exceeds-allocatable",
        "error",
        (TIERED, {"pods": [pod(resources("17Gi"))]}),
        ({}, {"pods": [pod(resources("17Gi"))]}),
    ),
    (
        "protection-exceeds-allocatable",
        "warning",
        # between what kubectl shows, 100Mi less, and the absolute allocatable
        (TIERED, {"pods": [pod(resources("16Gi"))]}),
        (TIERED, {"pods": [pod(resources("16284Mi"))]}),
    ),
    ("protection-node-wide", "info", (TIERED, {"pods": [SMALL]}), ({}, {"pods": [SMALL]})),
    ("protection-node-wide", "info", (TIERED, {"pods": [SMALL]}), (TIERED, {"pods": [PLAIN]})),
    (
        "burstable-protection-void",
        "error",
        (TIERED | ON, {"pods": [SMALL], "minor": 36}),
        (TIERED | ON, {"pods": [SMALL], "minor": 37}),
    ),
    (
        "burstable-protection-void",
        "error",
        (TIERED | ON, {"pods": [SMALL], "minor": 36}),
        (TIERED | ON, {"pods": [pod(GUARANTEED)], "minor": 36}),
    ),
    (
        "min-equals-max",
        "warning",
        (TIERED, {"pods": [pod(GUARANTEED)]}),
        (TIERED, {"pods": [SMALL]}),
    ),
    (
        "min-equals-max",
        "warning",
        (TIERED, {"pods": [pod(GUARANTEED)]}),
        (TIERED, {"pods": [pod(GUARANTEED, overhead={"memory": "1Mi"})]}),  # room in the pod
    ),
    (
        "min-equals-max",
        "warning",
        (TIERED, {"pods": [pod(GUARANTEED)]}),
        ({}, {"pods": [pod(GUARANTEED)]}),
    ),
    (
        "min-equals-max",
        "warning",
        # an init container as large: each phase reaches the pod's limit
        (
            TIERED,
            {"pods": [pod(GUARANTEED, initContainers=[{"name": "i", "resources": GUARANTEED}])]},
        ),
        # together they would, but they never run together
        (
            TIERED,
            {
                "pods": [
                    pod(
                        GUARANTEED,
                        initContainers=[{"name": "i", "resources": GUARANTEED}],
                        overhead={"memory": "64Mi"},
                    )
                ]
            },
        ),
    ),
    (
        "request-above-allocatable",
        "warning",
        ({}, {"pods": [pod(resources("17Gi"))]}),
        ({}, {"pods": [pod(resources("16Gi"))]}),
    ),
    (
        "request-below-page",
        "warning",
        (TIERED, {"pods": [pod(resources("4095"))]}),
        (TIERED, {"pods": [pod(resources("4096"))]}),
    ),
    (
        "request-below-page",
        "warning",
        (TIERED, {"pods": [pod(resources("4096"))], "page_size": 65536}),
        ({}, {"pods": [pod(resources("4095"))]}),
    ),
    (
        "request-near-limit",
        "info",
        (FACTOR, {"pods": [pod(resources("95Mi", "100Mi"))]}),
        (FACTOR, {"pods": [pod(resources("94Mi", "100Mi"))]}),
    ),
    (
        "request-near-limit",
        "info",
        (FACTOR, {"pods": [pod(resources("95Mi", "100Mi"))]}),
        (FACTOR, {"pods": [pod(resources("100Mi", "100Mi"))]}),
    ),
    (
        "request-near-limit",
        "info",
        (FACTOR, {"pods": [pod(resources("95Mi", "100Mi"))]}),
        ({}, {"pods": [pod(resources("95Mi", "100Mi"))]}),
    ),
    (
        "init-peak",
        "info",
        (
            TIERED,
            {
                "pods": [
                    pod(
                        resources("1Mi"),
                        initContainers=[{"name": "i", "resources": resources("2Mi")}],
                    )
                ]
            },
        ),
        (
            TIERED,
            {
                "pods": [
                    pod(
                        resources("2Mi"),
                        initContainers=[{"name": "i", "resources": resources("2Mi")}],
                    )
                ]
            },
        ),
    ),
    (
        "init-peak",
        "info",
        (
            TIERED,
            {
                "pods": [
                    pod(
                        resources("1Mi"),
                        initContainers=[{"name": "i", "resources": resources("2Mi")}],
                    )
                ]
            },
        ),
        (
            TIERED,
            {
                "pods": [
                    pod(
                        resources("1Mi"),
                        initContainers=[
                            {"name": "s", "restartPolicy": "Always", "resources": resources("2Mi")}
                        ],
                        overhead={"memory": "1Mi"},
                    )
                ]
            },
        ),
    ),
    (
        "pod-level-high",
        "info",
        (FACTOR, {"pods": [pod({}, resources=resources("1Gi", "2Gi"))]}),
        ({}, {"pods": [pod({}, resources=resources("1Gi", "2Gi"))]}),
    ),
    (
        "resize-pending",
        "info",
        (
            {},
            {
                "pods": [
                    pod(
                        {}, status={"conditions": [{"type": "PodResizePending", "status": "True"}]}
                    )
                ]
            },
        ),
        ({}, {"pods": [PLAIN]}),
    ),
    ("besteffort-throttled", "info", (FACTOR, {"pods": [PLAIN]}), ({}, {"pods": [PLAIN]})),
    (
        "besteffort-throttled",
        "info",
        (FACTOR, {"pods": [PLAIN]}),
        (FACTOR | ON, {"pods": [PLAIN], "minor": 36}),  # fixed since, see 138139
    ),
    ("besteffort-throttled", "info", (FACTOR, {"pods": [PLAIN]}), (FACTOR, {"pods": [SMALL]})),
    (
        "besteffort-overhead",
        "info",
        (TIERED, {"pods": [pod({}, overhead={"memory": "1Mi"})]}),
        (TIERED, {"pods": [PLAIN]}),
    ),
    (
        "ephemeral-throttled",
        "info",
        (FACTOR, {"pods": [pod(GUARANTEED, ephemeralContainers=[{"name": "e"}])]}),
        ({}, {"pods": [pod(GUARANTEED, ephemeralContainers=[{"name": "e"}])]}),
    ),
]


@pytest.mark.parametrize(("code", "severity", "fires", "silent"), CASES)
def test_hazard(code: str, severity: str, fires: Any, silent: Any) -> None:
    """Each hazard is found where it is, with its severity, and not in the case next to it."""
    settings, options = fires
    found = hazards(settings, *options.get("pods", ()), **_without_pods(options))
    assert found[HazardCode(code)].severity is Severity(severity)
    settings, options = silent
    assert HazardCode(code) not in hazards(
        settings, *options.get("pods", ()), **_without_pods(options)
    )


def _without_pods(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "pods"}


CHANGES: list[Any] = [
    ("throttling-dropped", (36, ON), (37, ON), True),
    ("throttling-dropped", (36, ON | FACTOR), (37, ON | FACTOR), False),
    ("throttling-dropped", (36, {}), (37, {}), False),
    ("throttling-dropped", (37, FACTOR), (37, {}), False),  # somebody took it out
    ("stale-throttling", (37, FACTOR), (37, {}), True),
    ("stale-throttling", (37, FACTOR), (37, OFF), True),
    ("stale-throttling", (37, FACTOR), (37, FACTOR | TIERED), False),
    ("stale-throttling", (37, {}), (37, FACTOR), False),
    ("stale-protection", (36, ON | TIERED), (36, {}), True),
    ("stale-protection", (37, TIERED), (37, OFF), False),
    ("stale-protection", (37, SYSTEM), (37, SYSTEM | OFF), True),
    ("stale-protection", (37, SYSTEM), (37, {}), True),
    ("protection-delayed", (37, {}), (37, TIERED), True),
    ("protection-delayed", (37, TIERED), (37, {}), False),
]


@pytest.mark.parametrize(("code", "before", "after", "fires"), CHANGES)
def test_change_hazard(code: str, before: Any, after: Any, *, fires: bool) -> None:
    """What a change of configuration or release leaves behind is told, and nothing else."""
    old, new = (config(minor, **settings) for minor, settings in (before, after))
    node = Node(capacity_bytes=16 << 30)
    plans = [plan_cgroups(each, node, [SMALL]) for each in (old, new)]

    found = find_change_hazards(old, new, compare_plans(plans[0], new, plans[1]))

    assert (code in {item.code for item in found}) is fires


def test_every_code_is_tested() -> None:
    """No hazard is without its test."""
    assert {case[0] for case in (*CASES, *CHANGES)} == set(HazardCode)


def test_places_and_figures() -> None:
    """A hazard names its pod and container, and its sentence has the figures."""
    given = pod(resources("95Mi", "100Mi"))

    found = hazards(FACTOR, given)[HazardCode.REQUEST_NEAR_LIMIT]

    assert (found.pod, found.container) == ("Pod/default/p", "c0")
    # 100Mi less (95Mi + 0.9 * 5Mi), and down to a page
    assert "the request is 95% of the limit" in found.message
    assert "throttling starts 524288 bytes below it" in found.message


def test_too_near_for_a_page() -> None:
    """A gap of less than a page has no memory.high at all."""
    found = hazards(FACTOR, pod(resources("1048570", "1Mi")))

    assert "too near for a memory.high" in found[HazardCode.REQUEST_NEAR_LIMIT].message


def test_refusals_come_first() -> None:
    """What kubelet refuses is an error, before any hazard."""
    chosen = config(memoryThrottlingFactor=7.25)
    node = Node()
    plan = plan_cgroups(chosen, node, [])

    first = next(find_hazards(chosen, node, [], plan))

    assert (first.code, first.severity) == ("factor-range", Severity.ERROR)
    assert first.message.endswith(
        "memoryThrottlingFactor 7.25 must be greater than 0 and less than or equal to 1.0"
    )


def test_pods_of_the_same_name() -> None:
    """Pods that cannot be told apart are no reason to fail."""
    assert HazardCode.BESTEFFORT_THROTTLED in hazards(FACTOR, PLAIN, PLAIN, PLAIN)


def test_figures_are_bytes() -> None:
    """Sizes in sentences are those of the plan."""
    message = hazards(TIERED, pod(GUARANTEED))[HazardCode.MIN_EQUALS_MAX].message

    assert message.count(str(fields.quantity("1Gi", "$").value)) == 2
