"""The action log: what was done, the last 50 of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import isfinite, isnan
from typing import Any

from attrs import frozen

from memqos.errors import InputError
from memqos.oom.classes import OOMClass


__all__ = [
    "KEPT_ACTIONS",
    "ActionRecord",
    "NoKill",
    "append_record",
    "parse_log",
    "record_line",
    "trigger_context",
]

#: Talos keeps this many.
KEPT_ACTIONS = 50
# Of one record, in characters: a pod can have thousands, each with a long command line.
_MOST_PROCESSES = 64 * 1024
# By which a line is known.
_FIELDS = {"id", "outcome", "triggerContext"}


class NoKill(StrEnum):
    """Why the trigger fired and no kill was tried.

    Attributes:
        NONE: nobody is eligible.
        DRY_RUN: killing was not asked for.
        HELD_BACK: enough memory is available.
    """

    NONE = "none"
    DRY_RUN = "dry-run"
    HELD_BACK = "held-back"


@frozen(kw_only=True)
class ActionRecord:
    """One firing of the trigger.

    Attributes:
        id: number since the watcher's start, from 0.
        time: seconds since the epoch.
        outcome: a `NoKill`, or what came of the kill: ``killed``, ``partly-killed``, ``empty``,
            ``refused`` or ``failed``.
        trigger_context: the trigger's variables as JSON text, as Talos stores them.
        score: of the victim, 0 without one.
        path: of the victim, None without one.
        oom_class: of the victim, None without one.
        processes: command lines of the processes that were killed.
        error: what went wrong, None if nothing did.
    """

    id: int
    time: float
    outcome: str
    trigger_context: str
    score: float = 0.0
    path: str | None = None
    oom_class: OOMClass | None = None
    processes: tuple[str, ...] = ()
    error: str | None = None


def trigger_context(values: Mapping[str, Any]) -> str:
    """Write the trigger's variables as JSON: class maps with keys "0" to "4", all finite."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        return 0.0 if isinstance(value, float) and not isfinite(value) else value

    return json.dumps(plain(values), separators=(",", ":"))


def parse_log(text: str) -> tuple[str, ...]:
    """Read the lines of an action log, each with its record, as `append_record` wants them.

    Raises:
        InputError: a line is no record; `line` says which.
    """
    lines = tuple(text.removesuffix("\n").split("\n")) if text else ()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not _FIELDS.issubset(record):
            raise InputError("not an action, as memqos logs them", line=number)
    return lines


def append_record(lines: Iterable[str], record: ActionRecord) -> tuple[str, ...]:
    """Add a record's line to a log's, and drop the oldest beyond `KEPT_ACTIONS`."""
    return (*lines, record_line(record))[-KEPT_ACTIONS:]


def record_line(record: ActionRecord) -> str:
    """Write a record as one line of JSON, which can be encoded whatever processes are called.

    Bytes of a name that are not UTF-8 are escapes of surrogates, as Python has them, and a score
    that JSON lacks is "NaN", "Infinity" or "-Infinity".
    """
    processes = list(record.processes)
    while len(json.dumps(processes)) > _MOST_PROCESSES:
        processes = processes[: len(processes) // 2]
    if len(processes) < len(record.processes):
        processes.append(f"and {len(record.processes) - len(processes)} more")
    document = {
        "id": str(record.id),
        "time": record.time,
        "outcome": record.outcome,
        "path": record.path,
        "class": None if record.oom_class is None else record.oom_class.label,
        "score": _number(record.score),
        "processes": processes,
        "error": record.error,
        "triggerContext": record.trigger_context,
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode()


def _number(value: float) -> float | str:
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
