"""The code of operands, before it is put together."""

from __future__ import annotations

from typing import Any, Final
from typing import Literal as OneOf

from attrs import field, frozen

from memqos.oom.expression.types import Type


__all__ = ["SCALARS", "UNSURE", "Form", "Piece", "depth_of", "unsure"]

Form = OneOf["scalar", "optional", "map", "boxed"]

SCALARS = frozenset({"bool", "int", "uint", "double", "string", "bytes", "duration"})
UNSURE = frozenset({"dyn", "null_type", "error"})
_NOT_CONSTANT: Final = object()


@frozen
class Piece:
    """The code of an operand.

    Attributes:
        code: an expression of Python.
        of: the type that the checker gave it.
        form: plain value, value or None, dict of plain values, or a value that carries its type.
        sure: values have the type that the checker says.
        fails: evaluation may raise.
        depth: how deep the parentheses of the code are.
        constant: the value, in the form that carries its type.
        hoisted: the code calls the function written last.
    """

    code: str
    of: Type
    form: Form
    sure: bool = True
    fails: bool = False
    depth: int = 0
    constant: Any = field(default=_NOT_CONSTANT)
    hoisted: bool = False

    @property
    def known(self) -> bool:
        """Whether the value is known beforehand."""
        return self.constant is not _NOT_CONSTANT


def unsure(of: Type) -> bool:
    """Tell whether values may turn out to have another type than the checker says."""
    return of.kind in UNSURE or any(unsure(part) for part in of.of)


def depth_of(parts: list[Piece]) -> int:
    """Return how deep the parentheses around some operands are."""
    return 1 + max((part.depth for part in parts), default=0)
