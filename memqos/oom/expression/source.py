"""What generated code is written with: constants, functions, operands."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from attrs import evolve

from memqos.oom.expression.pieces import SCALARS, Form, Piece, depth_of, unsure
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.tree import Node
from memqos.oom.expression.types import Type
from memqos.oom.expression.values import Duration, Uint


__all__ = ["Source"]

# Python's parser takes 200 nested parentheses, and an operand adds a few.
_MAX_CODE_DEPTH: Final = 20


class Source(ABC):
    """Collects the functions that an expression becomes.

    Attributes:
        quick: maps of variables are taken to have all keys; a KeyError starts over without.
        assumes: `quick` made a difference.
        functions: the functions beside the outermost one.
        constants: the values that the code refers to, by name.
        budgeted: there are loops or patterns.
        patterns: the number of patterns that are compiled beforehand.
    """

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.assumes = False
        self.functions: list[str] = []
        self.constants: dict[str, Any] = {}
        self.budgeted = False
        self.patterns = 0
        # The variables of loops: names in the code, and what they hold.
        self._locals: dict[str, tuple[str, Piece]] = {}
        self._temporaries = 0
        # Each node once: a way that leads nowhere costs nothing when the next one is tried.
        self._pieces: dict[int, Piece] = {}

    def emit(self, node: Node) -> Piece:
        """Return the code of a node."""
        piece = self._pieces.get(id(node))
        if piece is None:
            piece = self._pieces[id(node)] = self._settle(self._emit(node))
        return piece

    @abstractmethod
    def _emit(self, node: Node) -> Piece:
        """Write the code of one kind of node."""

    def keep(self, value: Any) -> str:
        """Give a value a name that code can use."""
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _function(self, lines: list[str]) -> str:
        """Write a function of its own and return the code that calls it."""
        name = f"f{len(self.functions)}"
        parameters = "v, b" + "".join(f", {local}" for local, _ in self._locals.values())
        body = "\n".join(f"    {line}" for line in lines)
        self.functions.append(f"def {name}({parameters}):\n{body}\n")
        return f"{name}({parameters})"

    def _settle(self, piece: Piece) -> Piece:
        """Move code that nests too deeply for Python's parser into a function."""
        if piece.depth < _MAX_CODE_DEPTH:
            return piece
        return evolve(piece, code=self._function([f"return {piece.code}"]), depth=1)

    def _constant(self, value: Any, of: Type) -> Piece:
        sure = not unsure(of)
        form: Form = "scalar" if of.kind in SCALARS and sure else "boxed"
        return Piece(self._spell(value, form), of, form, sure=sure, constant=value)

    def _spell(self, value: Any, form: Form) -> str:
        if value is None or isinstance(value, bool):
            return repr(value)
        if isinstance(value, Uint | Duration) and form == "scalar":
            value = int(value)
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return f"({value!r})" if value < 0 or str(value)[0] == "-" else repr(value)
        return self.keep(value)

    def _boxed(self, piece: Piece) -> str:
        """Return the code of a value that carries its type."""
        if piece.form == "boxed":
            return piece.code
        if piece.known:
            return self._spell(piece.constant, "boxed")
        if piece.form != "scalar":
            return f"box({piece.code}, {self.keep(piece.of)})"
        match piece.of.kind:
            case "uint":
                return f"Uint({piece.code})"
            case "duration":
                return f"Duration({piece.code})"
            case _:
                return piece.code

    def _bool(self, piece: Piece) -> str:
        return piece.code if piece.form == "scalar" else f"as_bool({piece.code})"

    def _made(
        self, code: str, of: Type, parts: list[Piece], *, sure: bool | None = None, fails: bool
    ) -> Piece:
        """Return a piece whose value carries its type, unless that is known for sure."""
        if sure is None:
            sure = not unsure(of) and all(part.sure for part in parts)
        form: Form = "scalar" if sure and of.kind in SCALARS else "boxed"
        return Piece(code, of, form, sure=sure, fails=fails, depth=depth_of(parts))

    def _folded(self, function: Callable[..., Any], parts: list[Piece], piece: Piece) -> Piece:
        """Compute what depends on no variable now; what fails is left to fail later."""
        if not all(part.known for part in parts):
            return piece
        try:
            return self._constant_like(function(*(part.constant for part in parts)), piece)
        except EvaluationError:
            return piece

    def _constant_like(self, value: Any, piece: Piece) -> Piece:
        if piece.form == "scalar":
            return self._constant(value, piece.of)
        if piece.form == "optional":
            code = self._spell(value.value if value.present else None, "scalar")
            return evolve(piece, code=code, constant=value, fails=False)
        return evolve(piece, code=self._spell(value, "boxed"), constant=value, fails=False)
