"""Values that may be absent."""

from __future__ import annotations

from typing import Any, NoReturn

from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.values import (
    NONE,
    CelMap,
    Optional,
    Timestamp,
    TypeName,
    as_optional,
    require,
)


__all__ = [
    "first",
    "has_value",
    "last",
    "no_value",
    "optional_none",
    "optional_of",
    "optional_of_non_zero",
    "unwrap",
    "value_of",
]

_SECOND = 10**9


def optional_of(value: Any) -> Optional:
    """``optional.of(value)``."""
    return Optional(True, value)


def optional_of_non_zero(value: Any) -> Optional:
    """``optional.ofNonZeroValue(value)``."""
    match value:
        case Optional():
            zero = not value.present
        case Timestamp():
            zero = value.ns == -62135596800 * _SECOND
        case TypeName():
            zero = False
        case list() | CelMap():
            zero = len(value) == 0
        case _:
            zero = not value
    return NONE if zero else Optional(True, value)


def optional_none() -> Optional:
    """``optional.none()``."""
    return NONE


def value_of(value: Any) -> Any:
    """``optional.value()``."""
    optional = as_optional(value)
    return optional.value if optional.present else no_value()


def no_value() -> NoReturn:
    """Refuse to give the value of none."""
    raise EvaluationError("optional.none() dereference")


def has_value(value: Any) -> bool:
    """``optional.hasValue()``."""
    return as_optional(value).present


def unwrap(values: Any) -> list[Any]:
    """``optional.unwrap(list)``."""
    require(list, values)
    return [element.value for element in values if as_optional(element).present]


def first(values: Any) -> Optional:
    """``list.first()``."""
    require(list, values)
    return Optional(True, values[0]) if values else NONE


def last(values: Any) -> Optional:
    """``list.last()``."""
    require(list, values)
    return Optional(True, values[-1]) if values else NONE
