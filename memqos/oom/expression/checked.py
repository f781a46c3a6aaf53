"""An expression that was understood, and can be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, field, frozen

from memqos.oom.expression.checker import Checker
from memqos.oom.expression.codegen import compile_tree
from memqos.oom.expression.environment import (
    RANKING,
    RANKING_WITH_SWAP,
    TRIGGER,
    TRIGGER_WITH_SWAP,
    Environment,
)
from memqos.oom.expression.problems import Problem, Problems, SyntaxProblemError
from memqos.oom.expression.syntax import parse
from memqos.oom.expression.tree import Call, Node, constant_keys, variables, weakened
from memqos.oom.expression.types import BOOL, DOUBLE, DURATION, TIMESTAMP, Type


__all__ = ["Checked", "check", "check_ranking", "check_trigger", "weaken"]


@frozen(kw_only=True)
class Checked:
    """An expression with types, compiled.

    Attributes:
        text: as it was written.
        environment: the names it may use.
        result: the type of its value.
        names: the variables it uses.
        keys: by which it looks into those of them that are maps, None if it may be any.
        clauses: the operands of the outermost ``&&`` or ``||``, in order; the expression itself
            when there is none. What they hold in turn is not split.
        constant: its value when it depends on no variable, else None.
        evaluate: from values by name to the value; raises EvaluationError.
        tree: what it was compiled from.
    """

    text: str
    environment: Environment = field(repr=False)
    result: Type
    names: frozenset[str]
    keys: frozenset[int] | None
    clauses: tuple[Checked, ...] = field(repr=False)
    constant: Any
    evaluate: Callable[[Mapping[str, Any]], Any] = field(repr=False, eq=False)
    tree: Node = field(repr=False, eq=False)


def check_trigger(text: str, *, swap: bool = False) -> Checked | Problems:
    """Check an expression that says whether to act: exactly bool.

    Args:
        text: the expression.
        swap: whether it may use the variables of swap, which Talos does not have.
    """
    return check(text, TRIGGER_WITH_SWAP if swap else TRIGGER, BOOL)


def check_ranking(text: str, *, swap: bool = False) -> Checked | Problems:
    """Check an expression that gives a cgroup its score: exactly double.

    Args:
        text: the expression.
        swap: whether it may use memory_swap_current, which Talos does not have.
    """
    return check(text, RANKING_WITH_SWAP if swap else RANKING, DOUBLE)


def check(text: str, environment: Environment, result: Type | None) -> Checked | Problems:
    """Check an expression against the names it may use and the type it must have.

    Args:
        text: the expression.
        environment: the names it may use.
        result: the exact type of its value, None for any.
    """
    try:
        return _check(text, environment, result)
    except SyntaxProblemError as error:
        return Problems([_problem(text, error.message, error.offset)])
    except RecursionError:
        message = "expression nests too deeply to be checked here"
        return Problems([Problem(message, 1, 1)])


def weaken(condition: Checked, names: frozenset[str]) -> Checked:
    """Return a condition that is true, or fails, whenever the given one is true.

    Args:
        condition: of type bool.
        names: the variables that it does not depend on.
    """
    return _compiled(condition.text, condition.environment, weakened(condition.tree, names))


def _check(text: str, environment: Environment, result: Type | None) -> Checked | Problems:
    root = parse(text)
    checker = Checker(environment)
    found = checker.run(root)
    if checker.errors:
        return Problems([_problem(text, *error) for error in checker.errors])
    if result is not None and found != result:
        message = f"expression output type is {_long(found)}, expected {_long(result)}"
        return Problems([_problem(text, message, root.offset)])
    return _checked(text, environment, root)


def _problem(text: str, message: str, offset: int) -> Problem:
    before = text[:offset]
    return Problem(message, before.count("\n") + 1, offset - before.rfind("\n"))


def _long(of: Type) -> Type:
    """Name a type as cel-go names the type of a whole expression."""
    kind = f"google.protobuf.{of.kind.capitalize()}" if of in (DURATION, TIMESTAMP) else of.kind
    return evolve(of, kind=kind)


def _checked(text: str, environment: Environment, root: Node) -> Checked:
    whole = _compiled(text, environment, root)
    if isinstance(root, Call) and root.function in ("_&&_", "_||_"):
        operands = [_compiled(text, environment, operand) for operand in root.args]
        return evolve(
            whole,
            clauses=tuple([evolve(operand, clauses=(operand,)) for operand in operands]),
        )
    return evolve(whole, clauses=(whole,))


def _compiled(text: str, environment: Environment, root: Node) -> Checked:
    names = frozenset(variables(root))
    compiled = compile_tree(root, names)
    return Checked(
        text=text[slice(*root.span)],
        environment=environment,
        result=root.type,
        names=names,
        keys=constant_keys(root),
        clauses=(),
        constant=compiled.constant,
        evaluate=compiled.evaluate,
        tree=root,
    )
