"""The texts of cgroup v2 memory files as values.

Source: the kernel's cgroup-v2.rst and mm/memcontrol.c. Unknown keys are kept, missing ones are
unknown, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from memqos.errors import InputError


__all__ = [
    "MAX",
    "Pressure",
    "PressureLine",
    "parse_flat",
    "parse_pressure",
    "parse_size",
    "size_text",
]

#: What ``max`` stands for; the kernel reads anything from here on back as ``max``.
MAX = 2**63 - 1


@lru_cache(maxsize=4096)  # a node has tens of thousands, and most are one of a few
def parse_size(text: str) -> int:
    """Read ``memory.min``, ``memory.current`` and their like: bytes, or ``max`` as `MAX`.

    Raises:
        InputError: neither.
    """
    value = text.strip()
    if value == "max":
        return MAX
    if not _is_number(value):
        raise InputError(f"expected bytes or max, found {value[:40]!r}")
    return min(int(value), MAX)


def _is_number(text: str) -> bool:
    return text.isdigit() and text.isascii() and len(text) <= 20


def size_text(value: int) -> str:
    """Write a size as the kernel does."""
    return "max" if value >= MAX else str(value)


def parse_flat(text: str) -> Mapping[str, int]:
    """Read a flat-keyed file such as ``memory.events`` or ``memory.stat``.

    Raises:
        InputError: a line is not a key and a number.
    """
    values = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if not key or not _is_number(value.strip()):
            raise InputError(f"expected a key and a number, found {line[:60]!r}")
        values[key] = int(value)
    return values


class PressureLine(NamedTuple):
    """One line of a pressure file: percentages, and microseconds since the cgroup was made."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


class Pressure(NamedTuple):
    """``memory.pressure``; None where the kernel gives no such line."""

    some: PressureLine | None
    full: PressureLine | None


@lru_cache(maxsize=4096)  # most are all zeros
def parse_pressure(text: str) -> Pressure:
    """Read a PSI file.

    Raises:
        InputError: not of the kernel's form.
    """
    lines: dict[str, PressureLine] = {}
    for line in text.splitlines():
        match = _PRESSURE.fullmatch(line)
        fields = {} if match is None else dict(pair.split("=") for pair in match[2].split())
        try:
            lines["" if match is None else match[1]] = PressureLine(
                float(fields["avg10"]),
                float(fields["avg60"]),
                float(fields["avg300"]),
                int(fields["total"]),
            )
        except (KeyError, ValueError):
            raise InputError(f"expected a line of PSI, found {line[:60]!r}") from None
    return Pressure(lines.get("some"), lines.get("full"))


_PRESSURE = re.compile(r"([a-z]+)((?: [a-z0-9_]+=[0-9.]{1,20})+)")
