"""Every case of tests/data/vectors/memoryqos.json, through the public functions."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from memqos import fields
from memqos.errors import InputError
from memqos.kubelet_config import parse_kubelet_config
from memqos.memory_qos.allocatable import Node, node_allocatable
from memqos.memory_qos.config import MemoryQOSConfig, resolve_config
from memqos.memory_qos.environment import environment_warnings
from memqos.memory_qos.paths import (
    Driver,
    Runtime,
    container_path,
    kubepods_path,
    pod_path,
    qos_path,
    reserved_path,
)
from memqos.memory_qos.plan import CgroupPlan, page_floor, plan_cgroups
from memqos.memory_qos.transition import Event, State, after
from memqos.pods import (
    Container,
    ContainerRole,
    Pod,
    QOSClass,
    Resources,
    apply_limit_ranges,
    apply_overhead,
    default_requests,
    parse_limit_range,
    parse_overhead,
    parse_pod,
)
from memqos.quantity import NANO, parse_quantity


VECTORS = Path(__file__).parents[2] / "data" / "vectors" / "memoryqos.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]

# The vectors' harness gives a node this much where a case does not say.
CAPACITY = "16Gi"


def of_kind(kind: str) -> list[Any]:
    """Return the cases of a kind as pytest parameters."""
    return [
        pytest.param(case["input"], case["expect"], case, id=case["name"])
        for case in CASES
        if case["kind"] == kind
    ]


def config_of(given: Mapping[str, Any]) -> MemoryQOSConfig:
    """Return Memory QoS as the case's kubelet takes it."""
    minor = int(given["kubeletVersion"].split(".")[1])
    return resolve_config(parse_kubelet_config(given["config"]), minor=minor)


def bytes_of(value: object) -> int:
    """Return the bytes of a quantity."""
    return fields.quantity(value, "$").value


def node_of(given: Mapping[str, Any]) -> Node:
    """Return the case's node."""
    node = given["node"]
    return Node(
        capacity_bytes=bytes_of(node.get("memoryCapacity", CAPACITY)),
        page_size=node.get("pageSize", 4096),
        cgroup_version=node.get("cgroupVersion", 2),
        swap_controller=node.get("swapController"),
        swap_capacity_bytes=bytes_of(node.get("swapCapacity", 0)),
        hugepage_bytes=sum(map(bytes_of, node.get("hugepages", {}).values())),
    )


def objects(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Unpack lists."""
    if manifest["kind"].endswith("List"):
        return [inner for item in manifest["items"] for inner in objects(item)]
    return [manifest]


def pod_of(manifest: Mapping[str, Any], given: Mapping[str, Any]) -> Pod | None:
    """Return the pod of a manifest, defaulted if the case asks for it; None for other kinds."""
    spec = manifest.get("spec", {})
    kind = manifest["kind"]
    if kind == "Pod":
        body = spec
    elif kind == "CronJob":
        body = spec["jobTemplate"]["spec"]["template"]["spec"]
    elif kind == "PodTemplate":
        body = manifest["template"]["spec"]
    elif "template" in spec:
        body = spec["template"]["spec"]
    else:
        return None
    status = manifest.get("status") if kind == "Pod" else None
    pod = parse_pod(kind, manifest["metadata"], body, status)
    if given["defaulting"] == "none":
        return pod
    pod = default_requests(pod)
    for limit_range in given.get("limitRanges", []):
        pod = apply_limit_ranges(pod, parse_limit_range(limit_range["spec"], "$.spec"))
    classes = given.get("runtimeClasses", {})
    return apply_overhead(
        pod, {name: parse_overhead(value, "$") for name, value in classes.items()}
    )


def pods_of(given: Mapping[str, Any]) -> list[Pod]:
    """Return the case's pods."""
    found = [pod_of(item, given) for manifest in given["manifests"] for item in objects(manifest)]
    return [pod for pod in found if pod is not None]


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("plan"))
def test_plan(given: Any, expect: Any, case: Any) -> None:
    """Every cgroup has just the files and values of the vector, and the metrics agree."""
    plan = plan_cgroups(config_of(given), node_of(given), pods_of(given))
    files = {cgroup.role: dict(cgroup.files) for cgroup in plan.cgroups}
    expected = {role: dict(values) for role, values in expect["cgroups"].items()}
    for role, name in case.get("unasserted", []):
        files.get(role, {}).pop(name, None)
        expected.get(role, {}).pop(name, None)
    assert files == expected
    classes = {cgroup.pod: cgroup.qos for cgroup in plan.cgroups if cgroup.role[:4] == "pod:"}
    active = {pod.path for pod in pods_of(given) if pod.active}
    assert classes == {pod: qos for pod, qos in expect["qos"].items() if pod in active}
    assert {
        "kubelet_memory_qos_node_memory_min_bytes": plan.min_metric_bytes,
        "kubelet_memory_qos_node_memory_low_bytes": plan.low_metric_bytes,
    } == expect["metrics"]


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("config"))
def test_config(given: Any, expect: Any, case: Any) -> None:
    """Kubelet's refusals have the vector's codes and, where public, its texts."""
    config = config_of(given)
    assert [error.code for error in config.errors] == expect["errors"], case["source"]
    if "messages" in expect:
        assert [error.message for error in config.errors] == expect["messages"]
    if "effective" in expect:
        assert expect["effective"] == {
            "MemoryQoS": config.enabled,
            "memoryThrottlingFactor": config.factor,
            "memoryReservationPolicy": config.policy,
        }


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("node"))
def test_node(given: Any, expect: Any, case: Any) -> None:
    """Node allocatable is that of the vector."""
    found = node_allocatable(config_of(given), node_of(given))
    assert expect == {
        "reservation": found.reservation,
        "statusAllocatable": found.status,
        "allocatableAbsolute": found.absolute,
        "kubepodsMemoryMax": found.kubepods_max,
    }, case["source"]


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("path"))
def test_path(given: Any, expect: Any, case: Any) -> None:
    """Cgroups lie where the vector says."""
    driver = Driver(given["cgroupDriver"])
    root = given.get("cgroupRoot", "/")
    found = {
        "kubepods": kubepods_path(driver, root),
        "qos:burstable": qos_path(QOSClass.BURSTABLE, driver, root),
        "qos:besteffort": qos_path(QOSClass.BEST_EFFORT, driver, root),
    }
    if "reservedCgroup" in given:
        found["reserved"] = reserved_path(given["reservedCgroup"], driver)
    if "podUID" in given:
        found["pod"] = pod_path(QOSClass(given["qosClass"]), given["podUID"], driver, root)
    if "containerID" in given:
        runtime = Runtime(given["runtime"])
        found["container"] = container_path(found["pod"], given["containerID"], driver, runtime)
    assert {name: found[name] for name in expect} == expect, case["source"]


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("quantity"))
def test_quantity(given: Any, expect: Any, case: Any) -> None:
    """A quantity in a manifest has the vector's bytes, or is refused."""
    if "error" in expect:
        with pytest.raises(InputError):
            bytes_of(given["text"])
    else:
        assert bytes_of(given["text"]) == expect["bytes"], case["source"]


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("readback"))
def test_readback(given: Any, expect: Any, case: Any) -> None:
    """The kernel gives back whole pages."""
    assert page_floor(given["written"], given["pageSize"]) == expect["read"], case["source"]


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("environment"))
def test_environment(given: Any, expect: Any, case: Any) -> None:
    """Kubelet warns of what the vector says."""
    found = environment_warnings(
        enabled=given["gate"], cgroup_version=given["cgroupVersion"], kernel=given["kernel"]
    )
    assert list(found) == expect["warnings"], case["source"]


def small_pod(name: str, request: int, limit: int) -> Pod:
    """Return a pod of one container "c"; the one named "g" is Guaranteed."""
    cpu = NANO if name == "g" else None
    container = Container(
        "c", ContainerRole.APP, Resources(cpu, request * NANO), Resources(cpu, limit * NANO)
    )
    return Pod(kind="Pod", namespace="default", name=name, containers=(container,))


def pods_behind(state: State) -> dict[str, Pod]:
    """Work out the pods that a transition's first state comes from."""
    found = {}
    for role, files in state.items():
        if match := re.fullmatch(r"pod:(\w+)", role):
            name = match[1]
            limit = int(files.get("memory.max", 256 * 1024 * 1024))
            request = int(files.get("memory.min", 0)) or int(files.get("memory.low", 0))
            found[name] = small_pod(name, request or 128 * 1024 * 1024, limit)
    return found


def short_plan(config: MemoryQOSConfig, pods: Mapping[str, Pod]) -> CgroupPlan:
    """Plan with the vectors' short role names."""
    plan = plan_cgroups(config, Node(capacity_bytes=bytes_of(CAPACITY)), pods.values())
    cgroups = (
        cgroup._replace(role=cgroup.role.replace("Pod/default/", "")) for cgroup in plan.cgroups
    )
    return evolve(plan, cgroups=tuple(cgroups))


@pytest.mark.parametrize(("given", "expect", "case"), of_kind("transition"))
def test_transition(given: Any, expect: Any, case: Any) -> None:
    """After the events just the files of the vector have changed."""
    config = config_of(given)
    state: State = given["before"]
    pods = pods_behind(state)
    for event in given["events"]:
        if match := re.fullmatch(r"resize (\w+)/c (.*)", event):
            amounts = dict(item.split("=") for item in match[2].split())
            old = pods[match[1]].containers[0]
            sizes = [
                parse_quantity(amounts[name]).value if name in amounts else (kept or 0) // NANO
                for name, kept in (
                    ("requests", old.requests.memory),
                    ("limits", old.limits.memory),
                )
            ]
            pods[match[1]] = small_pod(match[1], sizes[0], sizes[1])
        state = after(
            state,
            Event(event.split()[0]),
            config,
            short_plan(config, pods),
            unified_update="runtime" not in given,
        )
    assert {role: dict(files) for role, files in state.items()} == expect["after"], case["source"]
