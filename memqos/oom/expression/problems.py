"""What is wrong with an expression, before it runs and while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memqos.errors import MemqosError


__all__ = ["EvaluationError", "Problem", "Problems", "SyntaxProblemError"]


class EvaluationError(MemqosError):
    """An expression that has no value for these inputs, such as a division by zero."""


class Problem(NamedTuple):
    """One reason why an expression is refused.

    Attributes:
        message: as cel-go words it, where cel-go has a message.
        line: 1-based.
        column: 1-based, in characters.
    """

    message: str
    line: int
    column: int


class Problems(tuple[Problem, ...]):
    """Why an expression is refused; never empty."""

    __slots__ = ()

    def render(self, text: str) -> str:
        """Give each problem as cel-go prints it: the place, the source line, a caret."""
        lines = text.split("\n")
        return "\n".join(_render(problem, lines) for problem in self)


def _render(problem: Problem, lines: Sequence[str]) -> str:
    head = f"ERROR: <input>:{problem.line}:{problem.column}: {problem.message}"
    if not 1 <= problem.line <= len(lines):
        return head
    source = lines[problem.line - 1].replace("\t", " ")
    return f"{head}\n | {source}\n | {'.' * (problem.column - 1)}^"


class SyntaxProblemError(Exception):
    """Carries a problem out of the reader; never leaves this package."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
