"""From a typed tree to a Python function.

Where the checker knows a type for sure, operands are plain values of Python and the operator is
written out; elsewhere operands carry their type (see `values`) and functions of `library` decide.

Only names made by this package and numbers reach the generated source. Texts, the names of
variables and all other values are put into the name space of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen

from memqos.oom.expression import budget, containers, library, numbers, optionals, text
from memqos.oom.expression.pieces import UNSURE, Piece
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.scalars import SCALAR_FUNCTIONS
from memqos.oom.expression.tree import Call, Node
from memqos.oom.expression.values import (
    Duration,
    Uint,
    as_bool,
    as_optional,
    box,
    kind_of,
    no_overload,
    unbox,
)
from memqos.oom.expression.writer import LIBRARY_NAMES, Writer


__all__ = ["Compiled", "compile_tree"]

_HELPERS: tuple[Callable[..., Any], ...] = (
    as_bool,
    as_optional,
    box,
    budget.charge,
    budget.charge_length,
    budget.spend,
    containers.given,
    containers.index,
    containers.items_of,
    containers.make_map,
    containers.optional_index,
    containers.present_field,
    library.dot,
    numbers.int_overflow,
    numbers.uint_overflow,
    optionals.no_value,
    optionals.optional_of,
    text.matches,
    text.search,
    unbox,
)
_NAMES: Mapping[str, Any] = {
    **{helper.__name__: helper for helper in _HELPERS},
    **{name: getattr(numbers, name) for name in set(SCALAR_FUNCTIONS.values())},
    "BUDGET": budget.BUDGET,
    "Duration": Duration,
    "EvaluationError": EvaluationError,
    "Uint": Uint,
    "dict": dict,
    "float": float,
    "int": int,
    "len": len,
    **{short: library.FUNCTIONS[name] for name, short in LIBRARY_NAMES.items()},
}
_ERRORS = (EvaluationError, KeyError, TypeError, RecursionError)
_RUNTIME_KINDS = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}


Evaluate = Callable[[Mapping[str, Any]], Any]


@frozen
class Compiled:
    """A function made from a tree.

    Attributes:
        evaluate: from values by name to the value.
        constant: the value when it is the same for all inputs, else None.
        source: what was generated.
    """

    evaluate: Evaluate
    constant: Any
    source: str


def compile_tree(root: Node, names: frozenset[str]) -> Compiled:
    """Compile a checked tree.

    Args:
        root: the tree.
        names: the variables it uses.
    """
    writer = Writer(quick=True)
    piece = writer.emit(root)
    if piece.known:
        known = piece.constant
        return Compiled(lambda _values: unbox(known), unbox(known), "")
    if not writer.assumes:
        compiled = _build(writer, root, piece, {"translate": _translator(names)})
        return compiled if names else _tried(compiled)
    slow = _carefully(root, names)
    return _build(writer, root, piece, {"slow": slow, "translate": _translator(names)})


def _carefully(root: Node, names: frozenset[str]) -> Evaluate:
    """Compile without assumptions, when that is needed for the first time."""
    made: list[Evaluate] = []

    def evaluate(values: Mapping[str, Any]) -> Any:
        if not made:
            writer = Writer(quick=False)
            known = {"translate": _translator(names)}
            made.append(_build(writer, root, writer.emit(root), known).evaluate)
        return made[0](values)

    return evaluate


def _tried(compiled: Compiled) -> Compiled:
    """Evaluate what depends on no variable, once; it may still fail."""
    try:
        return evolve(compiled, constant=compiled.evaluate({}))
    except EvaluationError:
        return compiled


def _build(writer: Writer, root: Node, piece: Piece, names: Mapping[str, Any]) -> Compiled:
    source = _source(writer, root, piece)
    errors = tuple([kind for kind in _ERRORS if not (writer.assumes and kind is KeyError)])
    space = {**_NAMES, **writer.constants, **names, "ERRORS": errors, "KeyError": KeyError}
    space["__builtins__"] = {}
    exec(compile(source, "<expression>", "exec"), space)  # noqa: S102 - see above
    return Compiled(space["evaluate"], None, source)


def _source(writer: Writer, root: Node, piece: Piece) -> str:
    """Write the function that is called from outside."""
    lines = [f"return {_result(writer, piece)}"]
    functions = writer.functions
    if piece.hoisted and isinstance(root, Call) and root.function in ("_&&_", "_||_"):
        # The outermost operator needs no function of its own.
        functions = functions[:-1]
        lines = writer.absorbing(root.function, [writer.emit(arg) for arg in root.args])
    if writer.budgeted:
        lines.insert(0, "b = [BUDGET]")
    elif functions:
        lines.insert(0, "b = None")
    body = "\n".join(f"        {line}" for line in lines)
    again = "    except KeyError:\n        return slow(v)\n" if writer.assumes else ""
    return (
        "\n".join(functions)
        + f"\ndef evaluate(v):\n    try:\n{body}\n"
        + f"    except EvaluationError:\n        raise\n{again}"
        + "    except ERRORS as error:\n        raise translate(error, v) from None\n"
    )


def _result(writer: Writer, piece: Piece) -> str:
    if piece.form == "boxed":
        if not piece.sure and piece.of.kind not in UNSURE:
            kind = _RUNTIME_KINDS.get(piece.of.kind, piece.of.kind)
            return f"unbox({writer.keep(_guard(kind))}({piece.code}))"
        return f"unbox({piece.code})"
    if piece.form == "map":
        return f"dict({piece.code})"
    if piece.of.kind in ("uint", "duration"):
        return f"int({piece.code})"
    return piece.code


def _translator(names: frozenset[str]) -> Callable[[BaseException, Mapping[str, Any]], Any]:
    def translate(error: BaseException, values: Mapping[str, Any]) -> EvaluationError:
        missing = sorted(name for name in names if name not in values)
        if missing:
            return EvaluationError(f"no such attribute(s): {', '.join(missing)}")
        if isinstance(error, KeyError):
            return EvaluationError(f"no such key: {containers.key_text(error.args[0])}")
        if isinstance(error, RecursionError):
            return EvaluationError("expression nests too deeply to be evaluated here")
        return EvaluationError("no such overload")

    return translate


def _guard(kind: str) -> Callable[[Any], Any]:
    def guarded(value: Any) -> Any:
        return value if kind_of(value) == kind else no_overload()

    return guarded
