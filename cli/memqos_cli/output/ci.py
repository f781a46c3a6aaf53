"""A plan's hazards for CI systems: JUnit, SARIF 2.1.0, GitHub annotations."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from xml.etree import ElementTree as ET

from memqos import __version__
from memqos.memory_qos.hazards import TITLES, Hazard, Severity
from memqos_cli.output.plan_report import PlanReport
from memqos_cli.output.terminal import printable


__all__ = ["render"]

_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_SARIF_LEVELS = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
_GITHUB = {Severity.INFO: "notice", Severity.WARNING: "warning", Severity.ERROR: "error"}


def render(report: PlanReport, output: str) -> str:
    """Render the hazards as ``junit``, ``sarif`` or ``github``."""
    return {"junit": _junit, "sarif": _sarif, "github": _github}[output](report)


def _places(report: PlanReport) -> dict[str, tuple[str, int]]:
    """Map each pod to the file and line it comes from."""
    return {workload.pod.path: (workload.source, workload.line) for workload in report.workloads}


def _place(
    hazard: Hazard, places: dict[str, tuple[str, int]], report: PlanReport
) -> tuple[str, int] | None:
    """Return file and line of a hazard; the node's are in the configuration, if it is a file."""
    if hazard.pod is None:
        return None if report.config_source is None else (report.config_source, 1)
    return places[hazard.pod]


def _junit(report: PlanReport) -> str:
    """One test case for the node and one for each pod; errors and warnings fail it."""
    cases: dict[str, list[Hazard]] = {"node": []}
    for cgroup in report.plan.cgroups:
        if cgroup.pod is not None:
            cases.setdefault(cgroup.pod, [])
    for hazard in report.hazards:
        cases.setdefault(hazard.pod or "node", []).append(hazard)
    bad = {
        name: [hazard for hazard in found if hazard.severity is not Severity.INFO]
        for name, found in cases.items()
    }
    suite = ET.Element(
        "testsuite",
        name="memqos plan-cgroups",
        tests=str(len(cases)),
        failures=str(sum(1 for found in bad.values() if found)),
        errors="0",
        skipped="0",
    )
    for name, found in cases.items():
        case = ET.SubElement(suite, "testcase", classname="plan-cgroups", name=printable(name))
        if bad[name]:
            failure = ET.SubElement(
                case, "failure", type=bad[name][0].code, message=printable(bad[name][0].message)
            )
            failure.text = _lines(bad[name])
        elif found:
            ET.SubElement(case, "system-out").text = _lines(found)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _lines(hazards: list[Hazard]) -> str:
    return "\n".join(
        printable(f"{hazard.severity} {hazard.code}: {hazard.message}") for hazard in hazards
    )


def _sarif(report: PlanReport) -> str:
    places = _places(report)
    results = []
    for hazard in report.hazards:
        subject = "/".join(part for part in (hazard.pod, hazard.container) if part)
        result: dict[str, Any] = {
            "ruleId": hazard.code,
            "level": _SARIF_LEVELS[hazard.severity],
            "message": {"text": f"{subject or 'node'}: {hazard.message}"},
            "partialFingerprints": {
                "memqos/v1": sha256(
                    f"{hazard.code}\0{subject}".encode("utf-8", "replace")
                ).hexdigest()[:32]
            },
        }
        # Code scanning refuses results without a location.
        uri, line = _place(hazard, places, report) or ("-", 1)
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(uri)},
                    "region": {"startLine": line},
                }
            }
        ]
        results.append(result)
    rules = [
        {
            "id": code,
            "shortDescription": {"text": TITLES[code]},
            "fullDescription": {"text": TITLES[code]},
            "help": {"text": "https://kep.k8s.io/2570"},
        }
        for code in sorted({hazard.code for hazard in report.hazards})
    ]
    driver = {"name": "memqos", "version": __version__, "rules": rules}
    log = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def _uri(path: str) -> str:
    from urllib.parse import quote

    if path == "-":
        return "stdin"
    return ("file://" if path.startswith("/") else "") + quote(
        path.removeprefix("./"), errors="replace"
    )


def _github(report: PlanReport) -> str:
    places = _places(report)
    lines = []
    for hazard in report.hazards:
        place = _place(hazard, places, report)
        properties = [("title", f"memqos {hazard.code}")]
        if place is not None and place[0] != "-":
            properties = [("file", place[0]), ("line", str(place[1])), *properties]
        subject = "/".join(part for part in (hazard.pod, hazard.container) if part) or "node"
        text = ",".join(f"{name}={_property(value)}" for name, value in properties)
        message = _data(printable(f"{subject}: {hazard.message}"))
        lines.append(f"::{_GITHUB[hazard.severity]} {text}::{message}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
