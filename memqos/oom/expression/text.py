"""Functions of text."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from memqos.oom.expression.budget import spend
from memqos.oom.expression.problems import EvaluationError
from memqos.oom.expression.values import require


__all__ = ["Pattern", "contains", "ends_with", "matches", "pattern_of", "search", "starts_with"]

Pattern: TypeAlias = Any

# Memory of a compiled pattern, which bounds the time to compile it too.
_MEMORY: Final = 1 << 17
_UNITS_OF_PATTERN: Final = 2000
# At worst, RE2 looks at each part of the pattern for each character.
_STEPS_PER_UNIT: Final = 40


def contains(text: Any, part: Any) -> bool:
    """``text.contains(part)``."""
    require(str, text, part)
    return part in text


def ends_with(text: Any, part: Any) -> bool:
    """``text.endsWith(part)``."""
    require(str, text, part)
    return bool(text.endswith(part))


def starts_with(text: Any, part: Any) -> bool:
    """``text.startsWith(part)``."""
    require(str, text, part)
    return bool(text.startswith(part))


def pattern_of(text: str) -> Pattern:
    """Compile a regular expression of RE2, which runs in linear time."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(text, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        cause = error.args[0] if error.args else "not a pattern"
        if isinstance(cause, bytes):
            cause = cause.decode("utf-8", "replace")
        raise EvaluationError(f"error parsing regexp: {cause}") from None


def search(budget: list[int], pattern: Pattern, text: str) -> bool:
    """Look for a pattern anywhere in a text."""
    spend(budget, 1 + pattern.programsize * len(text) // _STEPS_PER_UNIT)
    try:
        return pattern.search(text) is not None
    except UnicodeEncodeError:
        return pattern.search(text.encode("utf-8", "replace").decode()) is not None


def matches(budget: list[int], text: Any, pattern: Any) -> bool:
    """``text.matches(pattern)``, with a pattern that is not known beforehand."""
    require(str, text, pattern)
    spend(budget, _UNITS_OF_PATTERN)
    return search(budget, pattern_of(pattern), text)
