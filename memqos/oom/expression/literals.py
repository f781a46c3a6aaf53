"""The values of literals."""

from __future__ import annotations

import re
from typing import Final

from memqos.oom.expression.problems import SyntaxProblemError


__all__ = ["INT_MAX", "INT_MIN", "UINT_MAX", "read_bytes", "read_number", "read_string"]

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1

_ESCAPED = re.compile(
    r"\\(?:([xX])([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def read_number(kind: str, text: str, offset: int) -> int | float:
    """Return the value of an int, uint or double literal.

    Raises:
        SyntaxProblemError: outside of the type's range.
    """
    if kind == "float":
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise SyntaxProblemError("invalid double literal", offset)
        return number
    digits = text.rstrip("uU") if kind == "uint" else text
    # A literal can be thousands of digits long, and int() is quadratic.
    significant = digits.lstrip("-").removeprefix("0x").lstrip("0")
    low, high = (0, UINT_MAX) if kind == "uint" else (INT_MIN, INT_MAX)
    value = int(digits, 16 if "0x" in digits else 10) if len(significant) <= 20 else high + 1
    if not low <= value <= high:
        raise SyntaxProblemError(f"invalid {kind} literal", offset)
    return value


def _body(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    size = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[size:-size], raw or "\\" not in text


def read_string(text: str, offset: int) -> str:
    """Return the value of a string literal.

    Raises:
        SyntaxProblemError: an escape that is no character.
    """
    body, plain = _body(text)
    return body if plain else _ESCAPED.sub(lambda match: _character(match, offset), body)


def _character(match: re.Match[str], offset: int) -> str:
    _, hexadecimal, four, eight, octal, simple = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    point = int(octal, 8) if octal else int(hexadecimal or four or eight, 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise SyntaxProblemError("invalid unicode code point", offset)
    return chr(point)


def read_bytes(text: str, offset: int) -> bytes:
    """Return the value of a bytes literal.

    Raises:
        SyntaxProblemError: a Unicode escape, which bytes do not have.
    """
    body, plain = _body(text[1:])
    if plain:
        return body.encode("utf-8", "surrogateescape")
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPED.finditer(body):
        parts.append(body[position : match.start()].encode("utf-8", "surrogateescape"))
        position = match.end()
        _, hexadecimal, four, eight, octal, simple = match.groups()
        if four or eight:
            raise SyntaxProblemError("unable to unescape string", offset)
        if simple is not None:
            parts.append(_SIMPLE.get(simple, simple).encode())
        else:
            parts.append(bytes([int(octal, 8) if octal else int(hexadecimal, 16)]))
    parts.append(body[position:].encode("utf-8", "surrogateescape"))
    return b"".join(parts)
