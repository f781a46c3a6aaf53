"""Arithmetic with the ranges and the rounding of Go."""

from __future__ import annotations

import math
import re
from typing import NoReturn

from memqos.oom.expression.literals import INT_MAX, INT_MIN, UINT_MAX
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.values import Uint


__all__ = [
    "divide",
    "double_from_text",
    "double_text",
    "int_divide",
    "int_from_double",
    "int_from_text",
    "int_from_uint",
    "int_modulo",
    "int_overflow",
    "int_value",
    "uint_divide",
    "uint_from_double",
    "uint_from_int",
    "uint_from_text",
    "uint_modulo",
    "uint_overflow",
    "uint_value",
]

_DECIMAL = re.compile(r"[+-]?(?:[0-9_]++\.?[0-9_]*+|\.[0-9_]++)(?:[eE][+-]?[0-9_]++)?", re.ASCII)
_HEXADECIMAL = re.compile(
    r"([+-]?)0[xX]([0-9a-fA-F_]*+)(?:\.([0-9a-fA-F_]*+))?[pP]([+-]?[0-9_]++)", re.ASCII
)
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}


def int_overflow() -> NoReturn:
    """Refuse a result beyond int64."""
    raise EvaluationError("integer overflow")


def uint_overflow() -> NoReturn:
    """Refuse a result beyond uint64."""
    raise EvaluationError("unsigned integer overflow")


def int_value(value: int) -> int:
    """Return an int64 that may be beyond its range."""
    return value if INT_MIN <= value <= INT_MAX else int_overflow()


def uint_value(value: int) -> Uint:
    """Return a uint64 that may be beyond its range."""
    return Uint(value) if 0 <= value <= UINT_MAX else uint_overflow()


def divide(left: float, right: float) -> float:
    """Divide doubles as IEEE 754 does."""
    if right:
        return left / right
    if left != left or not left or right != right:  # noqa: PLR0124 - NaN
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def int_divide(left: int, right: int) -> int:
    """Divide ints; the result is cut, not rounded."""
    if not right:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return int_value(quotient if (left < 0) is (right < 0) else -quotient)


def int_modulo(left: int, right: int) -> int:
    """Return the rest of a division; it has the sign of the dividend."""
    if not right:
        raise EvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        int_overflow()
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def uint_divide(left: int, right: int) -> Uint:
    """Divide unsigned integers."""
    if not right:
        raise EvaluationError("division by zero")
    return Uint(left // right)


def uint_modulo(left: int, right: int) -> Uint:
    """Return the rest of a division of unsigned integers."""
    if not right:
        raise EvaluationError("modulus by zero")
    return Uint(left % right)


def int_from_double(value: float) -> int:
    """Cut a double to an int."""
    if not -(2.0**63) < value < 2.0**63:
        int_overflow()
    return int(value)


def int_from_uint(value: int) -> int:
    """Turn an unsigned integer into an int."""
    return int(value) if value <= INT_MAX else int_overflow()


def uint_from_double(value: float) -> Uint:
    """Cut a double to an unsigned integer."""
    if not 0 <= value < 2.0**64:
        uint_overflow()
    return Uint(value)


def uint_from_int(value: int) -> Uint:
    """Turn an int into an unsigned integer."""
    return Uint(value) if value >= 0 else uint_overflow()


def _conversion(kind: str) -> NoReturn:
    raise EvaluationError(f"type conversion error from 'string' to '{kind}'")


def int_from_text(text: str) -> int:
    """Read a decimal int."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > 19:
        _conversion("int")
    value = int(text)
    return value if INT_MIN <= value <= INT_MAX else _conversion("int")


def uint_from_text(text: str) -> Uint:
    """Read a decimal unsigned integer."""
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > 20:
        _conversion("uint")
    value = int(text)
    return Uint(value) if value <= UINT_MAX else _conversion("uint")


def double_from_text(text: str) -> float:
    """Read a double as Go's ParseFloat does."""
    special = _SPECIAL.get(text.lower()) if text.isascii() else None
    if special is not None:
        return special
    if "_" in text and not _underscores_fit(text):
        _conversion("double")
    if _DECIMAL.fullmatch(text):
        value = float(text.replace("_", ""))
    elif match := _HEXADECIMAL.fullmatch(text):
        sign, whole, fraction, power = (part.replace("_", "") for part in match.groups(""))
        if not (whole or fraction):
            _conversion("double")
        if len(power) > 7:
            power = f"{power[0] if power[0] in '+-' else ''}999999"
        value = _scaled(f"{sign}0x{whole}.{fraction}p{power}")
    else:
        _conversion("double")
    if math.isinf(value):
        _conversion("double")
    return value


def _underscores_fit(text: str) -> bool:
    """Tell whether every underscore is between digits, or behind a prefix."""
    rest = text.lstrip("+-") if text[:2] not in ("++", "--", "+-", "-+") else text
    hexadecimal = rest[:2] in ("0x", "0X")
    digits = "0123456789abcdefABCDEF" if hexadecimal else "0123456789"
    before = "digit" if hexadecimal else "start"
    for character in rest[2:] if hexadecimal else rest:
        if character in digits:
            before = "digit"
        elif character == "_":
            if before != "digit":
                return False
            before = "underscore"
        elif before == "underscore":
            return False
        else:
            before = "other"
    return before != "underscore"


def _scaled(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def double_text(value: float) -> str:
    """Print a double as Go's ``%g`` does."""
    if value != value:  # noqa: PLR0124 - NaN
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    point = len(whole) + int(exponent or "0")
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    if not digits:
        return f"{sign}0"
    power = point - leading - 1
    if power < -4 or power >= 6:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if power + 1 >= len(digits):
        return f"{sign}{digits}{'0' * (power + 1 - len(digits))}"
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"
