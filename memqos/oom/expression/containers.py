"""Lists and maps, for values whose type is only known while an expression runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from memqos.oom.expression import numbers
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.values import NONE, CelMap, Optional, Uint, equal, kind_of, no_overload


__all__ = [
    "contains_item",
    "given",
    "index",
    "items_of",
    "key_text",
    "make_list",
    "make_map",
    "optional_index",
    "present_field",
    "size",
]


def contains_item(item: Any, container: Any) -> bool:
    """``item in container``."""
    if type(container) is list:
        return any(equal(item, element) for element in container)
    if type(container) is CelMap:
        return container.find(item) is not None
    return no_overload()


def _position(index: Any) -> int:
    if type(index) in (int, Uint) or (type(index) is float and index.is_integer()):
        return int(index)
    raise EvaluationError(f"unsupported index type '{kind_of(index)}' in list")


def _lookup(value: Any, key: Any) -> tuple[Any] | None:
    if type(value) is CelMap:
        return value.find(key)
    if type(value) is list:
        position = _position(key)
        return (value[position],) if 0 <= position < len(value) else None
    return None


def _missing(value: Any, key: Any) -> NoReturn:
    if type(value) is list:
        raise EvaluationError(f"index out of bounds: {_position(key)}")
    shown = key if isinstance(key, str | int | float) else kind_of(key)
    raise EvaluationError(f"no such key: {key_text(shown)}")


def key_text(value: Any) -> str:
    """Print a key as Go does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return numbers.double_text(value) if isinstance(value, float) else str(value)


def index(value: Any, key: Any) -> Any:
    """``value[key]``; of an optional value, an optional value."""
    if type(value) is Optional:
        return optional_index(value, key) if value.present else NONE
    found = _lookup(value, key)
    return _missing(value, key) if found is None else found[0]


def optional_index(value: Any, key: Any) -> Optional:
    """``value[?key]``."""
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.value
    found = _lookup(value, key)
    if found is None:
        return NONE
    return Optional(True, found[0])


def present_field(value: Any, name: str) -> bool:
    """``has(value.name)``."""
    if type(value) is Optional:
        return value.present and present_field(value.value, name)
    return type(value) is CelMap and value.find(name) is not None


def size(value: Any) -> int:
    """Count characters, bytes, elements or entries."""
    return len(value) if type(value) in (str, bytes, list, CelMap) else no_overload()


def items_of(value: Any) -> Iterable[Any]:
    """Return what a loop goes over: elements, or keys."""
    if type(value) is list:
        return value
    if type(value) is CelMap:
        return list(value)
    raise EvaluationError(f"got '{kind_of(value)}', expected iterable type")


def given(value: Any) -> tuple[Any, ...]:
    """Return the value of an optional element in a tuple, or nothing."""
    if type(value) is not Optional:
        raise EvaluationError(f"cannot initialize optional list element from {kind_of(value)}")
    return (value.value,) if value.present else ()


def make_list(*elements: Any) -> list[Any]:
    """``[…]``."""
    return list(elements)


def make_map(*entries: tuple[Any, Any, bool]) -> CelMap:
    """``{…}``: key, value, and whether the value is an optional one that may be left out."""
    made = CelMap()
    for key, value, optional in entries:
        if not optional:
            made.set(key, value)
        elif found := given(value):
            made.set(key, found[0])
        else:
            made.remove(key)
    return made
