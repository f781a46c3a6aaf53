"""Findings as text: by cgroup, the worst first, one remedy each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from memqos.memory_qos.findings import Finding, FindingCode, Severity
from memqos_cli.output.protection_names import short_path, short_text
from memqos_cli.output.terminal import colour, printable, wrap


__all__ = ["grouped"]

_MOST_ALIKE = 5
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "green"}
_RANK = {severity: rank for rank, severity in enumerate(reversed(Severity))}


def grouped(findings: Iterable[Finding], labels: Mapping[str, str]) -> str:
    """Write findings by cgroup; of many cgroups with the same ones a few are told.

    Args:
        findings: in the order of the tree.
        labels: what pods and containers are called, by path.
    """
    groups: dict[str | None, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.path, []).append(finding)
    for inner in groups.values():
        inner.sort(key=lambda finding: _RANK[finding.severity])
    # Stable: cgroups of the same severity stay in the order of the tree.
    order = sorted(groups, key=lambda path: _RANK[groups[path][0].severity])
    alike: Counter[tuple[tuple[FindingCode, str | None], ...]] = Counter()
    parts = []
    for path in order:
        inner = groups[path]
        kind = tuple((finding.code, finding.file) for finding in inner)
        alike[kind] += 1
        if alike[kind] <= _MOST_ALIKE:
            parts.append(_group(path, inner, labels))
    parts += [
        f"... and {count - _MOST_ALIKE} more with "
        + ", ".join(dict.fromkeys(str(code) for code, _ in kind))
        + " (-o json has them all)\n"
        for kind, count in alike.items()
        if count > _MOST_ALIKE
    ]
    return "".join(f"{part}\n" for part in parts)


def _group(path: str | None, inner: list[Finding], labels: Mapping[str, str]) -> str:
    lines = ["the node\n" if path is None else f"{_place(path, labels)}\n"]
    for finding in inner:
        head = f"{finding.severity} {finding.code}"
        body = wrap(f"{head}: {short_text(finding.message)}", indent=4).removeprefix(head)
        lines.append(f"  {colour(head, _COLOURS[finding.severity])}{body}\n")
    # One remedy a cgroup, that of the worst finding.
    remedy = next((finding.remedy for finding in inner if finding.remedy is not None), None)
    if remedy is not None:
        lines.append(f"  -> {wrap(short_text(remedy), indent=5)}\n")
    return "".join(lines)


def _place(path: str, labels: Mapping[str, str]) -> str:
    label = labels.get(path)
    return short_path(path) if not label else f"{printable(label)} ({short_path(path)})"
