"""Expressions made at random, and the environment and values they are about."""

from __future__ import annotations

from random import Random
from types import MappingProxyType
from typing import Any

from memqos.oom.expression import (
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    UINT,
    Environment,
    map_of,
)


ENVIRONMENT = Environment(
    variables=MappingProxyType(
        {
            "n": INT,
            "u": UINT,
            "x": DOUBLE,
            "b": BOOL,
            "s": STRING,
            "t": DURATION,
            "q": map_of(INT, DOUBLE),
            "m": map_of(STRING, UINT),
        }
    ),
    constants=MappingProxyType({}),
)
VALUES: tuple[dict[str, Any], ...] = (
    {
        "n": -7,
        "u": 0,
        "x": 0.0,
        "b": False,
        "s": "",
        "t": 0,
        "q": {},
        "m": {},
    },
    {
        "n": 2**63 - 1,
        "u": 2**64 - 1,
        "x": -2.5,
        "b": True,
        "s": "kubepods/pod",
        "t": 5_000_000_000,
        "q": {0: 1.0, 1: 0.5, 4: 1e300},
        "m": {"a": 2**63, "b": 0},
    },
)

_LITERALS = {
    "int": ("0", "1", "2", "-3", "42", "9223372036854775807", "-9223372036854775808", "0x1F"),
    "uint": ("0u", "1u", "3u", "18446744073709551615u", "0xFFu"),
    "double": ("0.0", "1.0", "-1.5", "2.5e3", "1e-3", ".5", "1e308"),
    "bool": ("true", "false"),
    "string": ('""', '"a"', "'kube'", "r'\\d'", '"""p\nq"""', "'\\u00e9'"),
    "duration": ('duration("5s")', 'duration("-3s")', 'duration("1h30m")', 'duration("0s")'),
}
_VARIABLES = {
    "int": ("n",),
    "uint": ("u",),
    "double": ("x",),
    "bool": ("b",),
    "string": ("s",),
    "duration": ("t",),
}
SCALARS = tuple(_LITERALS)
_ORDER = ("<", "<=", ">", ">=", "==", "!=")


class Maker:
    """Writes expressions.

    Args:
        chance: what decides.
        wrong: how often an operand has another type than it should, of 1.
        plain: leave out what stock celpy has not, or gets wrong.
    """

    def __init__(self, chance: Random, *, wrong: float = 0.0, plain: bool = False) -> None:
        self.chance = chance
        self.wrong = wrong
        self.plain = plain
        self.loops: list[tuple[str, str]] = []

    def make(self, kind: str, depth: int) -> str:
        """Write an expression of a type, or of another one where it goes wrong."""
        if self.wrong and self.chance.random() < self.wrong:
            kind = self.chance.choice(SCALARS)
        if depth <= 0:
            return self._leaf(kind)
        ways = getattr(self, f"_{kind}")(depth - 1)
        return str(self.chance.choice(ways)())

    def _right(self, kind: str, depth: int) -> str:
        """Write an operand that is never of another type: where cel-cpp's library is wider."""
        wrong, self.wrong = self.wrong, 0.0
        made = self.make(kind, depth)
        self.wrong = wrong
        return made

    def _leaf(self, kind: str) -> str:
        names = [name for name, of in self.loops if of == kind]
        if names and self.chance.random() < 0.5:
            return self.chance.choice(names)
        if self.chance.random() < 0.4:
            return self.chance.choice(_VARIABLES[kind])
        literals = _LITERALS[kind]
        if self.plain and kind == "string":
            literals = literals[:4]
        return self.chance.choice(literals)

    def _shared(self, kind: str, depth: int) -> list[Any]:
        """List what can be of any type."""

        def of(what: str) -> str:
            return self.make(what, depth)

        ways = [
            lambda: self._leaf(kind),
            lambda: f"({of('bool')} ? {of(kind)} : {of(kind)})",
            lambda: f"({self.chance.choice(('true', 'false'))} ? {of(kind)} : {of(kind)})",
            lambda: f"[{of(kind)}, {of(kind)}][{self.chance.choice(('0', '1', '1', '2', 'n'))}]",
            lambda: f"{{'a': {of(kind)}, 'b': {self._leaf(kind)}}}.a",
        ]
        if not self.plain:
            ways += [
                lambda: f"optional.of({of(kind)}).orValue({of(kind)})",
                lambda: f"[{of(kind)}][?{self._right('int', depth)}].orValue({of(kind)})",
                lambda: f"{{'a': {of(kind)}}}.?{self.chance.choice('ab')}.orValue({of(kind)})",
                lambda: f"optional.ofNonZeroValue({of(kind)}).or(optional.of({of(kind)})).value()",
                lambda: f"[{of(kind)}].map(w, w)[0]",
                lambda: f"[{of(kind)}, {of(kind)}].filter(w, w != {of(kind)})[0]",
            ]
        return ways

    def _arithmetic(self, kind: str, depth: int, signs: str) -> list[Any]:
        def two() -> str:
            left, right = self.make(kind, depth), self.make(kind, depth)
            return f"({left} {self.chance.choice(signs)} {right})"

        return [two, two, two, *self._shared(kind, depth)]

    def _int(self, depth: int) -> list[Any]:
        def of(what: str) -> str:
            return self.make(what, depth)

        ways = [
            *self._arithmetic("int", depth, "+-*/%"),
            lambda: f"-({self._right('int', depth)})",
            lambda: f"int({self._right(self.chance.choice(('uint', 'int')), depth)})",
            lambda: f"size({of('string')})",
            lambda: f"{of('string')}.size()",
            lambda: f"size([{of('int')}, {of('int')}])",
        ]
        if not self.plain:
            ways += [
                lambda: f"int({self._right('double', depth)})",
                lambda: f"{of('duration')}.getSeconds()",
                lambda: f"size({{'a': {of('double')}}})",
            ]
        return ways

    def _uint(self, depth: int) -> list[Any]:
        ways = [
            *self._arithmetic("uint", depth, "+-*/%"),
            lambda: f"uint({self.make(self.chance.choice(('uint', 'int')), depth)})",
        ]
        if not self.plain:
            ways += [
                lambda: f"uint({self.make('double', depth)})",
                lambda: f"m[?{self.make('string', depth)}].orValue({self.make('uint', depth)})",
                lambda: "m[?'a'].optMap(w, w / 2u).or(m[?'b']).value()",
                lambda: f"m.?a.optFlatMap(w, m[?{self.make('string', depth)}]).orValue(3u)",
                lambda: f"m[{self.make('string', depth)}]",
            ]
        return ways

    def _double(self, depth: int) -> list[Any]:
        ways = [
            *self._arithmetic("double", depth, "+-*" if self.plain else "+-*/"),
            lambda: f"-{self._right('double', depth)}",
            lambda: f"double({self.make(self.chance.choice(('uint', 'int', 'double')), depth)})",
        ]
        if not self.plain:
            ways += [
                lambda: f"q[{self.make('int', depth)}]",
                lambda: f"{{0: {self.make('double', depth)}, 1: x}}[{self.make('int', depth)}]",
                lambda: "double(string(2.5))",
            ]
        return ways

    def _string(self, depth: int) -> list[Any]:
        def of(what: str) -> str:
            return self.make(what, depth)

        return [
            *self._arithmetic("string", depth, "+"),
            lambda: f"string({of(self.chance.choice(('int', 'uint', 'string')))})",
            *([] if self.plain else [lambda: f"string({of('bool')})"]),
        ]

    def _duration(self, depth: int) -> list[Any]:
        return self._arithmetic("duration", depth, "+-")

    def _bool(self, depth: int) -> list[Any]:
        def of(what: str) -> str:
            return self.make(what, depth)

        def compare() -> str:
            kind = self.chance.choice(SCALARS)
            sign = self.chance.choice(_ORDER)
            if kind == "bool" and self.plain:
                kind = "int"
            return f"({of(kind)} {sign} {of(kind)})"

        ways = [
            compare,
            compare,
            compare,
            lambda: f"({of('bool')} && {of('bool')})",
            lambda: f"({of('bool')} || {of('bool')})",
            lambda: f"({of('bool')} && {of('bool')} && {of('bool')})",
            lambda: f"!{of('bool')}",
            lambda: f"({of('int')} in [{of('int')}, {of('int')}])",
            lambda: f"{self._leaf('string')}.contains({self._leaf('string')})",
            lambda: f"{of('string')}.startsWith({of('string')})",
            lambda: f"{of('string')}.endsWith({of('string')})",
            *self._shared("bool", depth),
        ]
        if not self.plain:
            ways += [
                lambda: f"({self._right('int', depth)} in q)",
                lambda: f"(m[?'a'] == m[?{of('string')}])",
                lambda: f"(dyn({of('int')}) == {of('double')})",
                lambda: f"(dyn({of('uint')}) < dyn({of('double')}))",
                lambda: f"has({{'a': {of('int')}}}.{self.chance.choice('ab')})",
                lambda: f"m.?{self.chance.choice('ac')}.hasValue()",
                lambda: f"(type({of('int')}) == {self.chance.choice(('int', 'uint'))})",
                lambda: f"{of('string')}.matches('^[a-k]*$')",
                lambda: f"([{of('int')}] + [{of('int')}] == [{of('int')}, 0])",
                lambda: f"({{1: {of('int')}}} != {{{of('int')}: 2}})",
                lambda: self._loop(depth),
                lambda: self._loop(depth),
            ]
        return ways

    def _loop(self, depth: int) -> str:
        kind = self.chance.choice(SCALARS)
        name = self.chance.choice(("w", "z"))
        elements = ", ".join(self.make(kind, depth - 1) for _ in range(self.chance.randint(1, 3)))
        macro = self.chance.choice(("all", "exists", "exists_one"))
        self.loops.append((name, kind))
        inner = self.make("bool", depth)
        self.loops.pop()
        return f"[{elements}].{macro}({name}, {inner})"
