"""Roles off the paths of a tree, names, and the cgroups of one pod."""

import pytest

from memqos.errors import InputError
from memqos.memory_qos.identity import NO_NAMES, Identity, PodNames, names_of_logs, names_of_pods
from memqos.memory_qos.tree import desired_after_rollback, find_pod, identify, pods_of_node
from memqos.pods import Pod, QOSClass


UID = "5f0c9a1e-0002-4b6d-9c3a-0d2e6f7a0002"
ESCAPED = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
ID = "0201" * 16


def roles(*paths: str) -> dict[str, str]:
    """Identify, and return the roles of what is kubelet's."""
    return {path: item.role for path, item in identify(paths).items() if item.role}


def test_systemd() -> None:
    """Dashes of a UID are underscores there; the sandbox is a container like others."""
    pod = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{ESCAPED}.slice"
    found = identify(
        [
            "/kubepods.slice",
            "/kubepods.slice/kubepods-burstable.slice",
            pod,
            f"{pod}/cri-containerd-{ID}.scope",
        ]
    )

    assert [item.role for item in found.values()] == [
        "kubepods",
        "qos:burstable",
        f"pod:{UID}",
        f"container:{UID}/{ID}",
    ]
    assert found[pod] == Identity(f"pod:{UID}", UID, None, QOSClass.BURSTABLE)


@pytest.mark.parametrize("prefix", ["", "crio-"])
def test_cgroupfs(prefix: str) -> None:
    """Components are directories; CRI-O has a prefix even there."""
    pod = f"/kubepods/pod{UID}"

    assert roles("/kubepods", pod, f"{pod}/{prefix}{ID}") == {
        "/kubepods": "kubepods",
        pod: f"pod:{UID}",
        f"{pod}/{prefix}{ID}": f"container:{UID}/{ID}",
    }


def test_cgroup_root() -> None:
    """A cgroupRoot is a level, or several, above; a static pod's UID is a hash."""
    top = "/edge.slice/edge-kubepods.slice"
    pod = f"{top}/edge-kubepods-besteffort.slice/edge-kubepods-besteffort-pod{STATIC}.slice"
    paths = ["/edge.slice", top, f"{top}/edge-kubepods-besteffort.slice", pod]

    assert list(roles(*paths).values()) == ["kubepods", "qos:besteffort", f"pod:{STATIC}"]


def test_cruns_inner_cgroup_is_the_containers() -> None:
    """What is below a container has no role, and nothing is expected of it."""
    pod = f"/kubepods/pod{UID}"
    found = identify(["/kubepods", pod, f"{pod}/crio-{ID}", f"{pod}/crio-{ID}/container"])

    assert found[f"{pod}/crio-{ID}/container"].role == ""


@pytest.mark.parametrize(
    "paths",
    [
        ["/kubepods", "/kubepods/system", "/kubepods/system/burstable"],
        [
            "/kubepods.slice",
            "/kubepods.slice/kubepods-system.slice",
            "/kubepods.slice/kubepods-system.slice/kubepods-system-burstable.slice",
        ],
    ],
)
def test_node_system_partition(paths: list[str]) -> None:
    """The gate's subtree is known, and its QoS cgroups are not taken for the node's."""
    assert list(roles(*paths).values()) == ["kubepods", "system:kubepods", "system:qos:burstable"]
    pod = f"{paths[-1]}/" + (
        f"kubepods-system-burstable-pod{ESCAPED}.slice" if "slice" in paths[0] else f"pod{UID}"
    )
    assert identify([*paths, pod])[pod] == Identity(f"pod:{UID}", UID, None, QOSClass.BURSTABLE)


def test_others_are_not_kubelets() -> None:
    """A service of that name elsewhere, a strange directory within: no role."""
    assert roles("/system.slice", "/system.slice/kubepods-helper.service") == {}
    assert roles("/kubepods", "/kubepods/x", "/kubepods/x/pod1") == {"/kubepods": "kubepods"}


# --- names -------------------------------------------------------------------------------------


def test_names_of_pods() -> None:
    """A PodList tells all names; a pod without a UID has no cgroup."""
    pods = [
        Pod(kind="Pod", namespace="shop", name="web", uid=UID, container_ids=(("app", ID),)),
        Pod(kind="Pod", namespace="shop", name="planned"),
    ]
    names = names_of_pods(pods)

    assert names == PodNames({UID: "shop/web"}, {ID: "app"})
    assert names.label(Identity("pod", UID)) == "shop/web"
    assert names.label(Identity("container", UID, ID)) == "shop/web app"
    assert names.label(Identity("container", UID, "0" * 64)) == "shop/web"
    assert names.label(Identity("kubepods")) == ""


def test_names_of_logs() -> None:
    """Logs are called NAMESPACE_POD_UID, and POD_NAMESPACE_CONTAINER-ID.log."""
    names = names_of_logs(
        [f"shop_web_{UID}", f"kube-system_etcd-a_{STATIC}", "lost+found", "a_b", "_x_y"],
        [f"web_shop_my-app-{ID}.log", "README", f"web_shop_{ID}.log"],
    )

    assert names == PodNames({UID: "shop/web", STATIC: "kube-system/etcd-a"}, {ID: "my-app"})


TREE = identify(
    [
        "/kubepods",
        f"/kubepods/pod{UID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}/container",
        f"/kubepods/pod{UID}/{'01' * 32}",
    ]
)
NAMES = PodNames({UID: "shop/web"}, {ID: "app"})


@pytest.mark.parametrize(
    ("names", "pod", "container", "expected"),
    [
        (NAMES, "shop/web", None, f"/kubepods/pod{UID}"),
        (NO_NAMES, UID, None, f"/kubepods/pod{UID}"),
        (NAMES, "shop/web", "app", f"/kubepods/pod{UID}/{ID}"),
        (NO_NAMES, UID, ID[:12], f"/kubepods/pod{UID}/{ID}"),
    ],
)
def test_find_pod(names: PodNames, pod: str, container: str | None, expected: str) -> None:
    """By name or UID, and a container by name or the beginning of its id."""
    assert find_pod(TREE, names, pod, container) == (expected,)


@pytest.mark.parametrize(
    ("names", "pod", "container", "message"),
    [
        (NAMES, "shop/db", None, "no such pod in the tree"),
        (NO_NAMES, "shop/web", None, "give its UID"),
        (NAMES, "shop/web", "sidecar", "no such container"),
        (NO_NAMES, UID, "02", "no such container"),
    ],
)
def test_no_such_pod(names: PodNames, pod: str, container: str | None, message: str) -> None:
    """What is not there is an error, not an empty answer."""
    with pytest.raises(InputError, match=message):
        find_pod(TREE, names, pod, container)


def test_desired_after_rollback() -> None:
    """Limits stay; protection and memory.high go, of reserved cgroups memory.min alone."""
    tree = identify(["/kubepods", "/system.slice", "/user.slice"])
    files = {path: {"memory.max": "9\n", "memory.low": "5\n"} for path in tree}
    found = desired_after_rollback(tree, files, ["/system.slice", "/not-there"])
    gone = {"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "9"}

    assert found == {"/kubepods": gone, "/system.slice": gone | {"memory.low": "5"}}


HERE = identify(["/kubepods", "/kubepods/poda", "/kubepods/podb", "/kubepods/podc"])


@pytest.mark.parametrize(
    ("nodes", "node", "expected"),
    [
        # What most of the tree's pods say; what is in the tree is there, whatever it says.
        ({"a": "n1", "b": "n1", "x": "n1", "y": "n2", "z": None}, None, "abx"),
        ({"a": "n1", "b": "n1", "c": "n2", "x": "n2"}, None, "abc"),
        ({"a": "n1", "b": None, "c": None, "x": "n1", "y": "n2"}, None, "abcx"),
        ({"a": None, "x": "n1", "y": "n2"}, None, "a"),
        # Nobody says anything: manifests, or the pods of one node.
        ({"a": None, "x": None}, None, "ax"),
        ({"a": None, "x": None}, "n1", "ax"),
        # None is in the tree: one name is this node's, of several nothing is known.
        ({"x": "n1", "y": "n1", "z": None}, None, "xy"),
        ({"x": "n1", "y": "n2", "z": None}, None, ""),
        # The name is known.
        ({"x": "n1", "y": "n2", "z": None}, "n2", "y"),
        ({"x": "n1", "y": "n1"}, "n2", ""),
        ({"a": "n1", "b": "n1", "x": "n1", "y": "n2"}, "n2", "aby"),
        ({}, None, ""),
    ],
)
def test_pods_of_a_node(nodes: dict[str, str | None], node: str | None, expected: str) -> None:
    """Pods of the tree always, those of the node besides, and those of other nodes never."""
    pods = [
        Pod(kind="Pod", namespace="d", name=uid, uid=uid, node=name) for uid, name in nodes.items()
    ]

    assert "".join(pod.name for pod in pods_of_node(pods, HERE, node)) == expected
