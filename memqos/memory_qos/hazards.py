"""What goes wrong although kubelet writes just what it should.

Each hazard comes from a public report or from the source; the codes are public API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from attrs import evolve, frozen

from memqos.memory_qos.allocatable import Node
from memqos.memory_qos.compare import PlanChange, When
from memqos.memory_qos.config import ConfigErrorCode, MemoryQOSConfig
from memqos.memory_qos.environment import EnvironmentWarning, environment_warnings
from memqos.memory_qos.paths import Driver
from memqos.memory_qos.plan import KUBE_RESERVED, SYSTEM_RESERVED, CgroupPlan, PlannedCgroup
from memqos.pods import (
    Container,
    ContainerRole,
    Pod,
    QOSClass,
    Resources,
    pod_request,
    to_bytes,
)


__all__ = [
    "TITLES",
    "Hazard",
    "HazardCode",
    "Severity",
    "find_change_hazards",
    "find_hazards",
]

# A request this near its limit leaves memory.high next to no room to throttle in.
_NEAR_LIMIT = 0.95

# Gates that add cgroups or amounts which memqos does not plan; alpha and off.
_NOT_PLANNED = ("QOSReserved", "DRANodeAllocatableResources", "NodeSystemPartition")


class Severity(StrEnum):
    """How bad; in rising order."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class HazardCode(StrEnum):
    """What kind."""

    CGROUP_V1 = "cgroup-v1"
    KERNEL_LIVELOCK = "kernel-livelock"
    CAPACITY_UNKNOWN = "capacity-unknown"
    RESERVATION_EXCEEDS_CAPACITY = "reservation-exceeds-capacity"
    GATE_NOT_PLANNED = "gate-not-planned"
    FACTOR_ONE = "factor-one"
    THROTTLED_WITHOUT_SWAP = "throttled-without-swap"
    CGROUP_ROOT_SLICE = "cgroup-root-slice"
    CGROUP_ROOT_UNDERSCORE = "cgroup-root-underscore"
    PODS_NOT_ENFORCED = "pods-not-enforced"
    RESERVED_LIMITED = "reserved-limited"
    RESERVED_PROTECTED = "reserved-protected"
    RESERVED_NESTED = "reserved-nested"
    RESERVED_SERVICE = "reserved-service"
    PROTECTION_EXCEEDS_ALLOCATABLE = "protection-exceeds-allocatable"
    PROTECTION_NODE_WIDE = "protection-node-wide"
    BURSTABLE_PROTECTION_VOID = "burstable-protection-void"
    THROTTLING_DROPPED = "throttling-dropped"
    STALE_THROTTLING = "stale-throttling"
    STALE_PROTECTION = "stale-protection"
    PROTECTION_DELAYED = "protection-delayed"
    MIN_EQUALS_MAX = "min-equals-max"
    REQUEST_ABOVE_ALLOCATABLE = "request-above-allocatable"
    REQUEST_BELOW_PAGE = "request-below-page"
    REQUEST_NEAR_LIMIT = "request-near-limit"
    INIT_PEAK = "init-peak"
    POD_LEVEL_HIGH = "pod-level-high"
    RESIZE_PENDING = "resize-pending"
    BESTEFFORT_THROTTLED = "besteffort-throttled"
    BESTEFFORT_OVERHEAD = "besteffort-overhead"
    EPHEMERAL_THROTTLED = "ephemeral-throttled"


#: What each code means, in a line.
TITLES: Mapping[HazardCode | ConfigErrorCode, str] = {
    **dict.fromkeys(ConfigErrorCode, "kubelet refuses this configuration"),
    HazardCode.CGROUP_V1: "Memory QoS has no effect with cgroup v1",
    HazardCode.KERNEL_LIVELOCK: "memory.high can livelock processes on this kernel",
    HazardCode.CAPACITY_UNKNOWN: "the node's capacity is not known",
    HazardCode.RESERVATION_EXCEEDS_CAPACITY: "more memory is reserved than the node has",
    HazardCode.GATE_NOT_PLANNED: "a feature gate changes what memqos does not plan",
    HazardCode.FACTOR_ONE: "memoryThrottlingFactor 1.0 is not null",
    HazardCode.THROTTLED_WITHOUT_SWAP: "memory.high without swap can stall instead of kill",
    HazardCode.CGROUP_ROOT_SLICE: "cgroupRoot ends in .slice with the systemd driver",
    HazardCode.CGROUP_ROOT_UNDERSCORE: "cgroupRoot has an underscore with the systemd driver",
    HazardCode.PODS_NOT_ENFORCED: "kubepods may use what is reserved for the system",
    HazardCode.RESERVED_LIMITED: "a reserved cgroup is limited to its reservation",
    HazardCode.RESERVED_PROTECTED: "a reserved cgroup gets memory.min equal to memory.max",
    HazardCode.RESERVED_NESTED: "a reserved cgroup's ancestors void its memory.min",
    HazardCode.RESERVED_SERVICE: "a service cannot be a reserved cgroup",
    HazardCode.PROTECTION_EXCEEDS_ALLOCATABLE: "requests protect more than is allocatable",
    HazardCode.PROTECTION_NODE_WIDE: "no pod can opt out of its protection",
    HazardCode.BURSTABLE_PROTECTION_VOID: "memory.low of Burstable pods is without effect",
    HazardCode.THROTTLING_DROPPED: "the throttling factor's default goes away",
    HazardCode.STALE_THROTTLING: "running containers keep their old memory.high",
    HazardCode.STALE_PROTECTION: "protection stays that nobody resets",
    HazardCode.PROTECTION_DELAYED: "running pods stay unprotected",
    HazardCode.MIN_EQUALS_MAX: "memory.min reaches memory.max: page cache cannot be reclaimed",
    HazardCode.REQUEST_ABOVE_ALLOCATABLE: "a pod requests more than the node can allocate",
    HazardCode.REQUEST_BELOW_PAGE: "a request below a page protects nothing",
    HazardCode.REQUEST_NEAR_LIMIT: "a request near its limit leaves no room to throttle",
    HazardCode.INIT_PEAK: "an init container's request stays protected for good",
    HazardCode.POD_LEVEL_HIGH: "the pod's memory.high is an assumption",
    HazardCode.RESIZE_PENDING: "kubelet has not taken a resize yet",
    HazardCode.BESTEFFORT_THROTTLED: "a BestEffort container is throttled near allocatable",
    HazardCode.BESTEFFORT_OVERHEAD: "a BestEffort pod's memory.low has no effect",
    HazardCode.EPHEMERAL_THROTTLED: "an ephemeral container is throttled near allocatable",
}


@frozen(kw_only=True)
class Hazard:
    """One hazard, or one thing that kubelet refuses.

    Attributes:
        code: what kind.
        severity: how bad.
        message: a sentence with the figures.
        pod: ``Kind/namespace/name``, None for the node.
        container: its name, None for a pod or the node.
    """

    code: HazardCode | ConfigErrorCode
    severity: Severity
    message: str
    pod: str | None = None
    container: str | None = None


def find_hazards(
    config: MemoryQOSConfig,
    node: Node,
    pods: Iterable[Pod],
    plan: CgroupPlan,
    *,
    driver: Driver = Driver.SYSTEMD,
    kernel: str | None = None,
) -> Iterator[Hazard]:
    """Yield what kubelet refuses, then the node's hazards, then each pod's.

    Args:
        config: Memory QoS.
        node: the node.
        pods: the pods of the plan.
        plan: what is written.
        driver: kubelet's cgroup driver.
        kernel: its release, None if it is not known.
    """
    for error in config.errors:
        yield Hazard(
            code=error.code,
            severity=Severity.ERROR,
            message=f"kubelet refuses to start: {error.message}",
        )
    yield from _environment(config, node, plan, kernel)
    yield from _node(config, node, plan, driver)
    if node.cgroup_version == 2 and config.enabled:
        cgroups: dict[str, list[PlannedCgroup]] = {}
        for cgroup in plan.cgroups:
            if cgroup.pod is not None:
                cgroups.setdefault(cgroup.pod, []).append(cgroup)
        for pod in pods:
            if pod.path in cgroups:
                own = cgroups[pod.path][: 1 + len(pod.containers)]
                yield from _pod(config, node, pod, own, plan)


def _environment(
    config: MemoryQOSConfig, node: Node, plan: CgroupPlan, kernel: str | None
) -> Iterator[Hazard]:
    found = environment_warnings(
        enabled=config.enabled, cgroup_version=node.cgroup_version, kernel=kernel
    )
    for warning in found:
        if warning is EnvironmentWarning.CGROUP_V1:
            yield Hazard(
                code=HazardCode.CGROUP_V1,
                severity=Severity.WARNING,
                message="Memory QoS has no effect with cgroup v1",
            )
        else:
            highs = {cgroup.files.get("memory.high", "max") for cgroup in plan.cgroups}
            yield Hazard(
                code=HazardCode.KERNEL_LIVELOCK,
                severity=Severity.INFO if highs == {"max"} else Severity.WARNING,
                message=f"memory.high can livelock processes on kernel {kernel}; 5.9 is the first "
                "without it (back-ports are not recognised)",
            )
    if node.capacity_bytes is None:
        yield Hazard(
            code=HazardCode.CAPACITY_UNKNOWN,
            severity=Severity.WARNING,
            message="the node's capacity is not known, so kubepods memory.max and the memory.high "
            "of containers without a limit are not planned; give --capacity or --node",
        )


def _node(
    config: MemoryQOSConfig, node: Node, plan: CgroupPlan, driver: Driver
) -> Iterator[Hazard]:
    allocatable = plan.allocatable
    reservation, capacity = allocatable.reservation, node.capacity_bytes
    if reservation is not None and capacity is not None and reservation > capacity:
        yield Hazard(
            code=HazardCode.RESERVATION_EXCEEDS_CAPACITY,
            severity=Severity.ERROR,
            message=f"{reservation} bytes are reserved of {capacity}; kubelet refuses to start",
        )
    for gate in _NOT_PLANNED:
        if config.kubelet.gate(gate, alpha=False):
            yield Hazard(
                code=HazardCode.GATE_NOT_PLANNED,
                severity=Severity.INFO,
                message=f"the feature gate {gate} is on; what it adds is not in this plan",
            )
    active = config.enabled and node.cgroup_version == 2
    if active and config.factor == 1.0:
        yield Hazard(
            code=HazardCode.FACTOR_ONE,
            severity=Severity.INFO,
            message="memoryThrottlingFactor 1.0 is not null: memory.high is still written, at the "
            "limit rounded down to a page",
        )
    throttled = sum(
        1
        for cgroup in plan.cgroups
        if cgroup.container is not None and cgroup.files.get("memory.high", "max") != "max"
    )
    if active and throttled and node.swap_controller and not node.swap_capacity_bytes:
        yield Hazard(
            code=HazardCode.THROTTLED_WITHOUT_SWAP,
            severity=Severity.WARNING,
            message=f"the node has no swap; containers with a memory.high: {throttled}. With more "
            "anonymous memory than that they are throttled without end, and never killed "
            "(FootprintAI/Containarium#1454)",
        )
    root = config.kubelet.cgroup_root.rstrip("/")
    if driver is Driver.SYSTEMD and root.endswith(".slice"):
        yield Hazard(
            code=HazardCode.CGROUP_ROOT_SLICE,
            severity=Severity.WARNING,
            message=f"cgroupRoot {root} becomes {root.lstrip('/')}.slice with the systemd driver; "
            f"write {root.removesuffix('.slice')}",
        )
    if driver is Driver.SYSTEMD and "_" in root:
        yield Hazard(
            code=HazardCode.CGROUP_ROOT_UNDERSCORE,
            severity=Severity.ERROR,
            message=f"cgroupRoot {root} has an underscore, which kubelet's systemd names cannot "
            "have; it panics",
        )
    if allocatable.kubepods_max is not None and allocatable.kubepods_max != allocatable.absolute:
        yield Hazard(
            code=HazardCode.PODS_NOT_ENFORCED,
            severity=Severity.INFO,
            message='enforceNodeAllocatable lacks "pods": memory.max of kubepods is the whole '
            f"capacity, {allocatable.kubepods_max} bytes, not the {allocatable.absolute} "
            "allocatable (kubernetes/kubernetes#88197)",
        )
    for cgroup in plan.cgroups:
        if cgroup.role in (SYSTEM_RESERVED, KUBE_RESERVED):
            yield from _reserved(config, cgroup, driver)
    if node.cgroup_version == 2:
        yield from _protection(config, plan)


def _reserved(config: MemoryQOSConfig, cgroup: PlannedCgroup, driver: Driver) -> Iterator[Hazard]:
    if driver is Driver.SYSTEMD and cgroup.path.endswith(".service.slice"):
        yield Hazard(
            code=HazardCode.RESERVED_SERVICE,
            severity=Severity.ERROR,
            message=f"the {cgroup.role} cgroup would be {cgroup.path}, which does not exist: a "
            "service cannot be used with the systemd driver, and kubelet refuses to start",
        )
    if "memory.min" not in cgroup.files:
        yield Hazard(
            code=HazardCode.RESERVED_LIMITED,
            severity=Severity.INFO,
            message=f"{cgroup.path} gets memory.max={cgroup.files['memory.max']}: what the system "
            "uses beyond its reservation is killed (kubernetes/kubernetes#128284)",
        )
        return
    size = cgroup.files["memory.min"]
    yield Hazard(
        code=HazardCode.RESERVED_PROTECTED,
        severity=Severity.WARNING,
        message=f"{cgroup.path} gets memory.min={size}, equal to its memory.max, as soon as the "
        f"MemoryQoS gate is on{' (the default since 1.37)' if config.is_beta else ''}; turning it "
        "off never resets the value (see kubernetes/kubernetes#128284)",
    )
    if "/" in cgroup.path:
        yield Hazard(
            code=HazardCode.RESERVED_NESTED,
            severity=Severity.WARNING,
            message=f"memory.min of {cgroup.path} is void unless somebody sets it on its "
            "ancestors; kubelet does not",
        )


def _protection(config: MemoryQOSConfig, plan: CgroupPlan) -> Iterator[Hazard]:
    if not config.tiered:
        return
    protected = plan.guaranteed_bytes + plan.burstable_bytes
    absolute, status = plan.allocatable.absolute, plan.allocatable.status
    if absolute is not None and status is not None and protected > status:
        over = protected > absolute
        yield Hazard(
            code=HazardCode.PROTECTION_EXCEEDS_ALLOCATABLE,
            severity=Severity.ERROR if over else Severity.WARNING,
            message=f"requests protect {protected} bytes, more than the "
            f"{absolute if over else status} allocatable: under pressure reclaim has only the "
            "unprotected rest, and ends in OOM kills",
        )
    if protected:
        pods = sum(
            1
            for cgroup in plan.cgroups
            if cgroup.role.startswith("pod:") and {"memory.min", "memory.low"} & set(cgroup.files)
        )
        yield Hazard(
            code=HazardCode.PROTECTION_NODE_WIDE,
            severity=Severity.INFO,
            message=f"protected pods, page cache included: {pods}; none can opt out "
            "(kubernetes/kubernetes#140246)",
        )
    if not config.is_beta and plan.burstable_bytes:
        yield Hazard(
            code=HazardCode.BURSTABLE_PROTECTION_VOID,
            severity=Severity.ERROR,
            message=f"kubelet 1.{config.minor} leaves memory.low of kubepods at 0, so the "
            "memory.low of every Burstable pod is without effect (kubernetes/kubernetes#140267)",
        )


def _pod(
    config: MemoryQOSConfig,
    node: Node,
    pod: Pod,
    cgroups: list[PlannedCgroup],
    plan: CgroupPlan,
) -> Iterator[Hazard]:
    own = cgroups[0]
    request = to_bytes(pod_request(pod, pod_level=config.pod_level_resources))
    absolute = plan.allocatable.absolute
    if absolute is not None and request > absolute:
        yield Hazard(
            code=HazardCode.REQUEST_ABOVE_ALLOCATABLE,
            severity=Severity.WARNING,
            message=f"requests {request} bytes, more than the node's {absolute} allocatable",
            pod=pod.path,
        )
    limit = int(own.files.get("memory.max", 0))
    # Init containers have ended when the others run: what counts is the largest phase.
    claimed = to_bytes(pod_request(evolve(pod, overhead=Resources()), pod_level=False))
    if "memory.min" in own.files and limit and claimed >= limit:
        yield Hazard(
            code=HazardCode.MIN_EQUALS_MAX,
            severity=Severity.WARNING,
            message=f"its containers' memory.min ({claimed}) reaches the pod's memory.max "
            f"({limit}): page cache cannot be reclaimed there, and filling it ends in an OOM kill "
            "(kubernetes/kubernetes#126485)",
            pod=pod.path,
        )
    yield from _pod_notes(config, pod, own, request)
    for container, cgroup in zip(pod.containers, cgroups[1:], strict=True):
        yield from _container(config, node, pod, container, cgroup)


def _pod_notes(
    config: MemoryQOSConfig, pod: Pod, own: PlannedCgroup, request: int
) -> Iterator[Hazard]:
    def info(code: HazardCode, message: str) -> Hazard:
        return Hazard(code=code, severity=Severity.INFO, message=message, pod=pod.path)

    pod_level = config.pod_level_resources and pod.requests is not None
    later = tuple(item for item in pod.containers if item.role is not ContainerRole.INIT)
    running = to_bytes(pod_request(evolve(pod, containers=later), pod_level=False))
    if config.tiered and not pod_level and running < request:
        yield info(
            HazardCode.INIT_PEAK,
            f"{request} bytes are protected for as long as the pod lives, for an init container; "
            f"the containers after it request {running}",
        )
    if "memory.high" in own.files:
        yield info(
            HazardCode.POD_LEVEL_HIGH,
            f"memory.high={own.files['memory.high']} comes of pod-level resources; its formula is "
            "an assumption (kubernetes/kubernetes#140262, not in KEP-2570)",
        )
    if pod.resize_pending:
        yield info(
            HazardCode.RESIZE_PENDING,
            "kubelet has not taken the resize in its spec; planned is what its status says",
        )
    if own.qos is QOSClass.BEST_EFFORT and own.files.get("memory.low"):
        yield info(
            HazardCode.BESTEFFORT_OVERHEAD,
            "a BestEffort pod gets memory.low from its overhead; it has no effect, as the "
            "besteffort cgroup has none",
        )


def _container(
    config: MemoryQOSConfig, node: Node, pod: Pod, container: Container, cgroup: PlannedCgroup
) -> Iterator[Hazard]:
    def hazard(code: HazardCode, severity: Severity, message: str) -> Hazard:
        return Hazard(
            code=code,
            severity=severity,
            message=message,
            pod=pod.path,
            container=cgroup.container,
        )

    files = cgroup.files
    high, limit = int(files.get("memory.high", 0)), int(files.get("memory.max", 0))
    protected = int(files.get("memory.min", 0)) or int(files.get("memory.low", 0))
    if high and container.role is ContainerRole.EPHEMERAL:
        yield hazard(
            HazardCode.EPHEMERAL_THROTTLED,
            Severity.INFO,
            f"an ephemeral container is throttled at {high} bytes, whatever its pod's class",
        )
    elif high and cgroup.qos is QOSClass.BEST_EFFORT:
        yield hazard(
            HazardCode.BESTEFFORT_THROTTLED,
            Severity.INFO,
            f"throttled at {high} bytes, {config.factor:g} of what the whole node can allocate",
        )
    if config.tiered and 0 < protected < node.page_size:
        yield hazard(
            HazardCode.REQUEST_BELOW_PAGE,
            Severity.WARNING,
            f"a request of {protected} bytes is less than a page and protects nothing",
        )
    request = to_bytes(container.requests.memory)
    if config.factor is not None and limit and _NEAR_LIMIT * limit <= request < limit:
        yield hazard(
            HazardCode.REQUEST_NEAR_LIMIT,
            Severity.INFO,
            f"the request is {request / limit:.0%} of the limit: "
            + (
                f"throttling starts {limit - high} bytes below it"
                if high
                else "too near for a memory.high"
            ),
        )


def find_change_hazards(
    old: MemoryQOSConfig, new: MemoryQOSConfig, changes: Iterable[PlanChange]
) -> Iterator[Hazard]:
    """Yield what a change of configuration or release leaves behind on a running node.

    Args:
        old: what runs now.
        new: what kubelet will start with.
        changes: of the plans, from `compare_plans`.
    """
    dropped = old.enabled and old.factor is not None and new.enabled and new.factor is None
    if dropped and old.kubelet.memory_throttling_factor is None:
        yield Hazard(
            code=HazardCode.THROTTLING_DROPPED,
            severity=Severity.WARNING,
            message=f"memoryThrottlingFactor is not set: 1.{old.minor} took {old.factor}, "
            f"1.{new.minor} takes null and writes no memory.high; set it to keep the throttling",
        )
    throttled, unprotected = 0, 0
    for change in changes:
        kind = change.role.partition(":")[0]
        if change.when is When.KUBELET_START:
            continue
        if kind == "container" and change.file == "memory.high":
            throttled += change.before != "max"
        elif change.file in ("memory.min", "memory.low"):
            if kind == "pod":
                unprotected += change.before == "0"
            elif change.when is When.NEVER and change.before != "0":
                yield Hazard(
                    code=HazardCode.STALE_PROTECTION,
                    severity=Severity.WARNING,
                    message=f"{change.path} keeps {change.file}={change.before}, and it stays "
                    "effective: kubelet does not reset it "
                    "(kubernetes/kubernetes#138436, #138471)",
                )
    if throttled:
        yield Hazard(
            code=HazardCode.STALE_THROTTLING,
            severity=Severity.WARNING,
            message="running containers stay throttled at their old memory.high until they are "
            f"resized or restart: {throttled} (kubernetes/kubernetes#139377); CRI-O before March "
            "2026 resizes none (cri-o/cri-o#9816)",
        )
    if unprotected:
        yield Hazard(
            code=HazardCode.PROTECTION_DELAYED,
            severity=Severity.WARNING,
            message="running pods get no protection until they are created anew, as kubelet "
            f"writes the cgroups of new pods only: {unprotected} (kubernetes/kubernetes#137674)",
        )
