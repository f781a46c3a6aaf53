"""From text to a tree: tokens through celpy's grammar, and macros by cel-go's rules."""

from __future__ import annotations

from typing import Any, Final

from memqos.oom.expression.literals import read_bytes, read_number, read_string
from memqos.oom.expression.problems import SyntaxProblemError
from memqos.oom.expression.tokens import Token, Tokens, tokenize
from memqos.oom.expression.tree import (
    Call,
    Entry,
    Ident,
    Items,
    Literal,
    Macro,
    Mapped,
    Node,
    Select,
)
from memqos.oom.expression.types import BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT


__all__ = ["MAX_DEPTH", "parse"]

MAX_DEPTH: Final = 100

_RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
        *("loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_TERMINALS = {
    "name": "IDENT",
    "int": "INT_LIT",
    "uint": "UINT_LIT",
    "float": "FLOAT_LIT",
    "string": "STRING_LIT",
    "bytes": "BYTES_LIT",
    "true": "BOOL_LIT",
    "false": "BOOL_LIT",
    "null": "NULL_LIT",
}
_OPERATORS = {
    "relation_lt": "_<_",
    "relation_le": "_<=_",
    "relation_gt": "_>_",
    "relation_ge": "_>=_",
    "relation_eq": "_==_",
    "relation_ne": "_!=_",
    "relation_in": "@in",
    "addition_add": "_+_",
    "addition_sub": "_-_",
    "multiplication_mul": "_*_",
    "multiplication_div": "_/_",
    "multiplication_mod": "_%_",
}
_QUANTIFIERS = {
    "all": "all",
    "exists": "exists",
    "exists_one": "exists_one",
    "existsOne": "exists_one",
}


def parse(text: str) -> Node:
    """Read an expression.

    Raises:
        SyntaxProblemError: not an expression, or one beyond the limits.
    """
    tokens = tokenize(text)
    return _Reader(tokens).read(_grammar_tree(text, tokens), 0)


def _grammar_tree(text: str, tokens: Tokens) -> Any:
    """Run the tokens through celpy's grammar; positions in the result are token indexes."""
    from celpy.celparser import CELParser
    from lark import Token as LarkToken
    from lark import UnexpectedInput

    CELParser()
    grammar: Any = CELParser.CEL_PARSER
    terminals = _TERMINALS | {term.pattern.value: term.name for term in grammar.terminals}
    parser = grammar.parse_interactive()
    token = None
    try:
        for number, token in enumerate(tokens.items):
            parser.feed_token(
                LarkToken(
                    terminals[token.kind],
                    token.text,
                    start_pos=number,
                    line=1,
                    column=number,
                    end_line=1,
                    end_column=number + 1,
                    end_pos=number + 1,
                )
            )
        token = None
        return parser.feed_eof()
    except UnexpectedInput:
        if token is None:
            raise SyntaxProblemError(
                "Syntax error: unexpected end of the expression", len(text)
            ) from None
        raise SyntaxProblemError(
            f"Syntax error: unexpected '{_shorten(token.text)}'", token.offset
        ) from None


def _shorten(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:20]}…"


class _Reader:
    """Turns the grammar's tree, a chain of single children per operand, into nodes."""

    def __init__(self, tokens: Tokens) -> None:
        self.items = tokens.items
        self.optional = tokens.optional

    def read(self, tree: Any, depth: int) -> Node:
        """Read one operand with all that belongs to it."""
        while len(tree.children) == 1 and tree.data in _CHAIN:
            tree = tree.children[0]
        if depth > MAX_DEPTH:
            raise SyntaxProblemError(
                f"expression nests deeper than {MAX_DEPTH} levels", self._offset(tree)
            )
        node = self._build(tree, depth + 1)
        node.span = self._span(tree)
        return node

    def _offset(self, tree: Any) -> int:
        start: int = tree.meta.start_pos
        return self.items[start].offset

    def _span(self, tree: Any) -> tuple[int, int]:
        return self._offset(tree), self.items[tree.meta.end_pos - 1].end

    def _build(self, tree: Any, depth: int) -> Node:
        kind = str(tree.data)
        children = tree.children
        match kind:
            case "literal":
                return self._literal(self.items[tree.meta.start_pos])
            case "ident" | "dot_ident":
                return self._ident(children[0], dotted=kind == "dot_ident")
            case "ident_arg" | "dot_ident_arg":
                return self._global_call(children, depth, dotted=kind == "dot_ident_arg")
            case "expr":
                return Call(
                    offset=self.items[children[0].meta.end_pos].offset,
                    function="_?_:_",
                    args=[self.read(child, depth) for child in children],
                )
            case "conditionalor" | "conditionaland":
                return self._logical(tree, kind, depth)
            case "relation" | "addition" | "multiplication":
                operator = children[0]
                return Call(
                    offset=self.items[operator.meta.end_pos - 1].offset,
                    function=_OPERATORS[operator.data],
                    args=[self.read(operator.children[0], depth), self.read(children[1], depth)],
                )
            case "unary":
                return self._unary(tree, depth)
            case "member_dot" | "member_dot_arg":
                return self._member(children, depth, call=kind == "member_dot_arg")
            case "member_index":
                place = children[0].meta.end_pos
                return Call(
                    offset=self.items[place].offset,
                    function="_[?_]" if place in self.optional else "_[_]",
                    args=[self.read(child, depth) for child in children],
                )
            case "list_lit":
                parts = children[0].children if children else []
                return Items(
                    offset=self._offset(tree),
                    elements=[self.read(part, depth) for part in parts],
                    optional=frozenset(
                        number
                        for number, part in enumerate(parts)
                        if part.meta.start_pos in self.optional
                    ),
                )
            case "map_lit":
                parts = children[0].children if children else []
                return Mapped(
                    offset=self._offset(tree),
                    entries=[
                        Entry(
                            key=self.read(key, depth),
                            value=self.read(value, depth),
                            optional=key.meta.start_pos in self.optional,
                        )
                        for key, value in zip(parts[::2], parts[1::2], strict=True)
                    ],
                )
            case _:
                raise SyntaxProblemError("messages cannot be made here", self._offset(tree))

    def _literal(self, token: Token) -> Node:
        match token.kind:
            case "int" | "uint" | "float" as kind:
                of = {"int": INT, "uint": UINT, "float": DOUBLE}[kind]
                value = read_number(kind, token.text, token.offset)
                return Literal(offset=token.offset, value=value, type=of)
            case "string":
                text = read_string(token.text, token.offset)
                return Literal(offset=token.offset, value=text, type=STRING)
            case "bytes":
                data = read_bytes(token.text, token.offset)
                return Literal(offset=token.offset, value=data, type=BYTES)
            case "null":
                return Literal(offset=token.offset, value=None, type=NULL)
            case _:
                return Literal(offset=token.offset, value=token.kind == "true", type=BOOL)

    def _name(self, leaf: Any, *, dotted: bool) -> tuple[str, int]:
        token = self.items[leaf.start_pos]
        if token.text in _RESERVED:
            raise SyntaxProblemError(f"reserved identifier: {token.text}", token.offset)
        return f".{token.text}" if dotted else token.text, token.offset

    def _ident(self, leaf: Any, *, dotted: bool) -> Node:
        name, offset = self._name(leaf, dotted=dotted)
        return Ident(offset=offset, name=name)

    def _arguments(self, children: list[Any], depth: int) -> list[Node]:
        return [self.read(part, depth) for child in children for part in child.children]

    def _global_call(self, children: list[Any], depth: int, *, dotted: bool) -> Node:
        name, _ = self._name(children[0], dotted=dotted)
        offset = self.items[children[0].start_pos + 1].offset
        args = self._arguments(children[1:], depth)
        if name == "has" and len(args) == 1:
            (arg,) = args
            if not isinstance(arg, Select) or arg.optional:
                raise SyntaxProblemError("invalid argument to has() macro", arg.offset)
            return Select(offset=offset, operand=arg.operand, name=arg.name, test=True)
        return Call(offset=offset, function=name, args=args)

    def _logical(self, tree: Any, kind: str, depth: int) -> Node:
        rest: list[Any] = []
        offset = 0
        while tree.data == kind and len(tree.children) == 2:
            tree, right = tree.children
            rest.append(right)
            offset = self.items[tree.meta.end_pos].offset
        rest.append(tree)
        return Call(
            offset=offset,
            function="_||_" if kind == "conditionalor" else "_&&_",
            args=[self.read(part, depth) for part in reversed(rest)],
        )

    def _unary(self, tree: Any, depth: int) -> Node:
        sign = tree.children[0].data
        offset = self._offset(tree)
        count = 0
        while tree.data == "unary" and len(tree.children) == 2:
            if tree.children[0].data != sign:
                place = self.items[tree.meta.start_pos]
                raise SyntaxProblemError(f"Syntax error: unexpected '{place.text}'", place.offset)
            count += 1
            tree = tree.children[1]
        operand = self.read(tree, depth)
        # Pairs of signs vanish before types are looked at.
        if count % 2 == 0:
            return operand
        return Call(offset=offset, function="!_" if sign == "unary_not" else "-_", args=[operand])

    def _member(self, children: list[Any], depth: int, *, call: bool) -> Node:
        place = children[0].meta.end_pos
        leaf = self.items[children[1].start_pos]
        operand = self.read(children[0], depth)
        if not call:
            return Select(
                offset=self.items[place].offset,
                operand=operand,
                name=leaf.text,
                optional=place in self.optional,
            )
        parenthesis = self.items[children[1].start_pos + 1]
        if place in self.optional:
            raise SyntaxProblemError(
                f"Syntax error: unexpected '{parenthesis.text}'", parenthesis.offset
            )
        args = self._arguments(children[2:], depth)
        return _macro(leaf.text, operand, args, parenthesis.offset) or Call(
            offset=parenthesis.offset, function=leaf.text, target=operand, args=args
        )


_CHAIN = frozenset(
    {
        *("expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication"),
        *("unary", "member", "primary", "paren_expr"),
    }
)


def _macro(name: str, source: Node, args: list[Node], offset: int) -> Node | None:
    condition: Node | None = None
    transform: Node | None = None
    kind = name
    match name, args:
        case (("all" | "exists" | "exists_one" | "existsOne"), [variable, condition]):
            kind = _QUANTIFIERS[name]
        case "filter", [variable, condition]:
            pass
        case "map", [variable, condition, transform]:
            pass
        case (("map" | "optMap" | "optFlatMap"), [variable, transform]):
            pass
        case _:
            return None
    if not isinstance(variable, Ident):
        message = {
            "map": "argument is not an identifier",
            "filter": "argument is not an identifier",
            "optMap": "optMap() variable name must be a simple identifier",
            "optFlatMap": "optFlatMap() variable name must be a simple identifier",
        }.get(kind, "argument must be a simple name")
        raise SyntaxProblemError(message, variable.offset)
    if variable.name == "__result__" and not kind.startswith("opt"):
        raise SyntaxProblemError(
            "iteration variable overwrites accumulator variable", variable.offset
        )
    return Macro(
        offset=offset,
        kind=kind,
        source=source,
        variable=variable.name,
        condition=condition,
        transform=transform,
    )
