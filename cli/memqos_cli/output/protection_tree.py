"""Effective protection as plain data, and as a tree that shows where it dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from memqos.memory_qos.protection import Protected
from memqos_cli.output.protection_names import short_name, short_size
from memqos_cli.output.terminal import colour, table


__all__ = ["Loss", "deaths", "losses", "protection_fields", "render_tree"]

_SIZES = 5  # columns of sizes, which are aligned on the right


def protection_fields(item: Protected) -> dict[str, Any]:
    """Lay out one cgroup as the contract has it."""
    cgroup = item.cgroup
    return {
        "path": cgroup.path,
        "usage": cgroup.usage,
        "min": cgroup.min,
        "low": cgroup.low,
        "effectiveMin": item.effective_min,
        "effectiveLow": item.effective_low,
        "limitedBy": item.min_limited_by if cgroup.min else item.low_limited_by,
    }


class Loss(NamedTuple):
    """What a claim loses: ``min`` or ``low``, what is left in bytes, and to whom."""

    knob: str
    effective: int
    limiter: str | None


def losses(item: Protected) -> tuple[Loss, ...]:
    """Tell what a cgroup claims in vain, void claims first."""
    found = [
        Loss(knob, effective, limiter)
        for knob, claim, effective, limiter in (
            ("min", item.claimed_min, item.effective_min, item.min_limited_by),
            ("low", item.claimed_low, item.effective_low, item.low_limited_by),
        )
        if effective is not None and effective < claim
    ]
    return tuple(sorted(found, key=lambda loss: loss.effective != 0))


def deaths(found: Iterable[Protected]) -> Mapping[str, str]:
    """Tell for each cgroup that limits others how many claims it voids or cuts."""
    counts: dict[str, Counter[str]] = {}
    for item in found:
        for loss in losses(item):
            if loss.limiter is not None:
                verb = "cuts" if loss.effective else "voids"
                counts.setdefault(loss.limiter, Counter())[verb] += 1
    return {
        path: ", ".join(
            f"{verb} {verbs[verb]:,} claim{'' if verbs[verb] == 1 else 's'}"
            for verb in ("voids", "cuts")
            if verbs[verb]
        )
        for path, verbs in counts.items()
    }


def render_tree(found: tuple[Protected, ...], labels: Mapping[str, str]) -> str:
    """Indent by depth, and mark each cgroup whose setting is worth less than it says.

    Args:
        found: the cgroups, parents before children.
        labels: what pods and containers are called, by path.
    """
    if not found:
        return "no cgroups\n"
    base = min(item.cgroup.path.count("/") for item in found)
    dead = deaths(found)
    rows = []
    for item in found:
        cgroup = item.cgroup
        name = labels.get(cgroup.path, "").rpartition(" ")[2] or short_name(cgroup.path)
        rows.append(
            (
                "  " * (cgroup.path.count("/") - base) + name,
                short_size(cgroup.usage),
                short_size(cgroup.min),
                _worth(item.effective_min),
                short_size(cgroup.low),
                _worth(item.effective_low),
                _mark(item, dead.get(cgroup.path)),
            )
        )
    header = ("CGROUP", "USAGE", "MIN", "WORTH", "LOW", "WORTH", "")
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(_SIZES + 1)]
    aligned = [
        (row[0], *(row[index].rjust(widths[index]) for index in range(1, _SIZES + 1)), row[-1])
        for row in (header, *rows)
    ]
    lines = table(aligned[0], aligned[1:]).splitlines(keepends=True)
    return lines[0] + "".join(
        colour(line, _colour(item)) if losses(item) else line
        for line, item in zip(lines[1:], found, strict=True)
    )


def _worth(value: int | None) -> str:
    return "-" if value is None else short_size(value)


def _colour(item: Protected) -> str:
    return "red" if any(loss.effective == 0 for loss in losses(item)) else "yellow"


def _mark(item: Protected, dead: str | None) -> str:
    """Name what is lost, and where, once for both knobs if one cgroup takes both."""
    found = losses(item)
    said = [f"{loss.knob} {_verb(loss)}" for loss in found]
    if len(found) > 1 and _verb(found[0]) == _verb(found[1]):
        said = [f"min, low {_verb(found[0])}"]
    marks = [f"<- {text}" for text in said]
    if dead is not None:
        marks.append(f"<= {dead}")
    return ", ".join(marks)


def _verb(loss: Loss) -> str:
    verb = "void" if loss.effective == 0 else "cut"
    return verb if loss.limiter is None else f"{verb}: {short_name(loss.limiter)}"
