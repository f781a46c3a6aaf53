"""The variables of the trigger, from the texts of a cgroup tree.

Source: Talos' OOM handler. A file that is missing or garbled counts as 0; one that is readable
but lacks a line or a span fails the cycle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from memqos.oom.classes import OOMClass
from memqos.oom.layout import Layout, Tree, children, expand
from memqos.oom.meminfo import meminfo_bytes


__all__ = ["NEVER_NS", "CollectError", "Collected", "collect", "metric_names", "zero_values"]

#: time_since_trigger before the first trigger: Go saturates there.
NEVER_NS = 2**63 - 1

_LINES = ("some", "full")
_SPANS = ("avg10", "avg60", "avg300", "total")
_PSI = tuple(f"{line}_{span}" for line in _LINES for span in _SPANS)
_MEMORY = ("current", "peak", "max")
_SWAP = ("swap_current",)
_SWAP_TOTALS = {"swap_total": "SwapTotal", "swap_free": "SwapFree"}
_MAX_INT64 = 2**63 - 1


class CollectError(Exception):
    """The cycle is skipped: a pressure file is readable but not whole."""

    def __init__(self, message: str, previous: Mapping[str, float]) -> None:
        super().__init__(message)
        self.message = message
        #: the derivative memory, updated by the cgroups read before the fault
        self.previous = previous


class Collected(NamedTuple):
    """One sample.

    Attributes:
        values: metric name to number, or to class to number; without time_since_trigger.
        previous: what the next sample's derivatives start from, by ``directory/memory_metric``.
    """

    values: Mapping[str, Any]
    previous: Mapping[str, float]


def metric_names(*, swap: bool = False) -> tuple[str, ...]:
    """Return the names of all metrics, time_since_trigger and the node's swap left out."""
    names = [f"memory_{name}" for name in _PSI]
    names += [f"qos_memory_{name}" for name in (*_PSI, *_MEMORY, *(_SWAP if swap else ()))]
    return tuple(name for base in names for name in (base, f"d_{base}"))


def zero_values(*, swap: bool = False) -> dict[str, Any]:
    """Return every variable as it is where nothing can be read, time_since_trigger left out.

    Swap that is not there is 0, too: 0 bytes of free swap are no sign of pressure.
    """
    values: dict[str, Any] = {
        name: {int(oom_class): 0.0 for oom_class in OOMClass} if "qos_" in name else 0.0
        for name in metric_names(swap=swap)
    }
    return values | dict.fromkeys(_SWAP_TOTALS, 0) if swap else values


def collect(
    tree: Tree,
    layout: Layout,
    previous: Mapping[str, float],
    interval_ns: int,
    *,
    swap: bool = False,
    meminfo: str = "",
) -> Collected:
    """Work out every metric of a sample.

    Args:
        tree: the cgroups' files.
        layout: which cgroups make up which class.
        previous: of the sample before, empty at the start.
        interval_ns: the configured interval; derivatives are divided by it, not by the time that
            really passed.
        swap: whether the variables of swap are wanted.
        meminfo: text of /proc/meminfo, for those of the node.

    Raises:
        CollectError: a pressure file lacks a line or a span, or the interval is not positive.
    """
    if interval_ns <= 0:
        raise CollectError("the sample interval is not positive", previous)
    seconds = interval_ns / 1e9
    memory = dict(previous)
    values = zero_values(swap=swap)
    if swap:
        for name, line in _SWAP_TOTALS.items():
            values[name] = meminfo_bytes(meminfo, line) or 0
    figures = (*_MEMORY, *(_SWAP if swap else ()))
    for name, value in _pressure(tree, "", memory).items():
        values[f"memory_{name}"] = value
        values[f"d_memory_{name}"] = _derive("", name, value, memory, seconds)
    for path, oom_class in expand(layout.metrics, children(tree)):
        files = tree.get(path, {})
        found = _pressure(tree, path, memory)
        found |= {name: _int64(files.get(f"memory.{name.replace('_', '.')}")) for name in figures}
        for name, value in found.items():
            values[f"qos_memory_{name}"][int(oom_class)] += value
            derived = _derive(path, name, value, memory, seconds)
            values[f"d_qos_memory_{name}"][int(oom_class)] += derived
    return Collected(values, memory)


def _derive(path: str, name: str, value: float, memory: dict[str, float], seconds: float) -> float:
    key = f"{path}/memory_{name}"
    before = memory.get(key)
    memory[key] = value
    return 0.0 if before is None else (value - before) / seconds


def _pressure(tree: Tree, path: str, memory: Mapping[str, float]) -> dict[str, float]:
    text = tree.get(path, {}).get("memory.pressure")
    lines = None if text is None else _nested_keyed(text)
    if lines is None:
        return dict.fromkeys(_PSI, 0.0)
    found = {}
    for line in _LINES:
        for span in _SPANS:
            value = lines.get(line, {}).get(span)
            if value is None:
                where = path or "the root cgroup"
                raise CollectError(
                    f"cannot populate PSI context: {where}: no {span} in the {line} line", memory
                )
            found[f"{line}_{span}"] = value
    return found


def _nested_keyed(text: str) -> dict[str, dict[str, float | None]] | None:
    """Parse ``some avg10=1.00 …``; None where it is garbled. ``max`` has no number."""
    lines: dict[str, dict[str, float | None]] = {}
    for line in text.splitlines():
        if not line:
            continue
        key, space, rest = line.partition(" ")
        if not space:
            return None
        spans: dict[str, float | None] = {}
        for pair in rest.split():
            name, equals, number = pair.partition("=")
            if not equals:
                return None
            if number == "max":
                spans[name] = None
                continue
            match = re.fullmatch(r"(-?[0-9]+)(?:\.([0-9]+))?", number)
            if match is None or len(number) > 40:
                return None
            decimals = match[2] or ""
            spans[name] = int(match[1] + decimals) / 10 ** len(decimals)
        lines[key] = spans
    return lines


def _int64(text: str | None) -> float:
    value = (text or "").strip()
    if not re.fullmatch(r"-?[0-9]{1,19}", value) or not -(2**63) <= int(value) <= _MAX_INT64:
        return 0.0
    return float(int(value))
