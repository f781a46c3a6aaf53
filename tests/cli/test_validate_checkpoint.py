"""memqos validate-checkpoint."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from memqos.memory_manager.encoding import encode_v3
from memqos.memory_manager.metrics import DRIFT_METRIC, TOLERANCE_METRIC
from tests.support import vectors as of
from tests.support.boots import Boot, boots, configs
from tests.support.program import Answer, memqos, run_program, validator
from tests.support.vectors import Case, named


COMMAND = "validate-checkpoint"
NOBODY = 65534
RESERVED = 64 << 20
# 64 MiB is all reserved: the threshold and nothing else.
FLAGS = (
    "--memory-manager-policy=Static",
    f"--reserved-memory=0:memory={RESERVED}",
    f"--eviction-hard=memory.available<{RESERVED}",
)


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Parse the text exposition: metric name to label values to value."""
    return {
        family.name: {tuple(s.labels.values()): s.value for s in family.samples}
        for family in text_string_to_metric_families(text)
    }


# --- the vectors, through real configurations ----------------------------------------------------


def kubelet_config(case: Case) -> dict[str, Any]:
    """Write a case's settings as a KubeletConfiguration."""
    memory = of.node_reservation(case).get("memory", 0)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "memoryManagerPolicy": case["policy_name"],
        "memoryManagerPolicyOptions": of.policy_options(case),
        "featureGates": of.gates(case),
        "reservedMemory": [
            {"numaNode": node, "limits": {name: str(value) for name, value in limits.items()}}
            for node, limits in of.reservations(case)
        ],
        "systemReserved": {"memory": str(memory)} if memory else {},
        "evictionHard": {"memory.available": "0%"},
    }


def machine_info(case: Case) -> dict[str, Any]:
    """Write a case's machine as cAdvisor's MachineInfo."""
    return {
        "topology": [
            {
                "node_id": node["id"],
                "memory": node["memory_bytes"],
                "hugepages": [
                    {"page_size": size["page_size_kib"], "num_pages": size["pages"]}
                    for size in node["hugepages"]
                ],
            }
            for node in case["machine"]["nodes"]
        ]
    }


class QuotingDumper(yaml.SafeDumper):
    """Quotes every string: PyYAML would leave `1e4` bare, which is a number to Kubernetes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Write a string."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"')


QuotingDumper.add_representer(str, QuotingDumper.represent_str)


def inputs(case: Case, folder: Path) -> list[str | Path]:
    """Write the files of a case; a missing checkpoint or iomem is a file that is not there."""
    (folder / "machine.json").write_text(json.dumps(machine_info(case)))
    (folder / "kubelet.json").write_text(json.dumps(kubelet_config(case)))
    (folder / "kubelet.yaml").write_text(yaml.dump(kubelet_config(case), Dumper=QuotingDumper))
    text = of.file_text(case)
    if text is not None:
        (folder / "state").write_bytes(text.encode())
    arguments: list[str | Path] = [
        folder / "state",
        "--root",
        folder,
        "--machine-info",
        folder / "machine.json",
    ]
    if case.get("iomem") is not None:
        (folder / "iomem").write_bytes(case["iomem"].encode())
        arguments += ["--iomem", folder / "iomem"]
    return [COMMAND, *arguments]


def check(answer: Answer, case: Case) -> dict[str, Any]:
    """Hold a JSON answer against the expectation of its case."""
    expected = case["expect"]
    document: dict[str, Any] = answer.json
    reachable = all(name == "memory" for _, limits in of.reservations(case) for name in limits)
    if not reachable:
        # No field of a kubelet configuration reserves hugepages, so hugepages in reservedMemory
        # are refused before anything else: these settings exist in kubelet's unit tests only.
        assert (document["verdict"], document["reason"]) == ("error", "reserved_memory_mismatch")
        assert answer.code == 1
        return document
    assert (document["verdict"], document["reason"]) == (
        expected["verdict"],
        expected["reason_kind"],
    )
    starts = expected["verdict"] in ("exact", "tolerated")
    assert document["kubeletStarts"] == starts
    assert answer.code == (0 if starts else 1)
    assert document["driftPerNode"] == expected["drift_per_node"]
    assert document["fileRewritten"] == expected["file_rewritten"]
    assert document["where"] == expected.get("where")
    assert document["orderDependent"] == expected.get("order_dependent", False)
    if "tolerance_bytes" in expected:
        assert document["toleranceBytes"] == expected["tolerance_bytes"]
    if "state_after" in expected:
        assert document["stateAfter"] == expected["state_after"]
    if "other_order" in expected:
        assert document["otherOrder"] == {
            "verdict": expected["other_order"]["verdict"],
            "reason": expected["other_order"]["reason_kind"],
        }
    if "format" in expected:
        assert document["checkpoint"]["format"] == expected["format"]
    assert expected.get("error_text", "") in document["message"]
    return document


@pytest.mark.parametrize("case", named("validate"))
def test_vectors(case: Case, tmp_path: Path) -> None:
    """Each case decides alike from YAML and JSON configuration, in every output format."""
    arguments = inputs(case, tmp_path)
    from_json = [*arguments, "--kubelet-config", tmp_path / "kubelet.json"]
    from_yaml = [*arguments, "--kubelet-config", tmp_path / "kubelet.yaml"]

    document = check(memqos(*from_json, "-o", "json"), case)

    as_yaml = memqos(*from_yaml, "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == document
    text = memqos(*from_yaml)
    assert text.code == as_yaml.code == (0 if document["kubeletStarts"] else 1)
    assert text.out.startswith(f"{document['verdict'].upper()}: ")
    metrics = samples(memqos(*from_json, "-o", "prometheus").out)
    assert metrics["memqos_checkpoint_verdict"] == {
        (name,): float(name == document["verdict"])
        for name in ("exact", "tolerated", "rejected", "error")
    }
    expected = case["expect"].get("metrics")
    if expected is not None and document["reason"] == case["expect"]["reason_kind"]:
        assert metrics[TOLERANCE_METRIC] == {(): expected[TOLERANCE_METRIC]}
        assert metrics.get(DRIFT_METRIC, {}) == {
            (node,): value for node, value in expected[DRIFT_METRIC].items()
        }


@pytest.mark.parametrize("case", named("validate"))
def test_vectors_with_flags(case: Case, tmp_path: Path) -> None:
    """Each case that kubelet's flags can express decides as with a configuration file."""
    options = of.policy_options(case)
    value = options.pop("memory-drift-tolerance", None)
    gates = of.gates(case)
    if options or (value is not None and not gates.get("MemoryManagerDriftTolerance")):
        return  # no flag sets other options, and --drift-tolerance implies the gate
    arguments = inputs(case, tmp_path)
    arguments += [f"--memory-manager-policy={case['policy_name']}"]
    for node, limits in of.reservations(case):
        amounts = ",".join(f"{name}={amount}" for name, amount in limits.items())
        arguments += [f"--reserved-memory={node}:{amounts}"]
    memory = of.node_reservation(case).get("memory", 0)
    arguments += [f"--system-reserved=memory={memory}"] if memory else []
    arguments += ["--eviction-hard=memory.available<0%"]
    arguments += [f"--feature-gates={name}={str(on).lower()}" for name, on in gates.items()]
    arguments += [] if value is None else [f"--drift-tolerance={value}"]

    check(memqos(*arguments, "-o", "json"), case)


# --- captured boots ------------------------------------------------------------------------------


def boot_checkpoint(boot: Boot, folder: Path) -> Path:
    """Write the checkpoint that an idle kubelet has on a boot."""
    path = folder / f"{boot.name.replace('/', '-')}.state"
    if not path.exists():
        path.write_text(encode_v3(of.content(boot.document({0: RESERVED}))))
    return path


def expected_verdict(old: Boot, new: Boot, bound: int) -> str:
    """Decide between two boots of an idle node, from the figures alone."""
    before, after = (
        {
            (node, name): table
            for node in boot.memory
            for name, table in boot.tables(node, 0 if node else RESERVED).items()
        }
        for boot in (old, new)
    )
    if before == after:
        return "exact"
    if before.keys() != after.keys():
        return "rejected"
    for (_, name), table in before.items():
        other = after[_, name]
        allowed = bound if name == "memory" else 0
        if any(abs(table[field] - other[field]) > allowed for field in ("total", "allocatable")):
            return "rejected"
    return "tolerated" if bound else "rejected"


def verdict(old: Boot, new: Boot, tolerance: str, folder: Path) -> str:
    """Let memqos decide between two boots."""
    answer = memqos(
        COMMAND,
        boot_checkpoint(old, folder),
        "--root",
        new.root,
        *FLAGS,
        f"--drift-tolerance={tolerance}",
        "-o",
        "json",
    )
    document = answer.json
    assert answer.code == (0 if document["kubeletStarts"] else 1)
    for node, drift in document["driftPerNode"].items():
        assert drift == new.memory[int(node)] - old.memory[int(node)]
    found: str = document["verdict"]
    return found


@pytest.mark.parametrize("config", configs())
def test_boots_of_one_machine(config: str, tmp_path: Path) -> None:
    """Between any two boots of a machine the verdict is what their MemTotals and image ask for."""
    pairs = [(old, new) for old, new in permutations(boots(config), 2) if old.sizes == new.sizes]
    # The first boot alone has its hugepage directories captured, where no pages are in use.
    assert len(pairs) >= (len(boots(config)) - 1) * (len(boots(config)) - 2)
    for old, new in pairs:
        assert new.bound is not None
        assert verdict(old, new, "auto", tmp_path) == expected_verdict(old, new, new.bound)
        assert verdict(old, new, "off", tmp_path) == expected_verdict(old, new, 0)


def test_the_smallest_sufficient_bound(tmp_path: Path) -> None:
    """A bound of the drift itself is enough, one byte less is not."""
    new, old = boots("2node-6.12-cloud")[1:3]
    worst = max(abs(new.memory[node] - old.memory[node]) for node in (0, 1))
    assert worst == 38559744

    assert verdict(old, new, str(worst), tmp_path) == "tolerated"
    assert verdict(old, new, str(worst - 1), tmp_path) == "rejected"


def test_boots_of_different_machines(tmp_path: Path) -> None:
    """Across machines and kernels the same rule decides, mostly for a refusal."""
    firsts = [boots(config)[0] for config in configs()]
    seen = set()
    for old, new in permutations(firsts, 2):
        assert new.bound is not None
        expected = expected_verdict(old, new, new.bound)
        assert verdict(old, new, "auto", tmp_path) == expected, (old.name, new.name)
        seen.add(expected)

    assert {"tolerated", "rejected"} <= seen


# --- inputs that are not what they should be -----------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a host whose machine is a captured boot, with an empty kubelet directory."""
    place = tmp_path / "host"
    (place / "var/lib/kubelet").mkdir(parents=True)
    boot = boots("2node-6.12-cloud")[0].root
    for name in ("proc", "sys"):
        shutil.copytree(boot / name, place / name)
    return place


def state(root: Path) -> Path:
    """Return the path of the checkpoint."""
    return root / "var/lib/kubelet/memory_manager_state"


GOOD = json.dumps({"policyName": "Static", "machineState": {"0": {"cells": [0]}}, "checksum": 0})
DEEP = b'{"entries":' + b"[" * 10_000 + b"]" * 10_000 + b"}"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "checkpoint_invalid_json", id="empty"),
        pytest.param(GOOD[:-3].encode(), "checkpoint_invalid_json", id="truncated"),
        pytest.param(b"\0" * 4096, "checkpoint_invalid_json", id="zero-filled"),
        pytest.param(b"\xef\xbb\xbf" + GOOD.encode(), "checkpoint_invalid_json", id="bom"),
        pytest.param(GOOD.encode("utf-16"), "checkpoint_invalid_json", id="utf-16"),
        pytest.param(bytes(range(256)) * 16, "checkpoint_invalid_json", id="binary"),
        pytest.param(DEEP, "checkpoint_invalid_json", id="deep"),
        pytest.param(b'{"checksum":1}', "checkpoint_corrupt", id="checksum"),
        pytest.param(b"{}", "policy_mismatch", id="no-policy"),
    ],
)
def test_what_kubelet_cannot_load_is_an_answer(data: bytes, reason: str, root: Path) -> None:
    """A checkpoint that kubelet could not load gives a verdict and exit status 1."""
    state(root).write_bytes(data)

    done = run_program(COMMAND, "--root", root, *FLAGS, "-o", "json", preexec_fn=limit_memory)

    assert done.returncode == 1
    document = json.loads(done.stdout)
    validator(document["kind"]).validate(document)
    assert (document["verdict"], document["reason"]) == ("error", reason)
    assert "Traceback" not in done.stderr


def limit_memory() -> None:
    """Allow a process 512 MiB."""
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))


def make_sparse(path: Path) -> None:
    """Make a file of 100 MB without content."""
    with path.open("wb") as file:
        file.truncate(100_000_000)


def make_socket(path: Path) -> None:
    """Make a socket; its name may be too long for one, so it is made beside."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda path: path.mkdir(), "directory", id="directory"),
        pytest.param(os.mkfifo, "regular file", id="fifo"),
        pytest.param(lambda path: path.symlink_to(path.name), "symbolic links", id="loop"),
        pytest.param(make_sparse, "larger than", id="sparse"),
        pytest.param(make_socket, "", id="socket"),
    ],
)
@pytest.mark.parametrize("option", ["", "--machine-info=", "--iomem=", "--kubelet-config="])
def test_unreadable_inputs(
    option: str, make: Callable[[Path], None], words: str, root: Path, tmp_path: Path
) -> None:
    """What cannot be read gives no answer: 3, and one line that names the file."""
    bad = tmp_path / "bad"
    make(bad)

    done = run_program(COMMAND, "--root", root, *FLAGS, f"{option}{bad}", preexec_fn=limit_memory)

    assert no_answer(done.returncode, done.stdout, done.stderr, str(bad))
    assert words in done.stderr


def no_answer(code: int, out: str, err: str, place: str) -> bool:
    """Hold a run against the contract of exit status 3."""
    assert code == 3, err
    assert out == ""
    assert err.count("\n") == 1, err
    assert place in err
    assert "Traceback" not in err
    return True


@pytest.mark.parametrize("option", ["", "--machine-info=", "--iomem=", "--kubelet-config="])
def test_endless_device(option: str, root: Path) -> None:
    """/dev/zero is no regular file and is not read to its end."""
    done = run_program(
        COMMAND, "--root", root, *FLAGS, f"{option}/dev/zero", preexec_fn=limit_memory
    )

    assert no_answer(done.returncode, done.stdout, done.stderr, "/dev/zero")


@pytest.mark.parametrize("option", ["--machine-info=", "--iomem=", "--kubelet-config=", ""])
def test_missing_inputs(option: str, root: Path, tmp_path: Path) -> None:
    """A file given on the command line must be there, and a checkpoint's directory too."""
    answer = memqos(COMMAND, "--root", root, *FLAGS, f"{option}{tmp_path}/no/such")

    assert no_answer(answer.code, answer.out, answer.err, f"{tmp_path}/no")


@pytest.mark.parametrize(
    ("option", "text", "place"),
    [
        ("--machine-info", "{}", "$.topology"),
        ("--machine-info", "", "$.topology"),
        ("--machine-info", "[1", "line 2"),
        ("--machine-info", "topology: [{node_id: 0, memory: 1Gi}]", "$.topology[0].memory"),
        ("--kubelet-config", "kind: Pod", "$.kind"),
        ("--kubelet-config", "a: 1\na: 2", "line 2"),
        ("--kubelet-config", "\n\tx", "line 2"),
        ("--kubelet-config", "- 1", "$"),
        ("--kubelet-config", "kind: KubeletConfiguration\nfeatureGates:\n  X: 1", "line 3"),
        (
            "--kubelet-config",
            "memoryManagerPolicyOptions:\n  memory-drift-tolerance: off",
            "line 2",
        ),
        ("--kubelet-config", "reservedMemory:\n- numaNode: x", "$.reservedMemory[0].numaNode"),
    ],
)
def test_malformed_inputs(option: str, text: str, place: str, root: Path, tmp_path: Path) -> None:
    """What cannot be understood gives no answer, and a line with the file and the place."""
    bad = tmp_path / "bad"
    bad.write_text(text)

    answer = memqos(COMMAND, "--root", root, option, bad)

    assert no_answer(answer.code, answer.out, answer.err, str(bad))
    assert place in answer.err


def test_quote_it(root: Path, tmp_path: Path) -> None:
    """An unquoted `off` is a boolean, and memqos says what to do."""
    config = tmp_path / "kubelet.yaml"
    config.write_text("memoryManagerPolicyOptions: {memory-drift-tolerance: off}")

    assert "quote it" in memqos(COMMAND, "--root", root, "--kubelet-config", config).err


@pytest.mark.parametrize("place", ["", "--machine-info=", "--iomem=", "--kubelet-config="])
def test_unreadable_for_others(place: str, root: Path, tmp_path: Path) -> None:
    """Without permission there is no answer, and the line names the file."""
    secret = tmp_path / "secret"
    secret.write_text(GOOD)
    secret.chmod(0)

    answer = as_nobody(tmp_path, COMMAND, "--root", root, *FLAGS, f"{place}{secret}")

    assert no_answer(answer.code, answer.out, answer.err, str(secret))
    assert "ermission denied" in answer.err


AS_NOBODY = f"""
import os, sys
# The interpreter's own files may be closed to others, so all is imported first.
import gettext, json.decoder, memqos_cli.main, memqos_cli.validate_checkpoint, yaml
from memqos_cli.__main__ import main
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
main()
"""


def as_nobody(shared: Path, *arguments: str | Path) -> Answer:
    """Run memqos as another user, to whom `shared` and what is above it is opened."""
    for folder in (shared, *shared.parents):
        if folder.is_relative_to(tempfile.gettempdir()) and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    done = subprocess.run(
        [sys.executable, "-P", "-c", AS_NOBODY, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


# --- defaults, releases, notes -------------------------------------------------------------------


def test_default_paths(root: Path) -> None:
    """Everything is found under the root: state, configuration, nodes and iomem."""
    boot = boots("2node-6.12-cloud")[0]
    state(root).write_text(encode_v3(of.content(boot.document({0: RESERVED}))))
    (root / "var/lib/kubelet/config.yaml").write_text(
        "kind: KubeletConfiguration\n"
        "memoryManagerPolicy: Static\n"
        "memoryManagerPolicyOptions: {memory-drift-tolerance: 'auto'}\n"
        "featureGates: {MemoryManagerDriftTolerance: true}\n"
        "evictionHard: {memory.available: 64Mi}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 64Mi}}]\n"
    )

    answer = memqos(COMMAND, "--root", root, "-o", "json")

    document = answer.json
    assert (answer.code, document["reason"], answer.err) == (0, "equal", "")
    assert document["checkpoint"] == {
        "format": "v3",
        "checksum": "valid",
        "policyName": "Static",
        "assignments": 0,
    }
    assert (document["toleranceBytes"], document["toleranceSource"]) == (
        boot.bound,
        "kernel-image",
    )


def test_without_configuration(root: Path) -> None:
    """Without a configuration the checkpoint's own settings are assumed, and that is said."""
    boot = boots("2node-6.12-cloud")[1]
    for number in (0, 1):
        shutil.rmtree(root / f"sys/devices/system/node/node{number}/hugepages")
    state(root).write_text(encode_v3(of.content(boot.document({0: RESERVED}))))

    answer = memqos(COMMAND, "--root", root, "--drift-tolerance", "auto", "-o", "json")

    assert answer.json["verdict"] == "tolerated"
    assert "no kubelet configuration" in answer.err
    assert answer.json["assumptions"]


def test_flags_override_the_file(root: Path) -> None:
    """Kubelet's flags win over its configuration file."""
    (root / "var/lib/kubelet/config.yaml").write_text("memoryManagerPolicy: BestEffort\n")

    answer = memqos(COMMAND, "--root", root, *FLAGS, "-o", "json")

    assert answer.json["reason"] == "initialized"


@pytest.mark.parametrize("kind", ["checkpoint", "--machine-info", "--iomem", "--kubelet-config"])
def test_standard_input(kind: str, root: Path) -> None:
    """`-` is standard input for each input, and for one only."""
    boot = boots("2node-6.12-cloud")[0]
    text = {
        "checkpoint": encode_v3(of.content(boot.document({0: RESERVED}))),
        "--machine-info": json.dumps({"topology": [{"node_id": 0, "memory": 1 << 40}]}),
        "--iomem": "0-0 : Kernel code",
        "--kubelet-config": "memoryManagerPolicy: None",
    }[kind]
    given = ["-"] if kind == "checkpoint" else [kind, "-"]

    answer = memqos(COMMAND, *given, "--root", root, *FLAGS, "-o", "json", stdin=text.encode())

    assert answer.json["reason"] == ("equal" if kind == "checkpoint" else "initialized")
    twice = memqos(COMMAND, "-", "--iomem", "-", "--root", root)
    assert (twice.code, twice.out) == (2, "")


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("1.38", "exact"), ("v1.37.2+k3s1", "exact"), ("1.36", "exact"), ("1.35", "error")],
)
def test_releases(version: str, verdict: str, root: Path) -> None:
    """A checksum of 0 is refused up to 1.35."""
    boot = boots("2node-6.12-cloud")[0]
    state(root).write_text(json.dumps(boot.document({0: RESERVED}) | {"checksum": 0}))

    answer = memqos(COMMAND, "--root", root, *FLAGS, "--kubelet-version", version, "-o", "json")

    assert answer.json["verdict"] == verdict


def test_textfile(root: Path) -> None:
    """--textfile holds what -o prometheus prints, all may read it, and nothing is left beside."""
    target = root / "out/memqos.prom"
    target.parent.mkdir()

    answer = memqos(COMMAND, "--root", root, *FLAGS, "-o", "prometheus", "--textfile", target)

    assert target.read_text() == answer.out
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [entry.name for entry in target.parent.iterdir()] == ["memqos.prom"]
    assert samples(answer.out)["memqos_kubelet_starts"] == {(): 1.0}


def test_textfile_that_cannot_be_written(root: Path) -> None:
    """A textfile that cannot be written gives no answer."""
    target = root / "no/such/memqos.prom"

    answer = memqos(COMMAND, "--root", root, *FLAGS, "--textfile", target)

    assert no_answer(answer.code, answer.out, answer.err, str(target))


def test_names_cannot_steer_a_terminal(root: Path) -> None:
    """Control characters of a checkpoint are escaped in text and kept in JSON."""
    state(root).write_text(of.v3_text({"policyName": "\x1b[2J\n\u202e", "machineState": {}}))

    text = memqos(COMMAND, "--root", root, *FLAGS)
    document = memqos(COMMAND, "--root", root, *FLAGS, "-o", "json").json

    assert "\x1b" not in text.out + text.err
    assert "\u202e" not in text.out + text.err
    assert document["checkpoint"]["policyName"] == "\x1b[2J\n\u202e"


def test_suite_runs_the_program_of_this_environment() -> None:
    """The program that is started is the one beside this interpreter."""
    assert Path(sys.executable).with_name("memqos").exists()
