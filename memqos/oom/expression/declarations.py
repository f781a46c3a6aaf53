"""The functions of the standard library, the optional library and the OOM policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from attrs import frozen

from memqos.oom.expression.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    parameter,
    type_of,
)


__all__ = ["ACROSS", "EXTRA", "FUNCTIONS", "TYPES", "Overload"]


@frozen
class Overload:
    """One way to call a function.

    Attributes:
        args: types of the arguments; of a method, the target is the first.
        result: type of the value.
        method: called as ``target.name(…)``.
        generic: a type variable occurs in it.
    """

    args: tuple[Type, ...]
    result: Type
    method: bool = False
    generic: bool = False


_A = parameter("A")
_B = parameter("B")
_LIST = list_of(_A)
_MAP = map_of(_A, _B)
_OPTIONAL = optional_of(_A)
_ORDERED = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_TIME_PARTS = (
    *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)


def _has_parameter(of: Type) -> bool:
    return of.kind == "parameter" or any(_has_parameter(part) for part in of.of)


def _call(*types: Type) -> Overload:
    """Declare a function: the arguments, then the result."""
    return Overload(types[:-1], types[-1], generic=any(_has_parameter(part) for part in types))


def _method(*types: Type) -> Overload:
    """Declare a method: the target, the arguments, then the result."""
    return Overload(types[:-1], types[-1], True, any(_has_parameter(part) for part in types))


def _both(*types: Type) -> tuple[Overload, Overload]:
    return _call(*types), _method(*types)


def _same(types: Iterable[Type]) -> list[Overload]:
    return [_call(of, of, of) for of in types]


def _from(result: Type, *sources: Type) -> list[Overload]:
    return [_call(result, result), *(_call(source, result) for source in sources)]


_INDEX = [_call(_LIST, INT, _A), _call(_MAP, _A, _B)]
_OPTIONAL_INDEX = [
    _call(optional_of(_LIST), INT, _OPTIONAL),
    _call(optional_of(_MAP), _A, optional_of(_B)),
]

FUNCTIONS: Final[Mapping[str, tuple[Overload, ...]]] = MappingProxyType(
    {
        name: tuple(overloads)
        for name, overloads in {
            "_?_:_": [_call(BOOL, _A, _A, _A)],
            "_&&_": [_call(BOOL, BOOL, BOOL)],
            "_||_": [_call(BOOL, BOOL, BOOL)],
            "!_": [_call(BOOL, BOOL)],
            "_==_": [_call(_A, _A, BOOL)],
            "_!=_": [_call(_A, _A, BOOL)],
            **{
                name: [_call(of, of, BOOL) for of in _ORDERED]
                for name in ("_<_", "_<=_", "_>_", "_>=_")
            },
            "_+_": [
                *_same((BYTES, DOUBLE, DURATION)),
                _call(DURATION, TIMESTAMP, TIMESTAMP),
                _call(TIMESTAMP, DURATION, TIMESTAMP),
                *_same((INT, _LIST, STRING, UINT)),
            ],
            "_-_": [
                *_same((DOUBLE, DURATION, INT)),
                _call(TIMESTAMP, DURATION, TIMESTAMP),
                _call(TIMESTAMP, TIMESTAMP, DURATION),
                _call(UINT, UINT, UINT),
            ],
            "_*_": _same((DOUBLE, INT, UINT)),
            "_/_": _same((DOUBLE, INT, UINT)),
            "_%_": _same((INT, UINT)),
            "-_": [_call(DOUBLE, DOUBLE), _call(INT, INT)],
            "_[_]": [*_INDEX, *_OPTIONAL_INDEX],
            "_[?_]": [
                _call(_LIST, INT, _OPTIONAL),
                _OPTIONAL_INDEX[0],
                _call(_MAP, _A, optional_of(_B)),
                _OPTIONAL_INDEX[1],
            ],
            "@in": [_call(_A, _LIST, BOOL), _call(_A, _MAP, BOOL)],
            "size": [
                overload for of in (BYTES, _LIST, _MAP, STRING) for overload in _both(of, INT)
            ],
            "type": [_call(_A, type_of(_A))],
            "dyn": [_call(_A, DYN)],
            "bool": _from(BOOL, STRING),
            "bytes": _from(BYTES, STRING),
            "double": _from(DOUBLE, INT, STRING, UINT),
            "duration": _from(DURATION, STRING),
            "int": _from(INT, DOUBLE, DURATION, STRING, TIMESTAMP, UINT),
            "string": _from(STRING, BOOL, BYTES, DOUBLE, DURATION, INT, TIMESTAMP, UINT),
            "timestamp": _from(TIMESTAMP, INT, STRING),
            "uint": _from(UINT, DOUBLE, INT, STRING),
            "contains": [_method(STRING, STRING, BOOL)],
            "endsWith": [_method(STRING, STRING, BOOL)],
            "startsWith": [_method(STRING, STRING, BOOL)],
            "matches": _both(STRING, STRING, BOOL),
            **{
                name: [_method(TIMESTAMP, INT), _method(TIMESTAMP, STRING, INT)]
                + ([_method(DURATION, INT)] if name in _TIME_PARTS[6:] else [])
                for name in _TIME_PARTS
            },
            "optional.of": [_call(_A, _OPTIONAL)],
            "optional.ofNonZeroValue": [_call(_A, _OPTIONAL)],
            "optional.none": [_call(_OPTIONAL)],
            "optional.unwrap": [_call(list_of(_OPTIONAL), _LIST)],
            "unwrapOpt": [_method(list_of(_OPTIONAL), _LIST)],
            "value": [_method(_OPTIONAL, _A)],
            "hasValue": [_method(_OPTIONAL, BOOL)],
            "or": [_method(_OPTIONAL, _OPTIONAL, _OPTIONAL)],
            "orValue": [_method(_OPTIONAL, _A, _A)],
            "first": [_method(_LIST, _OPTIONAL)],
            "last": [_method(_LIST, _OPTIONAL)],
            "multiply_qos_vectors": [_call(map_of(DYN, DOUBLE), map_of(DYN, DOUBLE), DOUBLE)],
        }.items()
    }
)

# Comparisons across numeric types, which cel-go's checker allows behind the first loop only.
ACROSS: Final[Mapping[str, tuple[Overload, ...]]] = MappingProxyType(
    {
        name: tuple(
            _call(left, right, BOOL)
            for left in (INT, UINT, DOUBLE)
            for right in (INT, UINT, DOUBLE)
            if left is not right
        )
        for name in ("_<_", "_<=_", "_>_", "_>=_")
    }
)

# The functions that an environment has to name to have them.
EXTRA: Final = frozenset({"multiply_qos_vectors"})

TYPES: Final[Mapping[str, Type]] = MappingProxyType(
    {
        "bool": BOOL,
        "bytes": BYTES,
        "double": DOUBLE,
        "google.protobuf.Duration": DURATION,
        "google.protobuf.Timestamp": TIMESTAMP,
        "int": INT,
        "list": _LIST,
        "map": _MAP,
        "null_type": NULL,
        "optional_type": _OPTIONAL,
        "string": STRING,
        "type": type_of(_A),
        "uint": UINT,
    }
)
