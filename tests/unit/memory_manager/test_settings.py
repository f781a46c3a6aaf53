"""From a KubeletConfiguration to the Memory Manager's settings."""

from typing import Any

import pytest

from memqos.kubelet_config import KubeletConfig, parse_kubelet_config
from memqos.memory_manager.checkpoint import ChecksumStatus, Format, LoadedCheckpoint
from memqos.memory_manager.machine import Machine, NUMANode
from memqos.memory_manager.options import DRIFT_TOLERANCE
from memqos.memory_manager.reasons import Reason, Refusal
from memqos.memory_manager.settings import assume_settings, settings_from_config
from memqos.memory_manager.state import CheckpointContent, MemoryTable, NUMANodeState
from memqos.memory_manager.validation import Settings


MI = 2**20
MACHINE = Machine((NUMANode(0, 5 * 2**30), NUMANode(1, 5 * 2**30)), 10 * 2**30)


def settings(minor: int = 38, drift_tolerance: str | None = None, **config: Any) -> Settings:
    """Read a configuration on a machine of 10Gi with two nodes."""
    return settings_from_config(
        parse_kubelet_config({"memoryManagerPolicy": "Static"} | config),
        MACHINE,
        kubelet_minor=minor,
        drift_tolerance=drift_tolerance,
    )


def reserve(*limits: dict[str, str]) -> list[dict[str, Any]]:
    """Reserve on node 0, node 1, ..."""
    return [{"numaNode": node, "limits": items} for node, items in enumerate(limits)]


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # The default threshold of 100Mi counts.
        ({"systemReserved": {"memory": "100Mi"}}, 200),
        ({"systemReserved": {"memory": "1Gi"}, "kubeReserved": {"memory": "24Mi"}}, 1148),
        ({}, 100),
        ({"evictionHard": {"memory.available": "300Mi"}}, 300),
        ({"evictionHard": {"memory.available": "0%"}, "kubeReserved": {"memory": "7Mi"}}, 7),
        ({"evictionHard": {"nodefs.available": "5%"}, "kubeReserved": {"memory": "7Mi"}}, 7),
        (
            {
                "evictionHard": {"nodefs.available": "5%"},
                "mergeDefaultEvictionSettings": True,
                "kubeReserved": {"memory": "7Mi"},
            },
            107,
        ),
        ({"kubeReserved": {"cpu": "1", "pid": "1000", "ephemeral-storage": "1Gi"}}, 100),
    ],
)
def test_node_reservation(config: dict[str, Any], total: int) -> None:
    """systemReserved, kubeReserved and the hard eviction threshold add up."""
    reserved = reserve({"memory": f"{total - 1}Mi"}, {"memory": "1Mi"})

    found = settings(reservedMemory=reserved, **config).system_reserved

    assert found == {0: {"memory": (total - 1) * MI}, 1: {"memory": MI}}


def test_percentage_of_the_current_capacity() -> None:
    """5% of 10Gi in single precision is 536870920 bytes, eight more than the exact value."""
    eviction = {"memory.available": "5%"}

    right = settings(reservedMemory=reserve({"memory": "536870920"}), evictionHard=eviction)
    exact = settings(reservedMemory=reserve({"memory": "512Mi"}), evictionHard=eviction)

    assert right.system_reserved == {0: {"memory": 536870920}}
    assert exact.system_reserved == Refusal(
        Reason.RESERVED_MEMORY_MISMATCH,
        'the total amount "512Mi" of type "memory" is not equal to the value "536870920" '
        "determined by Node Allocatable feature",
    )


def test_bottlerocket_hugepages() -> None:
    """Hugepages in reservedMemory cannot match, as no reservation can name them."""
    reserved = reserve({"memory": "674Mi", "hugepages-2Mi": "10Mi"})

    found = settings(reservedMemory=reserved, systemReserved={"memory": "574Mi"}).system_reserved

    assert isinstance(found, Refusal)
    assert '"10Mi" of type "hugepages-2Mi" is not equal to the value "0"' in found.message


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"reservedMemory": reserve({"cpu": "1"})}, "cpu"),
        ({"reservedMemory": reserve({"hugepages": "1"})}, "hugepages"),
        ({"reservedMemory": reserve({"memory": "0"})}, "zero"),
        ({"reservedMemory": reserve({"memory": "1Mi"}) * 2}, "twice"),
        ({"systemReserved": {"hugepages-2Mi": "1Mi"}}, "hugepages-2Mi"),
        ({"kubeReserved": {"gpu": "1"}}, "gpu"),
        ({"systemReserved": {"memory": "-1Mi"}}, "negative"),
        ({"kubeReserved": {"memory": "1MB"}}, "1MB"),
        ({"systemReserved": {"cpu": "x"}}, "x"),
        ({"evictionHard": {"memory.available": "x%"}}, "x%"),
        ({"evictionHard": {"memory.available": "101%"}}, "101%"),
        ({"evictionHard": {"memory.available": "-1%"}}, "-1%"),
        ({"evictionHard": {"memory.available": "-1Mi"}}, "-1Mi"),
        ({"evictionHard": {"memory.available": "10 Mi"}}, "10 Mi"),
    ],
)
def test_refused_configuration(config: dict[str, Any], words: str) -> None:
    """What kubelet refuses while it reads its configuration is no reservation."""
    refusal = settings(**config).config_refusal

    assert refusal is not None
    assert refusal.reason is Reason.CONFIG_INVALID
    assert words in refusal.message


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ({}, (False, False)),
        ({"MemoryManagerDriftTolerance": True}, (True, False)),
        ({"PodLevelResourceManagers": True}, (False, True)),
        ({"MemoryManagerDriftTolerance": False, "AllAlpha": True}, (False, False)),
        ({"AllAlpha": True}, (True, False)),
    ],
)
def test_gates(gates: dict[str, bool], expected: tuple[bool, bool]) -> None:
    """The alpha gate follows AllAlpha unless it is named."""
    found = settings(featureGates=gates)

    assert (found.drift_tolerance_gate, found.pod_level_gate) == expected


def test_what_if_sets_option_and_gate() -> None:
    """The question "what if" replaces the option and turns the gate on, in any release."""
    options = {DRIFT_TOLERANCE: "off", "other": "x"}

    found = settings(drift_tolerance="auto", memoryManagerPolicyOptions=options)

    assert found.policy_options == {DRIFT_TOLERANCE: "auto", "other": "x"}
    assert found.drift_tolerance_gate
    assert settings(30, drift_tolerance="auto").policy_options == {DRIFT_TOLERANCE: "auto"}


def test_before_1_38_the_gate_is_unknown() -> None:
    """A kubelet before 1.38 refuses the gate's name."""
    refusal = settings(37, featureGates={"MemoryManagerDriftTolerance": False}).config_refusal

    assert refusal is not None
    assert refusal.message == "unrecognized feature gate: MemoryManagerDriftTolerance"


def test_assumed_settings() -> None:
    """Without a configuration policy and reservations are the checkpoint's own."""
    table = MemoryTable(10, 3, 7, 0, 7)
    content = CheckpointContent(
        policy_name="None",
        machine_state={0: NUMANodeState(0, {"memory": table, "x": None}, (0,)), 1: None},
    )
    loaded = LoadedCheckpoint(
        format=Format.V3, content=content, checksum_status=ChecksumStatus.VALID
    )

    found = assume_settings(loaded, kubelet_minor=38, drift_tolerance="auto")
    empty = assume_settings(None, kubelet_minor=38)

    assert (found.policy_name, found.system_reserved) == ("None", {0: {"memory": 3}})
    assert (found.policy_options, found.drift_tolerance_gate) == ({DRIFT_TOLERANCE: "auto"}, True)
    assert (empty.policy_name, empty.system_reserved, empty.policy_options) == ("Static", {}, {})


def test_defaults() -> None:
    """An empty configuration is policy None with the threshold of 100Mi."""
    assert KubeletConfig().memory_manager_policy == "None"
    assert KubeletConfig().memory_available == "100Mi"
