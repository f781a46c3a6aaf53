"""Typed getters over plain data (from YAML or JSON), with the JSON path in every error.

Nothing is coerced: a boolean is no number, a number is no string.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memqos.errors import InputError, QuantityError
from memqos.quantity import Quantity, parse_quantity


__all__ = [
    "boolean",
    "integer",
    "items",
    "mapping",
    "member",
    "number",
    "number_text",
    "quantity",
    "string",
    "string_map",
    "strings",
]


def member(path: str, key: str) -> str:
    """Return the JSON path of a member, quoted where the key is not a plain name."""
    return f"{path}.{key}" if key.replace("_", "a").isalnum() else f"{path}[{key!r}]"


def mapping(value: object, path: str) -> Mapping[str, object]:
    """Take an object; null is an empty one."""
    if value is None:
        return {}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"the key {key!r} is {_name(key)}; quote it", path=path)
        return value
    raise _mismatch(value, "an object", path)


def items(value: object, path: str) -> Sequence[object]:
    """Take an array; null is an empty one."""
    if value is None:
        return ()
    if isinstance(value, list):
        return value
    raise _mismatch(value, "an array", path)


def string(value: object, path: str) -> str:
    """Take a string, and nothing that YAML reads as something else."""
    if isinstance(value, str):
        return value
    hint = "" if isinstance(value, list | dict) or value is None else "; quote it"
    raise _mismatch(value, "a string", path, hint)


def strings(value: object, path: str) -> tuple[str, ...]:
    """Take an array of strings."""
    return tuple(string(item, f"{path}[{index}]") for index, item in enumerate(items(value, path)))


def number(value: object, path: str) -> float:
    """Take a finite number, as a double."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        raise InputError("a number that is not finite, or too large", path=path)
    raise _mismatch(value, "a number", path)


def boolean(value: object, path: str) -> bool:
    """Take a boolean."""
    if isinstance(value, bool):
        return value
    raise _mismatch(value, "true or false", path)


def integer(value: object, path: str, *, low: int, high: int) -> int:
    """Take an integer between `low` and `high`."""
    if isinstance(value, int) and not isinstance(value, bool):
        if low <= value <= high:
            return value
        raise InputError(f"{value} is not between {low} and {high}", path=path)
    raise _mismatch(value, "an integer", path)


def string_map(value: object, path: str) -> Mapping[str, str]:
    """Take an object whose values are all strings."""
    return {key: string(item, member(path, key)) for key, item in mapping(value, path).items()}


def quantity(value: object, path: str) -> Quantity:
    """Take a ``resource.Quantity``: a string, or a number in its text form.

    A quantity without any digit, which Go reads as zero, is refused: in a manifest it is a slip.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _mismatch(value, "a quantity such as 128Mi", path)
    text = value if isinstance(value, str) else number_text(value)
    try:
        found = parse_quantity(text)
    except QuantityError as error:
        raise QuantityError(error.message, path=path) from None
    if found.nanos == 0 and not any(char.isdigit() for char in text):
        raise QuantityError(f"{text!r} is a quantity without digits", path=path)
    return found


def number_text(value: float) -> str:
    """Write a number as it stands in the JSON that Kubernetes makes of a YAML file."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e21):
        return str(int(value))
    return repr(value)


def _mismatch(value: object, expected: str, path: str, hint: str = "") -> InputError:
    return InputError(f"{_name(value)} where {expected} is expected{hint}", path=path)


def _name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {str(value)[:40]}"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return "an array" if isinstance(value, list) else "an object"
