"""Which pods can be killed, before anything runs."""

from typing import Any

from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.killable import KillablePod, find_killable
from memqos.pods import Pod, default_requests, parse_pod


GIB = 1024**3


def container(name: str = "main", **limits: str) -> dict[str, Any]:
    """Return a container."""
    return {"name": name, "resources": {"limits": limits} if limits else {}}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a pod manifest."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": list(containers), **spec},
    }


def read(manifest: dict[str, Any]) -> Pod:
    """Parse a pod manifest."""
    pod = parse_pod("Pod", manifest["metadata"], manifest["spec"], manifest.get("status"))
    return default_requests(pod)


def judge(*manifests: dict[str, Any], **more: Any) -> list[KillablePod]:
    """Judge pods with the defaults."""
    config = check_documents([], **more)
    assert isinstance(config, OOMConfig)
    return list(find_killable([read(manifest) for manifest in manifests], config))


def test_best_effort() -> None:
    """No limit, so it goes first; a limit would protect it."""
    (found,) = judge(pod("a", container()))
    assert (found.oom_class.label, found.memory_max) == ("Besteffort", None)
    assert (found.eligible, found.order) == (True, 1)
    assert found.remedy == "a memory limit on main"


def test_guaranteed() -> None:
    """Its weight is 0, and its cgroup has a limit."""
    (found,) = judge(pod("a", container(cpu="1", memory="1Gi")))
    assert (found.oom_class.label, found.memory_max) == ("Guaranteed", GIB)
    assert (found.eligible, found.order, found.remedy) == (False, None, None)


def test_limited_burstable() -> None:
    """All containers have a limit, so the pod's cgroup has one."""
    (found,) = judge(pod("a", container("x", memory="1Gi"), container("y", memory="2Gi")))
    assert (found.oom_class.label, found.memory_max) == ("Burstable", 3 * GIB)
    assert found.eligible is False


def test_one_init_container_without_a_limit() -> None:
    """That is enough to lose the pod's limit."""
    (found,) = judge(pod("a", container("x", memory="1Gi"), initContainers=[container("setup")]))
    assert (found.memory_max, found.eligible) == (None, True)
    assert "setup" in found.reason
    assert found.remedy == "a memory limit on setup"


def test_classes_go_in_order() -> None:
    """Strictly: Besteffort before Burstable. Otherwise all go by score."""
    manifests = (
        pod("bu", container("x", cpu="1")),
        pod("be", container()),
        pod("gu", container(cpu="1", memory="1Gi")),
    )
    assert [item.order for item in judge(*manifests)] == [2, 1, None]
    assert [item.order for item in judge(*manifests, strict=False)] == [1, 1, None]


def test_a_limit_that_does_not_protect() -> None:
    """Where the ranking ignores limits, no limit is advised."""
    ranking = "double(memory_current.orValue(0u))"
    (found,) = judge(pod("a", container(memory="1Gi")), ranking=ranking)
    assert found.eligible is True
    assert found.remedy is not None
    assert "a limit does not protect it" in found.remedy


def test_a_ranking_that_fails() -> None:
    """Neither yes nor no."""
    ranking = "{Burstable: 1.0}[class]"
    (found,) = judge(pod("a", container()), ranking=ranking)
    assert (found.eligible, found.order) == (None, None)
    assert "fails" in found.reason


def test_finished_pods_are_left_out() -> None:
    """They have no cgroup."""
    done = {**pod("a", container()), "status": {"phase": "Succeeded"}}
    assert judge(done) == []
