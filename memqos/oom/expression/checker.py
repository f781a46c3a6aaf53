"""The types of an expression, and all that cel-go's checker would refuse."""

from __future__ import annotations

from typing import Final

from memqos.oom.expression.declarations import ACROSS, EXTRA, FUNCTIONS, TYPES
from memqos.oom.expression.environment import Environment
from memqos.oom.expression.problems import SyntaxProblemError
from memqos.oom.expression.tree import (
    Call,
    Ident,
    Items,
    Literal,
    Macro,
    Mapped,
    Node,
    Select,
)
from memqos.oom.expression.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from memqos.oom.expression.unify import Bindings, most_general


__all__ = ["MAX_TYPE_PARTS", "Checker"]

MAX_TYPE_PARTS: Final = 128

_LOGICAL = frozenset({"_&&_", "_||_"})


class Checker:
    """Gives every node of a tree its type.

    Attributes:
        errors: message and offset of what is wrong.
        names: the variables that are used.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.errors: list[tuple[str, int]] = []
        self.names: set[str] = set()
        self._nodes: list[Node] = []
        self._bindings = Bindings()
        self._scopes: list[dict[str, Type]] = []
        # cel-go forgets with the first loop that numeric types are not to be compared.
        self._across = False

    def run(self, root: Node) -> Type:
        """Check a tree and return the type of its value."""
        self._check(root)
        for node in self._nodes:
            node.type = self._bindings.substitute(node.type, final=True)
        self.errors.sort(key=lambda error: error[1])
        return root.type

    def _error(self, message: str, offset: int) -> Type:
        self.errors.append((message, offset))
        return ERROR

    def _undeclared(self, name: str, offset: int) -> Type:
        return self._error(f"undeclared reference to '{name}' (in container '')", offset)

    def _fits(self, given: Type, wanted: Type) -> bool:
        return self._bindings.assignable([given], [wanted])

    def _mismatch(self, wanted: Type, given: Type, offset: int) -> Type:
        final = self._bindings.substitute
        return self._error(
            f"expected type '{final(wanted, final=True)}' but found '{final(given, final=True)}'",
            offset,
        )

    def _check(self, node: Node) -> Type:
        self._nodes.append(node)
        match node:
            case Literal():
                pass
            case Ident():
                node.type = self._ident(node)
            case Select():
                node.type = self._select(node)
            case Call():
                node.type = self._call(node)
            case Items():
                node.type = list_of(self._elements(node))
            case Mapped():
                node.type = self._map(node)
            case Macro():
                node.type = self._macro(node)
        if node.type.of and not _small(node.type):
            raise SyntaxProblemError("expression has a type that is too complex", node.offset)
        return node.type

    # --- names ------------------------------------------------------------------------------

    def _ident(self, node: Ident) -> Type:
        for scope in reversed(self._scopes):
            if node.name in scope:
                node.binding = "local"
                return scope[node.name]
        name = node.name.removeprefix(".")
        if name in self.environment.variables:
            node.binding, node.name = "variable", name
            self.names.add(name)
            return self.environment.variables[name]
        if name in self.environment.constants:
            kind, node.value = self.environment.constants[name]
            node.binding = "constant"
            return kind
        if name in TYPES:
            node.binding, node.value = "type", name
            return type_of(self._bindings.instantiate([TYPES[name]])[0])
        return self._undeclared(node.name, node.offset)

    def _select(self, node: Select) -> Type:
        name = None if node.test else _dotted(node)
        if name is not None and name.removeprefix(".") in TYPES:
            node.resolved = name.removeprefix(".")
            return type_of(TYPES[node.resolved])
        operand = self._bindings.substitute(self._check(node.operand))
        chained = operand.kind == "optional_type"
        target = operand.of[0] if chained else operand
        result = DYN
        match target.kind:
            case "map":
                result = target.of[1]
            case "parameter":
                self._fits(DYN, target)
            case "dyn" | "error":
                pass
            case _:
                self._error(f"type '{target}' does not support field selection", node.offset)
        if chained or node.optional:
            result = optional_of(result)
        return BOOL if node.test else self._bindings.substitute(result)

    # --- calls ------------------------------------------------------------------------------

    def _has_function(self, name: str) -> bool:
        return name in FUNCTIONS and (name not in EXTRA or name in self.environment.functions)

    def _call(self, node: Call) -> Type:
        types = [self._check(arg) for arg in node.args]
        target = None
        if node.target is not None:
            prefix = _dotted(node.target)
            if prefix is not None and self._has_function(
                qualified := f"{prefix.removeprefix('.')}.{node.function}"
            ):
                node.function, node.target = qualified, None
            else:
                target = self._check(node.target)
        name = node.function.removeprefix(".")
        if not self._has_function(name):
            return self._undeclared(node.function, node.offset)
        node.function = name
        if name in _LOGICAL:
            return self._logical(node, types)
        if target is not None:
            return self._resolve(name, [target, *types], node.offset, method=True)
        return self._resolve(name, types, node.offset)

    def _logical(self, node: Call, types: list[Type]) -> Type:
        result = BOOL
        for arg, given in zip(node.args, types, strict=True):
            if not self._fits(given, BOOL):
                result = self._mismatch(BOOL, given, arg.offset)
        return result

    def _resolve(self, name: str, args: list[Type], offset: int, *, method: bool = False) -> Type:
        result: Type | None = None
        overloads = FUNCTIONS[name]
        if self._across and name in ACROSS:
            overloads += ACROSS[name]
        for overload in overloads:
            if overload.method != method or len(overload.args) != len(args):
                continue
            types = [*overload.args, overload.result]
            if overload.generic:
                types = self._bindings.instantiate(types)
            if not self._bindings.assignable(args, types[:-1]):
                continue
            found = self._bindings.substitute(types[-1])
            if result is None:
                result = found
            elif result.kind != "dyn" and found != result:
                result = DYN
        if result is not None:
            return result
        shown = [str(self._bindings.substitute(arg, final=True)) for arg in args]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if method else f"({', '.join(shown)})"
        return self._error(
            f"found no matching overload for '{name}' applied to '{signature}'", offset
        )

    # --- lists and maps ---------------------------------------------------------------------

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self._fits(previous, current):
            return most_general(previous, current)
        return DYN

    def _present(self, node: Node, given: Type, *, optional: bool) -> Type:
        """Return the type of an element; one that may be left out is given as an optional."""
        if not optional:
            return given
        given = self._bindings.substitute(given)
        if given.kind == "optional_type":
            return given.of[0]
        if given.kind != "dyn":
            self._mismatch(optional_of(given), given, node.offset)
        return given

    def _elements(self, node: Items) -> Type:
        joined: Type | None = None
        for number, element in enumerate(node.elements):
            given = self._check(element)
            given = self._present(element, given, optional=number in node.optional)
            joined = self._join(joined, given)
        return self._bindings.fresh() if joined is None else joined

    def _map(self, node: Mapped) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join(key, self._check(entry.key))
            given = self._present(entry.value, self._check(entry.value), optional=entry.optional)
            value = self._join(value, given)
        if key is None or value is None:
            return map_of(self._bindings.fresh(), self._bindings.fresh())
        return map_of(key, value)

    # --- macros -----------------------------------------------------------------------------

    def _within(self, variable: str, of: Type, body: Node) -> Type:
        self._across = True
        self._scopes.append({variable: of})
        result = self._check(body)
        self._scopes.pop()
        return result

    def _macro(self, node: Macro) -> Type:
        source = self._check(node.source)
        if node.kind in ("optMap", "optFlatMap"):
            return self._optional_macro(node, source)
        source = self._bindings.substitute(source)
        match source.kind:
            case "list" | "map":
                element = source.of[0]
            case "dyn" | "error" | "parameter":
                self._fits(DYN, source)
                element = DYN
            case _:
                element = self._error(
                    f"expression of type '{source}' cannot be range of a comprehension"
                    " (must be list, map, or dynamic)",
                    node.source.offset,
                )
        return self._loop(node, element)

    def _loop(self, node: Macro, element: Type) -> Type:
        condition = (
            None
            if node.condition is None
            else self._within(node.variable, element, node.condition)
        )
        if node.kind in ("all", "exists"):
            if node.condition and condition and not self._fits(condition, BOOL):
                self._mismatch(BOOL, condition, node.condition.offset)
            return BOOL
        if node.kind == "exists_one":
            if condition:
                self._resolve("_?_:_", [condition, INT, INT], node.offset)
            return BOOL
        added = (
            element
            if node.transform is None
            else self._within(node.variable, element, node.transform)
        )
        result = list_of(self._bindings.fresh())
        step = self._resolve("_+_", [result, list_of(added)], node.offset)
        if condition:
            step = self._resolve("_?_:_", [condition, step, result], node.offset)
        if not self._fits(step, result):
            self._mismatch(result, step, node.offset)
        return self._bindings.substitute(result)

    def _optional_macro(self, node: Macro, source: Type) -> Type:
        present = self._resolve("hasValue", [source], node.offset, method=True)
        value = self._resolve("value", [source], node.offset, method=True)
        if node.transform is None:  # the reader gives every such macro one
            return ERROR
        result = self._within(node.variable, value, node.transform)
        if node.kind == "optMap":
            result = self._resolve("optional.of", [result], node.offset)
        none = self._resolve("optional.none", [], node.offset)
        return self._resolve("_?_:_", [present, result, none], node.offset)


def _small(of: Type) -> bool:
    rest = [of]
    for _ in range(MAX_TYPE_PARTS):
        if not rest:
            return True
        rest += rest.pop().of
    return False


def _dotted(node: Node) -> str | None:
    """Return the name that a chain of names spells, None for anything else."""
    parts: list[str] = []
    while isinstance(node, Select):
        if node.test or node.optional:
            return None
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
