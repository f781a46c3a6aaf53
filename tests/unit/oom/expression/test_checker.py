"""Types, and what is refused for them; the vectors hold many more."""

import pytest

from memqos.oom.expression import Checked, Problems, check, check_ranking, check_trigger
from tests.support.expressions import ENVIRONMENT


def message(text: str) -> str:
    """Return the first reason why an expression is refused."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Problems), checked
    return checked[0].message


def kind(text: str) -> str:
    """Return the type of an expression."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Checked), checked
    return str(checked.result)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "expression output type is int, expected double"),
        ("[1.0, 2][0]", "expression output type is dyn, expected double"),
        ("memory_current", "expression output type is optional_type(uint), expected double"),
        ("timestamp(0)", "expression output type is google.protobuf.Timestamp, expected double"),
    ],
)
def test_the_result_has_to_have_exactly_the_type(text: str, expected: str) -> None:
    """An int is no double, and dyn is neither."""
    problems = check_ranking(text)

    assert isinstance(problems, Problems)
    assert [problem.message for problem in problems] == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n + x", "found no matching overload for '_+_' applied to '(int, double)'"),
        (
            "s.startsWith(1)",
            "found no matching overload for 'startsWith' applied to 'string.(int)'",
        ),
        ("n && b", "expected type 'bool' but found 'int'"),
        ("n.x", "type 'int' does not support field selection"),
        ("n.foo()", "undeclared reference to 'foo' (in container '')"),
        ("foo(n)", "undeclared reference to 'foo' (in container '')"),
        ("while", "reserved identifier: while"),
        ("has(n)", "invalid argument to has() macro"),
        ("has(m.?a)", "invalid argument to has() macro"),
        ("[1].all(1, true)", "argument must be a simple name"),
        ("[1].map(n.a, true)", "argument is not an identifier"),
        ("[1].map(__result__, 1)", "iteration variable overwrites accumulator variable"),
        ("optional.of(1).optMap(1, 2)", "optMap() variable name must be a simple identifier"),
        ("[?n]", "expected type 'optional_type(int)' but found 'int'"),
        ("{?'a': n}", "expected type 'optional_type(int)' but found 'int'"),
        (
            "[1] == ['a']",
            "found no matching overload for '_==_' applied to '(list(int), list(string))'",
        ),
        ("type(1) == dyn", "undeclared reference to 'dyn' (in container '')"),
    ],
)
def test_refusals_have_the_words_of_cel_go(text: str, expected: str) -> None:
    """The message templates of cel-go's checker and parser."""
    assert message(text) == expected


def test_loops_go_over_lists_and_maps_only() -> None:
    """A number has no elements."""
    assert message("n.all(w, true)") == (
        "expression of type 'int' cannot be range of a comprehension"
        " (must be list, map, or dynamic)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "list(dyn)"),
        ("{}", "map(dyn, dyn)"),
        ("[1, null]", "list(dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ("b ? [] : ['a']", "list(string)"),
        ("optional.none()", "optional_type(dyn)"),
        ("b ? optional.none() : optional.of(1u)", "optional_type(uint)"),
        ("m.?a", "optional_type(uint)"),
        ("optional.of(m).a", "optional_type(uint)"),
        ("optional.of([1])[0]", "optional_type(int)"),
        ("[1].map(w, 'a')", "list(string)"),
        ("m.map(w, w)", "list(string)"),
        ("m.filter(w, true)", "list(string)"),
        ("optional.of(1).optMap(w, 'a')", "optional_type(string)"),
        ("optional.of(1).optFlatMap(w, optional.of('a'))", "optional_type(string)"),
        ("[?optional.of(1), 2]", "list(int)"),
        ("b ? null : t", "null"),
        ("dyn(1) + 1.0", "double"),
        ("dyn(1) + dyn(1)", "dyn"),
        ("type(1)", "type(int)"),
        ("google.protobuf.Duration", "type(duration)"),
        ("timestamp(0) - timestamp(0)", "duration"),
        ("timestamp(0) - t", "timestamp"),
        (".n", "int"),
    ],
)
def test_types_are_found_as_cel_go_finds_them(text: str, expected: str) -> None:
    """Free variables become dyn, and the more general of two types wins."""
    assert kind(text) == expected


def test_numbers_of_two_types_compare_behind_a_loop_only() -> None:
    """cel-go forgets the rule when it leaves the first loop; the vectors hold such a case."""
    assert isinstance(check_trigger("memory_full_avg10 > 12"), Problems)
    assert isinstance(check_trigger("[1].all(x, x > 0.5)"), Checked)
    assert isinstance(check_trigger("[1].all(x, x > 0) && memory_full_avg10 > 12"), Checked)
    assert isinstance(check_trigger("memory_full_avg10 > 12 && [1].all(x, x > 0)"), Problems)


def test_loop_variables_hide_other_names() -> None:
    """A leading dot reaches past them."""
    assert kind("['a'].map(n, n)") == "list(string)"
    assert kind("['a'].map(n, .n)") == "list(int)"
    assert kind("[1].map(w, ['a'].map(w, w))") == "list(list(string))"


@pytest.mark.parametrize("text", ["a{b: 1}", "google.protobuf.Int64Value{value: 1}", "n{}"])
def test_messages_are_refused_by_name(text: str) -> None:
    """What is not supported says so."""
    assert message(text) == "messages cannot be made here"


def test_types_that_grow_without_bound_are_refused() -> None:
    """Each step doubles the type."""
    text = "[1]" + ".map(w, {w: w})" * 20

    assert message(text) == "expression has a type that is too complex"


def test_types_that_refer_to_one_another_are_refused_in_time() -> None:
    """The work on type variables is bounded."""
    text = "size([" + ", ".join(["{[]: {}}"] * 60) + "])"

    assert isinstance(check(text, ENVIRONMENT, None), Checked)
