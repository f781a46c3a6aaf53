"""Expressions of the OOM policy: CEL with the types and the arithmetic of cel-go."""

from __future__ import annotations

from memqos.oom.expression.checked import Checked, check, check_ranking, check_trigger, weaken
from memqos.oom.expression.environment import CLASSES, RANKING, TRIGGER, Environment
from memqos.oom.expression.problems import EvaluationError, Problem, Problems
from memqos.oom.expression.types import (
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    UINT,
    Type,
    map_of,
    optional_of,
)


__all__ = [
    "BOOL",
    "CLASSES",
    "DOUBLE",
    "DURATION",
    "INT",
    "RANKING",
    "STRING",
    "TRIGGER",
    "UINT",
    "Checked",
    "Environment",
    "EvaluationError",
    "Problem",
    "Problems",
    "Type",
    "check",
    "check_ranking",
    "check_trigger",
    "map_of",
    "optional_of",
    "weaken",
]
