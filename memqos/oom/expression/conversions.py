"""From one type to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memqos.oom.expression import numbers
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.times import (
    duration_from_text,
    duration_text,
    make_timestamp,
    timestamp_from_text,
    timestamp_text,
)
from memqos.oom.expression.values import Duration, Timestamp, TypeName, Uint, kind_of, no_overload


__all__ = [
    "same",
    "to_bool",
    "to_bytes",
    "to_double",
    "to_duration",
    "to_int",
    "to_string",
    "to_timestamp",
    "to_uint",
    "type_name",
]

_SECOND = 10**9


def _converter(name: str, table: Mapping[type, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        found = table.get(type(value))
        return no_overload() if found is None else found(value)

    convert.__name__ = f"to_{name}"
    return convert


def _bool_from_text(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


def _text_from_bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def same(value: Any) -> Any:
    """Return a value as it is."""
    return value


to_bool = _converter("bool", {bool: same, str: _bool_from_text})
to_bytes = _converter(
    "bytes", {bytes: same, str: lambda text: text.encode("utf-8", "surrogateescape")}
)
to_double = _converter(
    "double", {float: same, int: float, Uint: float, str: numbers.double_from_text}
)
to_duration = _converter("duration", {Duration: same, str: duration_from_text})
to_int = _converter(
    "int",
    {
        int: same,
        float: numbers.int_from_double,
        Duration: int,
        str: numbers.int_from_text,
        Timestamp: lambda moment: moment.ns // _SECOND,
        Uint: numbers.int_from_uint,
    },
)
to_string = _converter(
    "string",
    {
        str: same,
        bool: lambda value: "true" if value else "false",
        bytes: _text_from_bytes,
        float: numbers.double_text,
        Duration: duration_text,
        int: str,
        Timestamp: timestamp_text,
        Uint: lambda value: str(int(value)),
    },
)
to_timestamp = _converter(
    "timestamp",
    {
        Timestamp: same,
        int: lambda seconds: make_timestamp(seconds * _SECOND),
        str: timestamp_from_text,
    },
)
to_uint = _converter(
    "uint",
    {
        Uint: same,
        float: numbers.uint_from_double,
        int: numbers.uint_from_int,
        str: numbers.uint_from_text,
    },
)


def type_name(value: Any) -> TypeName:
    """``type(value)``."""
    return TypeName(kind_of(value))
