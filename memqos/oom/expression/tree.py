"""Expressions as trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeGuard

from attrs import define, evolve, field

from memqos.oom.expression.types import BOOL, ERROR, INT, Type


__all__ = [
    "Call",
    "Entry",
    "Ident",
    "Items",
    "Literal",
    "Macro",
    "Mapped",
    "Node",
    "Select",
    "children",
    "constant_keys",
    "variables",
    "weakened",
]


@define(eq=False, kw_only=True)
class _Base:
    """What every node has.

    Attributes:
        offset: where messages about it point.
        span: offsets of its first character and behind its last.
        type: given by the checker.
    """

    offset: int
    span: tuple[int, int] = (0, 0)
    type: Type = field(default=ERROR)


@define(eq=False, kw_only=True)
class Literal(_Base):
    """A value written out."""

    value: Any


@define(eq=False, kw_only=True)
class Ident(_Base):
    """A name.

    Attributes:
        name: as written; a leading dot means that no loop variable hides it.
        binding: ``variable``, ``constant``, ``type`` or ``local``; given by the checker.
        value: of a constant or type.
    """

    name: str
    binding: str = "local"
    value: Any = None


@define(eq=False, kw_only=True)
class Select(_Base):
    """``operand.name``.

    Attributes:
        operand: what it is taken from.
        name: the field.
        optional: ``operand.?name``.
        test: ``has(operand.name)``.
        resolved: the type that the whole dotted name stands for; given by the checker.
    """

    operand: Node
    name: str
    optional: bool = False
    test: bool = False
    resolved: Any = None


@define(eq=False, kw_only=True)
class Call(_Base):
    """A function or operator applied to its arguments.

    Attributes:
        function: name; operators as ``_+_``.
        target: what a method is called on; the checker clears it where it was a name space.
        args: the arguments.
    """

    function: str
    target: Node | None = None
    args: list[Node]


@define(eq=False, kw_only=True)
class Items(_Base):
    """A list; `optional` holds the indexes of elements that may be left out."""

    elements: list[Node]
    optional: frozenset[int] = frozenset()


@define(eq=False, kw_only=True)
class Entry:
    """One entry of a map."""

    key: Node
    value: Node
    optional: bool = False


@define(eq=False, kw_only=True)
class Mapped(_Base):
    """A map."""

    entries: list[Entry]


@define(eq=False, kw_only=True)
class Macro(_Base):
    """A loop or a binding.

    Attributes:
        kind: ``all``, ``exists``, ``exists_one``, ``map``, ``filter``, ``optMap``, ``optFlatMap``.
        source: what it goes over.
        variable: name of the element.
        condition: what must hold for an element, None for no condition.
        transform: what becomes of an element, None for the element itself.
    """

    kind: str
    source: Node
    variable: str
    condition: Node | None
    transform: Node | None


Node: TypeAlias = Literal | Ident | Select | Call | Items | Mapped | Macro


def children(node: Node) -> list[Node]:
    """Return the nodes that a node is made of, in the order they are written."""
    match node:
        case Select():
            return [] if node.resolved is not None else [node.operand]
        case Call():
            return node.args if node.target is None else [node.target, *node.args]
        case Items():
            return node.elements
        case Mapped():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case Macro():
            parts = [node.source, node.condition, node.transform]
            return [part for part in parts if part is not None]
        case _:
            return []


def variables(root: Node) -> Iterator[str]:
    """Yield the variables that are used below a node, some of them more than once."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, Ident) and node.binding == "variable":
            yield node.name
        rest += children(node)


def weakened(condition: Node, names: frozenset[str]) -> Node:
    """Put true for those operands of ``&&`` and ``||`` that depend on some variables."""
    if isinstance(condition, Call) and condition.function in ("_&&_", "_||_"):
        return evolve(condition, args=[weakened(operand, names) for operand in condition.args])
    if names.isdisjoint(variables(condition)):
        return condition
    return Literal(offset=condition.offset, span=condition.span, type=BOOL, value=True)


def constant_keys(root: Node) -> frozenset[int] | None:
    """Collect the keys by which a checked expression looks into maps among its variables.

    None if it may look at any. The maps' keys are integers.
    """
    found: set[int] = set()
    rest = [root]
    while rest:
        node = rest.pop()
        match node:
            case Call(function="_[_]" | "_[?_]", args=[Ident(binding="variable"), key]):
                keys = [key]
            case Call(
                function="multiply_qos_vectors", args=[Ident(binding="variable"), Mapped() as map_]
            ):
                keys = [entry.key for entry in map_.entries]
                rest += [entry.value for entry in map_.entries]
            case Ident(binding="variable") if node.type.kind == "map":
                return None
            case _:
                rest += children(node)
                continue
        for key in keys:
            if key.type != INT or not _is_constant(key):
                return None
            found.add(key.value)
    return frozenset(found)


def _is_constant(node: Node) -> TypeGuard[Literal | Ident]:
    return isinstance(node, Literal) or (isinstance(node, Ident) and node.binding == "constant")
