"""Operators, for values whose type is only known while an expression runs."""

from __future__ import annotations

from typing import Any

from memqos.oom.expression import numbers
from memqos.oom.expression.times import make_timestamp
from memqos.oom.expression.values import (
    Duration,
    Timestamp,
    Uint,
    as_bool,
    compare,
    equal,
    no_overload,
)


__all__ = [
    "add",
    "divide",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_not",
    "modulo",
    "multiply",
    "negate",
    "not_equal",
    "subtract",
]


def logical_not(value: Any) -> bool:
    """``!value``."""
    return not as_bool(value)


def not_equal(left: Any, right: Any) -> bool:
    """``left != right``."""
    return not equal(left, right)


def less(left: Any, right: Any) -> bool:
    """``left < right``."""
    return compare(left, right) == -1


def less_equal(left: Any, right: Any) -> bool:
    """``left <= right``."""
    return compare(left, right) in (-1, 0)


def greater(left: Any, right: Any) -> bool:
    """``left > right``."""
    return compare(left, right) == 1


def greater_equal(left: Any, right: Any) -> bool:
    """``left >= right``."""
    return compare(left, right) in (0, 1)


def add(left: Any, right: Any) -> Any:
    """``left + right``."""
    kind = type(left)
    if kind is Duration and type(right) is Timestamp:
        return make_timestamp(right.ns + left, right.offset_s)
    if kind is Timestamp and type(right) is Duration:
        return make_timestamp(left.ns + right, left.offset_s)
    if kind is not type(right):
        return no_overload()
    if kind in (float, str, bytes, list):
        return left + right
    if kind is int:
        return numbers.int_value(left + right)
    if kind is Uint:
        return numbers.uint_value(int(left) + int(right))
    if kind is Duration:
        return Duration(numbers.int_value(int(left) + int(right)))
    return no_overload()


def subtract(left: Any, right: Any) -> Any:
    """``left - right``."""
    kind = type(left)
    if kind is Timestamp and type(right) is Duration:
        return make_timestamp(left.ns + numbers.int_value(-int(right)), left.offset_s)
    if kind is not type(right):
        return no_overload()
    if kind is float:
        return left - right
    if kind is int:
        return numbers.int_value(left - right)
    if kind is Uint:
        return numbers.uint_value(int(left) - int(right))
    if kind is Duration:
        return Duration(numbers.int_value(int(left) - int(right)))
    if kind is Timestamp:
        return Duration(numbers.int_value(left.ns - right.ns))
    return no_overload()


def multiply(left: Any, right: Any) -> Any:
    """``left * right``."""
    if type(left) is not type(right):
        no_overload()
    if type(left) is float:
        return left * right
    if type(left) is int:
        return numbers.int_value(left * right)
    if type(left) is Uint:
        return numbers.uint_value(int(left) * int(right))
    return no_overload()


def divide(left: Any, right: Any) -> Any:
    """``left / right``."""
    if type(left) is not type(right):
        no_overload()
    if type(left) is float:
        return numbers.divide(left, right)
    if type(left) is int:
        return numbers.int_divide(left, right)
    if type(left) is Uint:
        return numbers.uint_divide(left, right)
    return no_overload()


def modulo(left: Any, right: Any) -> Any:
    """``left % right``."""
    if type(left) is not type(right):
        no_overload()
    if type(left) is int:
        return numbers.int_modulo(left, right)
    if type(left) is Uint:
        return numbers.uint_modulo(left, right)
    return no_overload()


def negate(value: Any) -> Any:
    """``-value``."""
    if type(value) is float:
        return -value
    if type(value) is int:
        return numbers.int_value(-value)
    if type(value) is Duration:
        return Duration(numbers.int_value(-int(value)))
    return no_overload()
