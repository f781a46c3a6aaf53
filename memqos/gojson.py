"""JSON exactly as Go's ``encoding/json`` reads and writes it.

Python's json module differs where it decides a kubelet start: it sniffs UTF-16, takes NaN, keeps
the last of repeated keys, forgets how a number was written, and recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # missing in the stubs
from typing import TypeAlias

from memqos.errors import JSONSyntaxError


__all__ = [
    "NULL",
    "Number",
    "Object",
    "TypeErrors",
    "Value",
    "fold",
    "parse",
    "quote",
]

# encoding/json refuses deeper nesting ("exceeded max depth").
_MAX_DEPTH = 10_000

_SPACE = r"[ \t\r\n]*"
_STRING = r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(rf"{_SPACE}(?:({_STRING})|([{{}}\[\],:])|({_NUMBER})|(true|false|null)|(\Z))")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Number(str):
    """A JSON number, as it was written."""

    __slots__ = ()


class Object(list["tuple[str, Value]"]):
    """A JSON object: its (key, value) pairs in order, repeated keys kept."""

    __slots__ = ()


class _Null:
    """The JSON null, told apart from an absent key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"


NULL = _Null()

Value: TypeAlias = "str | Number | Object | list[Value] | bool | _Null"

_LITERALS: Mapping[str, Value] = {"true": True, "false": False, "null": NULL}


def parse(data: bytes | str) -> Value:
    """Parse one JSON document, iteratively, with Go's grammar and depth limit.

    Bytes that are not UTF-8 are allowed inside strings only, each becoming U+FFFD, as do lone
    surrogate escapes.

    Raises:
        JSONSyntaxError: what Go reports before it looks at types; `line` is set.
    """
    text = data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data
    stack: list[tuple[Object | list[Value], str]] = []
    container: Object | list[Value] | None = None
    key = ""
    position = 0
    match_token = _TOKEN.match
    # What may come next: a value, the same or "]", a key, the same or "}", ":", or "," / end.
    expect = "value"
    while True:
        match = match_token(text, position)
        if match is None:
            raise _syntax_error(text, position, expect)
        kind = match.lastindex
        token = match[kind or 0]
        start, position = match.start(kind or 0), match.end()
        value: Value
        if kind == 2:
            if token in "{[":
                if expect not in ("value", "value or ]"):
                    raise _syntax_error(text, start, expect)
                if len(stack) + (container is not None) >= _MAX_DEPTH:
                    raise JSONSyntaxError("exceeded max depth of 10000", line=_line(text, start))
                if container is not None:
                    stack.append((container, key))
                container = Object() if token == "{" else []
                expect = "key or }" if token == "{" else "value or ]"
                continue
            if token == ":" and expect == ":":
                expect = "value"
                continue
            if token == "," and expect == ", or end" and container is not None:
                expect = "key" if isinstance(container, Object) else "value"
                continue
            is_object = isinstance(container, Object)
            closes = (
                expect in (", or end", "key or }")
                if token == "}" and is_object
                else expect in (", or end", "value or ]")
                if token == "]" and container is not None and not is_object
                else False
            )
            if not closes or container is None:
                raise _syntax_error(text, start, expect)
            value = container
            if not stack:
                container = None
            else:
                container, key = stack.pop()
        elif kind == 1:
            string = token[1:-1]
            if "\\" in string:
                string, _ = scanstring(text, start + 1)
            if not string.isascii():
                string = _SURROGATE.sub("\ufffd", string)
            if expect in ("key", "key or }"):
                key = string
                expect = ":"
                continue
            value = string
        elif kind == 3:
            value = Number(token)
        elif kind == 4:
            value = _LITERALS[token]
        else:
            raise JSONSyntaxError("unexpected end of JSON input", line=_line(text, start))
        if kind != 2 and expect not in ("value", "value or ]"):
            raise _syntax_error(text, start, expect)
        if container is None:
            end = match_token(text, position)
            if end is None or end.lastindex != 5:
                raise _syntax_error(text, position, "end")
            return value
        if isinstance(container, Object):
            container.append((key, value))
        else:
            container.append(value)
        expect = ", or end"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _syntax_error(text: str, position: int, expect: str) -> JSONSyntaxError:
    while text[position : position + 1] in (" ", "\t", "\r", "\n"):
        position += 1
    wanted = {
        "value": "a value",
        "value or ]": "a value or ']'",
        "key": "a quoted key",
        "key or }": "a quoted key or '}'",
        ":": "':' after the key",
        ", or end": "',' or the closing bracket",
        "end": "nothing after the document",
    }[expect]
    if position >= len(text):
        return JSONSyntaxError("unexpected end of JSON input", line=_line(text, position))
    found = text[position]
    shown = ascii(found) if found != "\ufeff" else "a byte order mark"
    return JSONSyntaxError(
        f"invalid character {shown}, expected {wanted}", line=_line(text, position)
    )


_FOLD = str.maketrans({"\u017f": "s", "\u212a": "k"})


def fold(name: str) -> str:
    """Fold a field name as Go does to match struct fields regardless of case."""
    return name.translate(_FOLD).lower()


class TypeErrors:
    """Decodes JSON values into Go's scalar types, and collects what does not fit.

    Go keeps the first type error and goes on decoding, so later fields are still filled in.

    Attributes:
        first: the first error in a sentence, with the JSON path; None while all fits.
    """

    def __init__(self) -> None:
        self.first: str | None = None

    def add(self, value: Value, expected: str, path: str) -> None:
        """Record that ``value`` at ``path`` is not ``expected``."""
        self.first = self.first or f"{path}: {_describe(value)} where {expected} is expected"

    def fields(
        self, value: Value, names: Mapping[str, str], path: str
    ) -> Iterator[tuple[str, Value]]:
        """Yield (field, value) for the known fields of a struct, in the file's order.

        Args:
            value: an Object, or NULL, which leaves a struct as it is.
            names: folded field name to field name.
            path: where the struct stands.
        """
        if isinstance(value, Object):
            for key, item in value:
                field = names.get(fold(key))
                if field is not None:
                    yield field, item
        elif value is not NULL:
            self.add(value, "an object", path)

    def string(self, value: Value, current: str, path: str) -> str:
        """Decode a Go string; null leaves ``current``."""
        if isinstance(value, str) and not isinstance(value, Number):
            return value
        if value is not NULL:
            self.add(value, "a string", path)
        return current

    def integer(self, value: Value, current: int, path: str, *, signed: bool) -> int:
        """Decode a Go int64 (signed) or uint64; null leaves ``current``."""
        if isinstance(value, Number):
            number = _integer(value, signed=signed)
            if number is not None:
                return number
        if value is not NULL:
            self.add(value, "a 64-bit integer" if signed else "an unsigned 64-bit integer", path)
        return current

    def int_key(self, key: str, path: str) -> int | None:
        """Decode a map key of Go type int, or record the error and return None."""
        number = _integer(key, signed=True) if _INT_KEY.fullmatch(key) else None
        if number is None:
            self.first = self.first or f"{path}: the key {key[:60]!r} is not an integer"
        return number


_INT_KEY = re.compile(r"[+-]?[0-9]+")
_INT_TEXT = re.compile(r"[+-]?0*([0-9]{1,20})")


def _integer(text: str, *, signed: bool) -> int | None:
    match = _INT_TEXT.fullmatch(text)
    if match is None or (not signed and text[0] in "+-"):
        return None
    number = -int(match[1]) if text[0] == "-" else int(match[1])
    low, high = (-(2**63), 2**63) if signed else (0, 2**64)
    return number if low <= number < high else None


def _describe(value: Value) -> str:
    if isinstance(value, Number):
        return f"the number {value[:40]}"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, Object):
        return "an object"
    return "an array" if isinstance(value, list) else "null"


_ESCAPES = {chr(code): f"\\u{code:04x}" for code in range(0x20)}
_ESCAPES |= {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r"}
_ESCAPES |= {"\t": "\\t", "<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_ESCAPES |= {"\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)


def quote(text: str) -> str:
    """Write a string as Go (1.22 or later) does, with its HTML escapes."""
    escaped = text.translate(_ESCAPE_TABLE)
    if not escaped.isascii():
        escaped = _SURROGATE.sub("\\\\ufffd", escaped)
    return f'"{escaped}"'
