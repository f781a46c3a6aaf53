"""Pods: requests and limits, class, and what the API server fills in.

Amounts here are bytes of memory; cpu is in whole cores.
"""

from typing import Any

import pytest

from memqos.errors import InputError
from memqos.pods import (
    Container,
    ContainerRole,
    Pod,
    QOSClass,
    Resources,
    apply_limit_ranges,
    apply_overhead,
    default_requests,
    limits_declared,
    parse_limit_range,
    parse_pod,
    pod_limit,
    pod_request,
    qos_class,
    to_bytes,
)
from memqos.quantity import NANO


def amounts(memory: int | None = None, cpu: int | None = None) -> Resources:
    """Make amounts of bytes and cores."""
    return Resources(*(None if value is None else value * NANO for value in (cpu, memory)))


def container(
    role: str = "app",
    request: int | None = None,
    limit: int | None = None,
    *,
    cpu: tuple[int | None, int | None] = (None, None),
) -> Container:
    """Make a container with a memory request and limit; `cpu` has its request and limit."""
    return Container("c", ContainerRole(role), amounts(request, cpu[0]), amounts(limit, cpu[1]))


def pod(*containers: Container, **fields: Any) -> Pod:
    """Make a pod."""
    fields = {"kind": "Pod", "namespace": "default", "name": "p"} | fields
    return Pod(containers=containers, **fields)


def spec(**fields: Any) -> dict[str, Any]:
    """Make a PodSpec of one container without resources."""
    return {"containers": [{"name": "c"}]} | fields


# --- class ---------------------------------------------------------------------------------------

GUARANTEED = container(request=4, limit=4, cpu=(1, 1))
PLAIN = container()

CLASSES = [
    pytest.param(pod(PLAIN), "BestEffort", id="nothing"),
    pytest.param(pod(container(request=0, limit=0, cpu=(0, 0))), "BestEffort", id="zeros"),
    pytest.param(pod(GUARANTEED), "Guaranteed", id="both equal"),
    pytest.param(pod(container(request=4, limit=4)), "Burstable", id="no cpu"),
    pytest.param(pod(container(cpu=(1, 1))), "Burstable", id="no memory"),
    pytest.param(pod(container(request=3, limit=4, cpu=(1, 1))), "Burstable", id="less"),
    pytest.param(pod(GUARANTEED, PLAIN), "Burstable", id="one without"),
    pytest.param(
        pod(GUARANTEED, container("init", request=1)), "Burstable", id="an init container counts"
    ),
    pytest.param(
        pod(GUARANTEED, container("sidecar", 1, 1, cpu=(1, 1))), "Guaranteed", id="sidecar"
    ),
    pytest.param(
        pod(GUARANTEED, container("ephemeral")), "Guaranteed", id="ephemeral does not count"
    ),
    pytest.param(
        # kubectl adds up before it compares
        pod(container(request=1, limit=3, cpu=(1, 1)), container(request=3, limit=1, cpu=(1, 1))),
        "Guaranteed",
        id="inequality cancels out",
    ),
    pytest.param(
        pod(PLAIN, requests=amounts(4, 1), limits=amounts(4, 1)), "Guaranteed", id="pod level"
    ),
    pytest.param(
        pod(GUARANTEED, requests=amounts(9, 1), limits=amounts(10, 1)),
        "Burstable",
        id="pod level only",
    ),
    pytest.param(
        pod(GUARANTEED, requests=amounts(4, 1), limits=Resources()),
        "Burstable",
        id="pod-level requests only",
    ),
    pytest.param(
        pod(PLAIN, requests=amounts(4), limits=amounts(4)), "Burstable", id="pod level, no cpu"
    ),
    pytest.param(
        pod(GUARANTEED, status_qos=QOSClass.BURSTABLE), "Burstable", id="the status wins"
    ),
]


@pytest.mark.parametrize(("given", "expected"), CLASSES)
def test_qos_class(given: Pod, expected: str) -> None:
    """The class follows from cpu and memory above zero, pod level first."""
    assert qos_class(given) == expected


def test_qos_class_without_the_gate() -> None:
    """With PodLevelResources off only containers count."""
    given = pod(GUARANTEED, requests=amounts(9, 1), limits=amounts(10, 1))

    assert qos_class(given, pod_level=False) is QOSClass.GUARANTEED


# --- sums ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([("app", 5), ("app", 3)], 8),
        ([("app", 5), ("init", 9)], 9),
        ([("app", 5), ("init", 3)], 5),
        # The plain init container runs beside the sidecars before it, not beside those after.
        ([("app", 5), ("sidecar", 2), ("init", 9), ("sidecar", 4)], 11),
        ([("app", 5), ("init", 9), ("sidecar", 2), ("sidecar", 4)], 11),
        ([("app", 1), ("init", 4), ("sidecar", 2), ("sidecar", 4)], 7),
        ([("app", 5), ("ephemeral", 100)], 5),
    ],
)
def test_peak(containers: list[tuple[str, int]], expected: int) -> None:
    """A pod's amount is the largest of its run phase and of each init phase."""
    both = pod(*(container(role, amount, amount) for role, amount in containers))

    assert to_bytes(pod_request(both)) == expected
    assert to_bytes(pod_limit(both)) == expected


def test_pod_level_and_overhead() -> None:
    """Pod-level amounts replace the sum; overhead is added, to a limit only if there is one."""
    plain = pod(container(request=5, limit=7), overhead=amounts(100))
    given = pod(
        container(request=5, limit=7),
        requests=amounts(6),
        limits=amounts(20),
        overhead=amounts(100),
    )
    unlimited = pod(container(request=5), overhead=amounts(100))

    assert [to_bytes(pod_request(each)) for each in (plain, given, unlimited)] == [105, 106, 105]
    assert [to_bytes(pod_limit(each)) for each in (plain, given, unlimited)] == [107, 120, 0]
    assert to_bytes(pod_limit(given, pod_level=False)) == 107


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(container(limit=1)), True),
        (pod(container(limit=0)), False),
        (pod(container(limit=1), PLAIN), False),
        (pod(container(limit=1), container("init")), False),
        (pod(container(limit=1), container("sidecar")), False),
        # kubelet 1.36 looks at the init container's phase, not at the container
        (pod(container(limit=1), container("sidecar", limit=1), container("init")), True),
        (pod(container(limit=1), container("init"), container("sidecar", limit=1)), False),
        (pod(container(limit=1), container("ephemeral")), True),
        (pod(PLAIN, requests=Resources(), limits=amounts(1)), True),
        (pod(PLAIN, requests=Resources(), limits=amounts(0)), False),
    ],
)
def test_limits_declared(given: Pod, *, expected: bool) -> None:
    """A Burstable pod is limited when each container is, or the pod itself."""
    assert limits_declared(given) is expected


@pytest.mark.parametrize(
    ("nanos", "expected"),
    [(None, 0), (0, 0), (1, 1), (NANO, 1), (NANO + 1, 2), (2**70 * NANO, 2**63 - 1)],
)
def test_to_bytes(nanos: int | None, expected: int) -> None:
    """Bytes are rounded up and end where int64 does."""
    assert to_bytes(nanos) == expected


# --- defaulting ----------------------------------------------------------------------------------


def test_limits_become_requests() -> None:
    """An absent request is its limit; one of 0 stays, and ephemeral containers are left alone."""
    given = pod(
        container(limit=4, cpu=(None, 2)),
        container("init", request=0, limit=4),
        container("ephemeral", limit=4),
    )

    found = default_requests(given)

    assert [item.requests for item in found.containers] == [
        amounts(4, 2),
        amounts(0),
        Resources(),
    ]


def test_pod_level_requests() -> None:
    """An absent pod-level request is the containers' sum where there is one, else the limit."""
    summed = pod(container(request=3), requests=Resources(), limits=amounts(9, 2))
    alone = pod(PLAIN, requests=Resources(), limits=amounts(9, 2))
    given = pod(container(request=3), requests=amounts(5), limits=amounts(9))

    assert default_requests(summed).requests == amounts(3, 2)
    assert default_requests(alone).requests == amounts(9, 2)
    assert default_requests(given).requests == amounts(5)


def test_nothing_to_default() -> None:
    """A pod that is complete is the same object."""
    given = pod(GUARANTEED)

    assert default_requests(given) is given


def ranges(**item: Any) -> Any:
    """Read a LimitRange of one Container item."""
    named = {name: {"memory": value} for name, value in item.items()}
    return parse_limit_range({"limits": [{"type": "Container", **named}]}, "$.spec")


@pytest.mark.parametrize(
    ("item", "requested", "limit"),
    [
        ({"default": "8"}, 8, 8),
        ({"default": "8", "defaultRequest": "4"}, 4, 8),
        ({"max": "8"}, 8, 8),
        ({"max": "8", "min": "2"}, 8, 8),
        ({"min": "2"}, 2, None),
        ({"defaultRequest": "4"}, 4, None),
    ],
)
def test_limit_range(item: Any, requested: int, limit: int | None) -> None:
    """Within an item default falls back to max, defaultRequest to default and then to min."""
    (found,) = apply_limit_ranges(pod(PLAIN), ranges(**item)).containers

    assert (found.requests, found.limits) == (amounts(requested), amounts(limit))


def test_limit_range_fills_only_what_is_missing() -> None:
    """What a container names stays; several items apply in order; Pod items set nothing."""
    given = pod(container(request=1, limit=2), PLAIN, container("ephemeral"))
    items = [*ranges(defaultRequest="4"), *ranges(default="8", defaultRequest="6")]

    found = apply_limit_ranges(given, items).containers

    assert [(item.requests, item.limits) for item in found] == [
        (amounts(1), amounts(2)),
        (amounts(4), amounts(8)),
        (Resources(), Resources()),
    ]
    assert parse_limit_range({"limits": [{"type": "Pod", "max": {"memory": 1}}]}, "$") == ()


def test_overhead() -> None:
    """A pod gets its RuntimeClass' overhead; another one of its own is refused."""
    overheads = {"kata": amounts(100)}

    assert apply_overhead(pod(PLAIN, runtime_class="kata"), overheads).overhead == amounts(100)
    for kept in (
        pod(PLAIN, runtime_class="runc"),
        pod(PLAIN),
        pod(PLAIN, runtime_class="kata", overhead=amounts(100)),
    ):
        assert apply_overhead(kept, overheads) is kept
    with pytest.raises(InputError, match="differs"):
        apply_overhead(pod(PLAIN, runtime_class="kata", overhead=amounts(1)), overheads)


# --- reading -------------------------------------------------------------------------------------


def test_parse_roles() -> None:
    """Init containers that restart always are sidecars."""
    given = spec(
        initContainers=[{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        ephemeralContainers=[{"name": "e"}],
    )

    found = parse_pod("Pod", {"name": "p"}, given)

    roles = [(item.name, item.role.value) for item in found.containers]
    assert roles == [("c", "app"), ("i", "init"), ("s", "sidecar"), ("e", "ephemeral")]
    assert found.path == "Pod/default/p"


@pytest.mark.parametrize(
    ("metadata", "given", "critical"),
    [
        ({}, {}, False),
        ({}, {"priority": 2_000_000_000}, True),
        ({}, {"priority": 1_999_999_999}, False),
        ({}, {"priorityClassName": "system-node-critical"}, True),
        ({}, {"priorityClassName": "system-cluster-critical"}, True),
        ({}, {"priorityClassName": "high"}, False),
        ({"annotations": {"kubernetes.io/config.source": "file"}}, {}, True),
        ({"annotations": {"kubernetes.io/config.source": "api"}}, {}, False),
        ({"annotations": {"kubernetes.io/config.mirror": "ab"}}, {}, True),
        ({"annotations": None}, {}, False),
    ],
)
def test_critical(metadata: Any, given: Any, *, critical: bool) -> None:
    """Static, mirror and system-priority pods never swap."""
    found = parse_pod("Pod", {"name": "p"} | metadata, spec(**given))

    assert found.critical is critical


def test_uid_of_a_static_pod() -> None:
    """The cgroup of a static pod has kubelet's hash in its name, not its mirror's UID."""
    metadata = {"name": "p", "uid": "u", "annotations": {"kubernetes.io/config.mirror": "ab"}}

    assert parse_pod("Pod", metadata, spec()).uid == "ab"
    assert parse_pod("Pod", {"name": "p", "uid": "u"}, spec()).uid == "u"


@pytest.mark.parametrize(
    ("phase", "active"),
    [("Running", True), ("Pending", True), (None, True), ("Succeeded", False), ("Failed", False)],
)
def test_active(phase: str | None, *, active: bool) -> None:
    """Pods that have ended have no cgroup."""
    assert parse_pod("Pod", {"name": "p"}, spec(), {"phase": phase}).active is active


@pytest.mark.parametrize(("condition", "expected"), [("True", 1), ("False", 2)])
def test_pending_resize(condition: str, expected: int) -> None:
    """While kubelet has not taken a resize, the amounts are those of the status."""
    resources = {"requests": {"memory": 2}}
    status = {
        "conditions": [{"type": "PodResizePending", "status": condition}],
        "containerStatuses": [{"name": "c", "resources": {"requests": {"memory": "1"}}}],
    }
    given = {"containers": [{"name": "c", "resources": resources}, {"name": "other"}]}

    found = parse_pod("Pod", {"name": "p"}, given, status)

    assert found.resize_pending is (condition == "True")
    assert to_bytes(pod_request(found)) == expected


@pytest.mark.parametrize(
    ("metadata", "given", "path"),
    [
        ({}, spec(), "$.metadata.name"),
        ({"name": 5}, spec(), "$.metadata.name"),
        ({"generateName": 5}, spec(), "$.metadata.generateName"),
        ({"name": "p", "namespace": False}, spec(), "$.metadata.namespace"),
        ({"name": "p", "uid": 5}, spec(), "$.metadata.uid"),
        ({"name": "p"}, [], "$.spec"),
        ({"name": "p"}, {}, "$.spec"),
        ({"name": "p"}, {"initContainers": [{"name": "i"}]}, "$.spec"),
        ({"name": "p"}, {"containers": {"name": "c"}}, "$.spec.containers"),
        ({"name": "p"}, {"containers": ["c"]}, "$.spec.containers[0]"),
        ({"name": "p"}, {"containers": [{}]}, "$.spec.containers[0].name"),
        ({"name": "p"}, spec(runtimeClassName=1), "$.spec.runtimeClassName"),
        ({"name": "p"}, spec(overhead={"memory": "x"}), "$.spec.overhead.memory"),
        ({"name": "p"}, spec(resources={"limits": [1]}), "$.spec.resources.limits"),
        ({"name": "p"}, spec(resources={"limits": {"cpu": "-1"}}), "$.spec.resources.limits.cpu"),
    ],
)
def test_malformed(metadata: Any, given: Any, path: str) -> None:
    """What cannot be understood names its field."""
    with pytest.raises(InputError) as caught:
        parse_pod("Pod", metadata, given)

    assert caught.value.path == path
