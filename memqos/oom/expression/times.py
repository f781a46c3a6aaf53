"""Moments and spans of time, as Go reads and prints them."""

from __future__ import annotations

import re

from memqos.duration import parse_duration
from memqos.errors import InputError
from memqos.oom.expression.literals import INT_MAX, INT_MIN
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.values import Duration, Timestamp


__all__ = [
    "duration_from_text",
    "duration_text",
    "fields_at",
    "make_timestamp",
    "timestamp_from_text",
    "timestamp_text",
    "zone_offset_s",
]

_SECOND = 10**9
_MIN_S = -62135596800
_MAX_S = 253402300799
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_ATOI = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def duration_from_text(text: str) -> Duration:
    """Read a Go duration, such as ``1h30m``."""
    try:
        return Duration(parse_duration(text))
    except InputError:
        raise EvaluationError(
            "type conversion error from 'string' to 'google.protobuf.Duration'"
        ) from None


def duration_text(ns: int) -> str:
    """Print a duration as seconds, in the shortest decimal that reads back the same."""
    whole, rest = divmod(abs(ns), _SECOND)
    seconds = float(whole) + float(rest) / 1e9
    text = repr(seconds)
    if "e" in text:  # below 0.0001 only; the whole part has ten digits at most
        digits, exponent = text.split("e")
        head = digits.replace(".", "")
        text = f"0.{'0' * (-int(exponent) - 1)}{head}"
    sign = "-" if ns < 0 else ""
    return f"{sign}{text.removesuffix('.0')}s"


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_before(year: int) -> int:
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400


def _month_days(year: int, month: int) -> int:
    return _MONTH_DAYS[month - 1] + (1 if month == 2 and _leap(year) else 0)


_EPOCH_DAYS = _days_before(1970)


def make_timestamp(ns: int, offset_s: int = 0) -> Timestamp:
    """Return a moment between the years 1 and 9999."""
    if not _MIN_S <= ns // _SECOND <= _MAX_S:
        raise EvaluationError("timestamp overflow")
    return Timestamp(ns, offset_s)


def timestamp_from_text(text: str) -> Timestamp:
    """Read an RFC 3339 time."""
    error = EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    match = _RFC3339.fullmatch(text)
    if not match:
        raise error
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, zone_hour, zone_minute = match.groups()[6:]
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 60):
        raise error
    if not 1 <= day <= _month_days(year, month):
        raise error
    offset_s = 0
    if sign:
        if int(zone_hour) > 24 or int(zone_minute) > 60:
            raise error
        offset_s = (int(zone_hour) * 60 + int(zone_minute)) * (-60 if sign == "-" else 60)
    days = _days_before(year) - _EPOCH_DAYS + day - 1
    days += sum(_month_days(year, number) for number in range(1, month))
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - offset_s
    return make_timestamp(seconds * _SECOND + int((fraction or "0")[:9].ljust(9, "0")), offset_s)


def fields_at(moment: Timestamp, offset_s: int) -> dict[str, int]:
    """Return the parts of a moment by the names of the functions that give them."""
    seconds, ns = divmod(moment.ns, _SECOND)
    days, rest = divmod(seconds + offset_s, 86400)
    days += _EPOCH_DAYS
    year = days // 366 + 1
    while _days_before(year + 1) <= days:
        year += 1
    day_of_year = days - _days_before(year)
    day = day_of_year
    month = 1
    while day >= _month_days(year, month):
        day -= _month_days(year, month)
        month += 1
    return {
        "getFullYear": year,
        "getMonth": month - 1,
        "getDayOfYear": day_of_year,
        "getDayOfMonth": day,
        "getDate": day + 1,
        "getDayOfWeek": (days + 1) % 7,
        "getHours": rest // 3600,
        "getMinutes": rest // 60 % 60,
        "getSeconds": rest % 60,
        "getMilliseconds": ns // 10**6,
    }


def zone_offset_s(name: str) -> int:
    """Return the seconds east of UTC of a zone given as an offset, such as ``+02:00``."""
    if name in ("", "UTC"):
        return 0
    hours, colon, minutes = name.partition(":")
    if not colon:
        raise EvaluationError(f"the time zone {name!r} is not supported; give it as +hh:mm")
    if not _ATOI.fullmatch(hours) or not _ATOI.fullmatch(minutes):
        raise EvaluationError(f"the time zone {name!r} is not an offset")
    offset = int(hours) * 60 + (-int(minutes) if hours[0] == "-" else int(minutes))
    return max(INT_MIN, min(INT_MAX, offset * 60))


def timestamp_text(moment: Timestamp) -> str:
    """Print a moment as RFC 3339, in the time zone it was written in."""
    part = fields_at(moment, moment.offset_s)
    fraction = f".{moment.ns % _SECOND:09d}".rstrip("0").rstrip(".")
    zone = "Z"
    if moment.offset_s:
        minutes = abs(moment.offset_s) // 60
        sign = "-" if moment.offset_s < 0 else "+"
        zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    return (
        f"{part['getFullYear']:04d}-{part['getMonth'] + 1:02d}-{part['getDate']:02d}"
        f"T{part['getHours']:02d}:{part['getMinutes']:02d}:{part['getSeconds']:02d}"
        f"{fraction}{zone}"
    )
