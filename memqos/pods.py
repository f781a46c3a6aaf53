"""Pods as far as memory goes: containers, requests and limits, QoS class, API defaulting.

Amounts are in 10^-9 units, as `memqos.quantity` has them; `to_bytes` rounds up as Go's Value().
Source: component-helpers resource, kubectl qos, the LimitRanger and RuntimeClass admissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from attrs import evolve, frozen

from memqos import fields
from memqos.errors import InputError
from memqos.quantity import NANO


__all__ = [
    "Container",
    "ContainerRole",
    "LimitRangeItem",
    "Pod",
    "QOSClass",
    "Resources",
    "apply_limit_ranges",
    "apply_overhead",
    "default_requests",
    "limits_declared",
    "namespace_of",
    "parse_limit_range",
    "parse_overhead",
    "parse_pod",
    "pod_limit",
    "pod_request",
    "qos_class",
    "to_bytes",
]

_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"
_CRITICAL_PRIORITY = 2_000_000_000
_CRITICAL_CLASSES = ("system-node-critical", "system-cluster-critical")
_MAX_INT64 = 2**63 - 1


class QOSClass(StrEnum):
    """Kubernetes' quality of service classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerRole(StrEnum):
    """What a container is in its pod; `SIDECAR` is an init container that is restarted always."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"
    EPHEMERAL = "ephemeral"


class Resources(NamedTuple):
    """Amounts in 10^-9 units; None where a resource is not named, which is not the same as 0."""

    cpu: int | None = None
    memory: int | None = None


_NOTHING = Resources()


class Container(NamedTuple):
    """One container."""

    name: str
    role: ContainerRole
    requests: Resources = _NOTHING
    limits: Resources = _NOTHING


@frozen(kw_only=True)
class Pod:
    """One pod, or the template of a workload.

    Attributes:
        kind: the manifest's kind, such as ``Pod`` or ``Deployment``.
        namespace: its namespace.
        name: its name.
        node: ``spec.nodeName``, None before it is scheduled.
        uid: what its cgroup is named after: of a static pod kubelet's hash, not the UID of its
            mirror; None where there is none yet.
        containers: app, init, sidecar and ephemeral containers, in the order of the manifest.
        requests: pod-level requests, None without pod-level resources.
        limits: pod-level limits, None without pod-level resources.
        overhead: RuntimeClass overhead.
        runtime_class: ``spec.runtimeClassName``.
        status_qos: ``status.qosClass``, which wins over what is computed.
        active: False for pods that have ended: they have no cgroup.
        critical: static pods and those of system priority, which never swap.
        resize_pending: the API server has taken a resize that kubelet has not (yet); the amounts
            are those that the containers have.
        container_ids: (container name, id without the runtime's prefix), of the status.
    """

    kind: str
    namespace: str
    name: str
    node: str | None = None
    uid: str | None = None
    containers: tuple[Container, ...] = ()
    requests: Resources | None = None
    limits: Resources | None = None
    overhead: Resources = _NOTHING
    runtime_class: str | None = None
    status_qos: QOSClass | None = None
    active: bool = True
    critical: bool = False
    resize_pending: bool = False
    container_ids: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> str:
        """The pod as plans name it: ``Kind/namespace/name``."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def to_bytes(nanos: int | None) -> int:
    """Round an amount up to whole bytes, at most 2^63-1; an absent one is 0."""
    return min(-(-(nanos or 0) // NANO), _MAX_INT64) if nanos else 0


def parse_pod(
    kind: str, metadata: object, spec: object, status: object = None, path: str = "$"
) -> Pod:
    """Read a pod from plain data.

    Args:
        kind: the kind of the object that has it.
        metadata: of the object, not of its template.
        spec: the PodSpec.
        status: the PodStatus, where there is one.
        path: JSON path of the object that holds `spec`, for errors.

    Raises:
        InputError: a field has the wrong type, or a quantity is malformed.
    """
    meta = fields.mapping(metadata, f"{path}.metadata")
    body = fields.mapping(spec, f"{path}.spec")
    state = fields.mapping(status, f"{path}.status")
    annotations = meta.get("annotations") or {}
    resources = body.get("resources")
    requests, limits = (
        _resources(resources, f"{path}.spec.resources") if resources else (None, None)
    )
    containers: list[Container] = []
    for name, role in _CONTAINER_FIELDS:
        if body.get(name):
            containers += _containers(body[name], role, f"{path}.spec.{name}")
    if not any(container.role is ContainerRole.APP for container in containers):
        raise InputError("no containers; a patch is to be built first", path=f"{path}.spec")
    pending = _is_resize_pending(state, f"{path}.status")
    if pending:
        containers = _as_they_run(containers, state, f"{path}.status")
    qos = state.get("qosClass")
    return Pod(
        kind=kind,
        namespace=namespace_of(meta, path),
        name=_name(meta, path),
        node=_optional_string(body.get("nodeName"), f"{path}.spec.nodeName"),
        uid=_uid(meta, annotations, path),
        containers=tuple(containers),
        requests=requests,
        limits=limits,
        overhead=_amounts(body.get("overhead"), f"{path}.spec.overhead"),
        runtime_class=_optional_string(
            body.get("runtimeClassName"), f"{path}.spec.runtimeClassName"
        ),
        status_qos=QOSClass(str(qos)) if qos in _QOS_CLASSES else None,
        active=state.get("phase") not in ("Succeeded", "Failed"),
        critical=_is_critical(body, annotations),
        resize_pending=pending,
        container_ids=tuple(_container_ids(state, f"{path}.status")) if state else (),
    )


def _container_ids(state: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
    for name in _STATUS_FIELDS:
        for index, item in enumerate(fields.items(state.get(name), f"{path}.{name}")):
            place = f"{path}.{name}[{index}]"
            status = fields.mapping(item, place)
            full, now = status.get("containerID"), status.get("state")
            ended = isinstance(now, dict) and now and "running" not in now
            if isinstance(full, str) and full and not ended:  # else it has no cgroup (any more)
                yield fields.string(status.get("name"), f"{place}.name"), full.rpartition("/")[2]


_STATUS_FIELDS = (
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
)
_QOS_CLASSES = tuple(QOSClass)
_CONTAINER_FIELDS = (
    ("containers", ContainerRole.APP),
    ("initContainers", ContainerRole.INIT),
    ("ephemeralContainers", ContainerRole.EPHEMERAL),
)


def namespace_of(metadata: Mapping[str, object], path: str) -> str:
    """Return the namespace in an object's metadata; `path` is the object's, for errors."""
    namespace = _optional_string(metadata.get("namespace"), f"{path}.metadata.namespace")
    return namespace or "default"


def _name(meta: Mapping[str, object], path: str) -> str:
    name = meta.get("name")
    if name is None and "generateName" in meta:
        return f"{fields.string(meta['generateName'], f'{path}.metadata.generateName')}*"
    return fields.string(name, f"{path}.metadata.name")


def _optional_string(value: object, path: str) -> str | None:
    return None if value is None else fields.string(value, path)


def _uid(meta: Mapping[str, object], annotations: object, path: str) -> str | None:
    mirror = annotations.get(_MIRROR) if isinstance(annotations, dict) else None
    if isinstance(mirror, str) and mirror:
        return mirror
    return _optional_string(meta.get("uid"), f"{path}.metadata.uid")


def _is_resize_pending(state: Mapping[str, object], path: str) -> bool:
    found = fields.items(state.get("conditions"), f"{path}.conditions")
    return any(
        isinstance(condition, dict)
        and condition.get("type") == "PodResizePending"
        and condition.get("status") == "True"
        for condition in found
    )


def _as_they_run(
    containers: list[Container], state: Mapping[str, object], path: str
) -> list[Container]:
    """Take the resources of ``containerStatuses``: kubelet works with what it has allocated."""
    running = {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for index, item in enumerate(fields.items(state.get(field), f"{path}.{field}")):
            place = f"{path}.{field}[{index}]"
            body = fields.mapping(item, place)
            if body.get("resources"):
                name = fields.string(body.get("name"), f"{place}.name")
                running[name] = _resources(body["resources"], f"{place}.resources")
    return [
        Container(item.name, item.role, *running[item.name]) if item.name in running else item
        for item in containers
    ]


def _is_critical(body: Mapping[str, object], annotations: object) -> bool:
    priority = body.get("priority")
    if isinstance(priority, int) and priority >= _CRITICAL_PRIORITY:
        return True
    if body.get("priorityClassName") in _CRITICAL_CLASSES:
        return True
    return isinstance(annotations, dict) and (
        _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api"
    )


def _containers(value: object, role: ContainerRole, path: str) -> list[Container]:
    found = []
    for index, item in enumerate(fields.items(value, path)):
        place = f"{path}[{index}]"
        body = fields.mapping(item, place)
        actual = role
        if role is ContainerRole.INIT and body.get("restartPolicy") == "Always":
            actual = ContainerRole.SIDECAR
        requests, limits = _resources(body.get("resources"), f"{place}.resources")
        found.append(
            Container(fields.string(body.get("name"), f"{place}.name"), actual, requests, limits)
        )
    return found


def _resources(value: object, path: str) -> tuple[Resources, Resources]:
    if not value:
        return _NOTHING, _NOTHING
    body = fields.mapping(value, path)
    return (
        _amounts(body.get("requests"), f"{path}.requests"),
        _amounts(body.get("limits"), f"{path}.limits"),
    )


def _amounts(value: object, path: str) -> Resources:
    if not value:
        return _NOTHING
    body = fields.mapping(value, path)
    return Resources(_amount(body, "cpu", path), _amount(body, "memory", path))


def _amount(body: Mapping[str, object], name: str, path: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    nanos = (
        _parse(value) if isinstance(value, str) else fields.quantity(value, f"{path}.{name}").nanos
    )
    if nanos is None:
        fields.quantity(value, f"{path}.{name}")  # raises, with the path
        return None
    if nanos < 0:
        raise InputError(f"{value} is negative", path=f"{path}.{name}")
    return nanos


@lru_cache(maxsize=4096)
def _parse(text: str) -> int | None:
    """Parse a quantity; manifests repeat a few of them thousands of times."""
    try:
        return fields.quantity(text, "").nanos
    except InputError:
        return None


def pod_request(pod: Pod, *, pod_level: bool = True) -> int:
    """Return the pod's effective memory request: init peak, pod level and overhead included.

    Args:
        pod: the pod.
        pod_level: gate PodLevelResources.
    """
    total = _peak(pod.containers, requests=True)
    if pod_level and pod.requests is not None and pod.requests.memory is not None:
        total = pod.requests.memory
    return total + (pod.overhead.memory or 0)


def pod_limit(pod: Pod, *, pod_level: bool = True) -> int:
    """Return the sum of the pod's memory limits, 0 for none; see `limits_declared`."""
    total = _peak(pod.containers, requests=False)
    if pod_level and pod.limits is not None and pod.limits.memory is not None:
        total = pod.limits.memory
    return total + (pod.overhead.memory or 0) if total else 0


def limits_declared(pod: Pod, *, pod_level: bool = True) -> bool:
    """Tell whether every container has a memory limit, so that the pod cgroup gets one.

    For an init container what counts is its phase: with a limited sidecar before it, it needs no
    limit of its own (kubelet 1.36; 1.37 rewrote the helper, which could not be read).
    """
    if pod_level and pod.limits is not None and pod.limits.memory:
        return True
    sidecars = 0
    for container in pod.containers:
        limit = container.limits.memory or 0
        match container.role:
            case ContainerRole.APP:
                if not limit:
                    return False
            case ContainerRole.SIDECAR:
                sidecars += limit
                if not sidecars:
                    return False
            case ContainerRole.INIT:
                if not limit + sidecars:
                    return False
            case ContainerRole.EPHEMERAL:
                pass
    return True


def _peak(containers: Iterable[Container], *, requests: bool) -> int:
    """Return the largest of the run phase and of each init phase."""
    running = sidecars = peak = 0
    for container in containers:
        amount = (container.requests if requests else container.limits).memory or 0
        match container.role:
            case ContainerRole.APP:
                running += amount
            case ContainerRole.SIDECAR:
                sidecars += amount
                peak = max(peak, sidecars)
            case ContainerRole.INIT:
                peak = max(peak, amount + sidecars)
            case ContainerRole.EPHEMERAL:
                pass
    return max(peak, running + sidecars)


def qos_class(pod: Pod, *, pod_level: bool = True) -> QOSClass:
    """Return the pod's class; a class in its status wins."""
    if pod.status_qos is not None:
        return pod.status_qos
    if pod_level and pod.requests is not None and pod.limits is not None:
        requests = [pod.requests.cpu or 0, pod.requests.memory or 0]
        limits = [pod.limits.cpu or 0, pod.limits.memory or 0]
        all_limited = not any(limits) or all(limits)
    else:
        requests, limits, all_limited = [0, 0], [0, 0], True
        for container in pod.containers:
            if container.role is ContainerRole.EPHEMERAL:
                continue
            cpu, memory = container.limits
            all_limited = all_limited and bool(cpu) and bool(memory)
            limits = [limits[0] + (cpu or 0), limits[1] + (memory or 0)]
            cpu, memory = container.requests
            requests = [requests[0] + (cpu or 0), requests[1] + (memory or 0)]
    if not any(requests) and not any(limits):
        return QOSClass.BEST_EFFORT
    return QOSClass.GUARANTEED if all_limited and requests == limits else QOSClass.BURSTABLE


def default_requests(pod: Pod) -> Pod:
    """Copy limits into absent requests, as the API server does when it decodes a pod.

    Pod-level requests that are absent become the containers' sum where there is one, else the
    pod-level limit.
    """
    containers = tuple(
        container
        if container.role is ContainerRole.EPHEMERAL or container.limits == _NOTHING
        else container._replace(requests=_fill(container.requests, container.limits))
        for container in pod.containers
    )
    requests = pod.requests
    if pod.limits is not None and pod.limits != _NOTHING:
        sums = Resources(*(_named_peak(containers, resource) for resource in ("cpu", "memory")))
        limited = Resources(
            None if pod.limits.cpu is None else sums.cpu,
            None if pod.limits.memory is None else sums.memory,
        )
        requests = _fill(_fill(pod.requests or _NOTHING, limited), pod.limits)
    if containers == pod.containers and requests == pod.requests:
        return pod
    return evolve(pod, containers=containers, requests=requests)


def _named_peak(containers: tuple[Container, ...], resource: str) -> int | None:
    """Return the aggregated request of a resource, None if no container names it."""
    if all(getattr(container.requests, resource) is None for container in containers):
        return None
    if resource == "memory":
        return _peak(containers, requests=True)
    as_memory = (
        container._replace(requests=Resources(None, container.requests.cpu))
        for container in containers
    )
    return _peak(as_memory, requests=True)


def _fill(amounts: Resources, defaults: Resources) -> Resources:
    return Resources(
        defaults.cpu if amounts.cpu is None else amounts.cpu,
        defaults.memory if amounts.memory is None else amounts.memory,
    )


class LimitRangeItem(NamedTuple):
    """The ``Container`` item of a LimitRange, defaults worked out."""

    default: Resources
    default_request: Resources


def parse_limit_range(spec: object, path: str) -> tuple[LimitRangeItem, ...]:
    """Read ``LimitRange.spec``: the items of type Container, in order.

    Within an item `default` falls back to `max`, `defaultRequest` to `default` and then to `min`.
    """
    items = []
    limits = fields.mapping(spec, path).get("limits")
    for index, value in enumerate(fields.items(limits, f"{path}.limits")):
        place = f"{path}.limits[{index}]"
        item = fields.mapping(value, place)
        if item.get("type") != "Container":
            continue
        read = {
            name: _amounts(item.get(name), f"{place}.{name}")
            for name in ("default", "defaultRequest", "max", "min")
        }
        default = _fill(read["default"], read["max"])
        items.append(
            LimitRangeItem(default, _fill(_fill(read["defaultRequest"], default), read["min"]))
        )
    return tuple(items)


def apply_limit_ranges(pod: Pod, items: Iterable[LimitRangeItem]) -> Pod:
    """Fill absent container limits and requests, one LimitRange item after another."""
    containers = pod.containers
    for item in items:
        containers = tuple(
            container
            if container.role is ContainerRole.EPHEMERAL
            else container._replace(
                requests=_fill(container.requests, item.default_request),
                limits=_fill(container.limits, item.default),
            )
            for container in containers
        )
    return pod if containers == pod.containers else evolve(pod, containers=containers)


def parse_overhead(runtime_class: Mapping[str, object], path: str) -> Resources:
    """Read ``overhead.podFixed`` of a RuntimeClass."""
    overhead = fields.mapping(runtime_class.get("overhead"), f"{path}.overhead")
    return _amounts(overhead.get("podFixed"), f"{path}.overhead.podFixed")


def apply_overhead(pod: Pod, overheads: Mapping[str, Resources]) -> Pod:
    """Give a pod its RuntimeClass' overhead, as the admission does.

    Raises:
        InputError: the pod has another overhead already, which the API server refuses.
    """
    overhead = overheads.get(pod.runtime_class or "")
    if overhead is None or overhead == pod.overhead:
        return pod
    if pod.overhead != _NOTHING:
        raise InputError(
            f"the overhead differs from that of RuntimeClass {pod.runtime_class}",
            path="$.spec.overhead",
        )
    return evolve(pod, overhead=overhead)
