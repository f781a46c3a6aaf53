"""The variables of the trigger, from the texts of a cgroup tree.

Source: Talos' OOM handler. A file that is missing or garbled counts as 0; one that is readable
but lacks a line or a span fails the cycle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from math import nan
from typing import Any, Final, NamedTuple, TypeAlias

from memqos.oom.classes import OOMClass
from memqos.oom.layout import Layout, Tree, children, expand
from memqos.oom.meminfo import meminfo_bytes


__all__ = [
    "NEVER_NS",
    "PRESSURE_NAMES",
    "TRIGGER_FILES",
    "CollectError",
    "Collected",
    "Figures",
    "collect",
    "is_pressure",
    "known_at_rest",
    "metric_names",
    "zero_values",
]

#: time_since_trigger before the first trigger: Go saturates there.
NEVER_NS = 2**63 - 1

_LINES = ("some", "full")
_SPANS = ("avg10", "avg60", "avg300", "total")
_PSI = tuple(f"{line}_{span}" for line in _LINES for span in _SPANS)
_FILES = ("memory.current", "memory.peak", "memory.max")
_FILES_WITH_SWAP = (*_FILES, "memory.swap.current")
_SWAP_TOTALS = {"swap_total": "SwapTotal", "swap_free": "SwapFree"}
_MAX_INT64 = 2**63 - 1
_CLASSES = tuple(int(oom_class) for oom_class in OOMClass)

#: The files that a sample is made of, swap's left out.
TRIGGER_FILES: Final = ("memory.pressure", *_FILES)
#: One cgroup's values: its pressure in the order of `_PSI`, then its files.
Figures: TypeAlias = tuple[float, ...]
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NO_PRESSURE: Figures = (0.0,) * len(_PSI)
_TOTALS = tuple(at for at, name in enumerate(_PSI) if name.endswith("_total"))


class CollectError(Exception):
    """The cycle is skipped: a pressure file is readable but not whole."""

    def __init__(self, message: str, previous: Mapping[str, Figures]) -> None:
        super().__init__(message)
        self.message = message
        #: the derivative memory, updated by the cgroups read before the fault
        self.previous = previous


class Collected(NamedTuple):
    """One sample.

    Attributes:
        values: metric name to number, or to class to number; without time_since_trigger.
        previous: what the next sample's derivatives start from, by directory.
    """

    values: Mapping[str, Any]
    previous: Mapping[str, Figures]


def metric_names(*, swap: bool = False) -> tuple[str, ...]:
    """Return the names of all metrics, time_since_trigger and the node's swap left out."""
    names = [f"memory_{name}" for name in _PSI]
    names += _class_names(swap=swap)
    return tuple(name for base in names for name in (base, f"d_{base}"))


@cache
def _class_names(*, swap: bool) -> tuple[str, ...]:
    files = _FILES_WITH_SWAP if swap else _FILES
    figures = (file.removeprefix("memory.").replace(".", "_") for file in files)
    return tuple(f"qos_memory_{name}" for name in (*_PSI, *figures))


#: The metrics that come from pressure files alone.
PRESSURE_NAMES: Final = frozenset(
    f"{prefix}memory_{name}" for prefix in ("", "d_", "qos_", "d_qos_") for name in _PSI
)


def is_pressure(text: str) -> bool:
    """Tell whether a pressure file is whole, and not taken for 0 because it is garbled."""
    return not isinstance(_spans(text), str) and _nested_keyed(text) is not None


def known_at_rest(figures: Figures) -> Figures:
    """Keep what is still true while nobody waits: totals, and averages that have come down to 0.

    Other averages are NaN: they go on falling. Figures that are no pressure are left out.
    """
    return tuple(
        value if value == 0 or at in _TOTALS else nan
        for at, value in enumerate(figures[: len(_PSI)])
    )


def zero_values(*, swap: bool = False) -> dict[str, Any]:
    """Return every variable as it is where nothing can be read, time_since_trigger left out.

    Swap that is not there is 0, too: 0 bytes of free swap are no sign of pressure.
    """
    values: dict[str, Any] = {
        name: dict.fromkeys(_CLASSES, 0.0) if "qos_" in name else 0.0
        for name in metric_names(swap=swap)
    }
    return values | dict.fromkeys(_SWAP_TOTALS, 0) if swap else values


def collect(
    tree: Tree,
    layout: Layout,
    previous: Mapping[str, Figures],
    interval_ns: int,
    *,
    swap: bool = False,
    meminfo: str = "",
    rested: frozenset[OOMClass] = frozenset(),
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
        rested: classes in which nobody has waited for memory since `previous`, whatever came and
            went: a cgroup that is new since had no pressure before this sample.

    Raises:
        CollectError: a pressure file lacks a line or a span, or the interval is not positive.
    """
    if interval_ns <= 0:
        raise CollectError("the sample interval is not positive", previous)
    seconds = interval_ns / 1e9
    memory = dict(previous)
    node = _pressure(tree.get("", {}), "", memory)
    node_rates = _rates(node, memory.get(""), seconds)
    memory[""] = node
    files = _FILES_WITH_SWAP if swap else _FILES
    count = len(_PSI) + len(files)
    sums = [[0.0] * count for _ in OOMClass]
    rates = [[0.0] * count for _ in OOMClass]
    for path, oom_class in expand(layout.metrics, children(tree)):
        texts = tree.get(path, {})
        found = _pressure(texts, path, memory) + tuple(
            _int64(texts[file]) if file in texts else 0.0 for file in files
        )
        _add(sums[oom_class], found)
        before = memory.get(path)
        if oom_class in rested and _is_another(found, before):
            before = _NO_PRESSURE
        if before != found:
            _add(rates[oom_class], _rates(found, before, seconds))
        memory[path] = found
    values: dict[str, Any] = {}
    for number, name in enumerate(_PSI):
        values[f"memory_{name}"] = node[number]
        values[f"d_memory_{name}"] = node_rates[number]
    for number, name in enumerate(_class_names(swap=swap)):
        values[name] = {key: sums[key][number] for key in _CLASSES}
        values[f"d_{name}"] = {key: rates[key][number] for key in _CLASSES}
    if swap:
        for name, line in _SWAP_TOTALS.items():
            values[name] = meminfo_bytes(meminfo, line) or 0
    return Collected(values, memory)


def _is_another(now: Figures, before: Figures | None) -> bool:
    return before is None or any(now[at] < before[at] for at in _TOTALS)


def _add(row: list[float], values: Figures) -> None:
    for number, value in enumerate(values):
        row[number] += value


def _rates(now: Figures, before: Figures | None, seconds: float) -> Figures:
    """Work out derivatives; 0 where there is no value from before."""
    if before is None:
        return (0.0,) * len(now)
    changed = [(new - old) / seconds for new, old in zip(now, before, strict=False)]
    return (*changed, *(0.0,) * (len(now) - len(changed)))


def _pressure(texts: Mapping[str, str], path: str, memory: Mapping[str, Figures]) -> Figures:
    text = texts.get("memory.pressure")
    found = _NO_PRESSURE if text is None else _spans(text)
    if isinstance(found, str):
        where = path or "the root cgroup"
        raise CollectError(f"cannot populate PSI context: {where}: {found}", memory)
    return found


@lru_cache(maxsize=1024)  # at rest most files have the same text
def _spans(text: str) -> Figures | str:
    """Read a pressure file in the order of `_PSI`; zeros if it is garbled, else what it lacks."""
    lines = _nested_keyed(text)
    if lines is None:
        return _NO_PRESSURE
    found = []
    for line in _LINES:
        for span in _SPANS:
            value = lines.get(line, {}).get(span)
            if value is None:
                return f"no {span} in the {line} line"
            found.append(value)
    return tuple(found)


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


def _int64(text: str) -> float:
    value = text.strip()
    if not _INTEGER.fullmatch(value) or not -(2**63) <= int(value) <= _MAX_INT64:
        return 0.0
    return float(int(value))
