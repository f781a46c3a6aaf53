"""Macros: loops, and names for the value of an optional."""

from __future__ import annotations

from attrs import evolve

from memqos.oom.expression.pieces import SCALARS, Form, Piece, unsure
from memqos.oom.expression.plain_maps import PlainMaps
from memqos.oom.expression.tree import Macro, Node, children
from memqos.oom.expression.types import DYN, Type
from memqos.oom.expression.values import NONE


__all__ = ["Loops"]


class Loops(PlainMaps):
    """Writes macros as functions of their own."""

    def _macro(self, node: Macro) -> Piece:
        self.budgeted = True
        source = self.emit(node.source)
        if node.kind in ("optMap", "optFlatMap"):
            return self._optional_macro(node, source)
        element = node.source.type.of[0] if node.source.type.kind in ("list", "map") else None
        local, condition, transform = self._within(node, source, element)
        units = 1 + _weight(node.condition) + _weight(node.transform)
        start = [f"for {local} in items_of({self._boxed(source)}):", f"    spend(b, {units})"]
        lines = self._loop(
            node, start, condition, transform or Piece(local, DYN, "boxed", sure=False)
        )
        call = self._function(lines)
        if node.kind in ("all", "exists", "exists_one"):
            return Piece(call, node.type, "scalar", fails=True, depth=1)
        parts = [part for part in (source, transform) if part is not None]
        piece = self._made(call, node.type, parts, fails=True)
        return evolve(piece, depth=1)

    def _within(
        self, node: Macro, source: Piece, element: Type | None
    ) -> tuple[str, Piece | None, Piece | None]:
        """Emit the body of a macro with its variable in scope."""
        local = f"x{len(self._locals)}_{self._temporary()}"
        sure = source.sure and element is not None and not unsure(element)
        of = element if element is not None else DYN
        form: Form = "scalar" if sure and of.kind in SCALARS else "boxed"
        outer = dict(self._locals)
        self._locals.pop(node.variable, None)
        # A variable that hides another one takes its place in what functions are given.
        self._locals[node.variable] = (local, Piece(local, of, form, sure=sure))
        condition = None if node.condition is None else self.emit(node.condition)
        transform = None if node.transform is None else self.emit(node.transform)
        self._locals = outer
        return local, condition, transform

    def _loop(
        self, node: Macro, start: list[str], condition: Piece | None, value: Piece
    ) -> list[str]:
        test = "True" if condition is None else self._bool(condition)
        guarded = condition is not None and (condition.fails or condition.form != "scalar")
        match node.kind:
            case "all" | "exists":
                deciding = node.kind == "exists"
                decided = f"if {test}: return True" if deciding else f"if not {test}: return False"
                body = [f"    {decided}"]
                if guarded:
                    body = [
                        *("    try:", f"        {decided}", "    except ERRORS as x:"),
                        "        if e is None: e = x",
                    ]
                end = ["if e is not None: raise e", f"return {not deciding}"]
                return ["e = None", *start, *body, *end]
            case "exists_one":
                return ["n = 0", *start, f"    if {test}: n += 1", "return n == 1"]
            case _:
                body = [f"    if {test}: r.append({self._boxed(value)})"]
                return ["r = []", *start, *body, "return r"]

    def _optional_macro(self, node: Macro, source: Piece) -> Piece:
        element = node.source.type.of[0] if node.source.type.kind == "optional_type" else None
        local, _, transform = self._within(node, source, element)
        if transform is None:
            raise AssertionError(node.kind)
        value = self._boxed(transform)
        if node.kind == "optMap":
            value = f"optional_of({value})"
        call = self._function(
            [
                f"o = as_optional({self._boxed(source)})",
                f"{local} = o.value",
                f"return {value} if o.present else {self.keep(NONE)}",
            ]
        )
        piece = self._made(call, node.type, [source, transform], fails=True)
        return evolve(piece, depth=1)


def _weight(node: Node | None) -> int:
    """Count the operations of a body, without those of loops in it, which count themselves."""
    total = 0
    rest = [] if node is None else [node]
    while rest:
        here = rest.pop()
        total += 1
        rest += [here.source] if isinstance(here, Macro) else children(here)
    return total
