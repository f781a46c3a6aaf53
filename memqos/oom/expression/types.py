"""The types of expressions."""

from __future__ import annotations

from typing import Final

from attrs import frozen


__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "ERROR",
    "INT",
    "NULL",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "Type",
    "list_of",
    "map_of",
    "optional_of",
    "parameter",
    "type_of",
]


@frozen
class Type:
    """A type: its kind, and the types it is made of.

    Attributes:
        kind: ``int``, ``list``, ``optional_type``, …; ``parameter`` for a type variable.
        of: key and value of a map, element of a list, value of an optional, subject of a type.
        name: of a type variable.
    """

    kind: str
    of: tuple[Type, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        """Give the type as messages spell it."""
        if self.kind == "parameter":
            return self.name
        if self.of:
            return f"{self.kind}({', '.join(str(part) for part in self.of)})"
        return {"null_type": "null", "error": "!error!"}.get(self.kind, self.kind)


BOOL: Final = Type("bool")
BYTES: Final = Type("bytes")
DOUBLE: Final = Type("double")
DURATION: Final = Type("duration")
DYN: Final = Type("dyn")
ERROR: Final = Type("error")
INT: Final = Type("int")
NULL: Final = Type("null_type")
STRING: Final = Type("string")
TIMESTAMP: Final = Type("timestamp")
UINT: Final = Type("uint")


def list_of(element: Type) -> Type:
    """Return the type of a list."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of an optional value."""
    return Type("optional_type", (value,))


def type_of(subject: Type) -> Type:
    """Return the type of a type."""
    return Type("type", (subject,))


def parameter(name: str) -> Type:
    """Return a type variable."""
    return Type("parameter", name=name)
