"""memqos plan-cgroups for CI systems: JUnit, SARIF, GitHub annotations."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from memqos.memory_qos.config import ConfigErrorCode
from memqos.memory_qos.hazards import TITLES, HazardCode
from tests.support.program import Answer, memqos


GUARANTEED = """\
apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  containers:
  - name: c
    resources: {limits: {cpu: 1, memory: 1Gi}}
"""
DEPLOYMENT = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers:
      - name: c
        resources: {requests: {memory: 1Gi}, limits: {memory: 1028Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: quiet}
spec:
  containers:
  - name: c
    resources: {requests: {memory: 1Mi}, limits: {memory: 1Gi}}
"""
CONFIG = "memoryThrottlingFactor: 0.9\nmemoryReservationPolicy: TieredReservation\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working directory of a CI job."""
    (tmp_path / "my pods").mkdir()
    (tmp_path / "my pods" / "100%.yaml").write_text(GUARANTEED + DEPLOYMENT)
    (tmp_path / "kubelet.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(output: str, *options: str, manifests: str = "./my pods/100%.yaml") -> Answer:
    """Run the command as a job does; 1900Mi are less than the 2Gi and more that are requested."""
    return memqos(
        *("plan-cgroups", "-f", manifests, "--kubelet-config", "kubelet.yaml", "-o", output),
        *("--capacity", "memory=1900Mi", *options),
        stdin=(GUARANTEED + DEPLOYMENT).encode(),
    )


@pytest.mark.usefixtures("folder")
def test_junit() -> None:
    """A test case for the node and for each pod; what is worse than info fails it."""
    root = ET.fromstring(run("junit").out)  # noqa: S314 - our own output

    (suite,) = root
    cases = {case.get("name"): case for case in suite}
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert list(cases) == [
        *("node", "Pod/default/guaranteed", "Deployment/shop/web", "Pod/default/quiet")
    ]
    failed = {name: case.find("failure") for name, case in cases.items()}
    types = {name: None if item is None else item.get("type") for name, item in failed.items()}
    assert types == {
        "node": "protection-exceeds-allocatable",
        "Pod/default/guaranteed": "min-equals-max",
        "Deployment/shop/web": None,
        "Pod/default/quiet": None,
    }
    assert int(suite.get("tests", 0)) == len(cases) == 4
    assert int(suite.get("failures", 0)) == 2
    assert (suite.get("errors"), suite.get("skipped")) == ("0", "0")
    assert "info request-near-limit" in (cases["Deployment/shop/web"].findtext("system-out") or "")


@pytest.mark.usefixtures("folder")
def test_sarif() -> None:
    """The log has the structure of SARIF 2.1.0 and what GitHub code scanning asks for."""
    log = json.loads(run("sarif").out)

    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("/sarif-schema-2.1.0.json")
    (result_run,) = log["runs"]
    assert set(result_run) == {"tool", "results"}
    driver = result_run["tool"]["driver"]
    assert driver["name"] == "memqos"
    rules = [rule["id"] for rule in driver["rules"]]
    assert rules == sorted(set(rules))
    for rule in driver["rules"]:
        assert set(rule) == {"id", "shortDescription", "fullDescription", "help"}
    results = result_run["results"]
    assert {result["ruleId"] for result in results} == set(rules)
    for result in results:
        assert set(result) == {"ruleId", "level", "message", "partialFingerprints", "locations"}
        assert set(result["message"]) == {"text"}
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
    prints = [result["partialFingerprints"]["memqos/v1"] for result in results]
    assert len(set(prints)) == len(prints)
    found = {
        result["ruleId"]: (
            result["level"],
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            result["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for result in results
    }
    assert found == {
        "protection-exceeds-allocatable": ("error", "kubelet.yaml", 1),
        "protection-node-wide": ("note", "kubelet.yaml", 1),
        "min-equals-max": ("warning", "my%20pods/100%25.yaml", 1),
        "request-near-limit": ("note", "my%20pods/100%25.yaml", 9),
    }


@pytest.mark.usefixtures("folder")
def test_sarif_of_standard_input() -> None:
    """What comes through a pipe has a location, too, and the line in the stream."""
    log = json.loads(run("sarif", manifests="-").out)

    places = {
        result["ruleId"]: result["locations"][0]["physicalLocation"]
        for result in log["runs"][0]["results"]
    }
    assert places["request-near-limit"] == {
        "artifactLocation": {"uri": "stdin"},
        "region": {"startLine": 9},
    }


def test_sarif_of_an_absolute_path(folder: Path) -> None:
    """An absolute path is a file URI."""
    log = json.loads(run("sarif", manifests=str(folder / "my pods")).out)

    uris = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in log["runs"][0]["results"]
    }
    assert (folder / "my pods" / "100%.yaml").as_uri() in uris


@pytest.mark.usefixtures("folder")
def test_github() -> None:
    """A line an annotation; properties are escaped, as the runner unescapes them."""
    answer = run("github")

    lines = answer.out.splitlines()
    assert len(lines) == 4
    pattern = r"::(notice|warning|error) ((?:[a-z]+=[^,:]*,?)+)::(.+)"
    found = {}
    for line in lines:
        match = re.fullmatch(pattern, line)
        assert match, line
        properties = dict(item.split("=", 1) for item in match[2].split(","))
        found[properties["title"]] = (match[1], properties["file"], properties["line"])
    assert found == {
        "memqos protection-exceeds-allocatable": ("error", "kubelet.yaml", "1"),
        "memqos protection-node-wide": ("notice", "kubelet.yaml", "1"),
        "memqos min-equals-max": ("warning", "./my pods/100%25.yaml", "1"),
        "memqos request-near-limit": ("notice", "./my pods/100%25.yaml", "9"),
    }
    assert "is 100% of" not in answer.out
    assert "100%25 of the limit" in answer.out


NASTY = 'a\x1b[31m\n::error::x,y:"<&>]]>\u2028%0A'


@pytest.mark.parametrize("output", ["text", "tree", "table", "junit", "sarif", "github", "json"])
def test_nasty_names(output: str, tmp_path: Path) -> None:
    """Names with control characters and markup neither break a format nor steer a terminal."""
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    manifest: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": NASTY},
        "spec": {"containers": [{"name": NASTY, "resources": resources}]},
    }
    (tmp_path / "k.yaml").write_text(CONFIG)

    answer = memqos(
        *("plan-cgroups", "-f", "-", "--kubelet-config", tmp_path / "k.yaml", "-o", output),
        stdin=json.dumps(manifest).encode(),
    )

    assert answer.code == 0
    assert "\x1b" not in answer.out
    if output == "junit":
        names = [case.get("name") for case in ET.fromstring(answer.out).iter("testcase")]  # noqa: S314
        assert len(names) == 2
    elif output == "github":
        assert len(answer.out.splitlines()) == 3
        assert all(line.count("::error::") <= 1 for line in answer.out.splitlines())
        assert not any(line.startswith("::error") for line in answer.out.splitlines())
    elif output == "json":
        assert answer.json["cgroups"][3]["pod"] == f"Pod/default/{NASTY}"
    elif output == "sarif":
        texts = [
            result["message"]["text"] for result in json.loads(answer.out)["runs"][0]["results"]
        ]
        assert any(NASTY in text for text in texts)
    else:
        assert "\\n::error::" in answer.out


def test_lone_surrogates() -> None:
    """JSON can hold half a character; every format still writes something."""
    text = b'{"kind":"Pod","metadata":{"name":"\\ud800"},"spec":{"containers":[{"name":"c"}]}}'

    for output in ("text", "json", "yaml", "junit", "sarif", "github"):
        assert memqos("plan-cgroups", "-f", "-", "-o", output, stdin=text).code == 0


def test_refusals_are_results(folder: Path) -> None:
    """What kubelet refuses is an error in each format, and the exit status is 1."""
    (folder / "kubelet.yaml").write_text("memoryThrottlingFactor: 7\n")

    assert run("github").out.startswith(
        "::error file=kubelet.yaml,line=1,title=memqos factor-range"
    )
    assert json.loads(run("sarif").out)["runs"][0]["results"][0]["ruleId"] == "factor-range"
    assert {run(output).code for output in ("github", "sarif", "junit")} == {1}


def test_every_code_has_a_title() -> None:
    """Rules are described, whatever is found."""
    assert set(TITLES) == {*HazardCode, *ConfigErrorCode}
