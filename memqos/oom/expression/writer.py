"""From the nodes of a checked tree to code."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from memqos.oom.expression import containers, library
from memqos.oom.expression.loops import Loops
from memqos.oom.expression.pieces import SCALARS, Form, Piece, depth_of, unsure
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.tree import Call, Ident, Items, Literal, Macro, Mapped, Node, Select
from memqos.oom.expression.types import Type
from memqos.oom.expression.values import TypeName, Uint


__all__ = ["LIBRARY_NAMES", "Writer"]

_CHEAP = frozenset({"bool", "int", "uint", "double", "duration", "timestamp", "type"})
# Their result has the type that the checker says, whatever the operands turn out to be.
_SURE = frozenset(
    {
        *("!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_&&_", "_||_"),
        *("size", "bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"),
        *("contains", "endsWith", "startsWith", "matches", "hasValue", "multiply_qos_vectors"),
        *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_LOOK_AT_ALL = _SURE - {"size", "hasValue", "_&&_", "_||_", "!_"}

# The names that the functions of the library have in the code.
LIBRARY_NAMES = {name: f"call_{number}" for number, name in enumerate(library.FUNCTIONS)}


class Writer(Loops):
    """Writes any node."""

    def _emit(self, node: Node) -> Piece:
        match node:
            case Literal():
                value = Uint(node.value) if node.type.kind == "uint" else node.value
                return self._constant(value, node.type)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case Items():
                return self._list(node)
            case Mapped():
                return self._map(node)
            case Macro():
                return self._macro(node)

    def _ident(self, node: Ident) -> Piece:
        if node.binding == "local":
            return self._locals[node.name][1]
        if node.binding == "constant":
            value = Uint(node.value) if node.type.kind == "uint" else node.value
            return self._constant(value, node.type)
        if node.binding == "type":
            return self._constant(TypeName(node.value), node.type)
        code = f"v[{self.keep(node.name)}]"
        of = node.type
        if of.kind in SCALARS:
            return Piece(code, of, "scalar")
        if of.kind in ("optional_type", "map") and all(part.kind in SCALARS for part in of.of):
            return Piece(code, of, "map" if of.kind == "map" else "optional")
        return Piece(f"box({code}, {self.keep(of)})", of, "boxed", sure=not unsure(of), depth=1)

    def _select(self, node: Select) -> Piece:
        if node.resolved is not None:
            return self._constant(TypeName(node.resolved), node.type)
        operand = self.emit(node.operand)
        name = self.keep(node.name)
        if node.test:
            code = f"present_field({self._boxed(operand)}, {name})"
            return self._folded(
                containers.present_field,
                [operand, self._constant(node.name, node.type)],
                self._made(code, node.type, [operand], sure=True, fails=operand.fails),
            )
        function = "optional_index" if node.optional else "index"
        code = f"{function}({self._boxed(operand)}, {name})"
        return self._made(code, node.type, [operand], fails=True)

    def _call(self, node: Call) -> Piece:
        name = node.function
        if name == "_?_:_":
            return self._conditional(node)
        arguments = node.args if node.target is None else [node.target, *node.args]
        if name in ("_&&_", "_||_"):
            return self._logical(node, [self.emit(arg) for arg in arguments])
        if name in ("_[_]", "@in", "multiply_qos_vectors"):
            piece = self._plain_map(name, node, arguments)
            if piece is not None:
                return piece
        parts = [self.emit(arg) for arg in arguments]
        if name in ("or", "orValue"):
            return self._alternative(name, node.type, parts)
        if name == "matches":
            return self._scalar_call(name, node.type, parts) or self._match(node.type, parts)
        piece = self._scalar_call(name, node.type, parts) or self._library_call(
            name, node.type, parts
        )
        if name == "dyn":
            piece = evolve(piece, sure=False)
        return self._folded(library.FUNCTIONS[name], parts, piece)

    def _match(self, of: Type, parts: list[Piece]) -> Piece:
        self.budgeted = True
        code = f"matches(b, {', '.join(self._boxed(part) for part in parts)})"
        return self._made(code, of, parts, sure=True, fails=True)

    def _library_call(self, name: str, of: Type, parts: list[Piece]) -> Piece:
        values = [self._boxed(part) for part in parts]
        before = ""
        if self._locals and name in _LOOK_AT_ALL:
            costly = [number for number, part in enumerate(parts) if part.of.kind not in _CHEAP]
            names = {number: self._temporary() for number in range(len(parts))}
            if costly:
                stores = ", ".join(
                    f"{names[number]} := {value}" for number, value in enumerate(values)
                )
                looked = ", ".join(names[number] for number in costly)
                before = f"(({stores}), charge(b, {looked})) and "
                values = list(names.values())
        code = f"{LIBRARY_NAMES[name]}({', '.join(values)})"
        if self._locals and name == "_+_" and of.kind not in _CHEAP:
            code = f"charge_length(b, {code})"
        sure = True if name in _SURE else None
        return self._made(
            f"({before}{code})" if before else code, of, parts, sure=sure, fails=True
        )

    def _alternative(self, name: str, of: Type, parts: list[Piece]) -> Piece:
        """``first.or(second)`` and ``first.orValue(value)``: the second only if it is needed."""
        first, second = parts
        kept = self._temporary()
        wanted: Form = "optional" if name == "or" else "scalar"
        fails = first.fails or second.fails
        if first.form == "optional" and second.form == wanted and second.sure:
            code = f"({kept} if ({kept} := {first.code}) is not None else {second.code})"
            return Piece(code, of, wanted, fails=fails, depth=depth_of(parts))
        source = f"({kept} := as_optional({self._boxed(first)})).present"
        other = self._boxed(second)
        value = kept if name == "or" else f"{kept}.value"
        return self._made(f"({value} if {source} else {other})", of, parts, fails=True)

    def _conditional(self, node: Call) -> Piece:
        condition, yes, no = (self.emit(arg) for arg in node.args)
        if condition.known and type(condition.constant) is bool:
            return yes if condition.constant else no
        parts = [condition, yes, no]
        fails = any(part.fails for part in parts) or condition.form != "scalar"
        test = self._bool(condition)
        if yes.form == no.form and yes.form != "boxed" and yes.of == no.of == node.type:
            code = f"({yes.code} if {test} else {no.code})"
            return Piece(code, node.type, yes.form, fails=fails, depth=depth_of(parts))
        code = f"({self._boxed(yes)} if {test} else {self._boxed(no)})"
        return self._made(code, node.type, [yes, no, condition], fails=fails)

    def _logical(self, node: Call, parts: list[Piece]) -> Piece:
        """``&&`` and ``||``: an operand that decides makes up for the errors of the others."""
        deciding = node.function == "_||_"
        if any(part.constant is deciding for part in parts):
            return self._constant(deciding, node.type)
        left = [part for part in parts if part.constant is not (not deciding)]
        if not left:
            return self._constant(not deciding, node.type)
        fails = any(part.fails or part.form != "scalar" for part in left)
        tests = [self._bool(part) for part in left]
        if not any(part.fails or part.form != "scalar" for part in left[:-1]):
            word = " or " if deciding else " and "
            code = f"({word.join(tests)})" if len(tests) > 1 else tests[0]
            return Piece(code, node.type, "scalar", fails=fails, depth=depth_of(left))
        call = self._function(self.absorbing(node.function, left))
        return Piece(call, node.type, "scalar", fails=True, depth=1, hoisted=True)

    def absorbing(self, function: str, parts: list[Piece]) -> list[str]:
        """Write the body of a function in which one operand can make up for errors of others."""
        deciding = function == "_||_"
        lines = ["e = None"]
        for part in parts:
            if part.constant is (not deciding):
                continue
            test = self._bool(part)
            decided = f"if {test}: return True" if deciding else f"if not {test}: return False"
            if part.fails or part.form != "scalar":
                lines += [
                    *("try:", f"    {decided}", "except ERRORS as x:"),
                    "    if e is None: e = x",
                ]
            else:
                lines.append(decided)
        return [*lines, "if e is not None: raise e", f"return {not deciding}"]

    def _list(self, node: Items) -> Piece:
        parts = [self.emit(element) for element in node.elements]
        fails = any(part.fails for part in parts) or bool(node.optional)
        codes = [
            f"*given({self._boxed(part)})" if number in node.optional else self._boxed(part)
            for number, part in enumerate(parts)
        ]
        piece = self._made(f"[{', '.join(codes)}]", node.type, parts, fails=fails)
        return piece if node.optional else self._folded(containers.make_list, parts, piece)

    def _map(self, node: Mapped) -> Piece:
        parts: list[Piece] = []
        entries: list[str] = []
        known: list[tuple[Any, Any, bool]] = []
        for entry in node.entries:
            key, value = self.emit(entry.key), self.emit(entry.value)
            parts += [key, value]
            entries.append(f"({self._boxed(key)}, {self._boxed(value)}, {entry.optional})")
            known.append((key.constant, value.constant, entry.optional))
        piece = self._made(f"make_map({', '.join(entries)})", node.type, parts, fails=True)
        if all(part.known for part in parts):
            try:
                return self._constant_like(containers.make_map(*known), piece)
            except EvaluationError:
                pass
        return piece
