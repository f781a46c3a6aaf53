"""What happened between two readings: JSON, YAML, Prometheus, and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memqos.cgroup import Pressure
from memqos.memory_qos.events import EventDelta, State, tree_findings
from memqos.memory_qos.findings import Finding
from memqos_cli.output import document
from memqos_cli.output.finding_text import grouped
from memqos_cli.output.prometheus import Metric
from memqos_cli.output.prometheus import render as render_metrics
from memqos_cli.output.protection_names import short_path
from memqos_cli.output.terminal import table


__all__ = ["render"]

_KEYS = ("low", "high", "max", "oom", "oom_kill")


def render(
    deltas: Mapping[str, EventDelta],
    interval: float | None,
    output: str,
    *,
    labels: Mapping[str, str],
    stream: bool,
) -> str:
    """Render one report.

    Args:
        deltas: by path.
        interval: seconds, None if not known.
        output: ``text``, ``json``, ``yaml`` or ``prometheus``.
        labels: what pods and containers are called, by path.
        stream: whether more reports follow: JSON is one line then, YAML one document of many.
    """
    if output == "prometheus":
        return _prometheus(deltas)
    found = list(tree_findings(deltas))
    if output == "text":
        return _text(deltas, found, labels)
    by_path: dict[str, list[Finding]] = {}
    for finding in found:
        by_path.setdefault(finding.path or "", []).append(finding)
    fields = {
        "intervalSeconds": interval,
        "cgroups": [_fields(path, delta, by_path.get(path, [])) for path, delta in deltas.items()],
    }
    text = document.render("EventDeltas", fields, output)
    if stream and output == "json":
        return " ".join(line.strip() for line in text.split("\n")).strip() + "\n"
    return f"---\n{text}" if stream else text


def _fields(path: str, delta: EventDelta, found: list[Finding]) -> dict[str, Any]:
    return {
        "path": path,
        "state": delta.state,
        "events": delta.events,
        "local": delta.local,
        "stallSomeMicroseconds": delta.stall_some_us,
        "stallFullMicroseconds": delta.stall_full_us,
        "pressure": _pressure(delta.pressure),
        "usage": delta.usage,
        "usageChange": delta.usage_change,
        "findings": [
            {
                "code": item.code,
                "severity": item.severity,
                "message": item.message,
                "remedy": item.remedy,
            }
            for item in found
        ],
    }


def _pressure(pressure: Pressure | None) -> dict[str, Any] | None:
    if pressure is None:
        return None
    return {
        kind: None
        if line is None
        else {"avg10": line.avg10, "avg60": line.avg60, "avg300": line.avg300}
        for kind, line in (("some", pressure.some), ("full", pressure.full))
    }


def _text(
    deltas: Mapping[str, EventDelta], found: list[Finding], labels: Mapping[str, str]
) -> str:
    rows = []
    for path, delta in deltas.items():
        counts = delta.local if delta.local is not None else delta.events
        full = delta.pressure.full if delta.pressure else None
        grown = counts is not None and any(counts.values())
        if not (grown or delta.stall_full_us or delta.state is not State.SAME):
            continue
        stall = "-" if delta.stall_full_us is None else f"{delta.stall_full_us / 1e6:.2f}s"
        rows.append(
            (
                labels.get(path) or _tail(short_path(path)),
                "" if delta.state is State.SAME else str(delta.state),
                *("-" if counts is None else str(counts.get(key, "-")) for key in _KEYS),
                stall,
                "-" if full is None else f"{full.avg10:.2f}",
            )
        )
    if not rows and not found:
        return f"nothing happened in {len(deltas)} cgroups\n"
    header = ("CGROUP", "", *(key.upper() for key in _KEYS), "STALLED", "AVG10")
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    aligned = [
        (*row[:2], *(row[index].rjust(widths[index]) for index in range(2, len(header))))
        for row in (header, *rows)
    ]
    rendered = table(aligned[0], aligned[1:]) if rows else ""
    return rendered + ("\n" if rows and found else "") + grouped(found, labels)


_ROOM = 46


def _tail(path: str) -> str:
    """Keep the end of a long path: it tells most."""
    if len(path) <= _ROOM:
        return path
    names = path.split("/")
    while len(names) > 1 and len("/".join(names)) > _ROOM - 2:
        names.pop(0)
    return "…/" + "/".join(names)


def _prometheus(deltas: Mapping[str, EventDelta]) -> str:
    events = tuple(
        ({"cgroup": path, "event": key}, value)
        for path, delta in deltas.items()
        for key, value in (delta.local or {}).items()
    )
    stalls = tuple(
        ({"cgroup": path}, delta.stall_full_us / 1e6)
        for path, delta in deltas.items()
        if delta.stall_full_us is not None
    )
    return render_metrics(
        [
            Metric(
                "memqos_cgroup_events_delta", "Own memory events of the last interval.", events
            ),
            Metric(
                "memqos_cgroup_stall_full_seconds_delta",
                "Time in which all tasks waited for memory in the last interval.",
                stalls,
            ),
        ]
    )
