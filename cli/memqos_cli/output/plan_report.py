"""A cgroup plan as text, tree, table and plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import field, frozen

from memqos.manifests import Workload
from memqos.memory_qos.compare import PlanChange, When
from memqos.memory_qos.config import MemoryQOSConfig
from memqos.memory_qos.hazards import Hazard, Severity
from memqos.memory_qos.plan import BESTEFFORT, BURSTABLE, KUBEPODS, CgroupPlan, PlannedCgroup
from memqos.pods import QOSClass
from memqos_cli.output.terminal import printable, table, wrap


__all__ = ["PlanReport", "fields", "render"]

_FILES = (
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
)


@frozen(kw_only=True)
class PlanReport:
    """What there is to show.

    Attributes:
        config: the configuration that the plan is for.
        config_source: its file, None for none and for standard input.
        plan: the plan.
        hazards: what goes wrong.
        workloads: where the pods come from.
        changes: what differs from what runs now, None where nothing was compared.
    """

    config: MemoryQOSConfig
    config_source: str | None
    plan: CgroupPlan
    hazards: tuple[Hazard, ...]
    workloads: list[Workload] = field(repr=False)
    changes: tuple[PlanChange, ...] | None = None


def fields(report: PlanReport) -> dict[str, Any]:
    """Lay out a plan as the contract has it."""
    plan, config = report.plan, report.config
    found: dict[str, Any] = {
        "kubeletVersion": f"1.{config.minor}",
        "memoryQoS": config.enabled,
        "memoryThrottlingFactor": config.factor,
        "memoryReservationPolicy": config.policy,
        "nodeAllocatableBytes": plan.allocatable.absolute,
        "metrics": {
            "kubelet_memory_qos_node_memory_min_bytes": plan.min_metric_bytes,
            "kubelet_memory_qos_node_memory_low_bytes": plan.low_metric_bytes,
        },
        "cgroups": [
            {
                "role": cgroup.role,
                "path": cgroup.path,
                "pod": cgroup.pod,
                "container": cgroup.container,
                "qosClass": cgroup.qos,
                "files": cgroup.files,
            }
            for cgroup in plan.cgroups
        ],
        "warnings": [
            {
                "code": hazard.code,
                "severity": hazard.severity,
                "message": hazard.message,
                "pod": hazard.pod,
                "container": hazard.container,
            }
            for hazard in report.hazards
        ],
    }
    if report.changes is not None:
        found["changes"] = [
            {
                "role": change.role,
                "path": change.path,
                "file": change.file,
                "before": change.before,
                "after": change.after,
                "when": change.when,
            }
            for change in report.changes
        ]
    return found


def render(report: PlanReport, output: str) -> str:
    """Render a plan as ``text``, ``tree`` or ``table``."""
    body = _tree(report.plan) if output == "tree" else _table(report.plan.cgroups)
    if output == "table":
        return body
    parts = [body, _changes(report.changes), _hazards(report.hazards), _summary(report)]
    return "\n".join(part for part in parts if part)


def _label(cgroup: PlannedCgroup) -> str:
    if cgroup.container is not None:
        return f"{cgroup.pod}/{cgroup.container}"
    return cgroup.pod or cgroup.role


def _table(cgroups: Iterable[PlannedCgroup]) -> str:
    rows = [
        (
            _label(cgroup),
            cgroup.qos or "-",
            *(cgroup.files.get(name, "-") for name in _FILES),
        )
        for cgroup in cgroups
    ]
    names = [name.removeprefix("memory.").upper() for name in _FILES]
    return table(("CGROUP", "QOS CLASS", *names), rows)


def _tree(plan: CgroupPlan) -> str:
    """Show the hierarchy: Guaranteed pods are directly in kubepods."""
    pods: dict[str | None, list[PlannedCgroup]] = {}
    for cgroup in plan.cgroups:
        if cgroup.pod is not None:
            pods.setdefault(cgroup.qos, []).append(cgroup)
    lines = []
    for cgroup in plan.cgroups:
        if cgroup.pod is not None:
            continue
        inner = pods.get(_CLASS_OF_ROLE.get(cgroup.role), [])
        lines.append(_branch(cgroup, 1 if cgroup.role in (BURSTABLE, BESTEFFORT) else 0))
        depth = 2 if cgroup.role in (BURSTABLE, BESTEFFORT) else 1
        lines += [_branch(pod, depth + (pod.container is not None)) for pod in inner]
    return "".join(f"{line}\n" for line in lines)


_CLASS_OF_ROLE = {
    KUBEPODS: QOSClass.GUARANTEED,
    BURSTABLE: QOSClass.BURSTABLE,
    BESTEFFORT: QOSClass.BEST_EFFORT,
}


def _branch(cgroup: PlannedCgroup, depth: int) -> str:
    name = cgroup.container or cgroup.pod or cgroup.path.rpartition("/")[2]
    values = " ".join(
        f"{key.removeprefix('memory.')}={value}" for key, value in cgroup.files.items()
    )
    return f"{'  ' * depth}{printable(name)}  {values}".rstrip()


def _changes(changes: tuple[PlanChange, ...] | None) -> str:
    if changes is None:
        return ""
    if not changes:
        return "nothing changes\n"
    titles = {
        When.KUBELET_START: "changes when kubelet starts",
        When.RESIZE: "stale until the container restarts or, unless on an old CRI-O, is resized",
        When.CONTAINER_RESTART: "stale until the container restarts",
        When.POD_RECREATE: "stale until the pod is created anew",
        When.NEVER: "stays for good; nobody resets it",
    }
    parts = []
    for when, title in titles.items():
        rows = [
            (
                change.role,
                change.file,
                change.before or "-",
                change.after or "-",
            )
            for change in changes
            if change.when is when
        ]
        if rows:
            parts.append(f"{title}:\n" + table(("CGROUP", "FILE", "NOW", "THEN"), rows))
    return "\n".join(parts)


def _hazards(hazards: tuple[Hazard, ...]) -> str:
    lines = []
    for hazard in sorted(hazards, key=lambda hazard: -list(Severity).index(hazard.severity)):
        place = hazard.pod or "node"
        if hazard.container is not None:
            place += f"/{hazard.container}"
        lines.append(wrap(f"{hazard.severity} {hazard.code} {place}: {hazard.message}"))
    return "".join(f"{line}\n" for line in lines)


def _summary(report: PlanReport) -> str:
    plan = report.plan
    pods = sum(1 for cgroup in plan.cgroups if cgroup.role.startswith("pod:"))
    containers = sum(1 for cgroup in plan.cgroups if cgroup.container is not None)
    values = sum(len(cgroup.files) for cgroup in plan.cgroups)
    counts = ", ".join(
        f"{sum(1 for hazard in report.hazards if hazard.severity is severity)} {severity}"
        for severity in reversed(Severity)
    )
    return f"{pods} pods, {containers} containers: {values} values planned; {counts}\n"
