"""Values whose type is only known while an expression runs.

Where types are known beforehand, values are plain; see `codegen`. Everything else is an int,
float, bool, str, bytes, None or list of Python, or one of the classes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from attrs import frozen

from memqos.oom.expression.literals import INT_MAX, INT_MIN, UINT_MAX
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.types import Type


__all__ = [
    "NONE",
    "CelMap",
    "Duration",
    "Optional",
    "Timestamp",
    "TypeName",
    "Uint",
    "as_bool",
    "as_optional",
    "box",
    "compare",
    "equal",
    "kind_of",
    "no_overload",
    "require",
    "unbox",
]


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Duration(int):
    """A span of time, in nanoseconds."""

    __slots__ = ()


@frozen
class Timestamp:
    """A moment.

    Attributes:
        ns: since 1970, UTC.
        offset_s: of the time zone it was written in, east of UTC.
    """

    ns: int
    offset_s: int = 0


@frozen
class TypeName:
    """A type as a value."""

    name: str


@frozen(eq=False)
class Optional:
    """A value, or none."""

    present: bool
    value: Any = None


NONE: Final = Optional(False)


class CelMap:
    """A map; numbers of different types are different keys, and find one another."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[Any, Any]] = ()) -> None:
        self._entries: dict[Any, tuple[Any, Any]] = {}
        for key, value in entries:
            self.set(key, value)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._entries.values()])

    def items(self) -> list[tuple[Any, Any]]:
        """Return the entries."""
        return list(self._entries.values())

    def set(self, key: Any, value: Any) -> None:
        """Add or replace an entry."""
        self._entries[_hashed(key)] = (key, value)

    def remove(self, key: Any) -> None:
        """Drop an entry, if there is one."""
        self._entries.pop(_hashed(key), None)

    def find(self, key: Any) -> tuple[Any] | None:
        """Return the value of a key in a tuple, None when there is none."""
        for candidate in _spellings(key):
            found = self._entries.get(_hashed(candidate))
            if found is not None:
                return (found[1],)
        return None


_KINDS: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeName: "type",
    list: "list",
    CelMap: "map",
    Optional: "optional_type",
}


def kind_of(value: Any) -> str:
    """Return the name of a value's type."""
    return _KINDS[type(value)]


def no_overload() -> NoReturn:
    """Refuse operands of a type that an operator does not take."""
    raise EvaluationError("no such overload")


def _hashed(key: Any) -> Any:
    kind = _KINDS[type(key)]
    if kind == "bytes":
        raise EvaluationError("bytes cannot be the key of a map")
    if kind in ("list", "map", "optional_type") or key != key:  # noqa: PLR0124 - NaN
        return object()  # such a key is there, and never found
    return kind, key


def _spellings(key: Any) -> Iterator[Any]:
    """Yield a key, then the same number in the other types that keys are looked up in."""
    yield key
    match key:
        case bool() | Duration():
            pass
        case float():
            if -(2.0**63) <= key < 2.0**64 and key.is_integer():
                if key < 2.0**63:
                    yield int(key)
                if key >= 0:
                    yield Uint(key)
        case Uint():
            if key <= INT_MAX:
                yield int(key)
        case int():
            if key >= 0:
                yield Uint(key)
        case _:
            pass


def _numeric(value: Any) -> bool:
    return type(value) in (int, Uint, float)


def _order(left: float, right: float) -> int:
    """Compare numbers of any types; integers meet doubles as doubles, as in Go."""
    if isinstance(left, float) is isinstance(right, float):
        return (left > right) - (left < right)
    if isinstance(right, float):
        return -_order(right, left)
    low, high = (0.0, float(UINT_MAX)) if type(right) is Uint else (float(INT_MIN), float(INT_MAX))
    if left < low:
        return -1
    if left > high:
        return 1
    return (left > float(right)) - (left < float(right))


def equal(left: Any, right: Any) -> bool:
    """Tell whether two values are equal; numbers are, across types."""
    if _numeric(left) and _numeric(right):
        return left == left and right == right and _order(left, right) == 0  # noqa: PLR0124 - NaN
    if type(left) is not type(right):
        return False
    match left:
        case list():
            return len(left) == len(right) and all(
                equal(a, b) for a, b in zip(left, right, strict=True)
            )
        case CelMap():
            if len(left) != len(right):
                return False
            for key, value in left.items():
                found = right.find(key)
                if found is None or not equal(value, found[0]):
                    return False
            return True
        case Optional():
            if not (left.present and right.present):
                return left.present is bool(right.present)
            return equal(left.value, right.value)
        case Timestamp():
            return left.ns == int(right.ns)
        case _:
            return bool(left == right)


def compare(left: Any, right: Any) -> int | None:
    """Return the order of two values as -1, 0 or 1, None when one is NaN."""
    if _numeric(left) and _numeric(right):
        if left != left or right != right:  # noqa: PLR0124 - NaN
            return None
        return _order(left, right)
    if type(left) is not type(right) or type(left) not in (
        *(bool, str, bytes, Duration, Timestamp),
    ):
        no_overload()
    a, b = (left.ns, right.ns) if type(left) is Timestamp else (left, right)
    return int(a > b) - int(a < b)


def box(value: Any, of: Type) -> Any:
    """Turn a plain value of a known type into one that carries its type."""
    match of.kind:
        case "uint":
            return Uint(value)
        case "duration":
            return Duration(value)
        case "timestamp":
            return value if isinstance(value, Timestamp) else Timestamp(value)
        case "optional_type":
            return NONE if value is None else Optional(True, box(value, of.of[0]))
        case "list":
            return [box(element, of.of[0]) for element in value]
        case "map":
            return CelMap((box(key, of.of[0]), box(item, of.of[1])) for key, item in value.items())
        case "dyn":
            if isinstance(value, list | tuple):
                return [box(element, of) for element in value]
            if isinstance(value, Mapping):
                return CelMap((box(key, of), box(item, of)) for key, item in value.items())
            return value
        case _:
            return value


def unbox(value: Any) -> Any:
    """Turn a value into a plain one: numbers of Python, lists, dicts, None for no value."""
    match value:
        case Uint() | Duration():
            return int(value)
        case Timestamp():
            return value.ns
        case TypeName():
            return value.name
        case Optional():
            return unbox(value.value) if value.present else None
        case list():
            return [unbox(element) for element in value]
        case CelMap():
            return {_plain_key(unbox(key)): unbox(item) for key, item in value.items()}
        case _:
            return value


def _plain_key(key: Any) -> Any:
    if isinstance(key, list):
        return tuple(_plain_key(part) for part in key)
    return repr(key) if isinstance(key, dict) else key


def as_bool(value: Any) -> bool:
    """Return an operand that must be a bool."""
    return value if type(value) is bool else no_overload()


def as_optional(value: Any) -> Optional:
    """Return an operand that must be an optional value."""
    return value if type(value) is Optional else no_overload()


def require(kind: type, *values: Any) -> None:
    """Refuse operands that are not of one kind."""
    for value in values:
        if type(value) is not kind:
            no_overload()
