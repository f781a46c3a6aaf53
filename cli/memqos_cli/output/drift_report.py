"""A drift report as text, as rows of CSV, and as a document whose nodes are written one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from memqos.memory_manager.describe import mebibytes
from memqos.memory_manager.fleet import (
    BUCKET_BYTES,
    OVERFLOW_BYTES,
    DriftSummary,
    NodeFailure,
    NodeResult,
    Outcome,
)
from memqos.memory_manager.iomem import GRACE_BYTES
from memqos.memory_manager.reasons import Verdict
from memqos_cli.output.terminal import table


__all__ = ["CSVRows", "StreamedDocument", "report_fields", "report_text"]

_COLUMNS = (
    "name",
    "verdict",
    "reason",
    "numaNode",
    "recordedBytes",
    "driftBytes",
    "toleranceBytes",
    "autoBoundBytes",
)


# What a spreadsheet takes for a formula; "-:1" is a line of standard input.
_FORMULA = re.compile(r"[=+@\t\r]|-(?!:\d+\Z)")


class CSVRows:
    """One row per snapshot and NUMA node; what is not known is empty.

    A name that a spreadsheet would take for a formula gets a ``'`` in front.
    """

    def begin(self) -> str:
        """Give the header."""
        return self._rows([_COLUMNS])

    def more(self, outcomes: Iterable[Outcome]) -> str:
        """Give the rows of some outcomes; an unreadable input has its name alone."""
        return self._rows(row for outcome in outcomes for row in _csv_rows(outcome))

    def end(self, _summary: DriftSummary) -> str:
        """Give nothing: the summary is no row."""
        return ""

    @staticmethod
    def _rows(rows: Iterable[Iterable[Any]]) -> str:
        return "".join(f"{','.join(map(_csv_field, row))}\n" for row in rows)


def _csv_field(value: object) -> str:
    text = "" if value is None else str(value)
    if isinstance(value, str) and _FORMULA.match(text):
        text = f"'{text}"
    # Python's own writer leaves a carriage return bare, which readers take for a line end.
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if re.search('[,"\r\n]', text) else text


def _csv_rows(outcome: Outcome) -> list[tuple[Any, ...]]:
    if isinstance(outcome, NodeFailure):
        return [(outcome.name, *[None] * (len(_COLUMNS) - 1))]
    head = (outcome.name, outcome.verdict, outcome.reason)
    tail = (outcome.tolerance_bytes, outcome.auto_bound_bytes)
    if not outcome.drifts:
        return [(*head, None, None, None, *tail)]
    return [
        (*head, drift.node, drift.recorded_bytes, drift.drift_bytes, *tail)
        for drift in outcome.drifts
    ]


class StreamedDocument:
    """The document in JSON or YAML. `nodes` comes first, so that none of them is kept."""

    def __init__(self, output: str) -> None:
        self._json = output == "json"
        self._empty = True

    def begin(self) -> str:
        """Give what stands before the nodes."""
        if self._json:
            return '{\n  "apiVersion": "memqos/v1",\n  "kind": "DriftReport",\n  "nodes": ['
        return "apiVersion: memqos/v1\nkind: DriftReport\nnodes:"

    def more(self, outcomes: Iterable[Outcome]) -> str:
        """Give some nodes."""
        nodes = [_node(outcome) for outcome in outcomes if isinstance(outcome, NodeResult)]
        if not nodes:
            return ""
        before = "\n" if self._empty else ",\n" if self._json else ""
        self._empty = False
        if not self._json:
            return before + _yaml(nodes)
        return before + ",\n".join(f"    {json.dumps(node, ensure_ascii=False)}" for node in nodes)

    def end(self, summary: DriftSummary) -> str:
        """Give what stands after the nodes."""
        fields = report_fields(summary)
        if not self._json:
            return (" []\n" if self._empty else "") + _yaml(fields)
        rest = json.dumps(fields, indent=2, ensure_ascii=False).removeprefix("{\n")
        close = "],\n" if self._empty else "\n  ],\n"
        return f"{close}{rest}\n"


def _yaml(value: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def report_fields(summary: DriftSummary) -> dict[str, Any]:
    """Lay out everything but the nodes."""
    bounds = summary.bound_range or (None, None)
    drifts = summary.drift_range or (None, None)
    return {
        "snapshots": summary.results,
        "unreadable": summary.failures,
        "refused": summary.refused,
        "orderDependent": summary.order_dependent,
        "assumedConfiguration": summary.assumed,
        "verdicts": {str(verdict): summary.verdicts.get(verdict, 0) for verdict in Verdict},
        "reasons": {str(reason): count for reason, count in _by_count(summary)},
        "autoBoundBytes": {"min": bounds[0], "max": bounds[1]},
        "graceBytes": GRACE_BYTES,
        "drift": {
            "numaNodes": summary.numa_nodes,
            "unchanged": summary.unchanged,
            "overGrace": summary.over_grace,
            "overBound": summary.over_bound,
            "boundUnknown": summary.bound_unknown,
            "minBytes": drifts[0],
            "maxBytes": drifts[1],
            "bucketBytes": BUCKET_BYTES,
            "histogram": [
                {
                    "fromBytes": bucket * BUCKET_BYTES,
                    "toBytes": None
                    if bucket * BUCKET_BYTES >= OVERFLOW_BYTES
                    else (bucket + 1) * BUCKET_BYTES,
                    "numaNodes": count,
                    "overBound": summary.histogram_over_bound.get(bucket, 0),
                }
                for bucket, count in sorted(summary.histogram.items())
            ],
        },
        "attention": [_node(result) for result in summary.attention],
        "failures": [
            {"name": _utf8(failure.name), "message": _utf8(failure.message)}
            for failure in summary.first_failures
        ],
    }


def _node(result: NodeResult) -> dict[str, Any]:
    return {
        "name": _utf8(result.name),
        "verdict": str(result.verdict),
        "reason": str(result.reason),
        "message": _utf8(result.message),
        "kubeletStarts": result.kubelet_starts,
        "orderDependent": result.order_dependent,
        "toleranceBytes": result.tolerance_bytes,
        "autoBoundBytes": result.auto_bound_bytes,
        "driftPerNode": {str(drift.node): drift.drift_bytes for drift in result.drifts},
    }


def _utf8(text: str) -> str:
    """Replace what a file name can hold and a document cannot."""
    return text.encode("utf-8", "replace").decode()


def _by_count(summary: DriftSummary) -> list[tuple[str, int]]:
    return sorted(summary.reasons.items(), key=lambda item: (-item[1], item[0]))


# --- text ----------------------------------------------------------------------------------------

# The edges of the text's ranges in MiB; the grace is one of them.
_EDGES = (0, 1, 16, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
_BAR = 40


def report_text(summary: DriftSummary) -> str:
    """Write the report for a person."""
    parts = [_head(summary)]
    verdicts = [(verdict, f"{summary.verdicts.get(verdict, 0)}") for verdict in Verdict]
    parts.append(table(("VERDICT", "SNAPSHOTS"), verdicts))
    if summary.reasons:
        rows = [(reason, str(count)) for reason, count in _by_count(summary)]
        parts.append(table(("REASON", "SNAPSHOTS"), rows))
    if summary.numa_nodes:
        parts += [_histogram(summary), _limits(summary)]
    if summary.attention:
        parts.append(_attention(summary))
    if summary.failures:
        parts.append(_failures(summary))
    return "\n".join(parts)


def _head(summary: DriftSummary) -> str:
    text = (
        f"kubelet starts in {summary.results - summary.refused} of {summary.results} snapshots, "
        f"and would refuse to in {summary.refused}"
    )
    if summary.failures:
        text += f"; {summary.failures} inputs could not be read"
    if summary.assumed:
        text += f"; {summary.assumed} have no kubelet configuration, which is assumed then"
    return text + "\n"


def _histogram(summary: DriftSummary) -> str:
    ranges = [("none", summary.unchanged)]
    buckets = summary.histogram.items()
    for low, high in pairwise(_EDGES):
        count = sum(number for bucket, number in buckets if low <= bucket < high)
        ranges.append((f"{low} to {high} MiB", count))
    ranges.append((f"{_EDGES[-1]} MiB or more", summary.histogram.get(_EDGES[-1], 0)))
    while not ranges[-1][1]:
        ranges.pop()
    most = max(count for _, count in ranges)
    rows = [(name, str(count), "#" * -(-_BAR * count // most)) for name, count in ranges]
    return table(("DRIFT", "NUMA NODES", ""), rows)


def _limits(summary: DriftSummary) -> str:
    low, high = summary.drift_range or (0, 0)
    facts = [
        (
            "drift",
            f"{mebibytes(low, sign=True)} to {mebibytes(high, sign=True)}, counted by the MiB",
        ),
        ("grace", f"{mebibytes(GRACE_BYTES)}: {summary.over_grace} NUMA nodes drifted by more"),
    ]
    if summary.bound_range is not None:
        least, largest = summary.bound_range
        bound = mebibytes(least)
        if least != largest:
            bound += f" to {mebibytes(largest)}"
        facts.append(
            ("auto bound", f"{bound}: {summary.over_bound} NUMA nodes drifted beyond their own")
        )
    if summary.bound_unknown:
        facts.append(("", f"unknown for {summary.bound_unknown} NUMA nodes"))
    if summary.order_dependent:
        facts.append(
            ("order", f"{summary.order_dependent} snapshots depend on the random order of pods")
        )
    return "".join(f"{name:<11} {text}\n" for name, text in facts)


def _attention(summary: DriftSummary) -> str:
    rows = []
    for result in summary.attention:
        worst = max(result.drifts, key=lambda drift: abs(drift.drift_bytes), default=None)
        bound = result.auto_bound_bytes
        rows.append(
            (
                result.name,
                f"{result.verdict}{' or not' if result.order_dependent else ''}",
                result.reason,
                "-" if worst is None else str(worst.node),
                "-" if worst is None else mebibytes(worst.drift_bytes, sign=True),
                "unknown" if bound is None else mebibytes(bound),
                "-"
                if bound is None or worst is None
                else f"{100 * abs(worst.drift_bytes) / bound:.0f} %",
            )
        )
    header = ("LOOK AT", "VERDICT", "REASON", "NUMA NODE", "DRIFT", "AUTO BOUND", "OF BOUND")
    return table(header, rows)


def _failures(summary: DriftSummary) -> str:
    lines = [failure.message for failure in summary.first_failures]
    more = summary.failures - len(lines)
    return table(("NOT READ",), [(line,) for line in lines]) + (
        f"and {more} more\n" if more else ""
    )
