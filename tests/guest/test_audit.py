"""audit-cgroups and effective-protection on a real kernel."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.guest import Guest


SCRIPT = Path(__file__).parent / "scripts" / "audit.py"
MIB = 1 << 20
ON = {"memoryReservationPolicy": "TieredReservation", "memoryThrottlingFactor": 0.9}
OFF = {"featureGates": {"MemoryQoS": False}}

# One damage each: the role and the file, and what is written there in place of the plan's.
DAMAGES = {
    "changed": {"container:Pod/default/b1/c memory.high": str(100 * MIB)},
    "missing": {"container:Pod/default/b1/c memory.low": "0"},
    "ancestor": {"kubepods memory.low": "0"},
    "overcommit": {"qos:burstable memory.low": str(32 * MIB)},
    "unexpected": {"qos:besteffort memory.high": str(512 * MIB)},
}


def pod(name: str, qos: str, request: str | None, limit: str | None, number: int) -> Any:
    """Make a running pod of one container."""
    resources: Any = {}
    if request:
        resources["requests"] = {"memory": request}
    if limit:
        resources["limits"] = {"memory": limit}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"5f0c9a1e-000{number}-4b6d-9c3a-0d2e6f7a0000",
        },
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {
            "phase": "Running",
            "qosClass": qos,
            "containerStatuses": [
                {
                    "name": "c",
                    "containerID": f"containerd://{f'0{number}' * 32}",
                    "state": {"running": {}},
                }
            ],
        },
    }


PODS = [
    pod("g1", "Guaranteed", "64Mi", "64Mi", 1),
    pod("b1", "Burstable", "64Mi", "128Mi", 2),
    pod("b2", "Burstable", "32Mi", None, 3),
    pod("e1", "BestEffort", None, None, 4),
]


@pytest.fixture(scope="module")
def answer(guest: Guest) -> Any:
    """Go through all scenarios in one boot."""
    files = {
        "pods.json": {"apiVersion": "v1", "kind": "PodList", "items": PODS},
        "on.json": {"kind": "KubeletConfiguration", **ON},
        "off.json": {"kind": "KubeletConfiguration", **OFF},
        "damages.json": DAMAGES,
    }
    result = guest.run(
        SCRIPT,
        nodes=1,
        memory_mib=1024,
        scratch_mib=512,
        files={name: json.dumps(data).encode() for name, data in files.items()},
        timeout=500,
    )
    assert result.status == 0, result.stderr
    return json.loads(result.files["answer"])


def found(answer: Any, driver: str, name: str) -> set[tuple[str, str | None, str | None]]:
    """Return what a damage adds, by role in place of path."""
    tree = answer[driver]
    roles = {path: role for role, path in tree["paths"].items()}
    clean = {tuple(item) for item in tree["clean"]}
    return {
        (code, roles.get(path, path), file)
        for code, path, file in map(tuple, tree["damage"][name])
        if (code, path, file) not in clean
    }


DRIVERS = pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
C = "container:Pod/default/"
P = "pod:Pod/default/"


@DRIVERS
def test_as_planned(answer: Any, driver: str) -> None:
    """A tree as plan-cgroups says has no finding but what is by design of kubelet."""
    tree = answer[driver]
    roles = {path: role for role, path in tree["paths"].items()}
    codes = {(code, roles.get(path, path)) for code, path, _ in tree["clean"]}

    assert codes - {
        ("protection-leak", "qos:burstable"),
        ("protection-leak", "qos:besteffort"),
    } == {
        ("min-equals-max", f"{P}g1"),
        ("min-equals-max", f"{C}g1/c"),
    }
    assert tree["again"] == tree["clean"]


@DRIVERS
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("changed", {("value-differs", f"{C}b1/c", "memory.high")}),
        ("missing", {("value-missing", f"{C}b1/c", "memory.low")}),
        (
            "ancestor",
            {
                ("value-missing", "kubepods", "memory.low"),
                *(
                    ("ineffective-ancestor", role, "memory.low")
                    for role in ("qos:burstable", f"{P}b1", f"{P}b2", f"{C}b1/c", f"{C}b2/c")
                ),
            },
        ),
        (
            "overcommit",
            {
                ("value-differs", "qos:burstable", "memory.low"),
                ("protection-overcommit", "qos:burstable", "memory.low"),
            },
        ),
        ("unexpected", {("unexpected", "qos:besteffort", "memory.high")}),
        ("removed", {("cgroup-missing", None, None)}),
    ],
)
def test_damage(answer: Any, driver: str, name: str, expected: set[Any]) -> None:
    """Each kind of damage is found, and nothing else."""
    told = found(answer, driver, name)
    if name == "removed":
        assert [code for code, _, _ in told] == ["cgroup-missing"]
    else:
        assert told == expected


@DRIVERS
def test_rollback(answer: Any, driver: str) -> None:
    """With the ancestors reset, what pods and containers keep is named, and nothing else."""
    roles = {path: role for role, path in answer[driver]["paths"].items()}
    told = {(code, roles.get(path, path), file) for code, path, file in answer[driver]["rollback"]}

    assert {item for item in told if item[0].startswith("stale-")} == {
        ("stale-high", f"{C}b2/c", "memory.high"),
        ("stale-high", f"{C}e1/c", "memory.high"),
        ("stale-protection-neutral", f"{P}g1", "memory.min"),
        ("stale-protection-neutral", f"{C}g1/c", "memory.min"),
        ("stale-protection-neutral", f"{P}b1", "memory.low"),
        ("stale-protection-neutral", f"{P}b2", "memory.low"),
        ("stale-protection-neutral", f"{C}b2/c", "memory.low"),
    }


def test_protection_that_is_predicted_is_kept(answer: Any) -> None:
    """Under global pressure, without MGLRU, page cache is kept as far as it was predicted."""
    run = answer["held"]
    predicted, kept = run["predicted"], run["kept"]

    assert run["grown"], run
    assert predicted["g1"]["effectiveMin"] >= 96 * MIB
    assert kept["g1"] >= 95 * MIB
    assert predicted["b1"]["effectiveLow"] >= 64 * MIB
    # memory.low is no floor; without MGLRU and with enough else to reclaim it is one.
    assert kept["b1"] >= 56 * MIB
    assert predicted["other"]["effectiveMin"] == predicted["other"]["effectiveLow"] == 0
    # Which unprotected cgroup loses first is arbitrary: their sum gave way.
    assert kept["e1"] + kept["other"] < kept["b1"] + kept["g1"]
    assert kept["other"] < run["before"]["other"]


def test_stale_protection_is_worth_nothing(answer: Any) -> None:
    """The same leaves below ancestors at 0 are predicted to lose, and do."""
    run = answer["stale"]

    assert run["grown"], run
    for name, knob in (("g1", "effectiveMin"), ("b1", "effectiveLow")):
        assert run["predicted"][name][knob] == 0
    assert run["kept"]["g1"] + run["kept"]["b1"] < 0.8 * (
        run["before"]["g1"] + run["before"]["b1"]
    )
