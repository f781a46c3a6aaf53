"""JSON as Go reads and writes it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memqos.errors import JSONSyntaxError
from memqos.gojson import NULL, Number, Object, TypeErrors, fold, parse, quote


def nested(depth: int) -> bytes:
    """Write arrays and objects in one another."""
    return (
        b'{"a":[' * (depth // 2) + b"[" * (depth % 2) + b"]" * (depth % 2) + b"]}" * (depth // 2)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b" \t\r\n1 ", Number("1")),
        (b"-0", Number("-0")),
        (b"1.5e+3", Number("1.5e+3")),
        (b"true", True),
        (b"null", NULL),
        (b"[]", []),
        (b'{"a":1,"a":2}', Object([("a", Number("1")), ("a", Number("2"))])),
        (b'"\\u0041\\n\\/"', "A\n/"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\ud83d"', "\ufffd"),
        (b'"\\ude00\\ud83d"', "\ufffd\ufffd"),
        (b'"\\ud83d\\ud83d\\ude00"', "\ufffd\U0001f600"),
        (b'"\\ud83dx"', "\ufffdx"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'"\xe2\x82"', "\ufffd\ufffd"),
        (b'"\\ud83d\xb8"', "\ufffd\ufffd"),
        (b'"\xef\xbb\xbf"', "\ufeff"),
        (b'"\x7f"', "\x7f"),
        (b'"\\u0000"', "\0"),
    ],
)
def test_accepted(text: bytes, expected: object) -> None:
    """Numbers keep their text, objects their repeated keys, bad bytes become U+FFFD each."""
    found = parse(text)

    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"{", b"[", b'"', b'"a', b"{]", b"[}", b"[1,]", b'{"a":1,}', b"{,}", b"[,1]"),
        *(
            b"{a:1}",
            b"{1:1}",
            b'{"a" 1}',
            b'{"a":}',
            b"[1 2]",
            b"1 2",
            b"{}x",
            b"{}\0",
            b"]",
            b":",
        ),
        *(
            b"01",
            b"+1",
            b".5",
            b"1.",
            b"1e",
            b"-",
            b"0x1",
            b"1_0",
            b"NaN",
            b"Infinity",
            b"-Infinity",
        ),
        *(
            b"True",
            b"nul",
            b"nulll",
            b"truefalse",
            b"'a'",
            b'"\n"',
            b'"\x00"',
            b'"\x1f"',
            b'"\\x41"',
        ),
        *(b'"\\u12"', b'"\\', b"// x\n1", b"/* */1", b"\xef\xbb\xbf{}", b"\xff", b'{"a":\xff}'),
        *(b"\xc2\xa01", b"\x0b1", b"\x0c1", b"\xe2\x80\xa81", b'{"a":"b"\xff}', b"\xd9\xa1"),
    ],
)
def test_syntax_errors(text: bytes) -> None:
    """What Go's scanner refuses is refused, on one line."""
    with pytest.raises(JSONSyntaxError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_depth() -> None:
    """10000 levels are accepted, 10001 refused."""
    parse(nested(10_000))
    parse(b"[" * 10_000 + b"]" * 10_000)
    for text in (nested(10_001), b"[" * 10_001 + b"]" * 10_001, b"[" * 1_000_000):
        with pytest.raises(JSONSyntaxError, match="max depth"):
            parse(text)


def test_line() -> None:
    """A syntax error knows its line."""
    with pytest.raises(JSONSyntaxError) as caught:
        parse(b'{\n"a":\n  x}')
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("name", "folded"),
    [("policyName", "policyname"), ("CHEC\u212aSUM", "checksum"), ("check\u017fum", "checksum")],
)
def test_fold(name: str, folded: str) -> None:
    """Long s and the Kelvin sign fold to s and k, as in Go."""
    assert fold(name) == folded


@pytest.mark.parametrize(
    ("text", "signed", "unsigned"),
    [
        *(("0", 0, 0), ("-0", 0, None), ("9223372036854775807", 2**63 - 1, 2**63 - 1)),
        *(("9223372036854775808", None, 2**63), ("-9223372036854775808", -(2**63), None)),
        *(("-9223372036854775809", None, None), ("18446744073709551615", None, 2**64 - 1)),
        *(("18446744073709551616", None, None), ("1.0", None, None), ("1e3", None, None)),
        ("9" * 5000, None, None),
    ],
)
def test_integers(text: str, signed: int | None, unsigned: int | None) -> None:
    """Integers are exact 64-bit ones; anything else is a type error and leaves the value."""
    for is_signed, expected in ((True, signed), (False, unsigned)):
        errors = TypeErrors()
        found = errors.integer(Number(text), 77, "$", signed=is_signed)
        assert found == (77 if expected is None else expected)
        assert (errors.first is not None) == (expected is None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_agrees_with_python_on_plain_documents(document: object) -> None:
    """What Python writes is read back as the same values."""

    def plain(value: object) -> object:
        if isinstance(value, Object):
            return {key: plain(item) for key, item in value}
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, Number):
            return int(value)
        return None if value is NULL else value

    assert plain(parse(json.dumps(document).encode())) == document


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quote_round_trips(text: str) -> None:
    """A quoted string reads back as itself."""
    assert parse(quote(text).encode()) == text


def test_quote_invalid() -> None:
    """A surrogate is written as an escaped U+FFFD."""
    assert quote("a\ud800") == '"a\\ufffd"'
