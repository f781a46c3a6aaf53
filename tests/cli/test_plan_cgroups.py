"""memqos plan-cgroups: the vectors through the command, its inputs, and its exit statuses."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from memqos.adapters.schemas import schema_text
from memqos.memory_qos.compare import When
from memqos.memory_qos.config import ConfigErrorCode, Policy
from memqos.memory_qos.hazards import HazardCode, Severity
from memqos.pods import QOSClass
from tests.support.program import PROGRAM, Answer, memqos, validator


VECTORS = Path(__file__).parents[1] / "data" / "vectors" / "memoryqos.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]
MIB = 1 << 20
GIB = 1 << 30

TIERED = {
    "memoryThrottlingFactor": 0.9,
    "memoryReservationPolicy": "TieredReservation",
    "featureGates": {"MemoryQoS": True},
}


def of_kind(kind: str) -> list[Any]:
    """Return the cases of a kind as pytest parameters."""
    return [pytest.param(case, id=case["name"]) for case in CASES if case["kind"] == kind]


def stream(*documents: Any) -> bytes:
    """Write documents as a YAML stream, of two lines a document."""
    return b"".join(b"---\n" + json.dumps(document).encode() + b"\n" for document in documents)


def pod(name: str = "p", *, kind: str = "Pod", **container: Any) -> dict[str, Any]:
    """Make a pod of one container "c" with these resources."""
    spec = {"containers": [{"name": "c", "resources": container}]}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def memory(request: str | None = None, limit: str | None = None) -> dict[str, Any]:
    """Make container resources with a memory request and limit."""
    named = {"requests": request, "limits": limit}
    return {name: {"memory": value} for name, value in named.items() if value is not None}


def deployment(name: str = "web", replicas: int = 1, **container: Any) -> dict[str, Any]:
    """Make a Deployment of one container "c" with these resources."""
    template = {"spec": pod(name, **container)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": template},
    }


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Return a function that writes a document to a file and gives its path."""

    def write(name: str, document: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return write


def plan(manifests: bytes, *options: str | Path, output: str = "json") -> Answer:
    """Run the command on manifests from standard input."""
    return memqos("plan-cgroups", "-f", "-", "-o", output, *options, stdin=manifests)


def files(answer: Answer) -> dict[str, dict[str, str]]:
    """Return role to file to value."""
    return {cgroup["role"]: cgroup["files"] for cgroup in answer.json["cgroups"]}


def codes(answer: Answer) -> list[str]:
    """Return the codes of all warnings."""
    return [warning["code"] for warning in answer.json["warnings"]]


# --- the vectors ---------------------------------------------------------------------------------


def spelled_out(spec: dict[str, Any]) -> dict[str, Any]:
    """Write absent requests of limited containers as 0, which keeps defaulting off.

    For kubelet both are the same: only the API server tells an absent request from one of 0.
    """
    containers = [
        {**container, "resources": _spelled_out(container.get("resources") or {})}
        for container in spec["containers"]
    ]
    inits = [
        {**container, "resources": _spelled_out(container.get("resources") or {})}
        for container in spec.get("initContainers", [])
    ]
    return {**spec, "containers": containers} | ({"initContainers": inits} if inits else {})


def _spelled_out(resources: dict[str, Any]) -> dict[str, Any]:
    limits = resources.get("limits", {})
    return {**resources, "requests": dict.fromkeys(limits, "0") | resources.get("requests", {})}


def manifests_of(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return everything that goes into the stream."""
    given = case["input"]
    found = []
    for manifest in given["manifests"]:
        if given["defaulting"] == "none" and manifest["kind"] == "Pod":
            manifest = {**manifest, "spec": spelled_out(manifest["spec"])}  # noqa: PLW2901
        found.append(manifest)
    found += given.get("limitRanges", [])
    for name, runtime_class in given.get("runtimeClasses", {}).items():
        body = {"kind": "RuntimeClass", "metadata": {"name": name}, **runtime_class}
        found.append(body)
    return found


def options_of(given: Mapping[str, Any], write: Any) -> Iterator[str]:
    """Return the options for a case's kubelet and node."""
    yield from ("--kubelet-config", str(write("kubelet.json", given.get("config", {}))))
    yield from ("--kubelet-version", given["kubeletVersion"])
    node = given.get("node", {})
    capacity = [f"memory={node.get('memoryCapacity', '16Gi')}"]
    if node.get("swapController"):
        capacity.append(f"swap={node.get('swapCapacity', 0)}")
    capacity += [f"{name}={size}" for name, size in node.get("hugepages", {}).items()]
    yield from ("--capacity", ",".join(capacity))
    yield from ("--page-size", str(node.get("pageSize", 4096)))
    yield from ("--cgroup-version", str(node.get("cgroupVersion", 2)))


@pytest.mark.parametrize("case", of_kind("plan"))
def test_plan_vectors(case: Any, write: Any) -> None:
    """The document has just the cgroups, files, values, classes and metrics of the vector."""
    answer = plan(stream(*manifests_of(case)), *options_of(case["input"], write))

    assert answer.code in (0, 1)
    found, expected = files(answer), case["expect"]["cgroups"]
    for role, name in case.get("unasserted", []):
        found.get(role, {}).pop(name, None)
        expected.get(role, {}).pop(name, None)
    assert found == expected
    document = answer.json
    classes = {
        item["pod"]: item["qosClass"]
        for item in document["cgroups"]
        if item["role"].startswith("pod:")
    }
    assert classes == {name: case["expect"]["qos"][name] for name in classes}
    assert document["metrics"] == case["expect"]["metrics"]


@pytest.mark.parametrize("case", of_kind("config"))
def test_config_vectors(case: Any, write: Any) -> None:
    """What kubelet refuses exits 1 with the vector's codes and texts; the rest exits 0."""
    answer = plan(stream(pod()), *options_of(case["input"], write))

    refused = [
        warning for warning in answer.json["warnings"] if warning["code"] in tuple(ConfigErrorCode)
    ]
    expect = case["expect"]
    assert answer.code == (1 if expect["errors"] else 0)
    assert [warning["code"] for warning in refused] == expect["errors"]
    for warning, message in zip(refused, expect.get("messages", []), strict=False):
        assert warning["message"].endswith(message)
    if "effective" in expect:
        assert {
            "MemoryQoS": answer.json["memoryQoS"],
            "memoryThrottlingFactor": answer.json["memoryThrottlingFactor"],
            "memoryReservationPolicy": answer.json["memoryReservationPolicy"],
        } == expect["effective"]


@pytest.mark.parametrize("case", of_kind("node"))
def test_node_vectors(case: Any, write: Any) -> None:
    """Allocatable and kubepods' memory.max are the vector's; 0 is never written."""
    answer = plan(stream(pod()), *options_of(case["input"], write))

    expect = case["expect"]
    assert answer.json["nodeAllocatableBytes"] == expect["allocatableAbsolute"]
    wanted = expect["kubepodsMemoryMax"]
    assert files(answer)["kubepods"].get("memory.max") == (str(wanted) if wanted else None)


@pytest.mark.parametrize("case", of_kind("environment"))
def test_environment_vectors(case: Any) -> None:
    """Kubelet's own start-up warnings are among the warnings."""
    given = case["input"]
    options = ["--kubelet-version", given["kubeletVersion"], "--kernel", given["kernel"]]
    gates = json.dumps({"featureGates": {"MemoryQoS": given["gate"]}}).encode()

    manifest = Path(__file__).parents[1] / "data" / "manifests" / "burstable.yaml"
    answer = memqos(
        *("plan-cgroups", "-f", manifest, "-o", "json", "--kubelet-config", "-"),
        *("--cgroup-version", str(given["cgroupVersion"]), *options),
        stdin=gates,
    )

    own = {"cgroup-v1", "kernel-livelock"}
    assert [code for code in codes(answer) if code in own] == case["expect"]["warnings"]


@pytest.mark.parametrize("case", of_kind("path"))
def test_path_vectors(case: Any, write: Any) -> None:
    """Paths are the vector's; the container's own id is not known before it runs."""
    given, expect = case["input"], dict(case["expect"])
    expect.pop("container", None)
    config = {
        "cgroupDriver": given["cgroupDriver"],
        "cgroupRoot": given.get("cgroupRoot", "/"),
        "enforceNodeAllocatable": ["pods", "system-reserved"],
        "systemReserved": {"memory": "1Gi"},
        "systemReservedCgroup": given.get("reservedCgroup", "/system.slice"),
    }
    manifest = pod(**memory("1Mi"))
    manifest["metadata"]["uid"] = given.get("podUID", "u")
    manifest["status"] = {"qosClass": given.get("qosClass", "Burstable")}

    answer = plan(stream(manifest), "--kubelet-config", write("kubelet.json", config))

    names = {"pod:Pod/default/p": "pod", "system-reserved": "reserved"}
    found = {
        names.get(item["role"], item["role"]): item["path"] for item in answer.json["cgroups"]
    }
    assert {name: found[name] for name in expect} == expect


@pytest.mark.parametrize("case", of_kind("quantity"))
def test_quantity_vectors(case: Any, write: Any) -> None:
    """A memory request has the vector's bytes, or the answer is 3 with its field."""
    answer = plan(
        stream(pod(**memory(case["input"]["text"]))),
        *("--kubelet-config", write("kubelet.json", TIERED)),
    )

    if "error" in case["expect"] or case["expect"]["bytes"] < 0:
        assert answer.code == 3
        assert "line 2: $.spec.containers[0].resources.requests.memory: " in answer.err
    else:
        low = files(answer)["pod:Pod/default/p"].get("memory.low", "0")
        assert low == str(case["expect"]["bytes"])


REACHED = {
    "kubelet-restart": {When.KUBELET_START},
    "kubelet-upgrade": {When.KUBELET_START},
    "qos-reconcile": {When.KUBELET_START},
    "resize": {When.KUBELET_START, When.RESIZE},
    "container-restart": {When.KUBELET_START, When.RESIZE, When.CONTAINER_RESTART},
    "pod-recreate": set(When) - {When.NEVER},
}


@pytest.mark.parametrize("case", of_kind("transition"))
def test_transition_vectors(case: Any, write: Any) -> None:
    """--diff says of each file which of the vector's events has brought the new value."""
    given = case["input"]
    if "runtime" in given:
        pytest.skip("the command does not know the runtime")
    if any(event.startswith("resize ") for event in given["events"]):
        pytest.skip("the manifests are the same before and after")
    before: dict[str, Any] = {
        "memoryReservationPolicy": "None",
        "featureGates": {"MemoryQoS": True},
    }
    if given["before"]["kubepods"]["memory.min"] != "0":
        before = {
            **TIERED,
            "enforceNodeAllocatable": ["pods", "system-reserved"],
            "systemReserved": {"memory": "1Gi"},
            "systemReservedCgroup": "/system.slice",
        }
    both = {"cpu": "1", "memory": "256Mi"}
    pods = {
        "pod:b": pod("b", **memory("128Mi", "256Mi")),
        "pod:g": pod("g", requests=both, limits=both),
    }

    answer = plan(
        stream(*(manifest for role, manifest in pods.items() if role in given["before"])),
        *("--kubelet-config", write("now.json", before), "--kubelet-version", "1.37"),
        *("--diff", write("then.json", given["config"]), "--capacity", "memory=16Gi"),
        *("--diff-version", given["kubeletVersion"]),
    )

    changes = {
        (item["role"].replace("Pod/default/", ""), item["file"]): item
        for item in answer.json["changes"]
    }
    reached = set().union(*(REACHED[event] for event in given["events"]))
    after = {}
    for role, values in given["before"].items():
        after[role] = dict(values)
        for name, value in values.items():
            change = changes.get((role, name))
            if change is not None:
                assert change["before"] == value
                if change["when"] in reached:
                    after[role][name] = change["after"]
    if "container-restart" in given["events"]:  # nothing happens to the pods' own cgroups
        assert all(
            item["when"] != "resize" for (role, _), item in changes.items() if role[:4] == "pod:"
        )
    assert after == case["expect"]["after"]


def test_readback_vectors_do_not_apply() -> None:
    """What the kernel reads back is no part of a plan: the text is the one that is written."""
    answer = plan(stream(pod(**memory("0", "100000001"))))

    assert files(answer)["container:Pod/default/p/c"]["memory.max"] == "100000001"


# --- the schema ----------------------------------------------------------------------------------


def test_schema_enums() -> None:
    """The words in the schema are exactly those of the library."""
    schema = json.loads(schema_text("CgroupPlan"))
    warning, change, cgroup = (schema["$defs"][name] for name in ("warning", "change", "cgroup"))

    assert warning["properties"]["code"]["enum"] == [
        *map(str, HazardCode),
        *map(str, ConfigErrorCode),
    ]
    assert warning["properties"]["severity"]["enum"] == [*map(str, Severity)]
    assert change["properties"]["when"]["enum"] == [*map(str, When)]
    assert cgroup["properties"]["qosClass"]["enum"] == [*map(str, QOSClass), None]
    assert schema["properties"]["memoryReservationPolicy"]["enum"] == [*map(str, Policy)]
    assert "changes" not in schema["required"]


def test_yaml_equals_json(write: Any) -> None:
    """Both formats hold one document, with and without a comparison."""
    options = ["--kubelet-config", str(write("k.json", TIERED)), "--capacity", "memory=4Gi"]
    for more in ([], ["--diff-version", "1.36"]):
        manifests = stream(pod(**memory("1Gi", "2Gi")), deployment())
        as_json = plan(manifests, *options, *more)
        as_yaml = plan(manifests, *options, *more, output="yaml")

        document = yaml.safe_load(as_yaml.out)
        assert document == as_json.json
        assert ("changes" in document) == bool(more)
        validator("CgroupPlan").validate(document)


# --- text ----------------------------------------------------------------------------------------


def test_tree(write: Any) -> None:
    """Guaranteed pods are directly in kubepods, the others in their class, containers inside."""
    both = {"cpu": "1", "memory": "1Gi"}
    manifests = stream(
        pod("b", **memory("128Mi", "256Mi")), pod("g", requests=both, limits=both), pod("e")
    )
    options = ("--kubelet-config", write("k.json", TIERED), "--capacity", "memory=32Gi")

    lines = plan(manifests, *options, output="tree").out.splitlines()

    # 1Gi + 128Mi = 1207959552; 0.9 of 32Gi in pages is 30923763712.
    assert lines[:9] == [
        "kubepods.slice  max=34359738368 min=1207959552 low=134217728",
        "  Pod/default/g  max=1073741824 min=1073741824",
        "    c  max=1073741824 oom.group=1 min=1073741824",
        "  kubepods-burstable.slice  low=134217728",
        "    Pod/default/b  max=268435456 low=134217728",
        "      c  max=268435456 oom.group=1 low=134217728 high=255012864",
        "  kubepods-besteffort.slice",
        "    Pod/default/e",
        "      c  oom.group=1 min=0 low=0 high=30923763712",
    ]


def test_table(write: Any) -> None:
    """One row a cgroup, a dash for what is not written."""
    options = ("--kubelet-config", write("k.json", TIERED), "--capacity", "memory=32Gi")

    answer = plan(stream(pod("b", **memory("128Mi", "256Mi"))), *options, output="table")

    rows = [line.split() for line in answer.out.splitlines()]
    assert " ".join(rows[0]) == "CGROUP QOS CLASS MIN LOW HIGH MAX SWAP.MAX OOM.GROUP"
    assert rows[1] == ["kubepods", "-", "134217728", "134217728", "-", "34359738368", "-", "-"]
    assert rows[-1] == [
        *("Pod/default/b/c", "Burstable", "-", "134217728", "255012864", "268435456", "-", "1")
    ]
    assert len(rows) == 6


def test_text(write: Any) -> None:
    """The text has the table, the worst warnings first, and the counts."""
    config = {"memoryThrottlingFactor": 1.5}

    answer = plan(
        stream(pod("b", **memory("128Mi"))),
        *("--kubelet-config", write("k.json", config), "--kernel", "5.4.0"),
        output="text",
    )

    assert answer.code == 1
    warnings = [
        line.split()[:3] for line in answer.out.splitlines() if re.match("error|warn|info", line)
    ]
    assert warnings == [
        ["error", "factor-range", "node:"],
        ["warning", "capacity-unknown", "node:"],
        ["info", "kernel-livelock", "node:"],
    ]
    # burstable and kubepods: low, min + low; the container: min, low, oom.group
    assert answer.out.splitlines()[-1] == (
        "1 pods, 1 containers: 6 values planned; 1 error, 1 warning, 1 info"
    )


def test_text_of_a_comparison(write: Any) -> None:
    """Changes are grouped by the event that brings them; no change is said, too."""
    manifests = stream(pod("b", **memory("128Mi", "256Mi")))
    now = ("--kubelet-config", write("now.json", TIERED))

    changed = plan(manifests, *now, "--diff", write("then.json", {}), output="text").out
    same = plan(manifests, *now, "--diff", write("same.json", TIERED), output="text").out

    titles = [line for line in changed.splitlines() if line.endswith(":")]
    assert titles == [
        "changes when kubelet starts:",
        "stale until the container restarts or, unless on an old CRI-O, is resized:",
        "stale until the container restarts:",
        "stale until the pod is created anew:",
    ]
    assert "nothing changes" in same


# --- section 8 of the specification: what a change leaves behind ---------------------------------

RESERVED = {
    "enforceNodeAllocatable": ["pods", "system-reserved"],
    "systemReserved": {"memory": "1Gi"},
    "systemReservedCgroup": "/system.slice",
}
OFF = {"featureGates": {"MemoryQoS": False}}
ON = {"featureGates": {"MemoryQoS": True}}
POD, CONTAINER = "pod:Pod/default/b", "container:Pod/default/b/c"
# A pod of 128Mi/256Mi: 128Mi + 0.9 * 128Mi in pages is 255012864.
LOW, HIGH = "134217728", "255012864"

ROWS = [
    pytest.param(
        (TIERED, "1.37", OFF, "1.37"),
        {
            ("kubepods", "memory.min"): (LOW, "0", "kubelet-start"),
            ("kubepods", "memory.low"): (LOW, "0", "kubelet-start"),
            ("qos:burstable", "memory.low"): (LOW, "0", "kubelet-start"),
            (POD, "memory.low"): (LOW, "0", "pod-recreate"),
            (CONTAINER, "memory.low"): (LOW, "0", "container-restart"),
            (CONTAINER, "memory.high"): (HIGH, "max", "resize"),
        },
        {"stale-throttling"},
        id="gate off, 1.37",
    ),
    pytest.param(
        (TIERED, "1.36", OFF, "1.36"),
        {
            ("kubepods", "memory.min"): (LOW, "0", "never"),
            ("qos:burstable", "memory.low"): (LOW, "0", "never"),
            (POD, "memory.low"): (LOW, "0", "pod-recreate"),
            (CONTAINER, "memory.low"): (LOW, "0", "container-restart"),
            (CONTAINER, "memory.high"): (HIGH, "max", "container-restart"),
        },
        {"stale-protection", "stale-throttling"},
        id="gate off, 1.36",
    ),
    pytest.param(
        (TIERED, "1.37", {"memoryThrottlingFactor": 0.9}, "1.37"),
        {
            ("kubepods", "memory.min"): (LOW, "0", "kubelet-start"),
            ("kubepods", "memory.low"): (LOW, "0", "kubelet-start"),
            ("qos:burstable", "memory.low"): (LOW, "0", "kubelet-start"),
            (POD, "memory.low"): (LOW, "0", "pod-recreate"),
            (CONTAINER, "memory.low"): (LOW, "0", "resize"),
        },
        set(),
        id="tiered to none",
    ),
    pytest.param(
        ({"memoryThrottlingFactor": 0.9}, "1.37", TIERED, "1.37"),
        {
            ("kubepods", "memory.min"): ("0", LOW, "kubelet-start"),
            ("kubepods", "memory.low"): ("0", LOW, "kubelet-start"),
            ("qos:burstable", "memory.low"): ("0", LOW, "kubelet-start"),
            (POD, "memory.low"): ("0", LOW, "pod-recreate"),
            (CONTAINER, "memory.low"): ("0", LOW, "resize"),
        },
        {"protection-delayed"},
        id="none to tiered",
    ),
    pytest.param(
        # 128Mi + 0.5 * 128Mi = 192Mi
        (TIERED, "1.37", {**TIERED, "memoryThrottlingFactor": 0.5}, "1.37"),
        {(CONTAINER, "memory.high"): (HIGH, "201326592", "resize")},
        {"stale-throttling"},
        id="factor changed",
    ),
    pytest.param(
        (TIERED, "1.37", {**TIERED, "memoryThrottlingFactor": None}, "1.37"),
        {(CONTAINER, "memory.high"): (HIGH, "max", "container-restart")},
        {"stale-throttling"},
        id="factor null",
    ),
    pytest.param(
        (ON, "1.36", ON, "1.37"),
        {(CONTAINER, "memory.high"): (HIGH, "max", "container-restart")},
        {"throttling-dropped", "stale-throttling"},
        id="1.36 to 1.37, factor not in the file",
    ),
    pytest.param(
        ({}, "1.36", {}, "1.37"),
        {},
        set(),
        id="1.36 to 1.37, all defaults",
    ),
    pytest.param(
        (RESERVED, "1.36", RESERVED, "1.37"),
        {("system-reserved", "memory.min"): ("0", "1073741824", "kubelet-start")},
        {"reserved-protected"},
        id="1.36 to 1.37, enforced reservation",
    ),
    pytest.param(
        (RESERVED, "1.37", {**RESERVED, **OFF}, "1.37"),
        {("system-reserved", "memory.min"): ("1073741824", "0", "never")},
        {"stale-protection", "reserved-limited"},
        id="gate off, enforced reservation",
    ),
]


@pytest.mark.parametrize(("sides", "changes", "warnings"), ROWS)
def test_what_a_change_leaves_behind(
    sides: tuple[Any, ...], changes: Any, warnings: set[str], write: Any
) -> None:
    """Each row of the specification's table: what changes when, and what stays stale."""
    now, version, then, next_version = sides

    answer = plan(
        stream(pod("b", **memory("128Mi", "256Mi"))),
        *("--kubelet-config", write("now.json", now), "--kubelet-version", version),
        *("--diff", write("then.json", then), "--diff-version", next_version),
        *("--capacity", "memory=16Gi"),
    )

    found = {
        (item["role"], item["file"]): (item["before"], item["after"], item["when"])
        for item in answer.json["changes"]
    }
    assert found == changes
    assert set(codes(answer)) - {"protection-node-wide"} == warnings
    assert answer.json["kubeletVersion"] == next_version
    assert answer.code == 0


def test_diff_version_alone_and_the_nodes_kernel() -> None:
    """--diff-version compares the same file, and both plans know the Node of the stream."""
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"capacity": {"memory": "1Gi"}, "nodeInfo": {"kernelVersion": "5.4.17-el8"}},
    }

    answer = plan(stream(node, pod()), "--kubelet-version", "1.36", "--diff-version", "v1.37.2")

    assert answer.json["nodeAllocatableBytes"] == GIB
    assert codes(answer) == ["kernel-livelock"]


def test_refused_configuration_to_compare_with(write: Any) -> None:
    """A configuration that could not run is an error on either side."""
    wrong, right = write("wrong.json", {"memoryThrottlingFactor": 2}), write("right.json", {})

    for now, then in ((wrong, right), (right, wrong)):
        answer = plan(stream(pod()), "--kubelet-config", now, "--diff", then)
        assert answer.code == 1
        assert codes(answer).count("factor-range") == 1


# --- exit statuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--fail-on", "min-equals-max"], 1),
        (["--fail-on", "factor-one"], 0),
        (["--fail-on", "factor-one", "--fail-on", "min-equals-max"], 1),
        (["--fail-on", "error"], 0),
        (["--fail-on", "warning"], 1),
        (["--fail-on", "info"], 1),
        (["--fail-on", "no-such-code"], 2),
    ],
)
def test_fail_on(options: list[str], code: int, write: Any) -> None:
    """--fail-on takes codes and severities; what is found below them exits 0."""
    both = {"cpu": "1", "memory": "1Gi"}
    config = ("--kubelet-config", write("k.json", TIERED), "--capacity", "memory=4Gi")

    assert plan(stream(pod(requests=both, limits=both)), *config, *options).code == code


@pytest.mark.parametrize(
    "options",
    [
        ["--capacity", "4Gi"],
        ["--capacity", "cpu=4"],
        ["--capacity", "memory=4GB"],
        ["--capacity", "memory=-1"],
        ["--capacity", "memory=1Gi,memory=2Gi"],
        ["--capacity", "hugepages-2Mi=1Gi,hugepages-2Mi=1Gi"],
        ["--capacity", "hugepages-=1Gi"],
        ["--capacity", "hugepages-foo=1Gi"],
        ["--capacity", "hugepages-0=1Gi"],
        ["--capacity", "hugepages=1Gi"],
        ["--page-size", "1000"],
        ["--page-size", "x"],
        ["--page-size", "-4096"],
        ["--kernel", "new"],
        ["--cgroup-driver", "none"],
        ["--cgroup-version", "3"],
        ["--kubelet-version", "37"],
        ["--diff-version", "1"],
        ["--kubelet-config", "-"],
        ["-f", "-"],
        ["-o", "xml"],
    ],
)
def test_wrong_usage(options: list[str]) -> None:
    """Wrong usage exits 2 with one line and nothing on stdout."""
    answer = plan(stream(pod()), *options)

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


def test_no_manifests_named() -> None:
    """-f is required."""
    assert memqos("plan-cgroups").code == 2


def test_alpha_before_the_policy(write: Any) -> None:
    """With the gate on, releases before 1.36 are refused; with it off all are alike."""
    on = write("on.json", ON)

    assert plan(stream(pod()), "--kubelet-version", "1.30", "--kubelet-config", on).code == 2
    assert plan(stream(pod()), "--kubelet-version", "1.30").code == 0


MALFORMED = [
    pytest.param("a: [1\n", "document 1", id="no YAML"),
    pytest.param(b"kind: Pod\nx: \xe9\n", "line 2: not UTF-8", id="latin-1"),
    pytest.param("- 1\n", "document 1: line 1: $: ", id="no object"),
    pytest.param("apiVersion: v1\n", "document 1: line 1: $: no Kubernetes object", id="no kind"),
    pytest.param("kind: Pod\nkind: Pod\n", "line 2: the key 'kind' is given twice", id="twice"),
    pytest.param("kind: Pod\nmetadata: {name: 1e3}\n{P}", "line 2: $.metadata.name: ", id="1e3"),
    pytest.param("kind: Pod\nmetadata: {name: yes}\n{P}", "line 2: $.metadata.name: ", id="yes"),
    pytest.param("kind: Pod\nmetadata: {name: 012}\n{P}", "line 2: $.metadata.name: ", id="012"),
    pytest.param("kind: Pod\n{P}", "line 1: $.metadata.name: null", id="no name"),
    pytest.param("kind: Pod\nmetadata: {name: a}\n", "line 1: $.spec: no containers", id="empty"),
    pytest.param(
        "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    resources: 1\n",
        "line 6: $.spec.containers[0].resources: the number 1",
        id="resources",
    ),
    pytest.param(
        "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    resources:\n"
        "      limits:\n        memory: 1 Gi\n",
        "line 8: $.spec.containers[0].resources.limits.memory: '1 Gi'",
        id="quantity",
    ),
    pytest.param(
        "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    resources:\n"
        "      limits: {memory: -5}\n",
        "line 7: $.spec.containers[0].resources.limits.memory: -5 is negative",
        id="negative",
    ),
    pytest.param(
        "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    resources:\n"
        "      limits: {memory: off}\n",
        "line 7: $.spec.containers[0].resources.limits.memory: the boolean false",
        id="off",
    ),
    pytest.param(
        "kind: List\nitems:\n- kind: ConfigMap\n- kind: Job\n  metadata: {name: a}\n  spec:\n"
        "    parallelism: 1e9\n    template: {spec: {containers: [{name: c}]}}\n",
        "line 7: $.items[1].spec.parallelism: ",
        id="in a list",
    ),
    pytest.param(
        '{"kind": "Pod",\n "metadata": {"name": "a"},\n "spec":\n  {"containers": [{"name": 5}]}}',
        "document 1: line 4: $.spec.containers[0].name: the number 5",
        id="JSON",
    ),
    pytest.param(
        "x: &x [1]\ny: &y [*x, *x, *x, *x, *x, *x, *x, *x, *x, *x]\n"
        + "".join(f"z{n}: &{'xyz'[n % 3]}{n} [*y, *y]\n" for n in range(2))
        + "a: &a [a]\n"
        + "".join(
            f"b{n}: &b{n} [{', '.join(['*' + (f'b{n - 1}' if n else 'a')] * 20)}]\n"
            for n in range(6)
        )
        + "kind: *b5\n",
        "more than 1000000 nodes",
        id="bomb",
    ),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED)
def test_malformed(text: str | bytes, message: str, tmp_path: Path) -> None:
    """What cannot be read exits 3 with file, document, line and field in one line."""
    file = tmp_path / "bad.yaml"
    spec = "spec: {containers: [{name: c}]}\n"
    file.write_bytes(text if isinstance(text, bytes) else text.replace("{P}", spec).encode())

    answer = memqos("plan-cgroups", "-f", file)

    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert answer.err.startswith(f"memqos: {file}: ")
    assert message in answer.err


def test_malformed_second_document() -> None:
    """The document's number and the line count from the start of the stream."""
    first = "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n---\n"
    second = "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {}\n"

    answer = plan(f"{first}{first}{second}".encode())

    assert answer.err == (
        "memqos: -: document 3: line 13: $.spec.containers[0].name: null where a string is "
        "expected\n"
    )


# --- what is read --------------------------------------------------------------------------------


def roles(answer: Answer) -> list[str]:
    """Return the pods' roles in order."""
    return [
        cgroup["role"].removeprefix("pod:")
        for cgroup in answer.json["cgroups"]
        if cgroup["role"].startswith("pod:")
    ]


def test_every_workload_kind() -> None:
    """Each kind's pod template is planned under the workload's name."""
    template = {"spec": pod(**memory("1Mi"))["spec"]}
    job = {"spec": {"template": template}}
    kinds = {
        "Deployment": "apps/v1",
        "StatefulSet": "apps/v1",
        "DaemonSet": "apps/v1",
        "ReplicaSet": "apps/v1",
        "ReplicationController": "v1",
        "Job": "batch/v1",
    }
    objects: list[Any] = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **job}
        for kind, version in kinds.items()
    ]
    objects.append(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "x", "namespace": "team"},
            "spec": {"jobTemplate": job},
        }
    )
    objects.append({"kind": "PodTemplate", "metadata": {"name": "x"}, "template": template})

    answer = plan(stream(*objects))

    assert roles(answer) == [
        *(f"{kind}/default/x" for kind in kinds),
        "CronJob/team/x",
        "PodTemplate/default/x",
    ]
    assert answer.err == ""


def test_lists() -> None:
    """Lists nest; kubelet's /pods gives items without a kind, which is the list's."""
    item = pod("a")
    bare = {key: value for key, value in pod("b").items() if key not in ("kind", "apiVersion")}
    inner = {"apiVersion": "v1", "kind": "PodList", "items": [bare]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [item, inner, deployment("c")]}

    answer = plan(json.dumps(outer).encode())

    assert roles(answer) == ["Pod/default/a", "Pod/default/b", "Deployment/default/c"]
    deep: dict[str, Any] = {"kind": "List", "items": []}
    for _ in range(20):
        deep = {"kind": "List", "items": [deep]}
    assert "nested too deeply" in plan(stream(deep)).err
    assert plan(stream({"kind": "List", "items": None})).code == 0


def test_kubelets_pods() -> None:
    """Of a node's /pods ended pods are left out, and a mirror pod has its static pod's UID."""
    live = pod("live", **memory("1Mi"))
    live["metadata"]["uid"] = "0a-1b"
    mirror = pod("mirror")
    mirror["metadata"] |= {
        "uid": "its-own",
        "annotations": {
            "kubernetes.io/config.mirror": "ab12",
            "kubernetes.io/config.source": "file",
        },
    }
    done = {**pod("done"), "status": {"phase": "Succeeded"}}
    document = {"kind": "PodList", "apiVersion": "v1", "items": [live, mirror, done]}

    answer = plan(json.dumps(document).encode(), "--cgroup-driver", "systemd")

    paths = {item["role"]: item["path"] for item in answer.json["cgroups"]}
    assert roles(answer) == ["Pod/default/live", "Pod/default/mirror"]
    assert paths["pod:Pod/default/live"].endswith("/kubepods-burstable-pod0a_1b.slice")
    assert paths["pod:Pod/default/mirror"].endswith("/kubepods-besteffort-podab12.slice")


SHAPING = {
    "range": {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "r", "namespace": "team"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "64Mi"}}]},
    },
    "class": {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"memory": "160Mi"}},
    },
    "node": {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"capacity": {"memory": "8Gi", "pods": "110"}},
    },
}


@pytest.mark.parametrize(
    "order", [("range", "class", "node", "pod"), ("pod", "node", "class", "range")]
)
def test_what_shapes_pods(order: tuple[str, ...], write: Any) -> None:
    """LimitRange, RuntimeClass and Node are used wherever they stand in the stream."""
    shaped = pod("p")
    shaped["metadata"]["namespace"] = "team"
    shaped["spec"]["runtimeClassName"] = "kata"
    objects = {**SHAPING, "pod": shaped}

    answer = plan(
        stream(*(objects[name] for name in order)), "--kubelet-config", write("k.json", TIERED)
    )

    assert answer.json["nodeAllocatableBytes"] == 8 * GIB
    found = files(answer)
    assert found["container:Pod/team/p/c"]["memory.low"] == str(64 * MIB)
    assert found["pod:Pod/team/p"] == {"memory.low": str((64 + 160) * MIB)}


def test_a_pod_past_admission() -> None:
    """A pod that has a UID is what it is: no LimitRange of today changes it."""
    shaped = pod("p")
    shaped["metadata"] |= {"namespace": "team", "uid": "u"}

    answer = plan(stream(SHAPING["range"], shaped))

    assert answer.json["cgroups"][-1]["qosClass"] == "BestEffort"


def test_overhead_that_differs() -> None:
    """The API server refuses another overhead than the RuntimeClass has."""
    shaped = pod("p")
    shaped["spec"] |= {"runtimeClassName": "kata", "overhead": {"memory": "1Mi"}}

    answer = plan(stream(SHAPING["class"], shaped))

    assert answer.code == 3
    assert "document 2: line " in answer.err
    assert "overhead differs" in answer.err


def test_unknown_kinds() -> None:
    """Custom resources are counted and named with --strict fatal; Kubernetes' own are silent."""
    objects = [
        {"apiVersion": "v1", "kind": "Service"},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"},
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus"},
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus"},
        {"apiVersion": "apps.kruise.io/v1", "kind": "StatefulSet", "spec": {}},
        {"apiVersion": "v1", "kind": "Pods"},
        pod(),
    ]

    answer = plan(stream(*objects))
    strict = plan(stream(*objects), "--strict")

    assert answer.code == 0
    assert answer.err == (
        "memqos: left out, as memqos does not know these kinds: Pods (1), "
        "Prometheus.monitoring.coreos.com (2), StatefulSet.apps.kruise.io (1)\n"
    )
    assert (strict.code, strict.out) == (3, "")
    assert strict.err.startswith("memqos: -: document 3: line 6: $.kind: memqos does not know")
    assert plan(stream(*objects[:2], pod()), "--strict").code == 0


def test_directory(tmp_path: Path) -> None:
    """Directories are read recursively and sorted; what is no manifest is left out, or named."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.yml").write_bytes(stream(pod("third")))
    (tmp_path / "a.json").write_text(json.dumps(pod("first")))
    (tmp_path / "a.yaml").write_bytes(stream(pod("second")))
    (tmp_path / "notes.txt").write_text("kind: [")
    (tmp_path / "values.yaml").write_text("replicas: 3\non: push\n")
    (tmp_path / "list.json").write_text("[1]")

    answer = memqos("plan-cgroups", "-f", tmp_path, "-o", "json")
    strict = memqos("plan-cgroups", "-f", tmp_path, "--strict")

    assert roles(answer) == [f"Pod/default/{name}" for name in ("first", "second", "third")]
    assert "left out 2 documents that are no Kubernetes objects" in answer.err
    assert f"the first in {tmp_path / 'list.json'}" in answer.err
    assert strict.code == 3
    assert "list.json" in strict.err
    (tmp_path / "empty").mkdir()
    assert memqos("plan-cgroups", "-f", tmp_path / "empty").code == 3


def test_the_last_of_a_name_counts() -> None:
    """As with apply, an object given twice is one; of generateName each is another."""
    generated = {**pod(), "metadata": {"generateName": "job-"}}

    answer = plan(
        stream(pod(**memory("1Mi")), deployment(), pod(**memory("2Mi")), generated, generated)
    )

    assert roles(answer) == [
        *("Pod/default/p", "Deployment/default/web", "Pod/default/job-*", "Pod/default/job-*#2")
    ]
    assert "given more than once, the last one counts: Pod/default/p\n" in answer.err


def test_a_dump_of_a_cluster() -> None:
    """Pods and ReplicaSets whose controller is there too are not counted again."""
    owner = {"kind": "ReplicaSet", "name": "web-1", "controller": True}
    one = pod("web-1-a")
    one["metadata"]["ownerReferences"] = [owner]
    replica_set = {**deployment("web-1"), "kind": "ReplicaSet"}
    replica_set["metadata"] |= {
        "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}]
    }

    answer = plan(stream(one, replica_set, deployment("web")))

    assert roles(answer) == ["Deployment/default/web"]
    assert "left out 2 objects whose controller" in answer.err
    assert roles(plan(stream(one))) == ["Pod/default/web-1-a"]


def test_replicas(write: Any) -> None:
    """--replicas puts every replica on the node; warnings are given once a workload."""
    both = {"cpu": "1", "memory": "1Gi"}
    web = deployment(replicas=3, requests=both, limits=both)
    daemon = {**deployment("d", 7, **memory("1Gi")), "kind": "DaemonSet"}
    gone = deployment("gone", 0, **memory("1Gi"))
    options = ("--kubelet-config", write("k.json", TIERED), "--capacity", "memory=64Gi")

    each = plan(stream(web, daemon, gone), *options)
    every = plan(stream(web, daemon, gone), *options, "--replicas")

    assert files(each)["kubepods"]["memory.min"] == str(3 * GIB)
    assert files(every)["kubepods"]["memory.min"] == str(4 * GIB)
    assert roles(every) == [
        *(f"Deployment/default/{name}" for name in ("web", "web#2", "web#3")),
        "DaemonSet/default/d",
    ]
    assert codes(every).count("min-equals-max") == 1


def test_too_many_replicas() -> None:
    """A million replicas are nothing to plan, and no trouble where they are not multiplied."""
    many = stream(deployment(replicas=1_000_000_000))

    assert plan(many).code == 0
    answer = plan(many, "--replicas")
    assert (answer.code, answer.err.count("\n")) == (3, 1)


@pytest.mark.parametrize("encode", ["crlf", "bom", "both"])
def test_windows_files(encode: str) -> None:
    """Windows line ends and a byte order mark change nothing."""
    text = stream(pod("a", **memory("1Mi")), deployment("b", **memory("2Mi")))
    if encode != "bom":
        text = text.replace(b"\n", b"\r\n")
    if encode != "crlf":
        text = b"\xef\xbb\xbf" + text

    assert roles(plan(text)) == ["Pod/default/a", "Deployment/default/b"]


def test_anchors_and_merge_keys(write: Any) -> None:
    """Anchors and merge keys give what kubectl makes of them."""
    text = """
kind: Pod
metadata: {name: a}
spec:
  containers:
  - &base
    name: one
    resources: &small
      requests: {memory: 1Mi}
  - <<: *base
    name: two
  - name: three
    resources:
      <<: *small
      limits: {memory: 2Mi}
"""

    answer = plan(text.encode(), "--kubelet-config", write("k.json", TIERED))

    assert files(answer)["pod:Pod/default/a"] == {"memory.low": str(3 * MIB)}


@pytest.mark.parametrize(
    ("scalar", "size"),
    [
        ("134217728", 134217728),
        ("1e3", 1000),
        ("012", 10),
        ("0x10", 16),
        ("1_000", 1000),
        ("1.5", 2),
        ("'012'", 12),
        ("1e6", 10**6),
        ("128974848000m", 128974848),
        ("9223372036854775808", 2**63 - 1),
        ("8Ei", 2**63 - 1),
        ("99999999999999999999999", 2**63 - 1),
    ],
)
def test_numbers(scalar: str, size: int, write: Any) -> None:
    """A number in YAML is a quantity in its JSON form; one beyond int64 is capped."""
    text = (
        "kind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    resources:\n"
        f"      requests: {{memory: {scalar}}}\n"
    )

    answer = plan(text.encode(), "--kubelet-config", write("k.json", TIERED))

    assert files(answer)["pod:Pod/default/a"] == {"memory.low": str(size)}


def test_sums_beyond_int64(write: Any) -> None:
    """Sums are capped where kubelet's own integers end."""
    manifest = pod(**memory("8Ei"))
    manifest["spec"]["containers"] *= 2

    answer = plan(stream(manifest), "--kubelet-config", write("k.json", TIERED))

    assert files(answer)["pod:Pod/default/p"] == {"memory.low": str(2**63 - 1)}


def test_json_documents_one_after_another() -> None:
    """A stream of JSON objects is read, as kubectl does; errors count its documents."""
    good = b"".join(json.dumps(pod(name)).encode() + b"\n" for name in "ab")

    assert roles(plan(good)) == ["Pod/default/a", "Pod/default/b"]
    assert plan(good + b'{"kind": "Pod",\n "spec": 5}\n').err.startswith(
        "memqos: -: document 3: line 4: $.spec: the number 5"
    )


def test_empty_stream() -> None:
    """No manifest at all leaves the node's own cgroups."""
    for text in (b"", b"# nothing\n---\n"):
        answer = plan(text)
        assert (answer.code, roles(answer)) == (0, [])


# --- the node ------------------------------------------------------------------------------------


def test_node_file(write: Any) -> None:
    """--node wins over a Node in the stream, and --capacity over both, amount by amount."""
    other = json.loads(json.dumps(SHAPING["node"]))
    other["status"] = {
        "capacity": {"memory": "16Gi", "hugepages-1Gi": "2Gi"},
        "nodeInfo": {"swap": {"capacity": 0}, "kernelVersion": "5.4.0-1"},
    }
    file = write("node.json", {"kind": "List", "items": [other, other]})

    in_stream = plan(stream(SHAPING["node"], pod()))
    given = plan(stream(SHAPING["node"], pod()), "--node", file)
    overridden = plan(stream(pod()), "--node", file, "--capacity", "memory=4Gi")

    assert in_stream.json["nodeAllocatableBytes"] == 8 * GIB
    assert given.json["nodeAllocatableBytes"] == 16 * GIB
    assert "of 2 nodes the first is taken: n1" in given.err
    assert files(given)["container:Pod/default/p/c"]["memory.swap.max"] == "0"
    assert codes(given) == ["kernel-livelock"]
    assert overridden.json["nodeAllocatableBytes"] == 4 * GIB
    assert "memory.swap.max" in files(overridden)["container:Pod/default/p/c"]


def test_node_file_without_a_node(write: Any) -> None:
    """A file that is no Node is no answer."""
    answer = plan(stream(pod()), "--node", write("pod.json", pod()))

    assert answer.code == 3
    assert "pod.json: no v1 Node in it" in answer.err


def test_eviction_that_kubelet_refuses(write: Any) -> None:
    """A malformed threshold is a refusal, not a crash."""
    config = {"evictionHard": {"memory.available": "x%"}}

    answer = plan(
        stream(pod()), "--kubelet-config", write("k.json", config), "--capacity", "memory=1Gi"
    )

    assert (answer.code, codes(answer)) == (1, ["eviction-invalid"])


# --- around it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["cgroupDriver: cgroupv3\n", "cgroupDriver: off\n"])
def test_unknown_cgroup_driver(text: str, tmp_path: Path) -> None:
    """A driver that does not exist is no answer, and no crash."""
    (tmp_path / "k.yaml").write_text(text)

    answer = plan(stream(pod()), "--kubelet-config", tmp_path / "k.yaml")

    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert "$.cgroupDriver: " in answer.err


@pytest.mark.parametrize("option", ["--kubelet-config", "--diff", "--node", "-f"])
def test_unreadable_input(option: str, tmp_path: Path) -> None:
    """Whatever file is missing, its name is in the one line."""
    answer = plan(stream(pod()), option, tmp_path / "missing")

    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert str(tmp_path / "missing") in answer.err


def test_a_thousand_containers(write: Any) -> None:
    """A pod of a thousand containers is the sum of them."""
    manifest = pod()
    manifest["spec"]["containers"] = [
        {"name": f"c{number}", "resources": memory("1Mi", "2Mi")} for number in range(1000)
    ]

    answer = plan(stream(manifest), "--kubelet-config", write("k.json", TIERED))

    assert files(answer)["pod:Pod/default/p"] == {
        "memory.max": str(2000 * MIB),
        "memory.low": str(1000 * MIB),
    }
    assert len(answer.json["cgroups"]) == 1004


def test_the_reader_goes_away(tmp_path: Path) -> None:
    """`| head` ends the command quietly; a full disk is said in one line."""
    many = {"kind": "List", "items": [pod(f"p{number}") for number in range(2000)]}
    (tmp_path / "many.json").write_text(json.dumps(many))
    command: list[str | Path] = [PROGRAM, "plan-cgroups", "-f", tmp_path / "many.json"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)


def test_help() -> None:
    """Help has examples."""
    answer = memqos("plan-cgroups", "--help")

    assert answer.code == 0
    assert "kustomize build | memqos plan-cgroups -f -" in answer.out
