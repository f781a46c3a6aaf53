"""Manifests: which objects are read, and what becomes of them."""

from typing import Any

import pytest

from memqos.errors import InputError
from memqos.manifests import ManifestReader, NodeFacts, Workload, parse_node
from memqos.pods import to_bytes


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c"}]},
}


def read(*objects: Any, **options: Any) -> ManifestReader:
    """Feed a reader."""
    reader = ManifestReader(**options)
    for number, item in enumerate(objects, 1):
        reader.add(item, source="f", document=number, line=10 * number)
    return reader


def workload(kind: str, version: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    """Make a workload."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "w", "uid": "the workload's"},
        "spec": {"template": {"spec": POD["spec"]}, **spec},
    }


def paths(reader: ManifestReader) -> list[str]:
    """Return the workloads' pods."""
    return [item.pod.path for item in reader.workloads()]


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("Deployment", "apps/v1"),
        ("Deployment", "extensions/v1beta1"),
        ("StatefulSet", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("ReplicaSet", "apps/v1"),
        ("ReplicationController", "v1"),
        ("Job", "batch/v1"),
    ],
)
def test_kinds(kind: str, version: str) -> None:
    """A workload's template is a pod without a UID, placed in the stream."""
    (found,) = read(workload(kind, version)).workloads()

    assert found.pod.path == f"{kind}/default/w"
    assert found.pod.uid is None
    assert (found.source, found.document, found.line, found.replicas) == ("f", 1, 10, 1)


@pytest.mark.parametrize(
    ("kind", "version", "name"),
    [
        ("Deployment", "v1", "Deployment"),
        ("Job", "batch.volcano.sh/v1alpha1", "Job.batch.volcano.sh"),
        ("Pod", "metrics.k8s.io/v1", "Pod.metrics.k8s.io"),
        ("Rollout", "argoproj.io/v1alpha1", "Rollout.argoproj.io"),
        ("Pods", "v1", "Pods"),
    ],
)
def test_kinds_of_others(kind: str, version: str, name: str) -> None:
    """The same kind in another group is another kind, which is counted, or refused if strict."""
    item = {"apiVersion": version, "kind": kind, "spec": {"anything": 1}}

    reader = read(item, item)

    assert paths(reader) == []
    assert reader.unknown == {name: 2}
    with pytest.raises(InputError) as caught:
        read(item, strict=True)
    assert caught.value.path == "$.kind"


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("ConfigMap", "v1"),
        ("Ingress", "networking.k8s.io/v1"),
        ("HorizontalPodAutoscaler", "autoscaling/v2"),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
        ("Kustomization", "kustomize.config.k8s.io/v1beta1"),
    ],
)
def test_kinds_without_pods(kind: str, version: str) -> None:
    """Kubernetes' own kinds without pods are no news, even if strict."""
    assert read({"apiVersion": version, "kind": kind}, strict=True).unknown == {}


def test_items_inherit() -> None:
    """An item without a kind has its list's kind and group."""
    item = {key: value for key, value in POD.items() if key not in ("kind", "apiVersion")}

    ours = read({"apiVersion": "v1", "kind": "PodList", "items": [item]})
    theirs = read({"apiVersion": "example.com/v1", "kind": "PodList", "items": [item]})

    assert paths(ours) == ["Pod/default/p"]
    assert theirs.unknown == {"Pod.example.com": 1}


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (None, "$"),
        ([], "$"),
        ({}, "$"),
        ({"kind": 5}, "$.kind"),
        ({"kind": "List", "items": [POD, 5]}, "$.items[1]"),
        ({"kind": "List", "items": {}}, "$.items"),
        (workload("Deployment", replicas="3"), "$.spec.replicas"),
        (workload("Deployment", replicas=2**31), "$.spec.replicas"),
        (workload("Deployment", replicas=-1), "$.spec.replicas"),
        (workload("Deployment", template=5), "$.spec.template"),
        (workload("Deployment", template={}), "$.spec.template.spec"),
        ({**workload("Deployment"), "metadata": {}}, "$.metadata.name"),
        ({"kind": "CronJob", "spec": {"jobTemplate": 5}}, "$.spec.jobTemplate"),
        ({"kind": "PodTemplate", "template": 5}, "$.template"),
        ({"kind": "RuntimeClass"}, "$.metadata.name"),
        (
            {"kind": "LimitRange", "spec": {"limits": [{"type": "Container", "max": 5}]}},
            "$.spec.limits[0].max",
        ),
        ({"kind": "LimitRange", "metadata": {"namespace": True}}, "$.metadata.namespace"),
    ],
)
def test_malformed(item: Any, path: str) -> None:
    """What cannot be understood names the field."""
    with pytest.raises(InputError) as caught:
        read(item)

    assert caught.value.path == path


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (workload("Deployment", replicas=3), 3),
        (workload("Deployment", replicas=0), 0),
        (workload("Deployment"), 1),
        (workload("DaemonSet", replicas=3), 1),
        (workload("Job", "batch/v1", parallelism=4), 4),
        (workload("Job", "batch/v1", replicas=4), 1),
    ],
)
def test_replicas(item: Any, expected: int) -> None:
    """Replicas count where they are asked for, and where the kind has them."""
    (every,) = read(item, replicas=True).workloads()
    (each,) = read(item).workloads()

    assert (every.replicas, each.replicas) == (expected, 1)


def test_foreign_documents() -> None:
    """What has no kind is no object of Kubernetes; a strict reader wants to hear of it."""
    data: Any
    for data in (None, 5, [], {}, {"apiVersion": "v2"}, {True: "push"}, {"kind": None}):
        assert ManifestReader().is_foreign(data)
        assert not ManifestReader(strict=True).is_foreign(data)
    assert not ManifestReader().is_foreign(POD)


def test_owners() -> None:
    """An object is left out if its controller is there, in the same namespace."""
    owned: dict[str, Any] = {
        **POD,
        "metadata": {
            "name": "p",
            "ownerReferences": [
                {"kind": "Node", "name": "w"},
                {"kind": "Deployment", "name": "w", "controller": True},
            ],
        },
    }
    elsewhere = {**owned, "metadata": {**owned["metadata"], "namespace": "other"}}

    reader = read(owned, elsewhere, workload("Deployment"))

    assert paths(reader) == ["Pod/other/p", "Deployment/default/w"]
    assert reader.owned == 1
    assert paths(reader) == ["Pod/other/p", "Deployment/default/w"]
    assert reader.owned == 1


def test_admission_is_for_new_pods() -> None:
    """A LimitRange shapes the pods of its namespace that have no UID yet."""
    limits = {
        "kind": "LimitRange",
        "metadata": {"namespace": "default"},
        "spec": {"limits": [{"type": "Container", "default": {"memory": "8"}}]},
    }
    live = {**POD, "metadata": {"name": "live", "uid": "u"}}
    other = {**POD, "metadata": {"name": "p", "namespace": "other"}}

    found = read(POD, live, other, workload("Deployment"), limits).workloads()

    sizes = [to_bytes(item.pod.containers[0].limits.memory) for item in found]
    assert sizes == [8, 0, 0, 8]


def test_untouched_workloads_are_not_copied() -> None:
    """What needs no change is the object that was read."""
    reader = read(POD)

    (first,), (second,) = reader.workloads(), reader.workloads()

    assert isinstance(first, Workload)
    assert first is second


def test_node() -> None:
    """A Node gives its memory, all hugepages, swap and kernel; what it lacks is not known."""
    found = parse_node(
        {
            "metadata": {"name": "n"},
            "status": {
                "capacity": {
                    "cpu": "4",
                    "memory": "16Ki",
                    "hugepages-2Mi": "2Mi",
                    "hugepages-1Gi": "0",
                },
                "nodeInfo": {"kernelVersion": "6.1.0", "swap": {"capacity": 4096}},
            },
        }
    )

    assert found == NodeFacts(
        name="n", capacity_bytes=16384, hugepage_bytes=2 << 20, swap_bytes=4096, kernel="6.1.0"
    )
    assert parse_node({"metadata": {"name": "n"}}) == NodeFacts(name="n")
    assert parse_node({}) == NodeFacts(
        name=None, capacity_bytes=None, hugepage_bytes=None, swap_bytes=None, kernel=None
    )


@pytest.mark.parametrize(
    ("status", "path"),
    [
        ({"capacity": {"memory": True}}, "$.status.capacity.memory"),
        ({"capacity": {"memory": "-1"}}, "$.status.capacity.memory"),
        ({"capacity": {"hugepages-2Mi": "x"}}, "$.status.capacity['hugepages-2Mi']"),
        ({"capacity": {"hugepages-2Mi": "-2Mi"}}, "$.status.capacity['hugepages-2Mi']"),
        ({"nodeInfo": {"swap": {"capacity": "1Gi"}}}, "$.status.nodeInfo.swap.capacity"),
    ],
)
def test_malformed_node(status: Any, path: str) -> None:
    """A Node's fields are named in errors, too."""
    with pytest.raises(InputError) as caught:
        parse_node({"metadata": {"name": "n"}, "status": status})

    assert caught.value.path == path
