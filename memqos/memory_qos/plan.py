"""Every cgroup file that kubelet, or the runtime on its behalf, writes for memory.

A file that a plan does not name is not written: the kernel's default stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from attrs import frozen

from memqos.memory_qos.allocatable import Allocatable, Node, node_allocatable
from memqos.memory_qos.config import MemoryQOSConfig
from memqos.memory_qos.paths import Driver, kubepods_path, pod_path, qos_path, reserved_path
from memqos.memory_qos.swap import swap_max
from memqos.memory_qos.throttling import memory_high
from memqos.pods import (
    Container,
    Pod,
    QOSClass,
    limits_declared,
    pod_limit,
    pod_request,
    qos_class,
    to_bytes,
)


__all__ = [
    "BESTEFFORT",
    "BURSTABLE",
    "KUBEPODS",
    "KUBE_RESERVED",
    "SYSTEM_RESERVED",
    "CgroupPlan",
    "PlannedCgroup",
    "container_files",
    "page_floor",
    "plan_cgroups",
    "plan_node",
    "plan_pod",
]

KUBEPODS = "kubepods"
BURSTABLE = "qos:burstable"
BESTEFFORT = "qos:besteffort"
SYSTEM_RESERVED = "system-reserved"
KUBE_RESERVED = "kube-reserved"
_UNKNOWN = "?"


class PlannedCgroup(NamedTuple):
    """One cgroup.

    Attributes:
        role: ``kubepods``, ``qos:burstable``, ``pod:Kind/namespace/name``, …
        path: relative to the cgroup2 mount; ``?`` stands for an id that does not exist yet.
        files: file name to the text that is written.
        pod: ``Kind/namespace/name``, None for the node's own.
        container: its name, None for a pod.
        qos: the pod's class, None for the node's own.
    """

    role: str
    path: str
    files: Mapping[str, str]
    pod: str | None = None
    container: str | None = None
    qos: QOSClass | None = None


@frozen(kw_only=True)
class CgroupPlan:
    """A node's cgroups.

    Attributes:
        cgroups: kubepods, the QoS cgroups, the reserved ones, then each pod with its containers.
        allocatable: node allocatable.
        guaranteed_bytes: requests of all Guaranteed pods; with `burstable_bytes`, what the QoS
            cgroups are made of.
        burstable_bytes: requests of all Burstable pods.
        min_metric_bytes: kubelet_memory_qos_node_memory_min_bytes.
        low_metric_bytes: kubelet_memory_qos_node_memory_low_bytes.
    """

    cgroups: tuple[PlannedCgroup, ...]
    allocatable: Allocatable
    guaranteed_bytes: int
    burstable_bytes: int
    min_metric_bytes: int
    low_metric_bytes: int


def plan_cgroups(
    config: MemoryQOSConfig, node: Node, pods: Iterable[Pod], driver: Driver = Driver.SYSTEMD
) -> CgroupPlan:
    """Plan a node with its pods."""
    allocatable = node_allocatable(config, node)
    sums = {QOSClass.GUARANTEED: 0, QOSClass.BURSTABLE: 0, QOSClass.BEST_EFFORT: 0}
    planned: list[PlannedCgroup] = []
    for pod in pods:
        if not pod.active:
            continue
        cgroups = plan_pod(config, node, pod, allocatable, driver)
        qos = cgroups[0].qos or QOSClass.BEST_EFFORT
        sums[qos] += to_bytes(pod_request(pod, pod_level=config.pod_level_resources))
        planned += cgroups
    guaranteed, burstable = sums[QOSClass.GUARANTEED], sums[QOSClass.BURSTABLE]
    tiered = config.tiered and node.cgroup_version == 2
    return CgroupPlan(
        cgroups=(
            *plan_node(config, node, allocatable, guaranteed, burstable, driver),
            *planned,
        ),
        allocatable=allocatable,
        guaranteed_bytes=guaranteed,
        burstable_bytes=burstable,
        min_metric_bytes=guaranteed if tiered else 0,
        low_metric_bytes=burstable if tiered else 0,
    )


def plan_node(
    config: MemoryQOSConfig,
    node: Node,
    allocatable: Allocatable,
    guaranteed: int,
    burstable: int,
    driver: Driver,
) -> list[PlannedCgroup]:
    """Plan kubepods, the QoS cgroups and the reserved ones.

    Args:
        config: Memory QoS.
        node: the node.
        allocatable: its allocatable memory.
        guaranteed: requests of all Guaranteed pods, bytes.
        burstable: requests of all Burstable pods, bytes.
        driver: for the paths.
    """
    root = config.kubelet.cgroup_root
    top: dict[str, str] = {}
    low: dict[str, str] = {}
    if allocatable.kubepods_max:
        top["memory.max"] = str(allocatable.kubepods_max)
    if node.cgroup_version == 2 and config.enabled:
        tiered = config.tiered
        top["memory.min"] = str(guaranteed + burstable if tiered else 0)
        if config.is_beta:  # in 1.36 nobody wrote it, so Burstable protection was void
            top["memory.low"] = str(burstable if tiered else 0)
        low["memory.low"] = str(burstable if tiered else 0)
    elif node.cgroup_version == 2 and config.is_beta:  # reset once, at kubelet's start
        top |= {"memory.min": "0", "memory.low": "0"}
        low["memory.low"] = "0"
    found = []
    if config.kubelet.cgroups_per_qos:
        found = [
            PlannedCgroup(KUBEPODS, kubepods_path(driver, root), top),
            PlannedCgroup(BURSTABLE, qos_path(QOSClass.BURSTABLE, driver, root), low),
            PlannedCgroup(BESTEFFORT, qos_path(QOSClass.BEST_EFFORT, driver, root), {}),
        ]
    for role, cgroup, size in (
        (SYSTEM_RESERVED, config.kubelet.system_reserved_cgroup, config.system_reserved_bytes),
        (KUBE_RESERVED, config.kubelet.kube_reserved_cgroup, config.kube_reserved_bytes),
    ):
        if role in config.kubelet.enforce_node_allocatable and cgroup and size:
            files = {"memory.max": str(size)}
            if config.enabled and node.cgroup_version == 2:  # whatever the policy
                files["memory.min"] = str(size)
            found.append(PlannedCgroup(role, reserved_path(cgroup, driver), files))
    return found


def plan_pod(
    config: MemoryQOSConfig, node: Node, pod: Pod, allocatable: Allocatable, driver: Driver
) -> list[PlannedCgroup]:
    """Plan a pod's own cgroup and its containers'."""
    qos = qos_class(pod, pod_level=config.pod_level_resources)
    path = pod_path(qos, pod.uid or _UNKNOWN, driver, config.kubelet.cgroup_root)
    name = pod.path
    found = [
        PlannedCgroup(f"pod:{name}", path, _pod_files(config, node, pod, qos), name, None, qos)
    ]
    if not config.kubelet.cgroups_per_qos:
        found = [found[0]._replace(files={})]
    found += [
        PlannedCgroup(
            f"container:{name}/{container.name}",
            f"{path}/{_UNKNOWN}",
            container_files(config, node, pod, container, qos, allocatable),
            name,
            container.name,
            qos,
        )
        for container in pod.containers
    ]
    return found


def _pod_files(config: MemoryQOSConfig, node: Node, pod: Pod, qos: QOSClass) -> dict[str, str]:
    pod_level = config.pod_level_resources
    request = to_bytes(pod_request(pod, pod_level=pod_level))
    limit = to_bytes(pod_limit(pod, pod_level=pod_level))
    if qos is QOSClass.BEST_EFFORT or not limits_declared(pod, pod_level=pod_level):
        limit = 0
    files = {"memory.max": str(limit)} if limit else {}
    if node.cgroup_version != 2 or not config.enabled:
        return files
    if config.tiered and request:
        files["memory.min" if qos is QOSClass.GUARANTEED else "memory.low"] = str(request)
    if limit and config.is_beta and config.factor is not None and _names_memory(pod, config):
        # Since pull request 140262; the figure is an assumption, no source for it could be read.
        high = memory_high(request, limit, None, config.factor, node.page_size)
        if high is not None:
            files["memory.high"] = str(high)
    return files


def _names_memory(pod: Pod, config: MemoryQOSConfig) -> bool:
    """Tell whether the pod has pod-level resources that name memory."""
    return config.pod_level_resources and any(
        amounts is not None and amounts.memory for amounts in (pod.requests, pod.limits)
    )


def container_files(
    config: MemoryQOSConfig,
    node: Node,
    pod: Pod,
    container: Container,
    qos: QOSClass,
    allocatable: Allocatable,
) -> dict[str, str]:
    """Return what the runtime writes for a container; the sandbox gets none of it."""
    request, own = to_bytes(container.requests.memory), to_bytes(container.limits.memory)
    limit = own
    if not own and config.pod_level_resources and pod.limits is not None:
        limit = to_bytes(pod.limits.memory)
    files = {"memory.max": str(limit)} if limit else {}
    if node.cgroup_version != 2:
        return files
    if config.kubelet.single_process_oom_kill is not True:
        files["memory.oom.group"] = "1"
    if node.swap_controller:
        files["memory.swap.max"] = str(swap_max(config, node, pod, container, qos))
    if not config.enabled:
        if config.is_beta:
            files["memory.high"] = "max"
        return files
    if config.tiered and request:
        files["memory.min" if qos is QOSClass.GUARANTEED else "memory.low"] = str(request)
    else:
        files |= {"memory.min": "0", "memory.low": "0"}
    high = _container_high(config, node, request, own, limit, allocatable)
    if high is not None:
        files["memory.high"] = str(high)
    return files


def _container_high(
    config: MemoryQOSConfig,
    node: Node,
    request: int,
    own: int,
    limit: int,
    allocatable: Allocatable,
) -> int | None:
    if config.factor is None:
        return None
    if config.is_beta:
        if request and request == limit:
            return None
    else:  # 1.36 knows the own limit only, and so leaves BestEffort (0 == 0) out
        if request == own:
            return None
        limit = own
    return memory_high(request, limit, allocatable.absolute, config.factor, node.page_size)


def page_floor(text: str, page_size: int) -> str:
    """Return what the kernel reads back after a value was written: whole pages, or ``max``."""
    if text == "max" or int(text) >= 2**63 - 1:
        return "max"
    return str(int(text) // page_size * page_size)
