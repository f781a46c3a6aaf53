"""The text of ``/proc/meminfo``."""

from __future__ import annotations

import re


__all__ = ["meminfo_bytes"]


def meminfo_bytes(text: str, name: str) -> int | None:
    """Read one line, such as MemAvailable, in bytes; None where there is none."""
    match = re.search(rf"^{name}:\s+([0-9]{{1,15}}) kB$", text, re.MULTILINE)
    return None if match is None else int(match[1]) * 1024
