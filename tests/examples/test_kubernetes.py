"""The files in examples/kubernetes, as Kubernetes and Prometheus judge them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.examples import EXAMPLES, KUBERNETES, check_command, commands, documents
from tests.support.kubernetes import validator
from tests.support.program import memqos
from tests.support.tools import run_tool


MANIFESTS = documents(KUBERNETES / "daemonset.yaml")
WATCH_MANIFESTS = documents(KUBERNETES / "watch-oom-daemonset.yaml")
POD = next(item for item in MANIFESTS if item["kind"] == "DaemonSet")["spec"]["template"]["spec"]
CONTAINERS = [*POD["initContainers"], *POD["containers"]]
BY_NAME = [pytest.param(container, id=container["name"]) for container in CONTAINERS]


def script(container: dict[str, Any]) -> str:
    """Return the program text of a container that runs a shell."""
    assert container["command"] == ["/bin/sh", "-c"]
    (text,) = container["args"]
    return str(text)


@pytest.mark.parametrize(
    "manifest",
    [*MANIFESTS, *WATCH_MANIFESTS],
    ids=lambda item: f"{item['kind']}-{item['metadata']['name']}",
)
def test_manifest_fits_the_kubernetes_schema(manifest: dict[str, Any]) -> None:
    """Every object is valid for Kubernetes 1.37 in strict mode: no unknown fields either."""
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"

    assert [error.message for error in validator(kind).iter_errors(manifest)] == []


def test_schema_is_strict() -> None:
    """A misspelt field deep in the pod is found, so the test above means something."""
    broken = next(
        item for item in documents(KUBERNETES / "daemonset.yaml") if item["kind"] == "DaemonSet"
    )
    broken["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privilged"] = True

    (error,) = validator("apps/v1/DaemonSet").iter_errors(broken)
    assert "privilged" in error.message


@pytest.mark.parametrize("container", BY_NAME)
def test_container_has_least_privilege(container: dict[str, Any]) -> None:
    """Read-only root, no escalation, every capability dropped; the copy of iomem adds one."""
    context = container["securityContext"]
    added = ["SYS_ADMIN"] if container["name"] == "iomem" else None

    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["capabilities"].get("add") == added
    assert "privileged" not in context


@pytest.mark.parametrize("container", BY_NAME)
def test_container_has_resources(container: dict[str, Any]) -> None:
    """Requests and limits are set, and not all equal: Guaranteed pods are assigned memory."""
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]

    assert set(requests) == set(limits) == {"cpu", "memory"}
    assert requests["memory"] == limits["memory"]
    assert requests["cpu"] != limits["cpu"]


def test_pod_shares_nothing_with_the_host_but_volumes() -> None:
    """No host namespaces, no API token, the runtime's seccomp profile, on every node."""
    assert not {"hostPID", "hostIPC", "hostNetwork"} & set(POD)
    assert POD["automountServiceAccountToken"] is False
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["tolerations"] == [{"operator": "Exists"}]
    assert POD["priorityClassName"] == "system-node-critical"


def test_only_the_metrics_directory_of_the_host_is_writable() -> None:
    """Of what comes from the host, one directory can be written."""
    host = {volume["name"] for volume in POD["volumes"] if "hostPath" in volume}
    writable = {
        mount["name"]
        for container in CONTAINERS
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    }

    assert host & writable == {"textfile"}


def test_secrets_below_the_kubelet_directory_are_covered() -> None:
    """Volumes and tokens of pods, and the key of the node, are hidden by an empty directory."""
    mounts = {item["mountPath"]: item["name"] for item in POD["containers"][0]["volumeMounts"]}
    covered = {path for path, name in mounts.items() if name == "empty"}

    assert covered == {f"/host/var/lib/kubelet/{name}" for name in ("pods", "plugins", "pki")}


def test_loop_runs_memqos_on_the_mounts(tmp_path: Path) -> None:
    """The command line parses, and answers on a root that holds just what is mounted."""
    (arguments,) = commands(script(POD["containers"][0]))
    check_command(arguments)
    mounts = [mount["mountPath"] for mount in POD["containers"][0]["volumeMounts"]]
    node = EXAMPLES / "nodes" / "drifted"
    for path in mounts:
        source = node / path.removeprefix("/host/")
        target = tmp_path / path.removeprefix("/")
        if path.startswith("/host/") and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    (tmp_path / "textfile").mkdir()
    (tmp_path / "run/memqos").mkdir(parents=True)
    shutil.copy(node / "proc/iomem", tmp_path / "run/memqos/iomem")
    here = [str(tmp_path) + item if item.startswith("/") else item for item in arguments]

    answer = memqos(*here)

    assert (answer.code, answer.err) == (0, "")
    expected = memqos("validate-checkpoint", "--root", node, "-o", "prometheus").out
    assert (tmp_path / "textfile/memqos.prom").read_text() == expected


def test_shell_scripts_parse() -> None:
    """`sh -n` takes the loop and the readiness probe."""
    container = POD["containers"][0]
    probe = container["readinessProbe"]["exec"]["command"]
    assert probe[:2] == ["/bin/sh", "-c"]
    for text in (script(container), probe[2]):
        done = subprocess.run(
            ["/bin/sh", "-n"], input=text, capture_output=True, text=True, check=False, timeout=10
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_prometheus_accepts_the_rules() -> None:
    """`promtool check rules` finds the five rules and nothing to complain about."""
    done = run_tool("promtool", "check", "rules", "prometheus-rules.yaml", cwd=str(KUBERNETES))

    assert "5 rules found" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_rules_fire_when_they_should() -> None:
    """The rules' own unit tests pass in `promtool test rules`."""
    name = "prometheus-rules-test.yaml"
    done = run_tool("promtool", "test", "rules", name, cwd=str(KUBERNETES))

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("== 0", "== 1"),
        ("for: 10m", "for: 9m"),
        ("0.8 *", "0.7 *"),
        ("64 * 1024", "63 * 1024"),
        ("abs(memqos_numa_node_memory_drift_bytes)", "memqos_numa_node_memory_drift_bytes"),
        ("[1d]", "[2h]"),
        ("or kubelet_memory_manager_memory_drift_bytes", ""),
        ("> 900", "> 1000"),
        ("(.*/)?memqos", ".*memqos"),
    ],
)
def test_rule_tests_notice_a_changed_rule(tmp_path: Path, old: str, new: str) -> None:
    """Each figure and operator of the rules is held by a unit test."""
    rules = (KUBERNETES / "prometheus-rules.yaml").read_text(encoding="utf-8")
    assert old in rules
    (tmp_path / "prometheus-rules.yaml").write_text(rules.replace(old, new), encoding="utf-8")
    shutil.copy(KUBERNETES / "prometheus-rules-test.yaml", tmp_path)

    done = run_tool("promtool", "test", "rules", "prometheus-rules-test.yaml", cwd=str(tmp_path))

    assert done.returncode == 1


def test_rules_use_metrics_that_memqos_writes() -> None:
    """Every memqos and kubelet metric in the rules is one that a validation exports."""
    text = memqos(
        "validate-checkpoint", "--root", EXAMPLES / "nodes" / "drifted", "-o", "prometheus"
    ).out
    exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    (rules,) = documents(KUBERNETES / "prometheus-rules.yaml")
    used = {
        word
        for rule in rules["groups"][0]["rules"]
        for word in rule["expr"].replace("(", " ").replace(")", " ").split()
        if word.startswith(("memqos_", "kubelet_"))
    }

    assert used <= exported
    assert {"memqos_kubelet_starts", "memqos_kernel_image_bytes"} <= used


@pytest.mark.parametrize("node", ["corrupt", "drifted", "lost-dimm"])
def test_prometheus_accepts_the_metrics(node: str) -> None:
    """`promtool check metrics` has nothing to complain about, whatever the verdict."""
    root = EXAMPLES / "nodes" / node
    text = memqos("validate-checkpoint", "--root", root, "-o", "prometheus").out

    done = run_tool("promtool", "check", "metrics", input=text)

    assert text != ""
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
