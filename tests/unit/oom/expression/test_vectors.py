"""Every case of tests/data/vectors/cel.json, given by cel-go; the expressions of the others."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from memqos.oom.expression import (
    CLASSES,
    DOUBLE,
    DURATION,
    TRIGGER,
    Checked,
    EvaluationError,
    Problems,
    check_ranking,
    check_trigger,
)


VECTORS = Path(__file__).parents[3] / "data" / "vectors"
NEVER_NS = 2**63 - 1


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of one file."""
    found: list[dict[str, Any]] = json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]
    return found


def ranking_values(candidate: dict[str, Any]) -> dict[str, Any]:
    """Return what a candidate gives a ranking expression."""
    return {
        **{name: candidate.get(name) for name in ("memory_max", "memory_current", "memory_peak")},
        "path": candidate["path"],
        "class": CLASSES[candidate["class"]],
    }


def trigger_values(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a sample gives a trigger expression; what is not listed is zero."""
    values: dict[str, Any] = {}
    for name, kind in TRIGGER.variables.items():
        given = case["variables"].get(name)
        if kind == DOUBLE:
            values[name] = float(given or 0)
        elif kind == DURATION:
            seconds = case["time_since_trigger_s"]
            values[name] = NEVER_NS if seconds is None else round(seconds * 10**9)
        else:
            values[name] = {
                number: float((given or {}).get(oom_class, 0))
                for oom_class, number in CLASSES.items()
            }
    return values


def spelled(value: object) -> object:
    """Return a value as the vectors spell it."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, value)  # type: ignore[call-overload]  # any key may be looked up


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """Return what an expression comes to, as the vectors say it."""
    ranks = case["kind"] == "rank"
    checked = (check_ranking if ranks else check_trigger)(case["expression"])
    if isinstance(checked, Problems):
        return {"outcome": "invalid-expression"}
    values = ranking_values(case["candidate"]) if ranks else trigger_values(case)
    try:
        value = checked.evaluate(values)
    except EvaluationError:
        return {"outcome": "eval-error"}
    return {"outcome": "value", "value": spelled(value)}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for case in cases("cel.json")]
)
def test_expressions_come_to_what_cel_go_says(case: dict[str, Any]) -> None:
    """Accepted or refused, the value to the last bit and sign, and whether it fails."""
    assert repr(outcome(case)) == repr(case["expect"])


MESSAGES = [
    (case["kind"], case["expression"], case["cel_go_says"])
    for case in cases("cel.json")
    if case["expect"]["outcome"] == "invalid-expression"
    and "Syntax" not in case["cel_go_says"]
    and "output type" not in case["cel_go_says"]
]


@pytest.mark.parametrize(("kind", "expression", "says"), sorted(set(MESSAGES)))
def test_refusals_name_the_same_place_and_reason_as_cel_go(
    kind: str, expression: str, says: str
) -> None:
    """The first problem has cel-go's line, column and words."""
    checked = (check_ranking if kind == "rank" else check_trigger)(expression)

    assert isinstance(checked, Problems)
    first = checked[0]
    assert f"<input>:{first.line}:{first.column}: {first.message}" == says


EXPRESSIONS = [
    pytest.param(check, case["expression"], case["expect"]["outcome"], id=case["id"])
    for name, check in (("oom-trigger.json", check_trigger), ("oom-victim.json", check_ranking))
    for case in cases(name)
]


@pytest.mark.parametrize(("check", "expression", "expected"), EXPRESSIONS)
def test_expressions_of_the_policy_are_accepted_or_refused(
    check: Any, expression: str, expected: str
) -> None:
    """The trigger and victim vectors say which expressions are invalid."""
    assert isinstance(check(expression), Checked) is (expected != "invalid-expression")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["name"])
        for case in cases("cel.json")
        if case["expect"]["outcome"] == "eval-error" and "regexp" not in case["cel_go_says"]
    ],
)
def test_failures_are_worded_as_in_cel_go(case: dict[str, Any]) -> None:
    """The message of an evaluation error is cel-go's; those about patterns are RE2's."""
    ranks = case["kind"] == "rank"
    checked = (check_ranking if ranks else check_trigger)(case["expression"])
    assert isinstance(checked, Checked)

    with pytest.raises(EvaluationError) as caught:
        checked.evaluate(ranking_values(case["candidate"]) if ranks else trigger_values(case))

    assert str(caught.value) == case["cel_go_says"]
