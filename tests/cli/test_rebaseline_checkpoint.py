"""memqos rebaseline-checkpoint, as a user runs it."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from memqos.memory_manager.checkpoint import Format, LoadedCheckpoint, load
from memqos.memory_manager.encoding import (
    encode_v1,
    encode_v2,
    encode_v3,
    machine_state_document,
)
from memqos.memory_manager.options import GATE
from memqos.memory_manager.reasons import Reason, Verdict
from memqos.memory_manager.rebaseline import Rebaseline, RebaselineRefusal, rebaseline
from memqos.memory_manager.validation import validate_start
from tests.support.gofile import go_file
from tests.support.program import memqos
from tests.support.vectors import (
    Case,
    checkpoint,
    file_text,
    gates,
    image,
    machine,
    node_reservation,
    policy_options,
    reservations,
    settings,
    vectors,
)


EXAMPLES = Path(__file__).parents[2] / "examples" / "nodes"
STATE = "var/lib/kubelet/memory_manager_state"
ENCODERS = {"v1": encode_v1, "v2": encode_v2, "v3": encode_v3}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the drifted example node."""
    return Path(shutil.copytree(EXAMPLES / "drifted", tmp_path / "host"))


def tolerated() -> list[Case]:
    """Return the vectors that kubelet tolerates."""
    return [case for case in vectors("validate") if case["expect"]["verdict"] == "tolerated"]


@pytest.mark.parametrize("format_", ["v1", "v2", "v3"])
@pytest.mark.parametrize("case", tolerated(), ids=lambda case: str(case["name"]))
def test_every_tolerated_vector(case: Case, format_: str) -> None:
    """Re-baselining gives the vector's state_after, and an exact kubelet starts with the file."""
    loaded = checkpoint(case)
    assert isinstance(loaded, LoadedCheckpoint)
    data = ENCODERS[format_](loaded.content).encode()
    given = load(data, kubelet_minor=38)
    assert isinstance(given, LoadedCheckpoint)
    decision = validate_start(settings(case), machine(case), given, image(case))
    made = rebaseline(decision, settings(case), machine(case), given, data)
    assert isinstance(made, Rebaseline), made
    assert made.format == format_
    again = load(made.text.encode(), kubelet_minor=38)
    assert isinstance(again, LoadedCheckpoint)
    assert again.format == format_
    assert machine_state_document(again.content.machine_state) == case["expect"]["state_after"]
    assert again.content.entries == given.content.entries
    exact = evolve(settings(case), policy_options={})
    assert validate_start(exact, machine(case), again, None).reason is Reason.EQUAL


@pytest.mark.parametrize(
    "case",
    [case for case in vectors("validate") if case["expect"]["verdict"] != "tolerated"],
    ids=lambda case: str(case["name"]),
)
def test_nothing_else_is_written(case: Case) -> None:
    """Exact needs nothing; every other verdict is refused."""
    loaded = checkpoint(case)
    decision = validate_start(settings(case), machine(case), loaded, image(case))
    data = (file_text(case) or "").encode()
    made = rebaseline(decision, settings(case), machine(case), loaded, data)
    if decision.verdict is Verdict.EXACT:
        assert made is None
    else:
        assert isinstance(made, RebaselineRefusal)


def odd_case() -> Case:
    """Make a case with twelve nodes, and names with all that encoding/json escapes."""
    size = 1 << 30

    def node(number: int, total: int) -> dict[str, Any]:
        used = number == 11
        table = {
            "total": total,
            "systemReserved": 4096,
            "allocatable": total - 4096,
            "reserved": 8192 * used,
            "free": total - 4096 - 8192 * used,
        }
        return {
            "numberOfAssignments": 3 * used,
            "memoryMap": {"memory": table},
            "cells": [number],
        }

    names = ("<a>&\u2028\u2029", 'q"\\/', "tab\tnewline\nbell\x07\x7f\u00e4\U0001f600")
    block = {"numaAffinity": [11], "type": "memory"}
    return {
        "name": "odd",
        "policy_name": "Static",
        "gates": {},
        "tolerance_bytes": 4096,
        "system_reserved": {f"{number}": {"memory": 4096} for number in range(12)},
        "checkpoint": {
            "policyName": "Static",
            "machineState": {f"{number}": node(number, size) for number in range(12)},
            "entries": {
                name: {f"c{name}": [block | {"size": 8192 * (name == names[0])}]} for name in names
            },
        },
        "machine": {
            "nodes": [
                {"id": number, "memory_bytes": size - 4096, "hugepages": []}
                for number in range(12)
            ]
        },
        "expect": {
            "state_after": {f"{number}": node(number, size - 4096) for number in range(12)}
        },
    }


def decoded(case: Case) -> dict[str, Any]:
    """Return the content of a case's checkpoint."""
    content: dict[str, Any] = case["checkpoint"]
    if "text" in content:
        content = json.loads(content["text"])
    return json.loads(content["data"]) if "data" in content else content


def inputs(case: Case, folder: Path, *, tolerance: bool) -> list[str]:
    """Write what a case describes as files, and return the options that name them."""
    totals = {name: f"{value}" for name, value in node_reservation(case).items()}
    config = {
        "memoryManagerPolicy": case["policy_name"],
        "reservedMemory": [
            {"numaNode": node, "limits": {name: f"{value}" for name, value in limits.items()}}
            for node, limits in reservations(case)
        ],
        "systemReserved": totals,
        "evictionHard": {"nodefs.available": "5%"},
        "featureGates": gates(case) if tolerance else dict(case["gates"]) | {GATE: False},
    }
    if tolerance:
        config["memoryManagerPolicyOptions"] = policy_options(case)
    topology = [
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
    options = ["--kubelet-version", "1.38"]
    for option, text in (
        ("--kubelet-config", json.dumps(config)),
        ("--machine-info", json.dumps({"topology": topology})),
        ("--iomem", case.get("iomem") or ""),
    ):
        path = folder / option.strip("-")
        path.write_text(text, encoding="utf-8")
        options += [option, str(path)]
    return options


@pytest.mark.parametrize("format_", ["v1", "v2", "v3"])
@pytest.mark.parametrize("case", [*tolerated(), odd_case()], ids=lambda case: str(case["name"]))
def test_every_tolerated_vector_as_a_file(case: Case, format_: str, tmp_path: Path) -> None:
    """The file is, byte for byte, what the specification makes of state_after."""
    content = decoded(case)
    before, after = (
        go_file(content | {"machineState": state}, format_)
        for state in (content["machineState"], case["expect"]["state_after"])
    )
    path = tmp_path / "memory_manager_state"
    path.write_text(before, encoding="utf-8")
    command = ["rebaseline-checkpoint", str(path), "--write", "--force", "-o", "json"]

    first = memqos(*command, *inputs(case, tmp_path, tolerance=True))

    assert (first.code, first.json["written"]) == (0, True), first
    assert path.read_text(encoding="utf-8") == after
    assert Path(first.json["backup"]).read_text(encoding="utf-8") == before
    assert first.json["checkpoint"]["format"] == format_
    exact = inputs(case, tmp_path, tolerance=False)
    check = memqos("validate-checkpoint", str(path), "-o", "json", *exact).json
    assert (check["verdict"], check["reason"]) == ("exact", "equal")
    second = memqos(*command, *inputs(case, tmp_path, tolerance=True))
    assert (second.code, second.json["written"]) == (0, False)
    assert path.read_text(encoding="utf-8") == after


def test_dry_by_default(root: Path) -> None:
    """Without --write the diff is printed, and no byte changes."""
    before = (root / STATE).read_bytes()
    answer = memqos("rebaseline-checkpoint", "--root", root)
    assert answer.code == 0
    assert "$.machineState.0.memoryMap.memory.total         1055453184   1016893440" in answer.out
    assert (root / STATE).read_bytes() == before
    names = sorted(entry.name for entry in (root / STATE).parent.iterdir())
    assert names == ["config.yaml", "memory_manager_state"]


def test_write_then_exact(root: Path) -> None:
    """The written file passes as exact without any tolerance, and a second run changes nothing."""
    before = (root / STATE).read_bytes()
    first = memqos("rebaseline-checkpoint", "--root", root, "--write", "--force", "-o", "json")
    assert first.code == 0
    assert first.json["written"] is True
    assert Path(first.json["backup"]).read_bytes() == before
    assert {change["path"] for change in first.json["changes"]} == {
        f"$.machineState.{node}.memoryMap.memory.{name}"
        for node in (0, 1)
        for name in ("total", "allocatable", "free")
    }
    written = (root / STATE).read_bytes()
    check = memqos("validate-checkpoint", "--root", root, "--drift-tolerance", "off")
    assert (check.code, check.out.split(":")[0]) == (0, "EXACT")
    second = memqos("rebaseline-checkpoint", "--root", root, "--write", "--force", "-o", "json")
    assert (second.code, second.json["written"], second.json["changes"]) == (0, False, [])
    assert (root / STATE).read_bytes() == written


def test_backup_undoes_it(root: Path) -> None:
    """Putting the backup back gives the verdict of before."""
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write", "--force", "-o", "json")
    Path(answer.json["backup"]).replace(root / STATE)
    assert memqos("validate-checkpoint", "--root", root).out.startswith("TOLERATED")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--drift-tolerance", "off"], "the verdict is rejected (total_differs)"),
        (["--drift-tolerance", "36Mi"], "the verdict is rejected (drift_exceeds_bound)"),
        (["--memory-manager-policy", "None"], "the verdict is error"),
    ],
)
def test_refuses_without_tolerance(root: Path, options: list[str], says: str) -> None:
    """A verdict other than tolerated is refused with 1, and nothing is written."""
    before = (root / STATE).read_bytes()
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write", "--force", *options)
    assert answer.code == 1
    assert says in answer.out
    assert (root / STATE).read_bytes() == before


def test_refuses_beside_a_running_kubelet(root: Path) -> None:
    """A kubelet in the host's process list is named, --force goes on."""
    (root / "proc" / "4711").mkdir()
    (root / "proc" / "4711" / "comm").write_text("kubelet\n", encoding="utf-8")
    (root / "proc" / "4711" / "cmdline").write_text("kubelet\0", encoding="utf-8")
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write")
    assert answer.code == 1
    assert "proc/4711: a kubelet is running" in " ".join(answer.out.split())
    assert memqos("rebaseline-checkpoint", "--root", root, "--write", "--force").code == 0


def test_writes_when_processes_show_no_kubelet(root: Path) -> None:
    """With a process list that has no kubelet, --write needs no --force."""
    (root / "proc" / "1").mkdir()
    (root / "proc" / "1" / "comm").write_text("systemd\n", encoding="utf-8")
    (root / "proc" / "1" / "cmdline").write_text("/sbin/init\0", encoding="utf-8")
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write")
    assert (answer.code, answer.out.split()[0]) == (0, "re-baselined")


def test_refuses_when_it_cannot_tell(root: Path) -> None:
    """Without any process in sight memqos does not guess."""
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write", "-o", "json")
    assert (answer.code, answer.json["written"]) == (1, False)


def test_refuses_a_symbolic_link(root: Path) -> None:
    """The checkpoint itself must not be a link."""
    real = root / "real"
    (root / STATE).rename(real)
    (root / STATE).symlink_to("../../../real")
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write", "--force")
    assert answer.code == 1
    assert "symbolic link" in answer.out


def test_removes_what_a_killed_run_left(root: Path) -> None:
    """A temporary file of an earlier run is gone after the next, even when there is no work."""
    stray = root / "var/lib/kubelet/.memory_manager_state.memqos"
    stray.write_text("half", encoding="utf-8")
    memqos("rebaseline-checkpoint", "--root", root, "--write", "--force")
    assert not stray.exists()
    stray.write_text("half", encoding="utf-8")
    memqos("rebaseline-checkpoint", "--root", root, "--write", "--force")
    assert not stray.exists()


def test_no_work_needs_no_right_to_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact checkpoint is 0 on a read-only file system too, even with something left there."""
    command = ["rebaseline-checkpoint", "--root", str(root), "--write", "--force"]
    assert memqos(*command).code == 0

    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    answer = memqos(*command)
    assert (answer.code, answer.out.split(":")[0], answer.err) == (0, "nothing to do", "")
    (root / "var/lib/kubelet/.memory_manager_state.memqos").touch()
    answer = memqos(*command)
    assert (answer.code, answer.out.split(":")[0]) == (0, "nothing to do")
    assert "a temporary file of an earlier run stays" in answer.err
    assert "Read-only file system" in answer.err


def test_a_refused_run_tidies_up_too(root: Path) -> None:
    """What a killed run left goes with the next one, whatever that decides."""
    stray = root / "var/lib/kubelet/.memory_manager_state.memqos"
    stray.touch()
    options = ["--drift-tolerance", "off", "--write", "--force"]
    assert memqos("rebaseline-checkpoint", "--root", root, *options).code == 1
    assert not stray.exists()


def test_json_says_why_it_was_not_written(root: Path) -> None:
    """A refusal that has no field is a line on standard error."""
    answer = memqos("rebaseline-checkpoint", "--root", root, "--write", "-o", "json")
    assert (answer.code, answer.json["written"], answer.json["verdict"]) == (1, False, "tolerated")
    assert answer.err.startswith("memqos: refused: ")
    assert "cannot tell whether a kubelet is running" in answer.err


def test_the_message_names_the_directory_of_backups(root: Path) -> None:
    """One line, on what is missing and not on the checkpoint."""
    options = ["--write", "--force", "--backup-dir", str(root / "nowhere")]
    answer = memqos("rebaseline-checkpoint", "--root", root, *options)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"memqos: {root}/nowhere: No such file or directory\n"


def test_usage(root: Path) -> None:
    """Standard input cannot be replaced, and two backup options exclude each other."""
    for options in (["-", "--write"], ["--no-backup", "--backup-dir", "x"]):
        answer = memqos("rebaseline-checkpoint", "--root", root, *options)
        assert answer.code == 2
        assert answer.err.count("\n") == 1


def test_v3_file_on_an_older_kubelet(root: Path) -> None:
    """1.36 reads the copy of a v3 file; the re-baselined file is v3 again, for both releases."""
    config = (root / "var/lib/kubelet/config.yaml").read_text(encoding="utf-8")
    config = config.replace("featureGates:\n  MemoryManagerDriftTolerance: true\n", "")
    (root / "var/lib/kubelet/config.yaml").write_text(config, encoding="utf-8")
    options = ["--root", str(root), "--kubelet-version", "1.36", "--drift-tolerance", "auto"]
    answer = memqos("rebaseline-checkpoint", *options, "--write", "--force")
    assert answer.code == 0, answer
    data = (root / STATE).read_bytes()
    for minor, format_ in ((38, Format.V3), (36, Format.V1), (35, Format.V1)):
        loaded = load(data, kubelet_minor=minor)
        assert isinstance(loaded, LoadedCheckpoint)
        assert loaded.format is format_
    check = memqos("validate-checkpoint", "--root", root, "--kubelet-version", "1.36")
    assert check.out.startswith("EXACT")


def test_v3_file_whose_copy_contradicts(root: Path) -> None:
    """Where an older kubelet reads something else than the data, nothing is written."""
    document = json.loads((root / STATE).read_bytes())
    loaded = load((root / STATE).read_bytes(), kubelet_minor=38)
    assert isinstance(loaded, LoadedCheckpoint)
    other = json.loads(encode_v1(evolve(loaded.content, entries={})))
    for node in other["machineState"].values():
        node["numberOfAssignments"] = 0
    v1 = load(json.dumps({**other, "checksum": 0}).encode(), kubelet_minor=36)
    assert isinstance(v1, LoadedCheckpoint)
    copy = json.loads(encode_v1(v1.content))
    copy.pop("entries", None)
    document.pop("entries", None)
    (root / STATE).write_text(json.dumps({**document, **copy}), encoding="utf-8")
    options = ["--kubelet-version", "1.36", "--drift-tolerance", "auto"]
    (root / "var/lib/kubelet/config.yaml").unlink()
    answer = memqos("rebaseline-checkpoint", "--root", root, *options, "--write", "--force")
    assert answer.code == 1
    assert "contradicts" in answer.out or "the verdict is" in answer.out
