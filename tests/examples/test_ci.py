"""The files in examples/ci, and the hook for pre-commit."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.examples import EXAMPLES, check_command, documents
from tests.support.program import memqos


CI = EXAMPLES / "ci"
HOOKS = EXAMPLES.parent / ".pre-commit-hooks.yaml"


def section(text: str, number: int) -> str:
    """Return what one command of the demo printed."""
    return re.split(r"^\$ .*\n", text, flags=re.MULTILINE)[number]


@pytest.fixture(scope="module")
def demo() -> str:
    """Run the demo."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [CI / "demo.sh"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_demo_plans(demo: str) -> None:
    """The first command shows the plan that the specification's formulas give."""
    # 64Gi less 2Gi are allocatable; 256Mi + 0.9 * 256Mi and 0.9 * 62Gi in whole pages.
    assert section(demo, 1).splitlines()[:10] == [
        "kubepods.slice  max=66571993088 min=0 low=0",
        "  StatefulSet/shop/db  max=4294967296",
        "    postgres  max=4294967296 oom.group=1 min=0 low=0",
        "  kubepods-burstable.slice  low=0",
        "    Deployment/shop/web  max=536870912",
        "      web  max=536870912 oom.group=1 min=0 low=0 high=510025728",
        "  kubepods-besteffort.slice",
        "    CronJob/shop/report",
        "      report  oom.group=1 min=0 low=0 high=59914792960",
        "",
    ]


def test_demo_compares(demo: str) -> None:
    """The second tells what changes when, and fails for the database."""
    text = section(demo, 2)

    rows = [line.split() for line in text.splitlines()]
    # 4Gi + 256Mi, and 256Mi of it as memory.low
    start = rows.index(["changes", "when", "kubelet", "starts:"])
    assert rows[start + 2 : start + 5] == [
        ["kubepods", "memory.min", "0", "4563402752"],
        ["kubepods", "memory.low", "0", "268435456"],
        ["qos:burstable", "memory.low", "0", "268435456"],
    ]
    assert ["pod:StatefulSet/shop/db", "memory.min", "0", "4294967296"] in rows
    warned = {tuple(row[1:3]) for row in rows if row and row[0] == "warning"}
    assert warned == {
        ("min-equals-max", "StatefulSet/shop/db:"),
        ("protection-delayed", "node:"),
    }
    assert "exit status 1" in text


def test_workflow() -> None:
    """The job is a workflow whose command memqos takes, and whose result is uploaded."""
    (workflow,) = documents(CI / "github-workflow.yaml")
    (job,) = workflow["jobs"].values()

    assert workflow["permissions"]["security-events"] == "write"
    steps: list[dict[str, Any]] = job["steps"]
    (step,) = (step for step in steps if "memqos plan-cgroups" in step.get("run", ""))
    assert step["shell"] == "bash"
    build, plan = step["run"].split(" | ")
    words = shlex.split(plan)
    assert build == "kustomize build deploy"
    assert words[-2] == ">"
    check_command(words[1:-2])
    upload = steps[-1]
    assert upload["uses"].startswith("github/codeql-action/upload-sarif@")
    assert upload["with"]["sarif_file"] == words[-1]
    assert upload["if"].startswith("always()")


def test_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's command runs as it stands, in a folder of manifests."""
    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    entry = shlex.split(hook["entry"])

    assert (hook["id"], hook["language"], entry[0]) == ("memqos-plan-cgroups", "python", "memqos")
    assert hook["pass_filenames"] is False
    assert re.search(hook["files"], "deploy/web.yml")
    monkeypatch.chdir(CI)
    answer = memqos(*entry[1:], *hook["args"])
    assert answer.code == 0
    assert "StatefulSet/shop/db" in answer.out
