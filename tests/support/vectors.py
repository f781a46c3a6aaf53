"""The vectors in tests/data/vectors, read once, and the values they describe."""

import base64
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from memqos.kubelet_config import MemoryReservation
from memqos.memory_manager.checkpoint import LoadedCheckpoint, LoadFailure, load
from memqos.memory_manager.iomem import KernelImage, find_image
from memqos.memory_manager.machine import Hugepages, Machine, NUMANode
from memqos.memory_manager.options import DRIFT_TOLERANCE, GATE
from memqos.memory_manager.reserved import check_reserved_memory
from memqos.memory_manager.state import CheckpointContent
from memqos.memory_manager.validation import Settings
from memqos.quantity import Quantity, bytes_quantity


Case: TypeAlias = "Mapping[str, Any]"

FOLDER = Path(__file__).parents[1] / "data" / "vectors"


@cache
def vectors(name: str) -> tuple[Case, ...]:
    """Return all cases of one file."""
    return tuple(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def named(name: str) -> list[Any]:
    """Return the cases of one file as pytest parameters, by their names."""
    return [pytest.param(case, id=case["name"]) for case in vectors(name)]


def fnv1a(data: bytes) -> int:
    """Hash as the checkpoint does; a second implementation, to test the first with."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def v3_text(document: object) -> str:
    """Write decoded content as a v3 file without its compatibility copy."""
    data = json.dumps(document)
    checksum = fnv1a(b"(string)" + data.encode())
    return json.dumps({"data": data, "dataChecksum": checksum})


def content(document: object) -> CheckpointContent:
    """Turn decoded content into the library's record."""
    loaded = load(v3_text(document).encode(), kubelet_minor=38)
    assert isinstance(loaded, LoadedCheckpoint), loaded
    return loaded.content


def checksum_bytes(case: Case) -> bytes:
    """Return the file of a case of checksum.json."""
    text = case["checkpoint_json_text"]
    return base64.b64decode(case["checkpoint_b64"]) if text is None else text.encode()


def file_text(case: Case) -> str | None:
    """Return the checkpoint file of a case of validate.json, None for no file."""
    checkpoint = case["checkpoint"]
    if checkpoint is None:
        return None
    return str(checkpoint["text"]) if "text" in checkpoint else v3_text(checkpoint)


def machine(case: Case) -> Machine:
    """Return the machine of a case of validate.json."""
    nodes = tuple(
        NUMANode(
            node["id"],
            node["memory_bytes"],
            tuple(Hugepages(size["page_size_kib"], size["pages"]) for size in node["hugepages"]),
        )
        for node in case["machine"]["nodes"]
    )
    return Machine(nodes, sum(node.memory_bytes for node in nodes))


def reservations(case: Case) -> list[tuple[int, dict[str, int]]]:
    """Return (NUMA node, resource to bytes) as configured in reservedMemory."""
    if case["system_reserved"] is not None:
        return [(int(node), limits) for node, limits in case["system_reserved"].items()]
    return [
        (item["numa_node"], item["limits"]) for item in case["reserved_config"]["reserved_memory"]
    ]


def node_reservation(case: Case) -> dict[str, int]:
    """Return what Node Allocatable sets aside, in bytes."""
    if case["system_reserved"] is None:
        return dict(case["reserved_config"]["node_allocatable_reservation"])
    totals: dict[str, int] = {}
    for _, limits in reservations(case):
        for resource, value in limits.items():
            totals[resource] = totals.get(resource, 0) + value
    return totals


def policy_options(case: Case) -> dict[str, str]:
    """Return memoryManagerPolicyOptions; a case may give the bound in place of them."""
    if case.get("tolerance_bytes"):
        return {DRIFT_TOLERANCE: str(case["tolerance_bytes"])}
    return dict(case.get("policy_options") or {})


def gates(case: Case) -> dict[str, bool]:
    """Return the feature gates; a bound needs its own."""
    return dict(case["gates"]) | ({GATE: True} if case.get("tolerance_bytes") else {})


def settings(case: Case) -> Settings:
    """Return kubelet's settings of a case of validate.json."""
    reserved = tuple(
        MemoryReservation(node, {name: bytes_quantity(value) for name, value in limits.items()})
        for node, limits in reservations(case)
    )
    wanted: dict[str, Quantity] = {
        name: bytes_quantity(value) for name, value in node_reservation(case).items()
    }
    return Settings(
        policy_name=case["policy_name"],
        policy_options=policy_options(case),
        drift_tolerance_gate=gates(case).get(GATE, False),
        pod_level_gate=gates(case).get("PodLevelResourceManagers", False),
        system_reserved=check_reserved_memory(reserved, wanted, machine(case)),
    )


def checkpoint(case: Case) -> LoadedCheckpoint | LoadFailure | None:
    """Return the checkpoint of a case of validate.json as 1.38 loads it."""
    text = file_text(case)
    return None if text is None else load(text.encode(), kubelet_minor=38)


def image(case: Case) -> KernelImage | None:
    """Return the kernel image of a case of validate.json."""
    text = case.get("iomem")
    return None if text is None else find_image(text)
