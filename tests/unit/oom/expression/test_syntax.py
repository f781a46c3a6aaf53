"""What is an expression, and the limits on it."""

import pytest

from memqos.oom.expression import Checked, Problems, check
from memqos.oom.expression.syntax import MAX_DEPTH
from memqos.oom.expression.tokens import MAX_CHARACTERS, MAX_NESTING, MAX_TOKENS
from tests.support.expressions import ENVIRONMENT


def value(text: str) -> object:
    """Return the value of an expression without variables."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Checked), checked
    return checked.constant


def refusal(text: str) -> tuple[str, int, int]:
    """Return the only reason why an expression is refused."""
    checked = check(text, ENVIRONMENT, None)
    assert isinstance(checked, Problems), checked
    (problem,) = checked
    return problem.message, problem.line, problem.column


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"\a\b\f\n\r\t\v\\\'\"\`\?"', "\a\b\f\n\r\t\v\\'\"`?"),
        (r"'\x41\X41\101\u0041\U00000041'", "AAAAA"),
        (r"'\u00e9'", "\u00e9"),
        ("r'\\d\"'", '\\d"'),
        ("r'\\'", "\\"),
        ('"""a"b""c"""', 'a"b""c'),
        ("'''a\r\nb\rc'''", "a\nb\nc"),
        ("R'''\\a\n'''", "\\a\n"),
        ("''", ""),
        ("b'\\xff\\377a'", b"\xff\xffa"),
        ("b'\u00e9'", b"\xc3\xa9"),
        ("br'\\n'", b"\\n"),
        ("0x1F", 31),
        ("-0x1F", -31),
        ("0xFFu", 255),
        ("1E+3", 1000.0),
        (".5", 0.5),
        ("-9223372036854775808", -(2**63)),
        ("-  5", -5),
        ("1-1", 0),
        ("1 - -1", 2),
        ("--1", 1),
        ("---1", -1),
        ("!!true", True),
        ("7 / 2 * 2", 6),
        ("2 + 3 * 4", 14),
        ("true ? 1 : true ? 2 : 3", 1),
        ("1 < 2 == true", True),
        ("[1, 2,]", [1, 2]),
        ("[,]", []),
        ("{'a': 1,}", {"a": 1}),
        ("[?optional.none(), 3]", [3]),
        ("{?'a': optional.of(2)}.?a", 2),
        ("[1][?7]", None),
        ("1 // one", 1),
        ("'//'", "//"),
    ],
)
def test_literals_and_operators_are_read_as_in_cel_go(text: str, expected: object) -> None:
    """Escapes, raw and long texts, signs, precedence, optional elements, comments."""
    assert (value(text), type(value(text))) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "Syntax error: unexpected end of the expression", 1, 1),
        ("(1", "Syntax error: unexpected end of the expression", 1, 3),
        ("1 2", "Syntax error: unexpected '2'", 1, 3),
        ("1\n+ )", "Syntax error: unexpected ')'", 2, 3),
        ("!-n", "Syntax error: unexpected '-'", 1, 2),
        ("-!b", "Syntax error: unexpected '!'", 1, 2),
        ("1.", "Syntax error: unexpected end of the expression", 1, 3),
        ("[,,]", "Syntax error: extraneous input ','", 1, 3),
        ("n.?x()", "Syntax error: unexpected '('", 1, 5),
        ("size(n,)", "Syntax error: unexpected ')'", 1, 8),
        ("'a", "Syntax error: token recognition error at: ''a'", 1, 1),
        ("$", "Syntax error: token recognition error at: '$'", 1, 1),
        ("'\\q'", "Syntax error: token recognition error at: ''\\q''", 1, 1),
        ("/* x */ 1", "Syntax error: unexpected '/'", 1, 1),
        ("'\\ud800'", "invalid unicode code point", 1, 1),
        ("b'\\u0041'", "unable to unescape string", 1, 1),
        ("9223372036854775808", "invalid int literal", 1, 1),
        ("18446744073709551616u", "invalid uint literal", 1, 1),
        ("1e999", "invalid double literal", 1, 1),
        ("9" * 4000, "invalid int literal", 1, 1),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(
    text: str, message: str, line: int, column: int
) -> None:
    """The message, and the line and column of the offending token."""
    assert refusal(text) == (message, line, column)


def test_an_expression_may_be_4096_characters_long() -> None:
    """The limit is on characters, not bytes."""
    text = "1" + " " * (MAX_CHARACTERS - 1)

    assert value(text) == 1
    assert refusal(f"{text} ")[0] == "expression of 4097 characters is longer than 4096"


def test_an_expression_may_have_800_tokens() -> None:
    """Space and comments are free."""
    text = ", ".join(["1"] * (MAX_TOKENS // 2 - 1))

    assert refusal(f"[{text}")[0] == "Syntax error: unexpected end of the expression"
    assert refusal(f"size([{text}, 1, 1])")[0] == (
        "expression has more than 800 names, numbers and signs"
    )


def test_brackets_may_nest_100_levels() -> None:
    """The scan counts them before the grammar sees any."""
    assert value("(" * MAX_NESTING + "1" + ")" * MAX_NESTING) == 1
    assert refusal("(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1)) == (
        "expression nests deeper than 100 levels",
        1,
        MAX_NESTING + 1,
    )


def test_operators_may_chain_100_levels() -> None:
    """Chains of operators with an order nest; those of && and || do not."""
    assert value("+".join(["1"] * (MAX_DEPTH + 1))) == MAX_DEPTH + 1
    assert refusal("+".join(["1"] * (MAX_DEPTH + 2)))[0] == (
        "expression nests deeper than 100 levels"
    )
    assert value(" && ".join(["b == b"] * 190)) is None


@pytest.mark.parametrize(
    "text",
    [
        '"' + "\\a" * 2000,
        "'" + "\\a" * 24,
        '"""' + "\\a" * 1000,
        "(" * 4000,
        "[" * 4000,
        "!" * 4000,
        "-" * 4000 + "1",
        "1" + "+1" * 2000,
        "a" + ".a" * 2000,
        "a" + "[a" * 1500,
        "a ? " * 1000,
        "{" * 3000,
        "'''" * 1000,
        "\\" * 4000,
        "\x00" * 100,
        "\ud800",
        "?" * 3000,
    ],
)
def test_hostile_texts_are_refused(text: str) -> None:
    """Those that made celpy hang or exhaust the stack, and more."""
    assert isinstance(check(text, ENVIRONMENT, None), Problems)


def test_a_deep_caller_gets_a_refusal() -> None:
    """The stack that is left decides, and running out of it is not an exception."""
    text = "[" * 90 + "1" + "]" * 90

    def call(depth: int) -> object:
        return check(text, ENVIRONMENT, None) if depth == 0 else call(depth - 1)

    found = call(750)
    assert isinstance(found, Checked | Problems)
