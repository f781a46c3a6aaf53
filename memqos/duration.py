"""Go durations: ``time.ParseDuration`` to nanoseconds."""

from __future__ import annotations

import re

from memqos.errors import InputError


__all__ = ["parse_duration"]

_UNIT_NS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_TERM = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_LIMIT = 2**63


def parse_duration(text: str) -> int:
    """Parse a duration such as ``1h30m``, ``500ms`` or ``-1.5s`` to whole nanoseconds.

    The result is what Go computes: fractions are cut, not rounded.

    Raises:
        InputError: not a Go duration, a missing or unknown unit, or outside 64 bit.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    negative = text.startswith("-")
    if rest == "0":
        return 0
    if not rest:
        raise InputError(f"{text!r} is not a duration, such as 500ms, 10s or 1h30m")
    total = 0
    position = 0
    while position < len(rest):
        match = _TERM.match(rest, position)
        whole, fraction, unit = match.groups(default="") if match else ("", "", "")
        if not whole and not fraction:
            raise InputError(f"{text!r} is not a duration, such as 500ms, 10s or 1h30m")
        if unit not in _UNIT_NS:
            what = f"the unknown unit {unit!r}" if unit else "no unit"
            raise InputError(f"{text!r} has {what}; units are ns, us, ms, s, m, h")
        total += _term_ns(whole, fraction, _UNIT_NS[unit])
        # Go tests each step, and allows one more on the negative side.
        if total > _LIMIT or (total == _LIMIT and not negative):
            raise InputError(f"{text!r} does not fit a 64-bit duration")
        position = match.end() if match else len(rest)
    return -total if negative else total


def _term_ns(whole: str, fraction: str, unit: int) -> int:
    if len(whole.lstrip("0")) > 19:
        return 2 * _LIMIT
    nanoseconds = int(whole or "0") * unit
    if fraction:
        # Go keeps as many digits as fit 63 bits, then scales in double precision.
        kept = 0
        scale = 1.0
        for digit in fraction:
            if kept > (_LIMIT - 1) // 10 or kept * 10 + int(digit) > _LIMIT:
                break
            kept = kept * 10 + int(digit)
            scale *= 10
        nanoseconds += int(float(kept) * (float(unit) / scale))
    return nanoseconds
