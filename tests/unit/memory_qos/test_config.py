"""What kubelet refuses beyond the vectors, and the gate's defaults."""

from typing import Any

import pytest

from memqos.kubelet_config import parse_kubelet_config
from memqos.memory_qos.allocatable import Node, node_allocatable
from memqos.memory_qos.config import MemoryQOSConfig, resolve_config


def config(minor: int, settings: Any) -> MemoryQOSConfig:
    """Make a configuration."""
    return resolve_config(parse_kubelet_config(settings), minor=minor)


@pytest.mark.parametrize(
    ("settings", "codes"),
    [
        ({"enforceNodeAllocatable": ["pod"]}, ["enforce-unknown"]),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, ["enforce-duplicate"]),
        ({"enforceNodeAllocatable": ["none", "pods"]}, ["enforce-none-exclusive"]),
        ({"enforceNodeAllocatable": ["none"]}, []),
        (
            {
                "enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"],
                "kubeReservedCgroup": "/kube.slice",
            },
            ["enforce-compressible-conflict"],
        ),
        ({"enforceNodeAllocatable": ["kube-reserved"]}, ["kube-reserved-cgroup-missing"]),
        (
            {"enforceNodeAllocatable": ["system-reserved-compressible"]},
            ["system-reserved-cgroup-missing"],
        ),
        ({"cgroupsPerQOS": False}, ["enforce-needs-cgroups-per-qos"]),
        ({"cgroupsPerQOS": False, "enforceNodeAllocatable": []}, []),
        ({"kubeReserved": {"memory": "-1Gi"}}, ["reservation-invalid"]),
        ({"systemReserved": {"memory": "1GB"}}, ["reservation-invalid"]),
        ({"evictionHard": {"memory.available": "101%"}}, ["eviction-invalid"]),
        ({"evictionHard": {"memory.available": "5%"}}, []),
        # each is reported, not only the first
        (
            {"memoryThrottlingFactor": 0, "memoryReservationPolicy": "tiered"},
            ["factor-range", "policy-unknown"],
        ),
    ],
)
def test_refusals(settings: Any, codes: list[str]) -> None:
    """Kubelet does not start with these, and each has its code and field."""
    errors = config(37, settings).errors

    assert [error.code for error in errors] == codes
    assert all(error.field.startswith("$.") for error in errors)


def test_refused_amounts_count_as_nothing() -> None:
    """What kubelet refuses does not enter a sum."""
    settings = {"kubeReserved": {"memory": "x"}, "evictionHard": {"memory.available": "x"}}

    found = node_allocatable(config(37, settings), Node(capacity_bytes=1000))

    assert (found.reservation, found.absolute, found.status) == (0, 1000, 1000)


@pytest.mark.parametrize(
    ("minor", "gates", "enabled"),
    [
        (36, {}, False),
        (36, {"AllAlpha": True}, True),
        (36, {"AllAlpha": True, "MemoryQoS": False}, False),
        (36, {"AllBeta": True}, False),
        (37, {}, True),
        (37, {"AllBeta": False}, False),
        (37, {"AllBeta": False, "MemoryQoS": True}, True),
        (37, {"AllAlpha": False}, True),
    ],
)
def test_gate(minor: int, gates: dict[str, bool], *, enabled: bool) -> None:
    """MemoryQoS is alpha up to 1.36 and beta from 1.37; its own setting wins."""
    assert config(minor, {"featureGates": gates}).enabled is enabled


@pytest.mark.parametrize(
    ("factor", "text"), [(1.123456789, "1.123456789"), (2, "2"), (-0.5, "-0.5"), (0, "0")]
)
def test_factor_in_the_message(factor: float, text: str) -> None:
    """The number is written in full, as Go's %v does."""
    (error,) = config(37, {"memoryThrottlingFactor": factor}).errors

    assert f"memoryThrottlingFactor {text} must be greater than 0" in error.message
