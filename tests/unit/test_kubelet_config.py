"""KubeletConfiguration."""

import pytest

from memqos.errors import InputError
from memqos.kubelet_config import (
    MemoryReservation,
    eviction_threshold_bytes,
    parse_kubelet_config,
    parse_reservation,
)
from memqos.quantity import parse_quantity


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (None, 0),
        ("100Mi", 100 * 2**20),
        ("0.5", 1),
        ("0%", 0),
        ("100%", 0),
        # In single precision 5% is 13421773/2^28, and 10Gi/2^28 is 40.
        ("5%", 13421773 * 40),
        ("10%", 1073741840),
        ("50%", 5 * 2**30),
    ],
)
def test_threshold(threshold: str | None, expected: int) -> None:
    """A percentage is single precision of the capacity, cut to bytes."""
    assert eviction_threshold_bytes(threshold, 10 * 2**30) == expected


@pytest.mark.parametrize(
    "threshold", ["", "x", "%", "x%", "-1%", "101%", "nan%", "inf%", "-1Mi", "1e99999%"]
)
def test_bad_threshold(threshold: str) -> None:
    """What kubelet cannot use is an input error."""
    with pytest.raises(InputError):
        eviction_threshold_bytes(threshold, 2**30)


def test_reservation_flag() -> None:
    """Nodes are separated by semicolons, resources by commas."""
    assert parse_reservation("0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=5") == (
        MemoryReservation(
            0, {"memory": parse_quantity("1Gi"), "hugepages-1Gi": parse_quantity("2Gi")}
        ),
        MemoryReservation(1, {"memory": parse_quantity("5")}),
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "0:", "0:memory", "0:=1", "0:memory=", "0:memory=x", "x:memory=1"),
        *("-1:memory=1", "0:memory=1,memory=2", "0:memory=1;", "\\u0661:memory=1"),
        *("2147483648:memory=1", "9" * 5000 + ":memory=1"),
    ],
)
def test_bad_reservation_flag(text: str) -> None:
    """Anything else is an input error."""
    with pytest.raises(InputError):
        parse_reservation(text)


def test_empty() -> None:
    """An empty object is kubelet's defaults, and null fields are absent ones."""
    names = (
        "memoryManagerPolicy",
        "reservedMemory",
        "featureGates",
        "evictionHard",
        "systemReserved",
    )

    assert parse_kubelet_config(dict.fromkeys(names)) == parse_kubelet_config({})


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (None, "$"),
        ([], "$"),
        ({"kind": "Pod"}, "$.kind"),
        ({"memoryManagerPolicy": True}, "$.memoryManagerPolicy"),
        (
            {"memoryManagerPolicyOptions": {"memory-drift-tolerance": False}},
            "$.memoryManagerPolicyOptions['memory-drift-tolerance']",
        ),
        ({"reservedMemory": {}}, "$.reservedMemory"),
        ({"reservedMemory": [{"numaNode": -1}]}, "$.reservedMemory[0].numaNode"),
        ({"reservedMemory": [{"limits": {"memory": "1Zi"}}]}, "$.reservedMemory[0].limits.memory"),
        ({"featureGates": {"X": "true"}}, "$.featureGates.X"),
        ({"evictionHard": {"memory.available": 5}}, "$.evictionHard['memory.available']"),
        ({"mergeDefaultEvictionSettings": "yes"}, "$.mergeDefaultEvictionSettings"),
    ],
)
def test_types(document: object, path: str) -> None:
    """A wrong type is named by its JSON path."""
    with pytest.raises(InputError) as caught:
        parse_kubelet_config(document)
    assert caught.value.path == path
