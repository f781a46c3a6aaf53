"""Operators where all types are known: written out."""

from __future__ import annotations

from memqos.oom.expression import text
from memqos.oom.expression.literals import INT_MAX, INT_MIN, UINT_MAX
from memqos.oom.expression.pieces import Piece, depth_of
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.source import Source
from memqos.oom.expression.types import Type


__all__ = ["SCALAR_FUNCTIONS", "Scalars"]

_COMPARISONS = {
    "_==_": "==",
    "_!=_": "!=",
    "_<_": "<",
    "_<=_": "<=",
    "_>_": ">",
    "_>=_": ">=",
}
_ARITHMETIC = {"_+_": "+", "_-_": "-", "_*_": "*"}
SCALAR_FUNCTIONS = {
    ("_/_", "double"): "divide",
    ("_/_", "int"): "int_divide",
    ("_/_", "uint"): "uint_divide",
    ("_%_", "int"): "int_modulo",
    ("_%_", "uint"): "uint_modulo",
    ("int", "double"): "int_from_double",
    ("int", "uint"): "int_from_uint",
    ("int", "string"): "int_from_text",
    ("uint", "double"): "uint_from_double",
    ("uint", "int"): "uint_from_int",
    ("uint", "string"): "uint_from_text",
    ("double", "string"): "double_from_text",
    ("string", "double"): "double_text",
}
_NEVER_FAILS = frozenset({"divide", "double_text"})
# More patterns than these are compiled when they are needed, and paid for.
_MAX_PATTERNS = 8


class Scalars(Source):
    """Writes operators on plain values."""

    def _scalar_call(self, name: str, of: Type, parts: list[Piece]) -> Piece | None:
        """Return the operator itself where all types are known, None elsewhere."""
        if name == "hasValue" and parts[0].form == "optional":
            return self._scalar(f"({parts[0].code} is not None)", of, parts)
        if name == "value" and parts[0].form == "optional":
            kept = self._temporary()
            code = f"({kept} if ({kept} := {parts[0].code}) is not None else no_value())"
            return self._scalar(code, of, parts, fails=True)
        if name == "optional.of" and parts[0].form == "scalar":
            return Piece(
                parts[0].code, of, "optional", fails=parts[0].fails, depth=depth_of(parts)
            )
        if not parts or any(part.form != "scalar" for part in parts):
            return None
        kinds = {part.of.kind for part in parts}
        kind = parts[0].of.kind
        codes = [part.code for part in parts]
        if self._locals and kinds & {"string", "bytes"} and name != "matches":
            return None
        if name in _COMPARISONS and len(kinds) == 1:
            return self._scalar(f"({codes[0]} {_COMPARISONS[name]} {codes[1]})", of, parts)
        if name in _ARITHMETIC and len(kinds) == 1 and of.kind == kind:
            return self._arithmetic(name, of, parts)
        if name == "_/_" and kind == "double" and parts[1].known and parts[1].constant != 0:
            return self._scalar(f"({codes[0]} / {codes[1]})", of, parts)
        if len(kinds) == 1 and (name, kind) in SCALAR_FUNCTIONS:
            function = SCALAR_FUNCTIONS[name, kind]
            fails = function not in _NEVER_FAILS
            return self._scalar(f"{function}({', '.join(codes)})", of, parts, fails=fails)
        match name, kind:
            case "!_", _:
                return self._scalar(f"(not {codes[0]})", of, parts)
            case "-_", "double":
                return self._scalar(f"(-{codes[0]})", of, parts)
            case "-_", "int":
                return self._ranged(f"-{codes[0]}", of, parts)
            case (("double" | "int" | "uint" | "string" | "bool" | "bytes" | "duration"), _) if (
                name == kind
            ):
                return self._scalar(codes[0], of, parts)
            case "double", ("int" | "uint"):
                return self._scalar(f"float({codes[0]})", of, parts)
            case "size", ("string" | "bytes"):
                return self._scalar(f"len({codes[0]})", of, parts)
            case "contains", _:
                return self._scalar(f"({codes[1]} in {codes[0]})", of, parts)
            case "startsWith", _:
                return self._scalar(f"{codes[0]}.startswith({codes[1]})", of, parts)
            case "endsWith", _:
                return self._scalar(f"{codes[0]}.endswith({codes[1]})", of, parts)
            case "matches", _ if parts[1].known:
                return self._matches(of, parts)
            case _:
                return None

    def _matches(self, of: Type, parts: list[Piece]) -> Piece | None:
        if self.patterns == _MAX_PATTERNS:
            return None
        try:
            pattern = text.pattern_of(parts[1].constant)
        except EvaluationError:
            return None
        self.patterns += 1
        self.budgeted = True
        code = f"search(b, {self.keep(pattern)}, {parts[0].code})"
        return self._scalar(code, of, parts, fails=True)

    def _scalar(self, code: str, of: Type, parts: list[Piece], *, fails: bool = False) -> Piece:
        fails = fails or any(part.fails for part in parts)
        return Piece(code, of, "scalar", fails=fails, depth=depth_of(parts))

    def _ranged(self, code: str, of: Type, parts: list[Piece]) -> Piece:
        kept = self._temporary()
        if of.kind == "uint":
            test = f"0 <= ({kept} := {code}) <= {UINT_MAX}"
            return self._scalar(f"({kept} if {test} else uint_overflow())", of, parts, fails=True)
        test = f"{INT_MIN} <= ({kept} := {code}) <= {INT_MAX}"
        return self._scalar(f"({kept} if {test} else int_overflow())", of, parts, fails=True)

    def _arithmetic(self, name: str, of: Type, parts: list[Piece]) -> Piece:
        code = f"{parts[0].code} {_ARITHMETIC[name]} {parts[1].code}"
        if of.kind in ("int", "uint", "duration"):
            return self._ranged(code, of, parts)
        return self._scalar(f"({code})", of, parts)
