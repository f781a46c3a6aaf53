"""Generated expressions, well-typed and not, against cel-cpp and against celpy's interpreter."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memqos.oom.expression import Checked, EvaluationError, check, checker
from tests.support.expressions import ENVIRONMENT, SCALARS, VALUES, Maker
from tests.support.oracles import Outcome, cel_cpp_compiled, cel_cpp_outcome, celpy_outcome


def ours(checked: Checked, values: dict[str, object]) -> Outcome:
    """Evaluate with memqos."""
    try:
        return Outcome(False, checked.evaluate(values))
    except EvaluationError:
        return Outcome(True)


def generated(examples: int) -> settings:
    """Return the settings of a deterministic run."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(autouse=True)
def _numeric_types_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what only cel-go allows: comparing numbers of two types behind a loop."""
    monkeypatch.setattr(checker, "ACROSS", {})


@pytest.mark.parametrize("wrong", [0.0, 0.02, 0.15])
@generated(800)
@given(chance=st.randoms(use_true_random=True))
def test_cel_cpp_accepts_the_same_and_gets_the_same(wrong: float, chance: Random) -> None:
    """What is accepted, the value with its type, and whether there is one."""
    text = Maker(chance, wrong=wrong).make(chance.choice(SCALARS), chance.randint(1, 4))
    checked = check(text, ENVIRONMENT, None)
    expression = cel_cpp_compiled(text)

    assert isinstance(checked, Checked) is (expression is not None), (text, checked)
    if not isinstance(checked, Checked):
        return
    for values in VALUES:
        theirs = cel_cpp_outcome(expression, values)
        assert ours(checked, values).same(theirs), (text, values, theirs)


@generated(400)
@given(chance=st.randoms(use_true_random=True))
def test_celpy_gets_the_same_where_it_is_right(chance: Random) -> None:
    """Integers with their ranges, texts, logic with errors, lists: the value, or none."""
    text = Maker(chance, plain=True).make(chance.choice(SCALARS), chance.randint(1, 3))
    checked = check(text, ENVIRONMENT, None)

    assert isinstance(checked, Checked), (text, checked)
    for values in VALUES:
        theirs = celpy_outcome(text, values)
        assert ours(checked, values).same(theirs), (text, values, theirs)
