"""The DaemonSet in examples/kubernetes that runs watch-oom."""

import json
import re
from pathlib import Path

import yaml

from tests.support.examples import KUBERNETES, SYSTEMD, check_command, commands, documents
from tests.support.kubernetes import validator
from tests.support.program import memqos


FILE = KUBERNETES / "watch-oom-daemonset.yaml"
MANIFESTS = {item["kind"]: item for item in documents(FILE)}
POD = MANIFESTS["DaemonSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ARGUMENTS: list[str] = CONTAINER["args"]
UID = "5f0c9a1e-0004-4b6d-9c3a-0d2e6f7a0004"


def option(name: str) -> str:
    """Return the value of an option on the container's command line."""
    (value,) = (item.partition("=")[2] for item in ARGUMENTS if item.startswith(f"{name}="))
    return value


def expanded(arguments: list[str]) -> list[str]:
    """Put the pod's UID in, as kubelet does."""
    return [item.replace("$(POD_UID)", UID) for item in arguments]


def test_command_line_parses() -> None:
    """Memqos has the command and takes each option, once kubelet has put the pod's UID in."""
    check_command(expanded(ARGUMENTS))


def test_pod_cannot_kill_as_shipped() -> None:
    """No --kill, and the one thing that comes from the host is read-only."""
    assert "--kill" not in ARGUMENTS
    assert POD["volumes"] == [
        {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}
    ]
    assert [mount["readOnly"] for mount in CONTAINER["volumeMounts"]] == [True]


def test_two_lines_let_it_kill() -> None:
    """What the comments tell to change adds --kill and a writable mount, and nothing else."""
    text = FILE.read_text(encoding="utf-8")
    text, options = re.subn(r"# - --kill  # to kill, .*", "- --kill", text)
    text, mounts = re.subn("readOnly: true  # to kill, false", "readOnly: false", text)
    changed = {item["kind"]: item for item in yaml.safe_load_all(text)}["DaemonSet"]
    (container,) = changed["spec"]["template"]["spec"]["containers"]

    assert (options, mounts) == (1, 1)
    assert container["args"] == [*ARGUMENTS, "--kill"]
    check_command(expanded(container["args"]))
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [False]
    assert list(validator("apps/v1/DaemonSet").iter_errors(changed)) == []


def test_container_has_least_privilege() -> None:
    """Read-only root, no escalation, and the one capability that locking memory needs."""
    context = CONTAINER["securityContext"]

    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert "privileged" not in context


def test_pod_shares_the_processes_of_the_host_and_nothing_else() -> None:
    """PIDs for the list of what was killed; no network, no IPC, no token."""
    assert POD["hostPID"] is True
    assert not {"hostIPC", "hostNetwork"} & set(POD)
    assert POD["automountServiceAccountToken"] is False
    assert MANIFESTS["ServiceAccount"]["automountServiceAccountToken"] is False
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["securityContext"]["runAsUser"] == 0


def test_pod_survives() -> None:
    """Guaranteed, critical, on every node."""
    resources = CONTAINER["resources"]

    assert resources["requests"] == resources["limits"]
    assert set(resources["limits"]) == {"cpu", "memory"}
    assert POD["priorityClassName"] == "system-node-critical"
    assert POD["tolerations"] == [{"operator": "Exists"}]


def test_probe_and_scrape_reach_what_is_served() -> None:
    """One port, on the pod's own addresses, open to Prometheus and to nobody else."""
    (port,) = CONTAINER["ports"]
    policy = MANIFESTS["NetworkPolicy"]["spec"]
    (rule,) = policy["ingress"]
    probe = CONTAINER["livenessProbe"]

    assert option("--listen") == f"0.0.0.0:{port['containerPort']}"
    assert probe["httpGet"] == {"path": "/metrics", "port": port["name"]}
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 180
    assert rule["ports"] == [{"port": port["name"]}]
    assert rule["from"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy


def test_namespace_is_its_own() -> None:
    """Every object is in the file's namespace, so deleting it deletes nothing else."""
    namespace = MANIFESTS["Namespace"]["metadata"]["name"]
    others = {
        item["metadata"]["name"]
        for item in documents(KUBERNETES / "daemonset.yaml")
        if item["kind"] == "Namespace"
    }

    assert {
        item["metadata"]["namespace"] for kind, item in MANIFESTS.items() if kind != "Namespace"
    } == {namespace}
    assert namespace not in others


def test_pod_never_chooses_itself(tmp_path: Path) -> None:
    """On a tree where its own pod is the largest, the command line chooses another one."""
    assert option("--protect-uid") == "$(POD_UID)"
    assert CONTAINER["env"] == [
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    ]
    (mount,) = CONTAINER["volumeMounts"]
    assert option("--cgroup-root") == mount["mountPath"]
    pods = f"{mount['mountPath']}/kubepods.slice/kubepods-besteffort.slice"
    other = UID.replace("0004", "0001").replace("-", "_")
    for uid, size in ((UID.replace("-", "_"), 9), (other, 5)):
        folder = tmp_path / pods.lstrip("/") / f"kubepods-besteffort-pod{uid}.slice"
        folder.mkdir(parents=True)
        (folder / "memory.current").write_text(f"{size}\n")
        (folder / "memory.max").write_text("max\n")
    config = tmp_path / "oom.json"
    fields = {"triggerExpression": "true", "sampleInterval": "20ms"}
    config.write_text(json.dumps({"apiVersion": "v1alpha1", "kind": "OOMConfig", **fields}))
    here = [
        item.replace("/host/", f"{tmp_path}/host/").replace(option("--listen"), "127.0.0.1:0")
        for item in expanded(ARGUMENTS)
        if item != "--protect-self"  # of the process that runs the tests
    ]

    answer = memqos(*here, "--once", "--config", config)

    assert answer.code == 0
    (line,) = set(answer.out.splitlines())
    assert line.startswith("trigger fired: would kill ")
    assert line.endswith(f"/kubepods-besteffort-pod{other}.slice (score 5)")


def test_unit_and_pod_run_the_same() -> None:
    """The two ways differ in where things are, not in what is done."""
    ((_, *unit),) = commands((SYSTEMD / "memqos-watch-oom.service").read_text(encoding="utf-8"))
    where = {"--actions", "--listen", "--cgroup-root", "--protect-uid"}
    names = {item.partition("=")[0] for item in (*unit, *ARGUMENTS) if item.startswith("--")}

    assert {item for item in unit if item.startswith("--")} - where == {
        item for item in ARGUMENTS if item.startswith("--") and "=" not in item
    }
    assert where < names
