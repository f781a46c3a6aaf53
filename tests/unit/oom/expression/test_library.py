"""The functions of the standard library and of optional values."""

import math

import pytest

from memqos.oom.expression import Checked, EvaluationError, check
from tests.support.expressions import ENVIRONMENT


def value(text: str, **values: object) -> object:
    """Evaluate an expression that is valid."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Checked), checked
    return checked.evaluate(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # conversions, as Go's strconv reads and prints
        ("int('+5')", 5),
        ("int(-1.9)", -1),
        ("int(duration('1us'))", 1000),
        ("int(timestamp('1969-12-31T23:59:59.5Z'))", -1),
        ("uint(1.9)", 1),
        ("uint('18446744073709551615')", 2**64 - 1),
        ("double('1_0')", 10.0),
        ("double('0x1p-2')", 0.25),
        ("double('0x_1.8p1')", 3.0),
        ("double('.5e1')", 5.0),
        ("double('-Inf')", -math.inf),
        ("double('+infinity')", math.inf),
        ("double('1e-999')", 0.0),
        ("double(9007199254740993u)", 9007199254740992.0),
        ("string(1.0)", "1"),
        ("string(-0.0)", "-0"),
        ("string(100000.0)", "100000"),
        ("string(1000000.0)", "1e+06"),
        ("string(123456789.5)", "1.234567895e+08"),
        ("string(0.0001)", "0.0001"),
        ("string(0.00001)", "1e-05"),
        ("string(1e21)", "1e+21"),
        ("string(1.25)", "1.25"),
        ("string(1.0 / 0.0)", "+Inf"),
        ("string(-1.0 / 0.0)", "-Inf"),
        ("string(0.0 / 0.0)", "NaN"),
        ("string(5u)", "5"),
        ("string(true)", "true"),
        ("string(b'a')", "a"),
        ("string(duration('1h0.5s'))", "3600.5s"),
        ("string(duration('1ns'))", "0.000000001s"),
        ("string(duration('-1m'))", "-60s"),
        ("string(timestamp('2023-07-14T10:30:45.120Z'))", "2023-07-14T10:30:45.12Z"),
        ("string(timestamp('2023-07-14T10:30:45+02:30'))", "2023-07-14T10:30:45+02:30"),
        ("string(timestamp(0))", "1970-01-01T00:00:00Z"),
        ("bool('T')", True),
        ("bool('false')", False),
        ("bytes('\u00e9')", b"\xc3\xa9"),
        # durations and moments
        ("duration('0')", 0),
        ("duration('-1.5h')", -5400 * 10**9),
        ("duration('-90s').getMinutes()", -1),
        ("duration('3723s').getHours()", 1),
        ("duration('1.5s').getMilliseconds()", 1500),
        ("timestamp('2023-07-14T10:30:45.123Z').getFullYear()", 2023),
        ("timestamp('2023-07-14T10:30:45.123Z').getMonth()", 6),
        ("timestamp('2023-07-14T10:30:45.123Z').getDate()", 14),
        ("timestamp('2023-07-14T10:30:45.123Z').getDayOfMonth()", 13),
        ("timestamp('2023-07-14T10:30:45.123Z').getDayOfWeek()", 5),
        ("timestamp('2023-07-14T10:30:45.123Z').getDayOfYear()", 194),
        ("timestamp('2023-07-14T10:30:45.123Z').getHours('+02:00')", 12),
        ("timestamp('2023-07-14T10:30:45.123Z').getHours('-11:00')", 23),
        ("timestamp('2023-07-14T10:30:45.123Z').getMinutes('UTC')", 30),
        ("timestamp('2023-07-14T10:30:45.123Z').getMilliseconds()", 123),
        ("timestamp('2024-12-31T00:00:00Z').getDayOfYear()", 365),
        ("timestamp('0001-01-01T00:00:00Z').getDayOfWeek()", 1),
        ("timestamp(0) + duration('1s') == timestamp(1)", True),
        ("duration('1s') + timestamp(0) == timestamp(1)", True),
        ("timestamp(2) - timestamp(0) == duration('2s')", True),
        ("timestamp(0) - duration('1s') < timestamp(0)", True),
        # text
        ("'abc'.contains('b')", True),
        ("'abc'.matches('^a.c$')", True),
        ("matches('abc', 'x')", False),
        ("'h\u00e9llo'.size()", 5),
        ("size(b'\\xff\\xff')", 2),
        # optional values
        ("optional.of(1).or(optional.of(2)).value()", 1),
        ("optional.none().or(optional.of(2)).orValue(3)", 2),
        ("optional.ofNonZeroValue('').hasValue()", False),
        ("optional.ofNonZeroValue([0]).hasValue()", True),
        ("optional.ofNonZeroValue(null).hasValue()", False),
        ("optional.ofNonZeroValue(optional.none()).hasValue()", False),
        ("optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue()", False),
        ("optional.ofNonZeroValue(int).hasValue()", True),
        ("optional.of(null).hasValue()", True),
        ("optional.of(2).optMap(w, w * 2).value()", 4),
        ("optional.none().optMap(w, w + 1).hasValue()", False),
        ("optional.of(2).optFlatMap(w, optional.none()).hasValue()", False),
        ("[1, 2].first().value() + [1, 2].last().value()", 3),
        ("[].first().hasValue() || [].last().hasValue()", False),
        ("optional.unwrap([optional.of(1), optional.none()])", [1]),
        ("[optional.none(), optional.of(2)].unwrapOpt()", [2]),
        ("optional.of({'a': 1}).a.value()", 1),
        ("optional.none().a.hasValue()", False),
        ("optional.of([7])[0].value()", 7),
        ("optional.of(1) == optional.of(1)", True),
        ("optional.none() == optional.of(1)", False),
        ("has(optional.of({'a': 1}).a)", True),
        # lists, maps, equality across types
        ("dyn(1) == 1u && dyn(1) == 1.0 && dyn(1u) < dyn(1.5)", True),
        ("dyn(-1) < dyn(0u) && dyn(18446744073709551615u) > dyn(9223372036854775807)", True),
        ("dyn(9007199254740993) == dyn(9007199254740992.0)", True),
        ("dyn(1e300) > dyn(1) && dyn(-1e300) < dyn(1u) && dyn(1) < dyn(1e300)", True),
        ("1 in dyn([1u, 2.0])", True),
        ("dyn(1.0) in {1: true} && dyn(1u) in {1: true} && dyn(1) in {1u: true}", True),
        ("{1: 'a'}[dyn(1.0)] + {1u: 'b'}[dyn(1)]", "ab"),
        ("[1, 2][dyn(1.0)]", 2),
        ("{'a': 1, 'a': 2}.a", 2),
        ("{1: 1, 1u: 2}.size()", 2),
        ("{'a': 1} == {'a': 1.0}", None),
        ("dyn({'a': 1}) == {'a': 1.0}", True),
        ("{'a': 1} == {'b': 1}", False),
        ("[0.0 / 0.0] == [0.0 / 0.0]", False),
        ("has({'a': 1}.a) && !has({'a': 1}.b) && !has(dyn(1).a)", True),
        ("[1, 2, 2].exists_one(w, w < 2) && [1].existsOne(w, true)", True),
        ("{'a': 1, 'b': 2}.all(w, w in ['a', 'b'])", True),
        ("[1, 2, 3].map(w, w > 1, w * 2)", [4, 6]),
        ("[1, 2, 3].filter(w, w != 2)", [1, 3]),
        ("[1, 2].map(w, [3].map(z, z + w))", [[4], [5]]),
        ("[1] + [2u]", None),
        ("null == null && type(null) == null_type && type(type(1)) == type", True),
        ("true > false && b'a' < b'b' && 'a' < '\u00e9'", True),
        ("-dyn(duration('1s')) == duration('-1s')", True),
    ],
)
def test_functions_give_what_the_language_says(text: str, expected: object) -> None:
    """None marks what the checker refuses."""
    if expected is None:
        assert not isinstance(check(text, ENVIRONMENT, None), Checked)
        return

    assert (value(text), type(value(text))) == (expected, type(expected))


@pytest.mark.parametrize(
    "text",
    [
        "int(' 5')",
        "int('0x10')",
        "int('99999999999999999999')",
        "int(9223372036854775808.0)",
        "int(-9223372036854775808.0)",
        "int(18446744073709551615u)",
        "uint(-0.5)",
        "uint(-1)",
        "uint('+1')",
        "double('1e999')",
        "double('0x1')",
        "double('1__0')",
        "double('_1')",
        "double('1_')",
        "double('1_.5')",
        "double('0x')",
        "double('0x.p1')",
        "double('0x1p99999999999999999999')",
        "double('1.5.5')",
        "double(dyn(true))",
        "string(b'\\xff')",
        "string(dyn([]))",
        "bool('yes')",
        "duration('1d')",
        "duration('5')",
        "duration('9223372036854775808ns')",
        "timestamp('2023-02-29T00:00:00Z')",
        "timestamp('2023-13-01T00:00:00Z')",
        "timestamp('2023-01-01T24:00:00Z')",
        "timestamp('2023-01-01T00:00:00+25:00')",
        "timestamp('2023-01-01 00:00:00Z')",
        "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
        "timestamp(253402300800)",
        "timestamp('9999-01-01T00:00:00Z') - timestamp('0001-01-01T00:00:00Z') > duration('1s')",
        "timestamp(0).getHours('a:b')",
        "-9223372036854775808 / -1",
        "-9223372036854775808 % -1",
        "-(-9223372036854775807 - 1)",
        "9223372036854775807 * 2",
        "1u / 0u",
        "1u % 0u",
        "dyn('a') < dyn(1)",
        "dyn(true) + dyn(true)",
        "dyn(1) + dyn(1u)",
        "dyn('a') - dyn('a')",
        "dyn(1) - dyn(1u)",
        "dyn('a') * dyn('a')",
        "dyn(1) * dyn(1u)",
        "dyn('a') / dyn('a')",
        "dyn(1) / dyn(1.0)",
        "dyn(1) % dyn(1u)",
        "dyn(1.0) % dyn(2.0)",
        "-dyn('a')",
        "!dyn(1)",
        "size(dyn(1))",
        "1 in dyn(1)",
        "dyn(1).a",
        "[1][dyn('a')]",
        "[1][dyn(0.5)]",
        "dyn(1).all(w, true)",
        "dyn(1).hasValue()",
        "dyn([1]).unwrapOpt()",
        "dyn(1).first()",
        "[?dyn(1)]",
        "{?'a': dyn(1)}",
        "dyn(1).startsWith('a')",
        "{1.0: 2}[0.0 / 0.0]",
        "'a'.matches('[')",
        "{b'a': 1} == {}",
    ],
)
def test_what_has_no_value_fails(text: str) -> None:
    """Out of range, no number, not a text, or an operand of a wrong type."""
    with pytest.raises(EvaluationError):
        value(text)


def test_remainders_have_the_sign_of_the_dividend() -> None:
    """As in Go, and division cuts."""
    assert [value(f"n {sign} {other}", n=-7) for sign in "/%" for other in ("2", "-2")] == [
        *(-3, 3),
        *(-1, -1),
    ]
