"""The action log: what was done, the last 50 of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import isfinite
from typing import Any

from attrs import frozen

from memqos.oom.classes import OOMClass


__all__ = [
    "KEPT_ACTIONS",
    "ActionRecord",
    "NoKill",
    "append_record",
    "record_line",
    "trigger_context",
]

#: Talos keeps this many.
KEPT_ACTIONS = 50


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
        id: number since the start, from 0.
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


def append_record(
    records: Iterable[ActionRecord], record: ActionRecord
) -> tuple[ActionRecord, ...]:
    """Add a record, and drop the oldest beyond `KEPT_ACTIONS`."""
    return (*records, record)[-KEPT_ACTIONS:]


def record_line(record: ActionRecord) -> str:
    """Write a record as one line of JSON."""
    document = {
        "id": str(record.id),
        "time": record.time,
        "outcome": record.outcome,
        "path": record.path,
        "class": None if record.oom_class is None else record.oom_class.label,
        "score": record.score,
        "processes": list(record.processes),
        "error": record.error,
        "triggerContext": record.trigger_context,
    }
    return json.dumps(document, ensure_ascii=False)
