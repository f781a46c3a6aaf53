"""An audit: JSON, YAML, Prometheus, and text grouped by cgroup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from memqos.memory_qos.findings import Finding, FindingCode, Severity
from memqos.memory_qos.protection import Protected, parent_of
from memqos_cli.output import document
from memqos_cli.output.finding_text import grouped
from memqos_cli.output.prometheus import Metric
from memqos_cli.output.prometheus import render as render_metrics
from memqos_cli.output.protection_names import short_name, short_size
from memqos_cli.output.protection_tree import protection_fields
from memqos_cli.output.terminal import table, wrap


__all__ = ["AuditReport", "render"]


@frozen(kw_only=True)
class AuditReport:
    """What is rendered.

    Attributes:
        kubelet_minor: NN of kubelet 1.NN.
        cgroup_version: 1 or 2, None if unknown.
        recursive: memory_recursiveprot, None if unknown.
        findings: all of them.
        protected: effective protection by path.
        labels: what pods and containers are called, by path.
        count: how many cgroups were judged.
        rollback: whether only what is left over was asked for.
    """

    kubelet_minor: int
    cgroup_version: int | None
    recursive: bool | None
    findings: tuple[Finding, ...]
    protected: Mapping[str, Protected]
    labels: Mapping[str, str]
    count: int
    rollback: bool


def render(report: AuditReport, output: str) -> str:
    """Render as ``text``, ``json``, ``yaml`` or ``prometheus``."""
    if output == "text":
        return _rollback(report) if report.rollback else _text(report)
    if output == "prometheus":
        return _prometheus(report)
    fields: dict[str, Any] = {
        "kubeletVersion": f"1.{report.kubelet_minor}",
        "cgroupVersion": report.cgroup_version,
        "memoryRecursiveprot": report.recursive,
        "findings": [_fields(finding) for finding in report.findings],
        "effective": [
            {key: value for key, value in protection_fields(item).items() if key != "limitedBy"}
            for _, item in sorted(report.protected.items())
        ],
    }
    return document.render("CgroupAudit", fields, output)


def _fields(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "path": finding.path,
        "file": finding.file,
        "expected": finding.expected,
        "actual": finding.actual,
        "ancestor": finding.ancestor,
        "message": finding.message,
        "remedy": finding.remedy,
    }


# --- text --------------------------------------------------------------------------------------


def _text(report: AuditReport) -> str:
    counts = Counter(finding.severity for finding in report.findings)
    summary = ", ".join(f"{counts[severity]} {severity}" for severity in reversed(Severity))
    return grouped(report.findings, report.labels) + f"{report.count} cgroups: {summary}\n"


def _rollback(report: AuditReport) -> str:
    """Answer what is still in force, in which cgroup, and what clears it."""
    lines = [
        wrap(f"{finding.severity} {finding.code}: {finding.message}") + "\n"
        for finding in report.findings
        if finding.path is None
    ]
    full = sum(item.code is FindingCode.MIN_EQUALS_MAX for item in report.findings)
    left = [item for item in report.findings if item.code.startswith("stale-")]
    if not left:
        return "".join(lines) + f"nothing is left of Memory QoS in {report.count} cgroups\n"
    left.sort(key=lambda finding: finding.code is FindingCode.STALE_PROTECTION_NEUTRAL)
    rows = []
    for finding in left:
        path = finding.path or ""
        rows.append(
            (
                report.labels.get(path) or _last(path),
                finding.file or "",
                short_size(int(finding.actual or 0)) if (finding.actual or "").isdigit() else "",
                _in_force(finding, report.protected.get(path)),
                finding.remedy or "",
            )
        )
    acts = sum(finding.code is not FindingCode.STALE_PROTECTION_NEUTRAL for finding in left)
    header = ("CGROUP", "FILE", "VALUE", "IN FORCE", "CLEARED BY")
    lines.append(table(header, rows))
    if full:
        lines.append(
            f"\n{full} cgroups still have memory.min up to memory.max: page cache that fills them "
            "ends\nin an OOM kill, whatever their ancestors have\n"
        )
    lines.append(
        f"\n{len(left)} values are left of Memory QoS in {report.count} cgroups, {acts} in force\n"
    )
    return "".join(lines)


def _last(path: str) -> str:
    """Keep the last two names of a path, which tell pod and container."""
    parent = parent_of(path)
    names = [short_name(path)] if parent in ("", "/") else [short_name(parent), short_name(path)]
    return "/".join(
        name.removesuffix(".slice").removesuffix(".scope").removeprefix("cri-containerd-")
        for name in names
    )


def _in_force(finding: Finding, protected: Protected | None) -> str:
    if finding.code is FindingCode.STALE_PROTECTION_NEUTRAL:
        in_container = finding.path is not None and "its own limit" in finding.message
        return "at the pod's limit" if in_container and finding.file == "memory.min" else "no"
    if finding.code is FindingCode.STALE_HIGH or protected is None:
        return "throttles"
    is_min = finding.file == "memory.min"
    return f"keeps {short_size(protected.effective_min if is_min else protected.effective_low)}"


def _prometheus(report: AuditReport) -> str:
    counts = Counter((str(item.code), str(item.severity)) for item in report.findings)
    return render_metrics(
        [
            Metric(
                "memqos_cgroup_findings",
                "Findings of the last audit of the cgroup tree.",
                tuple(
                    ({"code": code, "severity": severity}, count)
                    for (code, severity), count in sorted(counts.items())
                ),
            ),
            Metric(
                "memqos_audited_cgroups",
                "Cgroups that the last audit judged.",
                (({}, report.count),),
            ),
        ]
    )
