"""``memqos audit-cgroups``: the vectors as far as files can say them, captures, rollback."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cgroups import MIB, Tree, capture, captured, changed, scenario, write_tree
from tests.support.program import PROGRAM, Answer, memqos
from tests.support.tools import run_tool


VECTORS = Path(__file__).parents[1] / "data" / "vectors" / "memoryqos-audit.json"
CASES = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]

TIERED = {"memoryReservationPolicy": "TieredReservation", "memoryThrottlingFactor": 0.9}
OFF = {"featureGates": {"MemoryQoS": False}}


def pod(
    name: str,
    uid: str,
    *,
    containers: Mapping[str, tuple[str | None, str | None, str]],
    **more: Any,
) -> Any:
    """Make a running pod; containers are (request, limit, id), of memory."""
    body: list[Any] = []
    for key, (request, limit, _) in containers.items():
        resources: dict[str, Any] = {}
        if request is not None:
            resources["requests"] = {"memory": request}
        if limit is not None:
            resources["limits"] = {"memory": limit}
        body.append({"name": key, "resources": resources})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid, **more.pop("metadata", {})},
        "spec": {"containers": body},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": key,
                    "containerID": f"containerd://{identifier}",
                    "state": {"running": {}},
                }
                for key, (_, _, identifier) in containers.items()
            ],
            **more,
        },
    }


def pod_list(*items: Any) -> bytes:
    """Make a PodList, as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def audit(
    root: Path, *arguments: str | Path, pods: bytes | None = None, config: Any = None
) -> Answer:
    """Audit a tree of files."""
    if config is not None:
        file = root.parent / "kubelet.json"
        file.write_text(json.dumps({"kind": "KubeletConfiguration", **config}))
        arguments = (*arguments, "--kubelet-config", file)
    if pods is not None:
        arguments = (*arguments, "--pods", "-")
    return memqos("audit-cgroups", "--cgroup-root", root, *arguments, stdin=pods or b"")


def told(answer: Answer) -> set[tuple[str, str, str | None, str | None]]:
    """Return (code, severity, path, file)."""
    return {
        (item["code"], item["severity"], item["path"], item["file"])
        for item in answer.json["findings"]
    }


# --- the vectors ---------------------------------------------------------------------------------

ID = "c0" * 32
MIRROR = ("kubernetes.io/config.hash", "kubernetes.io/config.mirror")
PATHS = {
    "kubepods": "/kubepods",
    "qos:burstable": "/kubepods/burstable",
    "qos:besteffort": "/kubepods/besteffort",
    "pod:b": "/kubepods/burstable/podb",
    "container:b/c": f"/kubepods/burstable/podb/{ID}",
    "pod:x": "/kubepods/burstable/podx",
    "container:x/c": f"/kubepods/burstable/podx/{ID}",
    "pod:g": "/kubepods/podg",
    "pod:g1": "/kubepods/podg1",
    "pod:g2": "/kubepods/podg2",
    "container:g/c": f"/kubepods/podg/{ID}",
}

# The pods that kubelet would write each case's desired files for.
BURSTABLE = pod("b", "b", containers={"c": ("128Mi", "256Mi", ID)})
PODS: dict[str, tuple[Any, Any]] = {
    "page-rounding-is-not-a-difference": (
        TIERED,
        pod("x", "x", containers={"c": ("100000000", None, ID)}),
    ),
    "stale-protection-still-effective": (
        OFF,
        pod("b", "b", containers={"c": ("128Mi", None, ID)}),
    ),
    "min-equals-max-page-cache": (
        TIERED,
        pod("g", "g", containers={"c": ("1Gi", "1Gi", ID)}, qosClass="Guaranteed"),
    ),
    # Its own desired files are of a policy that is off, with no pod at all.
    "kernel-old-but-no-high": ({"featureGates": {"MemoryQoS": True}}, None),
}

# The desired files that a case leaves out, as kubelet writes them beside those it names.
BESIDE: dict[str, Mapping[str, Mapping[str, str]]] = {
    "page-rounding-is-not-a-difference": {
        "kubepods": {"memory.min": "99999744", "memory.low": "99999744"},
        "qos:burstable": {"memory.low": "99999744"},
        # No limit: memory.high comes from the node, which a tree of files does not tell.
        "container:x/c": {"memory.min": "0", "memory.low": "99999744"},
    },
    "min-equals-max-page-cache": {
        "kubepods": {"memory.min": "1073741824", "memory.low": "0"},
        "qos:burstable": {"memory.low": "0"},
    },
    "kernel-old-but-no-high": {
        "kubepods": {"memory.low": "0"},
        "qos:burstable": {"memory.low": "0"},
    },
}


def tree_of(case: Any) -> dict[str, dict[str, str]]:
    """Write a case's files, with what kubelet and the kernel add to them."""
    given = case["input"]
    tree: dict[str, dict[str, str]] = {}
    for role, files in given.get("actual", {}).items():
        tree.setdefault(PATHS[role], {}).update(
            {name: f"{text}\n" for name, text in files.items()}
        )
    for role, files in BESIDE.get(case["name"], {}).items():
        place = tree.setdefault(PATHS[role], {})
        for name, text in files.items():
            place.setdefault(name, f"{text}\n")
    for role, usage in given.get("usage", {}).items():
        tree[PATHS[role]]["memory.current"] = f"{usage}\n"
    for role, text in given.get("psi", {}).items():
        tree.setdefault(PATHS[role], {})["memory.pressure"] = text
    if given.get("desired") and given["env"]["cgroupVersion"] == 2:
        tree.setdefault(PATHS["qos:besteffort"], {})
        if "pod:b" in given["actual"] and case["name"] not in PODS:
            tree[PATHS["pod:b"]]["memory.max"] = "268435456\n"  # the sum of its limits
    return tree


def counters(case: Any, moment: str) -> dict[str, dict[str, str]]:
    """Write the counters of a case."""
    names = {"all": "memory.events", "local": "memory.events.local"}
    return {
        PATHS[role]: {
            names[key]: "".join(f"{name} {value}\n" for name, value in counts.items())
            for key, counts in samples[moment].items()
            if key in names
        }
        for role, samples in case["input"].get("events", {}).items()
    }


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_vectors(case: Any, tmp_path: Path) -> None:
    """Every case as files: the tree, pods for its desired files, an earlier capture.

    What files cannot say: the id of a cgroup (a capture's inodes are its own), so that a reset is
    seen by a counter that fell.
    """
    given, env, name = case["input"], case["input"]["env"], case["name"]
    root = tmp_path / "now"
    root.mkdir()
    tree = tree_of(case)
    for path, files in counters(case, "after").items():
        tree.setdefault(path, {}).update(files)
    write_tree(root, tree)
    arguments: list[str | Path] = ["-o", "json", "--severity", "info"]
    if env["cgroupVersion"] == 1:
        (root / "memory").mkdir()
        (root / "memory/cgroup.procs").touch()
        if env.get("hybrid"):
            (root / "unified").mkdir()
            (root / "unified/cgroup.controllers").touch()
    else:
        recursive = "memory_recursiveprot" in env["mountOptions"]
        arguments += ["--memory-recursiveprot" if recursive else "--no-memory-recursiveprot"]
        arguments += ["--kernel", env["kernel"], "--page-size", str(env["pageSize"])]
    if given.get("events"):
        arguments += ["--before", write_tree(tmp_path / "before", counters(case, "before"))]
    config, item = PODS.get(name, (TIERED, BURSTABLE))
    pods = pod_list(*([item] if item else [])) if given.get("desired") else None
    answer = audit(root, *arguments, pods=pods, config=config)
    roles = {path: role for role, path in PATHS.items()}
    wanted = case["expect"]["findings"]

    assert {
        (item["code"], item["severity"], roles.get(item["path"], ""))
        for item in answer.json["findings"]
    } == {(item["code"], item["severity"], item.get("role", "")) for item in wanted}
    assert len(answer.json["findings"]) == len(wanted)
    assert answer.code == (1 if wanted else 0)


# --- captures of real kernels --------------------------------------------------------------------

UIDS = {
    name: f"5f0c9a1e-000{number}-4b6d-9c3a-0d2e6f7a000{number}"
    for number, name in enumerate(("g1", "b1", "b2", "e1", "e2"), 1)
}
REQUESTS: dict[str, list[tuple[str, str | None, str | None]]] = {
    "g1": [("g1", "256Mi", "256Mi")],
    "b1": [("b1", "128Mi", "256Mi")],
    "b2": [("b2", "64Mi", None), ("b2.2", "32Mi", "96Mi")],
    "e1": [("e1", None, None)],
    "e2": [("e2", None, None)],
}


def pods_of(name: str) -> bytes:
    """Return the pods of a scenario as the API server has them."""
    paths = scenario(name)["containers"]
    classes = {"g": "Guaranteed", "b": "Burstable", "e": "BestEffort"}
    return pod_list(
        *(
            pod(
                key,
                UIDS[key],
                containers={
                    container: (request, limit, identity(paths[container]))
                    for container, request, limit in inner
                },
                qosClass=classes[key[0]],
            )
            for key, inner in REQUESTS.items()
        )
    )


def identity(path: str) -> str:
    """Return a container's id."""
    return path.rpartition("/")[2].removeprefix("cri-containerd-").removesuffix(".scope")


@pytest.mark.parametrize("name", ["idle-systemd", "idle-cgroupfs"])
def test_idle_is_as_planned(name: str, tmp_path: Path) -> None:
    """Both drivers: a node made after the rules has its design's hazards, and one difference."""
    answer = audit(capture(tmp_path, name, "t0"), "-o", "json", pods=pods_of(name), config=TIERED)
    names = scenario(name)
    kubepods = "/kubepods.slice" if name == "idle-systemd" else "/kubepods"
    expected = {
        # The machine had Guaranteed requests alone there; 1.37 adds the Burstable ones.
        ("value-differs", "error", kubepods, "memory.min"),
        ("min-equals-max", "warning", names["pods"]["g1"], "memory.min"),
        ("min-equals-max", "warning", names["containers"]["g1"], "memory.min"),
    }

    assert {item for item in told(answer) if item[0] != "protection-leak"} == expected
    assert {item[1] for item in told(answer) if item[0] == "protection-leak"} == {
        "info",
        "warning",
    }


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("t-equal", {("warning", "pods"), ("warning", "containers")}),
        ("t-half", set()),
        ("t-none", set()),
        ("t-podmin", {("info", "pods")}),
        ("t-slack", {("info", "containers")}),
    ],
)
def test_page_cache_in_a_guaranteed_pod(time: str, expected: Any, tmp_path: Path) -> None:
    """The one variant that was OOM-killed is the one that is warned of."""
    answer = audit(capture(tmp_path, "gcache-systemd", time), "-o", "json")
    names = scenario("gcache-systemd")

    assert told(answer) == {
        ("min-equals-max", severity, names[kind]["g1"], "memory.min")
        for severity, kind in expected
    }


def test_throttled(tmp_path: Path) -> None:
    """With an earlier capture the audit tells what counters did; without it, pressure."""
    now = capture(tmp_path, "high-systemd", "t2-throttled")
    before = capture(tmp_path, "high-systemd", "t1-over-high")
    container = scenario("high-systemd")["containers"]["b1"]
    alone = told(audit(now, "-o", "json"))
    both = told(audit(now, "-o", "json", "--before", before))

    assert {item[:3] for item in alone if item[2] == container} == {
        ("pressure", "warning", container)
    }
    assert {item[0] for item in both - alone} == {"livelock-suspected", "throttled"}


def test_oom_in_a_leaf(tmp_path: Path) -> None:
    """The kill is the container's, the limit the pod's."""
    answer = audit(
        capture(tmp_path, "oom-systemd", "t1-b1-after"),
        "-o", "json",
        "--before", capture(tmp_path, "oom-systemd", "t0-b1-before"),
    )  # fmt: skip
    names = scenario("oom-systemd")

    assert {
        ("oom", "error", names["pods"]["b1"], None),
        ("oom-kill", "error", names["containers"]["b1"], None),
    } <= told(answer)


# --- rollback ------------------------------------------------------------------------------------


def rolled_back(changes: Mapping[str, Mapping[str, object]] | None = None) -> Tree:
    """Return the idle node after kubelet 1.37 started with the gate off: ancestors at 0."""
    zero = {"memory.min": 0, "memory.low": 0}
    reset = {"/kubepods.slice": zero, "/kubepods.slice/kubepods-burstable.slice": zero}
    return changed(captured("idle-systemd", "t0"), reset if changes is None else changes)


def test_rollback_with_the_ancestors_reset(tmp_path: Path) -> None:
    """Protection is left in pods and containers and is void; memory.high still throttles."""
    write_tree(tmp_path / "t", rolled_back())
    answer = audit(tmp_path / "t", "--rollback", "-o", "json", config=OFF)
    by_code: dict[str, set[str]] = {}
    for item in answer.json["findings"]:
        by_code.setdefault(item["code"], set()).add(f"{item['path'].count('/')} {item['file']}")
    containers = scenario("idle-systemd")["containers"]

    assert answer.code == 1  # memory.high
    # Whatever the ancestors have, a container full of memory.min fills its pod (section 12).
    assert set(by_code) == {"stale-high", "stale-protection-neutral", "min-equals-max"}
    # Depths: 2 and 3 are Guaranteed pod and container, 3 and 4 Burstable ones.
    assert by_code["stale-protection-neutral"] == {
        "2 memory.min", "3 memory.min", "3 memory.low", "4 memory.low",
    }  # fmt: skip
    high = {item["path"] for item in answer.json["findings"] if item["code"] == "stale-high"}
    # Guaranteed containers have none.
    assert high == {path for name, path in containers.items() if name != "g1"}


def test_rollback_of_1_36(tmp_path: Path) -> None:
    """1.36 resets nothing: what is left is in force (kubernetes#138436), and nothing clears it."""
    write_tree(tmp_path / "t", rolled_back({}))
    answer = audit(
        tmp_path / "t", "--rollback", "--kubelet-version", "1.36", "-o", "json", config=OFF
    )
    top = {
        item["file"]: (item["code"], item["remedy"])
        for item in answer.json["findings"]
        if item["path"] == "/kubepods.slice"
    }

    assert top["memory.min"][0] == "stale-protection-effective"
    assert top["memory.min"][1].startswith("nothing")


def test_rollback_table(tmp_path: Path) -> None:
    """One row a value: the cgroup, the file, the value, whether it acts, what clears it."""
    write_tree(tmp_path / "t", rolled_back())
    answer = audit(tmp_path / "t", "--rollback", config=OFF)
    lines = answer.out.splitlines()
    rows = [re.split(" {2,}", line) for line in lines if "memory." in line and line[0] in "-/"]
    cells = {
        (row[0].strip(), row[1].strip()): [cell.strip() for cell in row[2:] if cell.strip()]
        for row in rows
    }
    b1, g1 = "-pod5f0c9a1e…0002", "-pod5f0c9a1e…0001"

    assert lines[0].split() == ["CGROUP", "FILE", "VALUE", "IN", "FORCE", "CLEARED", "BY"]
    assert max(map(len, lines)) <= 120
    assert cells[f"{b1}/02010201…0201", "memory.high"] == [
        "243.2Mi",
        "throttles",
        "restart, or resize (CRI-O: since 2026-03)",
    ]
    assert cells[f"-burstable/{b1}", "memory.low"] == ["128Mi", "no", "a new pod"]
    assert cells[f"{b1}/02010201…0201", "memory.low"] == [
        "128Mi",
        "no",
        "restart",
    ]
    assert cells[f"{g1}/01010101…0101", "memory.min"] == [
        "256Mi",
        "at the pod's limit",
        "restart",
    ]
    assert "2 cgroups still have memory.min up to memory.max" in answer.out
    assert lines[-1] == "12 values are left of Memory QoS in 25 cgroups, 5 in force"


def test_rollback_of_a_reserved_cgroup(tmp_path: Path) -> None:
    """Nothing ever resets memory.min of a reserved cgroup."""
    write_tree(
        tmp_path / "t",
        {
            "/kubepods.slice": {},
            "/system.slice/sshd.service": {},
            "/system.slice": {
                "memory.min": str(MIB),
                "memory.max": str(MIB),
                "memory.current": str(MIB),
            },
        },
    )
    config = {**OFF, "systemReservedCgroup": "/system.slice"}
    answer = audit(tmp_path / "t", "--rollback", "-o", "json", config=config)

    assert told(answer) == {
        ("stale-protection-effective", "warning", "/system.slice", "memory.min")
    }
    assert answer.json["findings"][0]["remedy"] == "nothing: write 0 there"


def test_nothing_left(tmp_path: Path) -> None:
    """A clean node says so."""
    write_tree(tmp_path / "t", {"/kubepods": {"memory.min": "0", "memory.max": "4096"}})
    answer = audit(tmp_path / "t", "--rollback")

    assert (answer.code, answer.out) == (0, "nothing is left of Memory QoS in 1 cgroups\n")


# --- pods ----------------------------------------------------------------------------------------


def test_static_pod(tmp_path: Path) -> None:
    """The mirror of a static pod has a UID of its own; the cgroup's is kubelet's hash."""
    digest = "0123456789abcdef" * 2
    mirror = pod(
        "etcd", "aaaa", containers={"etcd": ("64Mi", None, ID)},
        metadata={"annotations": dict.fromkeys(MIRROR, digest)},
    )  # fmt: skip
    low = {"memory.low": str(64 * MIB)}
    write_tree(
        tmp_path / "t",
        {
            "/kubepods": {"memory.min": str(64 * MIB), **low},
            "/kubepods/besteffort": {},
            "/kubepods/burstable": low,
            f"/kubepods/burstable/pod{digest}": low,
            f"/kubepods/burstable/pod{digest}/{ID}": {"memory.min": "0", **low},
        },
    )
    answer = audit(tmp_path / "t", "-o", "json", pods=pod_list(mirror), config=TIERED)

    assert (answer.code, told(answer)) == (0, set())


def test_containers_that_do_not_run_have_no_cgroup(tmp_path: Path) -> None:
    """Neither an init container that is done nor one that waits to be restarted is missed."""
    item = pod(
        "web", "u", containers={"app": (None, None, ID), "crashed": (None, None, "d0" * 32)}
    )
    item["status"]["containerStatuses"][1]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    item["spec"]["initContainers"] = [{"name": "init"}]
    item["status"]["initContainerStatuses"] = [
        {"name": "init", "containerID": f"containerd://{'e0' * 32}", "state": {"terminated": {}}}
    ]
    write_tree(
        tmp_path / "t",
        {path: {} for path in ("/kubepods/burstable", f"/kubepods/besteffort/podu/{ID}")},
    )
    answer = audit(tmp_path / "t", "-o", "json", pods=pod_list(item), config=OFF)

    assert {item[0] for item in told(answer)} <= {"file-missing"}


def test_a_pod_that_is_not_there(tmp_path: Path) -> None:
    """A listed pod without a cgroup is missed; one that is not listed is noted."""
    write_tree(tmp_path / "t", {"/kubepods/burstable/podother": {}, "/kubepods/besteffort": {}})
    answer = audit(tmp_path / "t", "-o", "json", pods=pod_list(BURSTABLE), config=OFF)

    assert ("cgroup-missing", "error", "/kubepods/burstable/podb", None) in told(answer)
    assert "1 pods of the tree are not in -" in answer.err


@pytest.mark.parametrize("given", ["--capacity", "--node"])
def test_capacity_of_a_captured_tree(given: str, tmp_path: Path) -> None:
    """What depends on the node's memory is judged once that is known.

    The captured kubepods' memory.max is that of 1636 MiB, memory.high of containers without a
    limit that of 1536 MiB: its maker took the eviction threshold off, which kubelet does not.
    """
    tree = capture(tmp_path, "idle-systemd", "t0")
    pods = pods_of("idle-systemd")
    file = tmp_path / "node.json"

    def with_capacity(size: str) -> set[tuple[str, str, str | None, str | None]]:
        node = {
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"capacity": {"memory": size}},
        }
        file.write_text(json.dumps({"apiVersion": "v1", **node}))
        value = f"memory={size}" if given == "--capacity" else str(file)
        return told(audit(tree, "-o", "json", given, value, pods=pods, config=TIERED))

    unknown = told(audit(tree, "-o", "json", pods=pods, config=TIERED))
    unlimited = [scenario("idle-systemd")["containers"][name] for name in ("b2", "e1", "e2")]
    limit = {("value-differs", "error", "/kubepods.slice", "memory.max")}
    high = {("value-differs", "error", path, "memory.high") for path in unlimited}
    assert with_capacity("1636Mi") - unknown == high
    assert with_capacity("1536Mi") - unknown == limit
    assert with_capacity("2Gi") - unknown == limit | high


def test_pods_of_other_nodes(tmp_path: Path) -> None:
    """A whole cluster's pods will do: those of other nodes, or of none yet, are not missed."""
    here = pod("b", "b", containers={"c": ("128Mi", None, ID)})
    gone = pod("x", "x", containers={"c": ("128Mi", None, ID)})
    there = pod("y", "y", containers={"c": ("128Mi", None, ID)})
    nowhere = pod("z", "z", containers={"c": ("128Mi", None, ID)})
    for item, node in ((here, "n1"), (gone, "n1"), (there, "n2")):
        item["spec"]["nodeName"] = node
    write_tree(tmp_path / "t", {"/kubepods/burstable/podb": {}, "/kubepods/besteffort": {}})
    pods = pod_list(here, gone, there, nowhere)
    answer = audit(tmp_path / "t", "-o", "json", pods=pods, config=OFF)

    missed = {path for code, _, path, _ in told(answer) if path and code == "cgroup-missing"}
    assert {path.split("/")[3] for path in missed} == {"podx"}
    assert "left out 2 pods of - that are not on this node" in answer.err


def node_file(path: Path, **fields: Any) -> Path:
    """Write a v1 Node."""
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, **fields}
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("named", [False, True])
def test_pods_of_a_drained_node(named: bool, tmp_path: Path) -> None:
    """A node without pods does not miss those of the cluster; its name tells its own."""
    pods = []
    for number, node in enumerate(("n1", "n2", "n3")):
        item = pod(f"p{number}", f"p{number}", containers={"c": ("128Mi", None, ID)})
        item["spec"]["nodeName"] = node
        pods.append(item)
    write_tree(tmp_path / "t", {"/kubepods/burstable": {}, "/kubepods/besteffort": {}})
    more = ("--node", node_file(tmp_path / "node.json")) if named else ()
    answer = audit(tmp_path / "t", "-o", "json", *more, pods=pod_list(*pods), config=OFF)

    missed = {path for code, _, path, _ in told(answer) if path and code == "cgroup-missing"}
    assert {path.split("/")[3] for path in missed} == ({"podp0"} if named else set())
    assert answer.err == (
        "memqos: left out 2 pods of - that are not on this node\n"
        if named
        else "memqos: none of the pods of - is in the tree; --node tells which are this node's\n"
    )


def test_other_kinds_among_the_pods(tmp_path: Path) -> None:
    """What is no pod is left out and said."""
    items = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}},
    }]  # fmt: skip
    write_tree(tmp_path / "t", {"/kubepods/burstable": {}, "/kubepods/besteffort": {}})
    answer = audit(tmp_path / "t", "-o", "json", pods=pod_list(*items), config=OFF)

    assert "no pods in it" in answer.err
    assert {path for _, _, path, _ in told(answer)} <= {"/kubepods", "/kubepods/burstable"}


def test_pod_without_status(tmp_path: Path) -> None:
    """Before kubelet reports a status, the pod's own cgroup can be compared already."""
    item = pod("b", "b", containers={"c": ("128Mi", None, ID)})
    del item["status"]
    write_tree(
        tmp_path / "t",
        {"/kubepods/burstable/podb": {"memory.low": "0\n"}, "/kubepods/besteffort": {}},
    )
    answer = audit(tmp_path / "t", "-o", "json", pods=pod_list(item), config=TIERED)

    assert ("value-missing", "error", "/kubepods/burstable/podb", "memory.low") in told(answer)


# --- text, formats, options ----------------------------------------------------------------------


def damaged(folder: Path) -> Path:
    """Write a node whose b1 has another memory.high and whose kubepods lacks memory.low."""
    b1 = scenario("idle-systemd")["containers"]["b1"]
    changes = {b1: {"memory.high": 241590272}, "/kubepods.slice": {"memory.low": 0}}
    return write_tree(folder / "t", changed(captured("idle-systemd", "t0"), changes))


def test_text_is_by_cgroup_the_worst_first(tmp_path: Path) -> None:
    """Errors come first, pods by name, and each cgroup has one remedy."""
    answer = audit(damaged(tmp_path), pods=pods_of("idle-systemd"), config=TIERED)
    groups = answer.out.split("\n\n")
    severities = [
        group.splitlines()[1].split()[0] for group in groups[:-1] if group.startswith(("/", "d"))
    ]

    assert answer.code == 1
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert all(group.count("\n  -> ") <= 1 for group in groups)
    assert any(group.startswith("default/b1 b1 (/kubepods.slice/") for group in groups)
    assert "value-differs: memory.high should be 255012864 and is 241590272" in answer.out
    assert groups[-1].startswith("25 cgroups: ")


def test_many_alike_are_told_once(tmp_path: Path) -> None:
    """Of many cgroups with the same finding some are shown and the rest counted."""
    tree = {
        f"/kubepods/pod{number}": {"memory.min": "9", "memory.max": "9"} for number in range(20)
    }
    answer = audit(write_tree(tmp_path / "t", tree))

    assert answer.out.count("warning min-equals-max") == 5
    assert "... and 15 more with min-equals-max" in answer.out


def test_severity(tmp_path: Path) -> None:
    """What exits 1 is asked for."""
    write_tree(tmp_path / "t", {"/kubepods": {"memory.high": "9", "memory.max": "9"}})

    codes = {
        severity: audit(tmp_path / "t", "--severity", severity).code
        for severity in ("info", "warning", "error")
    }
    assert codes == {"info": 1, "warning": 0, "error": 0}


def test_one_pod(tmp_path: Path) -> None:
    """Findings and protection of one pod, by its name."""
    root = damaged(tmp_path)
    answer = audit(
        root, "--pod", "default/b1", "-o", "json", pods=pods_of("idle-systemd"), config=TIERED
    )
    pod_path = scenario("idle-systemd")["pods"]["b1"]

    assert {item["path"] for item in answer.json["findings"]} == {
        pod_path, scenario("idle-systemd")["containers"]["b1"],
    }  # fmt: skip
    assert len(answer.json["effective"]) == 3


def test_prometheus(tmp_path: Path) -> None:
    """Counts by code and severity, which Prometheus takes."""
    answer = audit(
        damaged(tmp_path), "-o", "prometheus", pods=pods_of("idle-systemd"), config=TIERED
    )

    assert 'memqos_cgroup_findings{code="value-differs",severity="error"} 2\n' in answer.out
    assert "memqos_audited_cgroups 25\n" in answer.out
    done = run_tool("promtool", "check", "metrics", input=answer.out)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--severity", "bad"], 2, "bad"),
        (["--pods", "-", "--kubelet-config", "-"], 2, "only one input"),
        (["--pods", "/nowhere"], 3, "/nowhere"),
        (["--before", "/nowhere"], 3, "/nowhere"),
        (["--container", "x"], 2, "--container needs --pod"),
        (["--rollback", "--before", "x"], 2, "no use for --before"),
        (["--kubelet-version", "2.0"], 2, "not a kubelet version"),
    ],
)
def test_wrong(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    """One line that says what is wrong."""
    answer = audit(write_tree(tmp_path / "t", {"/kubepods": {}}), *arguments)

    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert message in answer.err


@pytest.mark.parametrize("name", ["memory.high", "memory.max", "memory.min", "memory.current"])
def test_malformed(name: str, tmp_path: Path) -> None:
    """A file that holds no size is named, and nothing is decided on it."""
    write_tree(tmp_path / "t", {"/kubepods": {name: "\x1b[31mfoo\n"}})
    answer = audit(tmp_path / "t")

    assert (answer.code, answer.out) == (3, "")
    assert f"/kubepods/{name}: expected bytes or max" in answer.err


def test_closed_pipe(tmp_path: Path) -> None:
    """`| head` ends quietly."""
    tree = {f"/kubepods/pod{number}": {"memory.current": "1"} for number in range(3000)}
    root = write_tree(tmp_path / "t", tree)
    command = f"{PROGRAM} audit-cgroups --cgroup-root {root} -o json | head -1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "{\n"
    assert done.stderr in ("", "memqos: no --pods: only what the tree itself shows is judged\n")


# --- a live host ---------------------------------------------------------------------------------


def host(folder: Path) -> Path:
    """Make the root of a node, with everything that is read there."""
    write_tree(folder / "sys/fs/cgroup", captured("idle-systemd", "t0"))
    files = {
        "proc/1/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,memory_recursiveprot 0 0\n",
        "proc/sys/kernel/osrelease": "6.12.0\n",
        "proc/meminfo": "MemTotal:        2097152 kB\nSwapTotal:             0 kB\n",
        "sys/kernel/mm/lru_gen/enabled": "0x0007\n",
        "var/lib/kubelet/config.yaml": json.dumps(TIERED),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / f"var/log/pods/default_b1_{UIDS['b1']}").mkdir(parents=True)
    return folder


def test_host(tmp_path: Path) -> None:
    """Mount options, kernel, MGLRU, configuration and names are the host's own."""
    answer = memqos("audit-cgroups", "--root", host(tmp_path), "-o", "json")

    assert answer.json["cgroupVersion"] == 2
    assert answer.json["memoryRecursiveprot"] is True
    assert "low-not-floor" in {item["code"] for item in answer.json["findings"]}
    text = memqos("audit-cgroups", "--root", tmp_path, "--pod", "default/b1").out
    assert "low-not-floor" in text


def test_hugepages_of_a_host(tmp_path: Path) -> None:
    """Hugepages are not allocatable as memory: of 2 GiB 1.7 leave less than kubepods promises."""
    root = host(tmp_path)
    with (root / "proc/meminfo").open("a") as file:
        file.write("Hugetlb:         1782580 kB\n")
    answer = memqos("audit-cgroups", "--root", root, "-o", "json")

    finding = ("protection-exceeds-allocatable", "warning", "/kubepods.slice", "memory.min")
    assert finding in told(answer)


@pytest.mark.parametrize(
    ("capacity", "options", "expected"),
    [
        ({}, [], True),
        ({"memory": "64Gi"}, [], False),
        ({"hugepages-2Mi": "0"}, [], False),
        ({"hugepages-2Mi": "1Gi"}, ["--capacity", "hugepages-2Mi=0"], False),
        ({"hugepages-2Mi": "0"}, ["--capacity", "hugepages-2Mi=1780Mi"], True),
        ({"memory": "64Gi"}, ["--capacity", "memory=2Gi"], True),
    ],
)
def test_what_a_node_does_not_say(
    capacity: Any, options: list[str], expected: bool, tmp_path: Path
) -> None:
    """A fact that --capacity and --node leave out is the root's own, and 0 is a fact.

    As above: 2 GiB less hugepages of 1740 MiB or more are less than kubepods promises.
    """
    root = host(tmp_path)
    with (root / "proc/meminfo").open("a") as file:
        file.write("Hugetlb:         1782580 kB\n")
    given = node_file(tmp_path / "node.json", status={"capacity": capacity})
    answer = memqos("audit-cgroups", "--root", root, "--node", given, *options, "-o", "json")

    codes = {item["code"] for item in answer.json["findings"]}
    assert ("protection-exceeds-allocatable" in codes) is expected


@pytest.mark.parametrize("option", ["--node", "--pods"])
def test_a_directory_is_no_file(option: str, tmp_path: Path) -> None:
    """One node, one list of pods: not whatever lies about in a directory."""
    node_file(tmp_path / "node.json", status={"capacity": {"memory": "1Gi"}})
    answer = memqos("audit-cgroups", "--root", host(tmp_path / "host"), option, tmp_path)

    assert (answer.code, answer.out, answer.err) == (
        3,
        "",
        f"memqos: {tmp_path}: is a directory\n",
    )


def test_old_kernel_on_a_host(tmp_path: Path) -> None:
    """The kernel is that of the root."""
    root = host(tmp_path)
    (root / "proc/sys/kernel/osrelease").write_text("5.4.0-150-generic\n")
    answer = memqos("audit-cgroups", "--root", root, "-o", "json")

    assert ("kernel-livelock", "warning", None, None) in told(answer)


@pytest.mark.parametrize(
    ("mounts", "code"),
    [
        ("cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n", "cgroup-v1"),
        (
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /memory cgroup rw 0 0\n",
            "cgroup-hybrid",
        ),
    ],
)
def test_cgroup_v1_host(mounts: str, code: str, tmp_path: Path) -> None:
    """On cgroup v1 that is the only finding."""
    root = host(tmp_path)
    (root / "proc/1/mounts").write_text(mounts)
    answer = memqos("audit-cgroups", "--root", root, "-o", "json")

    assert (answer.code, told(answer)) == (1, {(code, "error", None, None)})


def test_no_cgroups(tmp_path: Path) -> None:
    """A root without any is no answer."""
    answer = memqos("audit-cgroups", "--root", tmp_path)

    assert answer.code == 3
    assert "no cgroup2 mount and no cgroup tree" in answer.err
