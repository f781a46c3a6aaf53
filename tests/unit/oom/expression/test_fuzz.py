"""Any text is refused or evaluated; nothing else is ever raised."""

from contextlib import suppress
from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from memqos.oom.expression import BOOL, Checked, EvaluationError, Problems, check, weaken
from tests.support.expressions import ENVIRONMENT, SCALARS, VALUES, Maker


PIECES = (
    *("n", "u", "x", "b", "s", "t", "q", "m", "1", "2u", "0.5", "'a'", "true", "null", "b'x'"),
    *("(", ")", "[", "]", "{", "}", ",", ":", "?", ".", "!", "-", "+", "*", "/", "%", "<", "=="),
    *("&&", "||", "in", " ", "\n", "//", ".?", "[?", "optional.of(", "optional.none()", "has("),
    *(".all(w, ", ".map(w, ", ".filter(w, ", ".exists(w, ", ".optMap(w, ", "dyn(", "type("),
    *(".orValue(", ".value()", "size(", "string(", "double(", "'", '"""', "\\", "\x00", "\u00e9"),
    *("duration(", "timestamp(", ".getHours(", ".matches(", "if", "google.protobuf.Duration"),
)
quick = settings(max_examples=300, derandomize=True, database=None, deadline=None)


def outcomes(text: str) -> list[object]:
    """Return what an expression gives for each of the values, None where it fails."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Checked)
    found: list[object] = []
    for values in VALUES:
        try:
            found.append(repr(checked.evaluate(values)))
        except EvaluationError:
            found.append(None)
    return found


def survive(text: str) -> None:
    """Check an expression and evaluate it."""
    checked = check(text, ENVIRONMENT, None)
    if isinstance(checked, Problems):
        assert checked
        assert checked.render(text)
        return
    assert isinstance(checked, Checked)
    for values in VALUES:
        with suppress(EvaluationError):
            checked.evaluate(values)


@quick
@given(st.text(max_size=60))
def test_any_text_is_refused_or_evaluated(text: str) -> None:
    """Characters of every kind."""
    survive(text)


@quick
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_evaluated(data: bytes) -> None:
    """Read as Latin-1, and with surrogates."""
    survive(data.decode("latin-1"))
    survive(data.decode("utf-8", "surrogateescape"))


@quick
@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_any_pieces_are_refused_or_evaluated(pieces: list[str]) -> None:
    """Pieces of expressions in any order."""
    survive("".join(pieces))


@quick
@given(chance=st.randoms(use_true_random=True))
def test_damaged_expressions_are_refused_or_evaluated(chance: Random) -> None:
    """Expressions with operands of wrong types, of which a piece is lost, doubled or changed."""
    text = Maker(chance, wrong=0.05).make(chance.choice(SCALARS), chance.randint(1, 4))
    start = chance.randint(0, len(text))
    end = min(len(text), start + chance.randint(0, 4))
    survive(
        text[:start] + chance.choice(("", text[start:end] * 2, chance.choice(PIECES))) + text[end:]
    )


@quick
@given(chance=st.randoms(use_true_random=True))
def test_a_known_condition_changes_nothing(chance: Random) -> None:
    """Its branch is all there is, whatever operator is outermost there."""
    text = Maker(chance).make("bool", chance.randint(1, 3))
    expected = outcomes(text)
    assert outcomes(f"true ? {text} : b") == expected
    assert outcomes(f"false ? b : {text}") == expected


@quick
@given(chance=st.randoms(use_true_random=True))
def test_what_is_true_stays_true_when_weakened(chance: Random) -> None:
    """Whatever variables are not to matter, and whatever they are."""
    parts = [Maker(chance).make("bool", chance.randint(1, 3)) for _ in range(3)]
    text = f"{parts[0]} {chance.choice(('&&', '||'))} ({parts[1]} && {parts[2]})"
    condition = check(text, ENVIRONMENT, BOOL)
    assert isinstance(condition, Checked)
    names = frozenset(name for name in condition.names if chance.random() < 0.5)
    weak = weaken(condition, names)
    assert names.isdisjoint(weak.names)
    for values, known in product(VALUES, VALUES):
        mixed = {**known, **{name: values[name] for name in names}}
        with suppress(EvaluationError):
            if condition.evaluate(mixed):
                assert weak.evaluate(known)
