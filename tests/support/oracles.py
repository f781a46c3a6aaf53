"""Other implementations of CEL, to judge ours with."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional


class Outcome(NamedTuple):
    """What an expression comes to: a value, or no value."""

    fails: bool
    value: object = None

    def same(self, other: Outcome) -> bool:
        """Tell whether two outcomes agree; messages differ between implementations."""
        if self.fails or other.fails:
            return self.fails is other.fails
        mine, theirs = self.value, other.value
        if isinstance(mine, float) and isinstance(theirs, float) and math.isnan(mine):
            return math.isnan(theirs)
        return type(mine) is type(theirs) and mine == theirs


@cache
def _cel_cpp() -> Any:
    """Return cel-cpp with the variables of `expressions.ENVIRONMENT`."""
    kinds = cel.Type
    return cel.NewEnv(
        variables={
            "n": kinds.INT,
            "u": kinds.UINT,
            "x": kinds.DOUBLE,
            "b": kinds.BOOL,
            "s": kinds.STRING,
            "t": kinds.DURATION,
            "q": kinds.Map(kinds.INT, kinds.DOUBLE),
            "m": kinds.Map(kinds.STRING, kinds.UINT),
        },
        extensions=[ext_optional.ExtOptional()],
    )


def cel_cpp_compiled(text: str) -> Any:
    """Compile with cel-cpp; None when its checker refuses."""
    try:
        return _cel_cpp().compile(text)
    except RuntimeError:
        return None


def cel_cpp_outcome(expression: Any, values: Mapping[str, Any]) -> Outcome:
    """Evaluate with cel-cpp; its durations have microseconds."""
    span = dt.timedelta(microseconds=values["t"] // 1000)
    result = expression.eval(data={**values, "t": span})
    if result.type() == cel.Type.ERROR:
        return Outcome(True)
    value = result.plain_value()
    if isinstance(value, dt.timedelta):
        value = (value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000
    return Outcome(False, value)


def celpy_outcome(text: str, values: Mapping[str, Any]) -> Outcome:
    """Evaluate with celpy's interpreter."""
    import celpy

    environment = _celpy_environment()
    wrapped = {
        "n": celpy.celtypes.IntType(values["n"]),
        "u": celpy.celtypes.UintType(values["u"]),
        "x": celpy.celtypes.DoubleType(values["x"]),
        "b": celpy.celtypes.BoolType(values["b"]),
        "s": celpy.celtypes.StringType(values["s"]),
        "t": celpy.celtypes.DurationType(dt.timedelta(microseconds=values["t"] // 1000)),
    }
    try:
        value = environment.program(environment.compile(text)).evaluate(wrapped)
    except celpy.evaluation.CELEvalError:
        return Outcome(True)
    match value:
        case celpy.celtypes.BoolType():
            return Outcome(False, bool(value))
        case dt.timedelta():
            whole = value.days * 86400 + value.seconds
            return Outcome(False, whole * 10**9 + value.microseconds * 1000)
        case int():
            return Outcome(False, int(value))
        case float():
            return Outcome(False, float(value))
        case _:
            return Outcome(False, str(value))


@cache
def _celpy_environment() -> Any:
    import celpy

    limit = sys.getrecursionlimit()
    environment = celpy.Environment()
    sys.setrecursionlimit(limit)  # which celpy has changed for the whole process
    return environment
