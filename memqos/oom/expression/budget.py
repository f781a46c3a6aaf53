"""What loops may cost, so that none runs for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.values import CelMap, Optional


__all__ = ["BUDGET", "charge", "charge_length", "spend"]

# A unit is about one operation.
BUDGET: Final = 50_000


def exhausted() -> NoReturn:
    """Stop an expression that takes too long."""
    raise EvaluationError("iteration budget exceeded")


def spend(budget: list[int], units: int) -> None:
    """Take from the budget."""
    budget[0] -= units
    if budget[0] < 0:
        exhausted()


def charge(budget: list[int], *values: Any) -> None:
    """Take what it costs to look at all of the values."""
    left: list[Sequence[Any]] = [values]
    units = 0
    while left and units <= budget[0]:
        for value in left.pop():
            units += 2
            match value:
                case str() | bytes():
                    units += len(value) // 16
                case list():
                    left.append(value)
                case CelMap():
                    left.extend(value.items())
                case Optional():
                    left.append((value.value,))
                case _:
                    pass
    spend(budget, units)


def charge_length(budget: list[int], value: Any) -> Any:
    """Take what it cost to make a text or list, and return it."""
    spend(budget, len(value) // 16 if isinstance(value, str | bytes | list) else 0)
    return value
