"""From text to tokens, by the lexical rules of cel-go, in one pass without backtracking."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from memqos.oom.expression.problems import SyntaxProblemError


__all__ = ["MAX_CHARACTERS", "MAX_NESTING", "MAX_TOKENS", "Token", "Tokens", "tokenize"]

MAX_CHARACTERS: Final = 4096
MAX_TOKENS: Final = 800
MAX_NESTING: Final = 100

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_STRING = (
    rf'"""(?:(?!""")[^\\]|{_ESCAPE})*+"""'
    rf"|'''(?:(?!''')[^\\]|{_ESCAPE})*+'''"
    rf'|"(?:[^\\"\n\r]|{_ESCAPE})*+"'
    rf"|'(?:[^\\'\n\r]|{_ESCAPE})*+'"
    r'|[rR]"""(?:(?!""")[\s\S])*+"""'
    r"|[rR]'''(?:(?!''')[\s\S])*+'''"
    r'|[rR]"[^"\n\r]*+"'
    r"|[rR]'[^'\n\r]*+'"
)
# The order matters where one is the start of another.
_TOKEN = re.compile(
    rf"(?P<space>(?:[\t \r\n\f]|//[^\n]*)++)"
    rf"|(?P<bytes>[bB](?:{_STRING}))"
    rf"|(?P<string>{_STRING})"
    r"|(?P<float>[0-9]++\.[0-9]++(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++"
    r"|\.[0-9]++(?:[eE][+-]?[0-9]++)?)"
    r"|(?P<uint>(?:0x[0-9a-fA-F]++|[0-9]++)[uU])"
    r"|(?P<int>0x[0-9a-fA-F]++|[0-9]++)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*+)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])"
)
_WORDS = frozenset({"true", "false", "null", "in"})
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(_OPEN.values())


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: ``name``, ``int``, ``uint``, ``float``, ``string``, ``bytes``, or the sign or
            word itself.
        text: as written; a sign that belongs to a number comes first.
        offset: of its first character.
        end: behind its last character.
    """

    kind: str
    text: str
    offset: int
    end: int


class Tokens(NamedTuple):
    """The tokens of an expression, without the marks of the optional syntax.

    Attributes:
        items: what the grammar reads.
        optional: indexes into `items`: of ``.`` and ``[`` that were followed by ``?``, and of
            the first token of an element that was preceded by one.
    """

    items: list[Token]
    optional: frozenset[int]


def tokenize(text: str) -> Tokens:
    """Split an expression.

    Raises:
        SyntaxProblemError: not a token, or more than the limits allow.
    """
    if len(text) > MAX_CHARACTERS:
        raise SyntaxProblemError(
            f"expression of {len(text)} characters is longer than {MAX_CHARACTERS}", 0
        )
    return _arrange(_scan(text))


def _scan(text: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or not match.lastgroup:
            raise SyntaxProblemError(
                f"Syntax error: token recognition error at: '{_shorten(text[position:])}'",
                position,
            )
        kind, part = match.lastgroup, match[0]
        if kind != "space":
            if kind == "sign" or (kind == "name" and part in _WORDS):
                kind = part
            if len(found) == MAX_TOKENS:
                raise SyntaxProblemError(
                    f"expression has more than {MAX_TOKENS} names, numbers and signs", position
                )
            found.append(Token(kind, part, position, match.end()))
        position = match.end()
    return found


def _shorten(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= 20 else f"{line[:20]}…"


def _ends_value(token: Token | None) -> bool:
    """Tell whether an operand may end here, so that what follows continues it."""
    return token is not None and (
        token.kind in _CLOSE
        or token.kind
        in {"name", "int", "uint", "float", "string", "bytes", "true", "false", "null"}
    )


def _arrange(found: list[Token]) -> Tokens:
    """Join signs to numbers; drop trailing commas and the marks of the optional syntax."""
    items: list[Token] = []
    optional: set[int] = set()
    # For each open bracket: its sign, and whether it holds the elements of a list or map.
    brackets: list[tuple[Token, bool]] = []
    position = 0
    while position < len(found):
        token = found[position]
        previous = items[-1] if items else None
        following = found[position + 1] if position + 1 < len(found) else None
        position += 1
        if token.kind in _OPEN:
            literal = token.kind == "{" or (token.kind == "[" and not _ends_value(previous))
            if token.kind == "{" and _ends_value(previous):
                raise SyntaxProblemError("messages cannot be made here", token.offset)
            brackets.append((token, literal))
            if len(brackets) > MAX_NESTING:
                raise SyntaxProblemError(
                    f"expression nests deeper than {MAX_NESTING} levels", token.offset
                )
        elif token.kind in _CLOSE and brackets:
            brackets.pop()
        elif token.kind == "," and brackets and brackets[-1][1]:
            if following and following.kind == _OPEN[brackets[-1][0].kind]:
                if previous and previous.kind == ",":
                    raise SyntaxProblemError("Syntax error: extraneous input ','", token.offset)
                continue
        elif token.kind == "?" and previous is not None:
            if previous.kind == "." or (
                previous.kind == "["
                and brackets
                and brackets[-1][0] is previous
                and not brackets[-1][1]
            ):
                optional.add(len(items) - 1)
                continue
            if previous.kind in {"[", "{", ","} and brackets and brackets[-1][1]:
                optional.add(len(items))
                continue
        elif token.kind == "-" and not _ends_value(previous):
            alone = (previous is None or previous.kind != "-" or _ends_before(items)) and (
                following is not None and following.kind in {"int", "float"}
            )
            if alone and following is not None:
                items.append(
                    Token(following.kind, f"-{following.text}", token.offset, following.end)
                )
                position += 1
                continue
        items.append(token)
    return Tokens(items, frozenset(optional))


def _ends_before(items: list[Token]) -> bool:
    """Tell whether the last sign is an operator between two operands."""
    return len(items) > 1 and _ends_value(items[-2])
