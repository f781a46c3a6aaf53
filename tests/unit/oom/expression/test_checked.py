"""Checked expressions: names, clauses, constants, evaluation."""

import math
from types import MappingProxyType

import pytest

from memqos.oom.expression import (
    INT,
    RANKING,
    TRIGGER,
    UINT,
    Checked,
    Environment,
    EvaluationError,
    check,
    check_ranking,
    check_trigger,
    optional_of,
)
from memqos.oom.expression.types import DYN, TIMESTAMP, list_of
from tests.support.expressions import ENVIRONMENT, VALUES


TRIGGER_TEXT = """\
multiply_qos_vectors(d_qos_memory_full_total, {System: 8.0, Podruntime: 4.0}) > 3000.0 &&
multiply_qos_vectors(qos_memory_full_avg10, {System: 1.0, Podruntime: 1.0}) > 5.0 &&
time_since_trigger > duration("5s")"""
RANKING_TEXT = """\
memory_max.hasValue() ? 0.0 :
{Besteffort: 1.0, Burstable: 0.5, Guaranteed: 0.0, Podruntime: 0.0, System: 0.0}[class] *
double(memory_current.orValue(0u))"""


def trigger(text: str) -> Checked:
    """Check a trigger that is valid."""
    checked = check_trigger(text)
    assert isinstance(checked, Checked), checked
    return checked


def any_of(text: str) -> Checked:
    """Check an expression of the tests' environment that is valid."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Checked), checked
    return checked


def test_a_trigger_has_its_clauses_with_their_text() -> None:
    """Each can be evaluated by itself, so that one sees which one fired."""
    checked = trigger(TRIGGER_TEXT)

    assert [clause.text for clause in checked.clauses] == [
        line.removesuffix(" &&") for line in TRIGGER_TEXT.splitlines()
    ]
    assert [sorted(clause.names) for clause in checked.clauses] == [
        ["d_qos_memory_full_total"],
        ["qos_memory_full_avg10"],
        ["time_since_trigger"],
    ]
    assert checked.clauses[2].evaluate({"time_since_trigger": 6 * 10**9}) is True


def test_an_expression_without_a_logical_operator_is_its_only_clause() -> None:
    """Parentheses around a clause belong to no clause."""
    assert [clause.text for clause in trigger("1.0 < memory_full_avg10").clauses] == [
        "1.0 < memory_full_avg10"
    ]
    assert [clause.text for clause in trigger("(true || false) && (true)").clauses] == [
        "true || false",
        "true",
    ]


def test_the_names_are_the_variables_that_are_used() -> None:
    """Constants and loop variables are not among them; dead branches are."""
    checked = trigger("[1.0].exists(x, x > memory_full_avg10) || false && memory_some_avg10 > 1.0")

    assert checked.names == {"memory_full_avg10", "memory_some_avg10"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("false", False),
        ("memory_full_avg10 > 1.0 && false", False),
        ("1/0 == 1 || true", True),
        ("1.0 < memory_full_avg10", None),
        ("System > Burstable", True),
        ("duration('1m') == duration('60s')", True),
        ("1 / 0 == 1", None),
    ],
)
def test_what_depends_on_nothing_is_a_constant(text: str, expected: object) -> None:
    """A decided && or || too; what always fails is none."""
    assert trigger(text).constant is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.0", 0.0), ("true ? 1.5 : double(class)", 1.5), ("double(2 + 3)", 5.0)],
)
def test_a_constant_ranking_is_known(text: str, expected: float) -> None:
    """Every candidate scores the same."""
    checked = check_ranking(text)

    assert isinstance(checked, Checked)
    assert checked.constant == expected
    assert checked.evaluate({}) == expected


@pytest.mark.parametrize(
    ("rate", "average", "seconds", "expected"),
    [
        (376.0, 6.0, 6, True),
        (375.0, 6.0, 6, False),
        (376.0, 5.0, 6, False),
        (376.0, 6.0, 5, False),
    ],
)
def test_the_default_trigger_has_sharp_edges(
    rate: float, average: float, seconds: int, expected: object
) -> None:
    """Each limit must be exceeded: 8 times 375 is exactly 3000."""
    classes = dict.fromkeys(range(5), 0.0)
    values = {
        "d_qos_memory_full_total": {**classes, 4: rate},
        "qos_memory_full_avg10": {**classes, 4: average},
        "time_since_trigger": seconds * 10**9,
    }

    assert trigger(TRIGGER_TEXT).evaluate(values) is expected


@pytest.mark.parametrize(
    ("oom_class", "current", "limit", "expected"),
    [
        (1, 42, None, 21.0),
        (0, 222593024, None, 222593024.0),
        (1, 42, 100, 0.0),
        (0, None, None, 0.0),
        (4, 10**9, None, 0.0),
    ],
)
def test_the_default_ranking_scores_by_class_and_size(
    oom_class: int, current: int | None, limit: int | None, expected: float
) -> None:
    """A limit protects, and so does the class."""
    checked = check_ranking(RANKING_TEXT)
    assert isinstance(checked, Checked)

    values = {"class": oom_class, "memory_current": current, "memory_max": limit}
    assert checked.evaluate(values) == expected


def test_a_class_that_the_values_lack_counts_nothing() -> None:
    """The sum goes over the keys of the values."""
    checked = trigger(
        "multiply_qos_vectors(qos_memory_full_avg10, {System: 2.0, Burstable: 1.0}) == 6.0"
    )

    assert checked.evaluate({"qos_memory_full_avg10": {4: 3.0}}) is True


@pytest.mark.parametrize(
    "text",
    ["time_since_trigger > duration('1s')", TRIGGER_TEXT, "true && memory_full_avg10 > 1.0"],
)
def test_a_missing_value_is_named(text: str) -> None:
    """It fails, and says what was not given."""
    with pytest.raises(EvaluationError, match=r"^no such attribute"):
        trigger(text).evaluate({})


def test_an_index_that_the_map_lacks_is_named() -> None:
    """The quick way of the sum and the careful one say the same."""
    checked = trigger(f"qos_memory_full_avg10[7] > 1.0 && {TRIGGER_TEXT}")
    classes = dict.fromkeys(range(5), 99999.0)
    values = {
        "qos_memory_full_avg10": classes,
        "d_qos_memory_full_total": classes,
        "time_since_trigger": 6 * 10**9,
    }

    with pytest.raises(EvaluationError, match=r"^no such key: 7$"):
        checked.evaluate(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("u", 2**64 - 1),
        ("t", 5_000_000_000),
        ("q", {0: 1.0, 1: 0.5, 4: 1e300}),
        ("m.?b", 0),
        ("m.?c", None),
        ("[u, 1u]", [2**64 - 1, 1]),
        ("{s: t}", {"kubepods/pod": 5_000_000_000}),
        ("{[1]: [u]}", {(1,): [2**64 - 1]}),
        ("timestamp(1)", 10**9),
        ("type(u)", "uint"),
        ("null", None),
        ("b'a'", b"a"),
    ],
)
def test_values_come_out_plain(text: str, expected: object) -> None:
    """Numbers of Python, nanoseconds, lists, dicts, None for an absent value."""
    value = any_of(text).evaluate(VALUES[1])

    assert (value, type(value)) == (expected, type(expected))


def test_a_map_that_comes_out_is_a_copy() -> None:
    """Changing it changes nothing that was handed in."""
    assert any_of("q").evaluate(VALUES[1]) is not VALUES[1]["q"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x / 0.0", -math.inf),
        ("-x / 0.0", math.inf),
        ("1.0 / (x * -0.0)", math.inf),
        ("1.0 / (x * 0.0)", -math.inf),
    ],
)
def test_doubles_divide_as_ieee_754_says(text: str, expected: float) -> None:
    """By a zero of either sign."""
    assert any_of(text).evaluate(VALUES[1]) == expected


@pytest.mark.parametrize(
    "text",
    ["zero / zero", "double('nan')", "zero / zero + 1.0"],
)
def test_an_undefined_ratio_is_not_a_number(text: str) -> None:
    """It is above and below nothing, and equal to nothing."""
    text = text.replace("zero", "(x * 0.0)")

    assert math.isnan(any_of(text).evaluate(VALUES[0]))
    for sign in ("<", "<=", ">", ">=", "=="):
        assert any_of(f"({text}) {sign} ({text})").evaluate(VALUES[0]) is False
        assert any_of(f"dyn({text}) {sign} dyn(1)").evaluate(VALUES[0]) is False
    assert any_of(f"({text}) != ({text})").evaluate(VALUES[0]) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n / 0 > 0 || b", True),
        ("b || n / 0 > 0", True),
        ("n / 0 > 0 && !b", False),
        ("!b && n / 0 > 0", False),
        ("n / 0 > 0 && n / 0 > 1 && !b", False),
        ("[0, 1].exists(w, 1 / w == 1)", True),
        ("[0, 1].all(w, 1 / w == 2)", False),
        ("dyn(1) == 2 && dyn(n) && !b", False),
        ("b ? n : n / 0", 2**63 - 1),
        ("(n / 0 > 0 || b) && (n / 0 > 0 || b)", True),
    ],
)
def test_an_operand_that_decides_makes_up_for_errors(text: str, expected: object) -> None:
    """In both orders, in loops, and with operands that turn out not to be bools."""
    assert any_of(text).evaluate(VALUES[1]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n / 0 > 0 || !b", "division by zero"),
        ("n % 0 > 0 && b", "modulus by zero"),
        ("n / 0 > 0 && n + n > 0", "division by zero"),
        ("n + 1", "integer overflow"),
        ("-n - 2", "integer overflow"),
        ("u + 1u", "unsigned integer overflow"),
        ("0u - u", "unsigned integer overflow"),
        ("t + duration('2562047h47m16s')", "integer overflow"),
        ("{1: x, 2: 1.0 / x, 3: double(n / 0)}[1]", "division by zero"),
        ("{1: x}[n]", "no such key: 9223372036854775807"),
        ("m['zz']", "no such key: zz"),
        ("{'a': n}.b", "no such key: b"),
        ("[n][1]", "index out of bounds: 1"),
        ("m.?c.value()", "optional.none() dereference"),
        ("dyn(n) + x", "no such overload"),
        ("dyn(n) && b", "no such overload"),
        ("dyn(n) ? 1 : 2", "no such overload"),
        ("dyn(n).orValue(1.0)", "no such overload"),
        ("[0, 1].exists_one(w, 1 / w == 1)", "division by zero"),
        ("[0].map(w, 1 / w)", "division by zero"),
        (
            "timestamp('2020-01-01')",
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        (
            "timestamp(0).getHours('Europe/Berlin')",
            "the time zone 'Europe/Berlin' is not supported; give it as +hh:mm",
        ),
        ("{b'a': 1}.size()", "bytes cannot be the key of a map"),
    ],
)
def test_failures_say_why(text: str, expected: str) -> None:
    """The first error is told when no operand decides."""
    with pytest.raises(EvaluationError) as caught:
        any_of(text).evaluate(VALUES[1])

    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[r].map(a, r.map(b, r.map(c, r.map(d, r.map(e, r.map(f, 1)))))).size()".replace(
            "r", str(list(range(10)))
        ),
        "[s]" + ".map(w, w + w + w + w)" * 20 + ".size()",
        "optional.of(s)" + ".optMap(w, w + w + w + w)" * 20 + ".hasValue()",
        "[1]" + ".map(w, [w, w])" * 25 + ".exists(w, w == w)",
    ],
)
def test_loops_stop_when_their_budget_is_spent(text: str) -> None:
    """Steps, the size of texts, and looking at values that share parts all count."""
    with pytest.raises(EvaluationError, match=r"^iteration budget exceeded$"):
        any_of(text).evaluate(VALUES[1])


@pytest.mark.parametrize(
    "text",
    [
        "s.matches('(x{9}){9}(x{9}){9}(x{9}){9}y')",
        " || ".join(["s.matches('(.*x){9}y')"] * 20),
        "[1, 2, 3, 4, 5].all(a, [1, 2, 3, 4, 5].all(b, [1, 2, 3].all(c, !s.matches('(x+)+y'))))",
        "[1, 2, 3, 4, 5].all(a, [1, 2, 3, 4, 5].all(b, !s.matches(string(a) + string(b))))",
    ],
)
def test_patterns_stop_when_their_budget_is_spent(text: str) -> None:
    """A pattern costs what it may have to look at, and one made in a loop also its making."""
    with pytest.raises(EvaluationError, match=r"^iteration budget exceeded$"):
        any_of(text).evaluate({"s": "x" * 20_000})


def test_a_pattern_that_is_too_large_fails() -> None:
    """RE2 is given little memory."""
    with pytest.raises(EvaluationError, match=r"^error parsing regexp: pattern too large"):
        any_of("s.matches('" + "(a{30}){30}" * 20 + "')").evaluate({"s": "x"})


def test_an_evaluation_starts_with_a_full_budget() -> None:
    """One does not spend what the next one needs."""
    checked = any_of("[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(c, a + c < 100))")

    assert all(checked.evaluate({}) for _ in range(200))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("multiply_qos_vectors({'a': 2.0, 'b': 1.0}, {'a': 3.0})", 6.0),
        ("multiply_qos_vectors({'a': 2.0}, {1: 3.0})", 0.0),
        ("multiply_qos_vectors({1: 2.0}, {dyn(1): 3.0, dyn('a'): 1.0})", 6.0),
        ("multiply_qos_vectors({1: dyn(2.0), 0: dyn(1.0)}, {1: 3.0, 0: 0.5})", 6.5),
        ("[3.0].map(w, multiply_qos_vectors(qos_memory_full_avg10, {System: w}))[0]", 12.0),
        ("multiply_qos_vectors(qos_memory_full_avg10, {System: memory_full_avg10})", 2.0),
    ],
)
def test_vectors_multiply_by_equal_keys(text: str, expected: float) -> None:
    """Keys may be of any type; those of one side only count nothing."""
    checked = check(text, TRIGGER, None)
    assert isinstance(checked, Checked), checked

    values = {"qos_memory_full_avg10": {4: 4.0}, "memory_full_avg10": 0.5}
    assert checked.evaluate(values) == expected


def test_a_vector_of_something_else_fails() -> None:
    """A dyn value passes the checker, and is looked at when it is multiplied."""
    checked = check("multiply_qos_vectors({1: dyn(2)}, {1: 3.0})", TRIGGER, None)
    assert isinstance(checked, Checked)

    with pytest.raises(EvaluationError, match=r"^internal error"):
        checked.evaluate({})


OWN = Environment(
    variables=MappingProxyType(
        {
            "anything": DYN,
            "sizes": list_of(UINT),
            "maybe": optional_of(list_of(INT)),
            "at": TIMESTAMP,
        }
    ),
    constants=MappingProxyType({}),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anything.a[1] + 1", 3),
        ("anything.b.all(w, w == true)", True),
        ("sizes[0] + 1u", 6),
        ("sizes.exists(w, w == 5u) && type(sizes[0]) == uint", True),
        ("maybe.hasValue() || maybe.orValue([7])[0] != 7", False),
        ("at > timestamp(0) && at.getSeconds() == 5", True),
        ("at", 5 * 10**9),
        ("anything", {"a": [1, 2], "b": []}),
        ("{true: 1}[sizes.size() > 4]", None),
    ],
)
def test_variables_may_be_of_any_type(text: str, expected: object) -> None:
    """Lists, nested optionals, moments, and values whose type is not known; None fails."""
    checked = check(text, OWN, None)
    assert isinstance(checked, Checked), checked
    values = {"anything": {"a": (1, 2), "b": []}, "sizes": [5], "maybe": None, "at": 5 * 10**9}
    if expected is None:
        with pytest.raises(EvaluationError, match=r"^no such key: false$"):
            checked.evaluate(values)
        return

    assert checked.evaluate(values) == expected


def test_environments_may_be_of_ones_own() -> None:
    """The checker takes what it is given; the tests' environment is one."""
    checked = check("n + 1", ENVIRONMENT, None)

    assert isinstance(checked, Checked)
    assert checked.environment is ENVIRONMENT is not RANKING


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (TRIGGER_TEXT, {3, 4}),
        ("qos_memory_current[2] + qos_memory_current[Besteffort] > 1.0", {0, 2}),
        ("qos_memory_current[?Burstable].orValue(1.0) > 1.0", {1}),
        ("memory_full_avg10 > 1.0", set()),
        (
            "multiply_qos_vectors(qos_memory_peak, {System: qos_memory_peak[Podruntime]}) > 1.0",
            {3, 4},
        ),
        # Whatever the key is, or where the map goes.
        ("qos_memory_peak[true ? 1 : 2] > 1.0", None),
        ("[1].exists(System, qos_memory_peak[System] > 1.0)", None),
        ("multiply_qos_vectors(qos_memory_peak, {dyn(1): 1.0}) > 1.0", None),
        ("multiply_qos_vectors({System: 1.0}, qos_memory_peak) > 1.0", None),
        ("multiply_qos_vectors(qos_memory_peak, {1u: 1.0}) > 1.0", None),
        ("qos_memory_peak == qos_memory_current", None),
        ("qos_memory_peak.all(c, c > 1)", None),
        ("System in qos_memory_peak", None),
    ],
)
def test_keys(text: str, keys: set[int] | None) -> None:
    """By which a trigger looks into the maps of classes."""
    assert trigger(text).keys == keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true ? (1.0 / x > 0.0 && [1][n] > 0) : b", False),
        ("false ? b : ([1][n] > 0 || 1.0 / x > 0.0)", True),
    ],
)
def test_a_known_condition_before_operands_that_fail(text: str, expected: bool) -> None:
    """The operator of the branch makes up for an error as it would alone."""
    values = {"n": 5, "x": -1.0 if text.startswith("true") else 1.0, "b": False}
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Checked)
    assert checked.evaluate(values) is expected
