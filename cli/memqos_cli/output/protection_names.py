"""Names and sizes of cgroups for people: short, and safe to print."""

from __future__ import annotations

import re

from memqos.memory_qos.protection import parent_of
from memqos_cli.output.terminal import printable


__all__ = ["short_name", "short_path", "short_size", "short_text"]

# A container's id, or a pod's UID in either driver's spelling.
_ID = re.compile(
    r"(?<=pod)[0-9a-f]{32}(?![0-9a-f])|(?<![0-9a-zA-Z])[0-9a-f]{32,64}(?![0-9a-zA-Z])|"
    r"[0-9a-f]{8}([-_])[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}"
)
_LONGEST = 44
#: The kernel's "max", however large its pages are.
_UNLIMITED = 2**63 - 2**30


def short_path(path: str) -> str:
    """Return a path with its ids cut in the middle."""
    return printable("/".join(_cut(name) for name in path.split("/")))


def short_name(path: str) -> str:
    """Return a cgroup's own name, its ids cut in the middle.

    systemd repeats the parent's name in the child's; what is repeated is left out, so that
    ``kubepods-burstable.slice`` in ``kubepods.slice`` is ``-burstable.slice``.
    """
    name = path.rpartition("/")[2] or "/"
    parent = parent_of(path).rpartition("/")[2]
    stem = parent.removesuffix(".slice")
    if parent.endswith(".slice") and name.startswith(f"{stem}-"):
        name = name.removeprefix(stem)
    return printable(_cut(name))


def short_text(text: str) -> str:
    """Cut the ids in a sentence."""
    return _ID.sub(_middle, text)


def _middle(match: re.Match[str]) -> str:
    return f"{match[0][:8]}…{match[0][-4:]}"


def _cut(name: str) -> str:
    short = short_text(name)
    if len(short) > _LONGEST:
        return f"{short[: _LONGEST - 9]}…{short[-8:]}"
    return short


def short_size(value: int | None) -> str:
    """Return a size in the largest binary unit, with a decimal where it is not whole."""
    if value is None:
        return "?"
    if value >= _UNLIMITED:
        return "max"
    amount = float(value)
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if amount < 1024 or unit == "Pi":
            return f"{amount:.0f}{unit}" if amount == int(amount) else f"{amount:.1f}{unit}"
        amount /= 1024
    raise AssertionError  # unreachable: Pi returns
