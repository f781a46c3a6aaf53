"""Kubernetes manifests as far as memory goes: pods of every workload kind, and what shapes them.

LimitRange, RuntimeClass and Node objects in the same stream are used; other kinds are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from attrs import Factory, define, evolve, frozen

from memqos import fields
from memqos.errors import InputError
from memqos.pods import (
    LimitRangeItem,
    Pod,
    Resources,
    apply_limit_ranges,
    apply_overhead,
    default_requests,
    namespace_of,
    parse_limit_range,
    parse_overhead,
    parse_pod,
)


__all__ = ["KEYS", "ManifestReader", "NodeFacts", "Workload", "parse_node"]

_CORE = ""
_READ_KINDS = {
    "Pod": (_CORE,),
    "PodTemplate": (_CORE,),
    "ReplicationController": (_CORE,),
    "Deployment": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "DaemonSet": ("apps", "extensions"),
    "ReplicaSet": ("apps", "extensions"),
    "Job": ("batch", "extensions"),
    "CronJob": ("batch",),
    "LimitRange": (_CORE,),
    "Node": (_CORE,),
    "RuntimeClass": ("node.k8s.io",),
}

# Kubernetes' own kinds that bring no pods are passed over without a word.
_WITHOUT_PODS = {
    _CORE: frozenset(
        {
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        }
    ),
    "apps": frozenset({"ControllerRevision"}),
    "extensions": frozenset({"Ingress", "NetworkPolicy", "PodSecurityPolicy"}),
}
_GROUPS_WITHOUT_PODS = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "kubeadm.k8s.io",
        "kubelet.config.k8s.io",
        "kustomize.config.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)

#: every key that is read here or in `memqos.pods`, at any depth
KEYS = frozenset(
    {
        "apiVersion",
        "kind",
        "items",
        "metadata",
        "name",
        "generateName",
        "namespace",
        "uid",
        "annotations",
        "spec",
        "template",
        "jobTemplate",
        "replicas",
        "parallelism",
        "status",
        "qosClass",
        "phase",
        "conditions",
        "ownerReferences",
        "controller",
        "priority",
        "priorityClassName",
        "containers",
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
        "containerID",
        "initContainers",
        "ephemeralContainers",
        "restartPolicy",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "overhead",
        "podFixed",
        "runtimeClassName",
        "type",
        "default",
        "defaultRequest",
        "max",
        "min",
        "capacity",
        "nodeInfo",
        "swap",
        "kernelVersion",
        "hugepages-64Ki",
        "hugepages-2Mi",
        "hugepages-32Mi",
        "hugepages-512Mi",
        "hugepages-1Gi",
        "hugepages-16Gi",
        "kubernetes.io/config.source",
        "kubernetes.io/config.mirror",
    }
)

_MAX_INT32 = 2**31 - 1
_MAX_LIST_DEPTH = 10


@frozen(kw_only=True)
class Workload:
    """A pod, or a workload's pod template.

    Attributes:
        pod: as the API server stores it.
        replicas: how many of it the manifest asks for; 1 for a DaemonSet, which has one a node.
        source: file name, ``-`` for standard input.
        document: 1-based number in the stream.
        line: 1-based line of the document.
        owner: ``Kind/namespace/name`` of the object that controls it, None without one.
    """

    pod: Pod
    replicas: int
    source: str
    document: int
    line: int
    owner: str | None = None


@frozen(kw_only=True)
class NodeFacts:
    """What a v1 Node tells; bytes, None where it does not say."""

    name: str | None = None
    capacity_bytes: int | None = None
    hugepage_bytes: int | None = None
    swap_bytes: int | None = None
    kernel: str | None = None


def _template(spec: Mapping[str, object], path: str) -> tuple[object, str]:
    template = fields.mapping(spec.get("template"), f"{path}.template")
    return template.get("spec"), f"{path}.template"


def _cron_template(spec: Mapping[str, object], path: str) -> tuple[object, str]:
    job = fields.mapping(spec.get("jobTemplate"), f"{path}.jobTemplate")
    inner = fields.mapping(job.get("spec"), f"{path}.jobTemplate.spec")
    return _template(inner, f"{path}.jobTemplate.spec")


_TEMPLATES: Mapping[str, Callable[[Mapping[str, object], str], tuple[object, str]]] = {
    "Deployment": _template,
    "StatefulSet": _template,
    "DaemonSet": _template,
    "ReplicaSet": _template,
    "ReplicationController": _template,
    "Job": _template,
    "CronJob": _cron_template,
}


def parse_node(document: object, path: str = "$") -> NodeFacts:
    """Read a v1 Node from plain data.

    Raises:
        InputError: a field has the wrong type, or a quantity is malformed or negative.
    """
    node = fields.mapping(document, path)
    meta = fields.mapping(node.get("metadata"), f"{path}.metadata")
    status = fields.mapping(node.get("status"), f"{path}.status")
    capacity = fields.mapping(status.get("capacity"), f"{path}.status.capacity")
    info = fields.mapping(status.get("nodeInfo"), f"{path}.status.nodeInfo")
    swap = fields.mapping(info.get("swap"), f"{path}.status.nodeInfo.swap")
    sizes = {
        name: _size(amount, fields.member(f"{path}.status.capacity", name))
        for name, amount in capacity.items()
        if name == "memory" or name.startswith("hugepages-")
    }
    name, kernel = meta.get("name"), info.get("kernelVersion")
    return NodeFacts(
        name=name if isinstance(name, str) else None,
        capacity_bytes=sizes.pop("memory", None),
        hugepage_bytes=sum(sizes.values()) if sizes else None,
        swap_bytes=fields.integer(
            swap["capacity"], f"{path}.status.nodeInfo.swap.capacity", low=0, high=2**63
        )
        if "capacity" in swap
        else None,
        kernel=kernel if isinstance(kernel, str) else None,
    )


def _size(amount: object, path: str) -> int:
    size = fields.quantity(amount, path).value
    if size < 0:
        raise InputError(f"{amount} is negative", path=path)
    return size


class _Place(NamedTuple):
    source: str
    document: int
    line: int


@define
class ManifestReader:
    """Takes objects one by one, and gives the workloads once all are in.

    Attributes:
        replicas: whether `workloads` multiplies a workload by its replicas.
        strict: whether an object of an unknown kind is an error.
        nodes: the v1 Node objects.
        unknown: kind (with its group, if any) to the number of objects that were left out.
        repeated: ``Kind/namespace/name`` of what was given more than once; the last one counts.
        owned: how many workloads `workloads` left out, as their controller is there too.
        foreign: the files with documents that are no Kubernetes objects, once for each.
    """

    replicas: bool = False
    strict: bool = False
    nodes: list[NodeFacts] = Factory(list)
    unknown: Counter[str] = Factory(Counter)
    repeated: set[str] = Factory(set)
    owned: int = 0
    foreign: list[str] = Factory(list)
    _workloads: dict[str, Workload] = Factory(dict)
    _limit_ranges: dict[str, list[LimitRangeItem]] = Factory(dict)
    _overheads: dict[str, Resources] = Factory(dict)

    def is_foreign(self, data: object) -> bool:
        """Tell whether a document is no Kubernetes object at all, and `strict` permits it."""
        return not self.strict and not (
            isinstance(data, dict) and isinstance(data.get("kind"), str)
        )

    def add(self, data: object, *, source: str, document: int, line: int) -> None:
        """Take one document: an object or a list of them.

        Raises:
            InputError: it is no Kubernetes object, or a field cannot be understood; `path` says
                where.
        """
        self._add(data, "$", _Place(source, document, line), 0)

    def _add(self, data: object, path: str, place: _Place, depth: int) -> None:
        body = fields.mapping(data, path)
        if body.get("kind") is None:
            raise InputError("no Kubernetes object: it has no kind", path=path)
        kind = fields.string(body["kind"], f"{path}.kind")
        version = body.get("apiVersion")
        group = str(version).rpartition("/")[0] if version is not None else None
        if "items" in body and kind.endswith("List"):
            if depth > _MAX_LIST_DEPTH:
                raise InputError("lists are nested too deeply", path=path)
            common = {"apiVersion": version, "kind": kind.removesuffix("List")}
            for index, item in enumerate(fields.items(body["items"], f"{path}.items")):
                inner = item
                if isinstance(item, dict) and "kind" not in item and kind != "List":
                    inner = {**common, **item}  # as in kubelet's /pods
                self._add(inner, f"{path}.items[{index}]", place, depth + 1)
        elif kind not in _READ_KINDS or (group is not None and group not in _READ_KINDS[kind]):
            self._leave_out(kind, group or _CORE, path)
        elif kind == "LimitRange":
            meta = fields.mapping(body.get("metadata"), f"{path}.metadata")
            self._limit_ranges.setdefault(namespace_of(meta, path), []).extend(
                parse_limit_range(body.get("spec"), f"{path}.spec")
            )
        elif kind == "RuntimeClass":
            meta = fields.mapping(body.get("metadata"), f"{path}.metadata")
            name = fields.string(meta.get("name"), f"{path}.metadata.name")
            self._overheads[name] = parse_overhead(body, path)
        elif kind == "Node":
            self.nodes.append(parse_node(body, path))
        else:
            self._keep(_workload(kind, body, path, place))

    def _leave_out(self, kind: str, group: str, path: str) -> None:
        if group in _GROUPS_WITHOUT_PODS or kind in _WITHOUT_PODS.get(group, ()):
            return
        name = f"{kind}.{group}" if group else kind
        if self.strict:
            raise InputError(f"memqos does not know the kind {name}", path=f"{path}.kind")
        self.unknown[name] += 1

    def _keep(self, workload: Workload) -> None:
        name = workload.pod.path
        if name.endswith("*"):  # of generateName: each object is another pod
            number = sum(1 for path in self._workloads if path.partition("#")[0] == name)
            if number:
                pod = evolve(workload.pod, name=f"{workload.pod.name}#{number + 1}")
                workload = evolve(workload, pod=pod)
        elif name in self._workloads:
            self.repeated.add(name)
        self._workloads[workload.pod.path] = workload

    def workloads(self) -> Iterator[Workload]:
        """Yield every workload as the API server stores it, defaults filled in.

        Of a workload and the objects that it controls, as in a dump of a cluster, only the
        workload counts.

        Raises:
            InputError: an overhead contradicts its RuntimeClass.
        """
        self.owned = 0
        for workload in self._workloads.values():
            if workload.owner in self._workloads:
                self.owned += 1
                continue
            pod = default_requests(workload.pod)
            if workload.pod.uid is None or workload.pod.kind != "Pod":
                pod = self._admit(pod, workload)
            replicas = workload.replicas if self.replicas else 1
            if pod is workload.pod and replicas == workload.replicas:
                yield workload
            else:
                yield evolve(workload, pod=pod, replicas=replicas)

    def _admit(self, pod: Pod, workload: Workload) -> Pod:
        """Change a new pod as admission does; one that has a UID is past it."""
        items = self._limit_ranges.get(pod.namespace)
        if items:
            pod = apply_limit_ranges(pod, items)
        if pod.runtime_class is None:
            return pod
        try:
            return apply_overhead(pod, self._overheads)
        except InputError as error:
            raise error.locate(
                source=workload.source, document=workload.document, line=workload.line
            ) from None


def _workload(kind: str, body: Mapping[str, object], path: str, place: _Place) -> Workload:
    spec: Mapping[str, object] = {}
    if kind == "Pod":
        pod = parse_pod(kind, body.get("metadata"), body.get("spec"), body.get("status"), path)
    else:
        if kind == "PodTemplate":
            inner, inner_path = _template(body, path)
        else:
            spec = fields.mapping(body.get("spec"), f"{path}.spec")
            inner, inner_path = _TEMPLATES[kind](spec, f"{path}.spec")
        # The metadata is the workload's, which has the name.
        meta = fields.mapping(body.get("metadata"), f"{path}.metadata")
        try:
            pod = parse_pod(kind, {**meta, "uid": None}, inner, path=inner_path)
        except InputError as error:
            if error.path is not None and error.path.startswith(f"{inner_path}.metadata"):
                error.path = path + error.path.removeprefix(inner_path)
            raise
    return Workload(
        pod=pod,
        replicas=_replicas(kind, spec, f"{path}.spec"),
        source=place.source,
        document=place.document,
        line=place.line,
        owner=_owner(body.get("metadata"), pod.namespace, f"{path}.metadata"),
    )


def _owner(metadata: object, namespace: str, path: str) -> str | None:
    meta = fields.mapping(metadata, path)
    for item in fields.items(meta.get("ownerReferences"), f"{path}.ownerReferences"):
        if isinstance(item, dict) and item.get("controller") is True:
            return f"{item.get('kind')}/{namespace}/{item.get('name')}"
    return None


def _replicas(kind: str, spec: Mapping[str, object], path: str) -> int:
    name = {"Job": "parallelism"}.get(kind, "replicas")
    value = spec.get(name)
    if value is None or kind in ("DaemonSet", "CronJob", "PodTemplate"):
        return 1
    return fields.integer(value, f"{path}.{name}", low=0, high=_MAX_INT32)
