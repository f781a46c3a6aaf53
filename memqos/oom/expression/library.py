"""The functions of expressions by name, for values that carry their type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from memqos.oom.expression import containers, conversions, operators, optionals, text
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.times import fields_at, zone_offset_s
from memqos.oom.expression.values import CelMap, Duration, Timestamp, equal, require


__all__ = ["FUNCTIONS", "dot"]

_SECOND = 10**9
_DURATION_PARTS = {
    "getHours": 3600 * _SECOND,
    "getMinutes": 60 * _SECOND,
    "getSeconds": _SECOND,
    "getMilliseconds": 10**6,
}


def _time_part(name: str) -> Callable[..., int]:
    def part(value: Any, *zone: Any) -> int:
        require(str, *zone)
        if type(value) is Duration and not zone and name in _DURATION_PARTS:
            whole = abs(int(value)) // _DURATION_PARTS[name]
            return -whole if value < 0 else whole
        require(Timestamp, value)
        return fields_at(value, zone_offset_s(zone[0]) if zone else 0)[name]

    part.__name__ = name
    return part


def dot(values: Mapping[Any, float], weights: Mapping[Any, float]) -> float:
    """Sum the products of the values that have a weight, in the order of their keys."""
    total = 0.0
    for key in sorted(values):
        if key in weights:
            total += values[key] * weights[key]
    return total


def multiply_vectors(values: Any, weights: Any) -> float:
    """``multiply_qos_vectors(values, weights)``."""
    require(CelMap, values, weights)
    pairs: list[tuple[Any, float]] = []
    for key, value in values.items():
        weight = weights.find(key)
        if weight is None:
            continue
        if type(value) is not float or type(weight[0]) is not float:
            raise EvaluationError("internal error: a value or weight is not a double")
        pairs.append((key, value * weight[0]))
    total = 0.0
    for _, product in sorted(pairs, key=_class_order):
        total += product
    return total


def _class_order(pair: tuple[Any, float]) -> float:
    return pair[0] if isinstance(pair[0], int | float) else 0


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "!_": operators.logical_not,
        "_==_": equal,
        "_!=_": operators.not_equal,
        "_<_": operators.less,
        "_<=_": operators.less_equal,
        "_>_": operators.greater,
        "_>=_": operators.greater_equal,
        "_+_": operators.add,
        "_-_": operators.subtract,
        "_*_": operators.multiply,
        "_/_": operators.divide,
        "_%_": operators.modulo,
        "-_": operators.negate,
        "_[_]": containers.index,
        "_[?_]": containers.optional_index,
        "@in": containers.contains_item,
        "size": containers.size,
        "type": conversions.type_name,
        "dyn": conversions.same,
        "bool": conversions.to_bool,
        "bytes": conversions.to_bytes,
        "double": conversions.to_double,
        "duration": conversions.to_duration,
        "int": conversions.to_int,
        "string": conversions.to_string,
        "timestamp": conversions.to_timestamp,
        "uint": conversions.to_uint,
        "contains": text.contains,
        "endsWith": text.ends_with,
        "startsWith": text.starts_with,
        **{
            name: _time_part(name)
            for name in (
                *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate"),
                *("getDayOfWeek", "getHours", "getMinutes", "getSeconds", "getMilliseconds"),
            )
        },
        "optional.of": optionals.optional_of,
        "optional.ofNonZeroValue": optionals.optional_of_non_zero,
        "optional.none": optionals.optional_none,
        "optional.unwrap": optionals.unwrap,
        "unwrapOpt": optionals.unwrap,
        "value": optionals.value_of,
        "hasValue": optionals.has_value,
        "first": optionals.first,
        "last": optionals.last,
        "multiply_qos_vectors": multiply_vectors,
    }
)
