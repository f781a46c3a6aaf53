"""YAML and JSON documents as plain data, read as Kubernetes reads them.

Kubernetes decodes YAML 1.1 with Go's yaml v2 rules: `y` and `off` are booleans, `0644` is 420,
`1e3` is a number, `1:30` and dates are strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, NamedTuple, TypeAlias

from memqos.errors import InputError


__all__ = ["Document", "read_documents"]

#: a PyYAML node; its stubs know too little of it
Node: TypeAlias = Any

# An alias bomb passes this at once. libyaml itself stops at 1000 levels.
_MAX_EXPANDED_NODES = 1_000_000
_MAX_DEPTH = 200


class Document(NamedTuple):
    """One document of a stream.

    Attributes:
        data: dicts, lists, strings, numbers, booleans, None.
        number: 1-based position in the stream.
        line: 1-based line where it starts.
        locate: maps a JSON path (``$.a[0].b``) to its line; the nearest known parent's line.
    """

    data: Any
    number: int
    line: int
    locate: Callable[[str], int | None]


def read_documents(data: bytes, source: str) -> list[Document]:
    """Read all documents of a YAML or JSON stream; empty ones are left out.

    Raises:
        InputError: not UTF-8, not YAML, a repeated key, an alias bomb, or nested too deeply.
    """
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text", source=source, line=line) from None
    if text.lstrip()[:1] in ("{", "["):
        document = _read_json(text)
        if document is not None:
            return [document]
    return list(_read_yaml(text, source))


def _read_json(text: str) -> Document | None:
    """Read one JSON document; None if the text is something else, such as YAML's flow style."""

    def refuse(_name: str) -> None:
        raise ValueError

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError
        return result

    try:
        data = json.loads(text, parse_constant=refuse, object_pairs_hook=members)
    except (ValueError, RecursionError):
        return None
    return Document(data, 1, 1, lambda _path: None)


def _read_yaml(text: str, source: str) -> Iterator[Document]:
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
    except yaml.YAMLError as error:
        raise _yaml_error(error, source, None) from None
    number = 0
    try:
        while True:
            try:
                if not loader.check_node():
                    return
                number += 1
                node: Node = loader.get_node()
            except (yaml.YAMLError, RecursionError) as error:
                raise _yaml_error(error, source, number) from None
            builder = _Builder(source, number)
            data = builder.build(node, 0)
            if data is not None:
                yield Document(data, number, node.start_mark.line + 1, _locator(node))
    finally:
        loader.dispose()


def _yaml_error(error: Exception, source: str, number: int | None) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    return InputError(
        f"not YAML: {problem}",
        source=source,
        document=number or None,
        line=None if mark is None else mark.line + 1,
    )


class _Builder:
    """Makes plain data of a node graph."""

    def __init__(self, source: str, number: int) -> None:
        self.source = source
        self.number = number
        self.nodes = 0
        self.open: set[int] = set()

    def error(self, message: str, node: Node) -> InputError:
        return InputError(
            message, source=self.source, document=self.number, line=node.start_mark.line + 1
        )

    def build(self, node: Node, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > _MAX_EXPANDED_NODES:
            raise self.error(f"more than {_MAX_EXPANDED_NODES} nodes", node)
        if node.id == "scalar":
            return _scalar(node)
        if id(node) in self.open:
            raise self.error("an alias stands inside its own anchor", node)
        if depth > _MAX_DEPTH:
            raise self.error(f"nested more than {_MAX_DEPTH} levels deep", node)
        self.open.add(id(node))
        result = (
            [self.build(item, depth + 1) for item in node.value]
            if node.id == "sequence"
            else self._mapping(node, depth)
        )
        self.open.discard(id(node))
        return result

    def _mapping(self, node: Node, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise self.error("a key is not a scalar", key_node)
            if key_node.value == "<<" and not key_node.style:
                sources = value_node.value if value_node.id == "sequence" else [value_node]
                for item in sources:
                    if item.id != "mapping":
                        raise self.error("'<<' takes a mapping", value_node)
                    for name, value in self.build(item, depth + 1).items():
                        merged.setdefault(name, value)
                continue
            key = _scalar(key_node)
            if key in result:
                raise self.error(f"the key {key_node.value!r} is given twice", key_node)
            result[key] = self.build(value_node, depth + 1)
        return {**merged, **result}


_WORDS: dict[str, Any] = dict.fromkeys(["", "~", "null", "Null", "NULL"])
_WORDS |= dict.fromkeys(
    ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True
)
_WORDS |= dict.fromkeys(
    ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False
)
_INTEGER = r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"


def _scalar(node: Node) -> Any:
    text: str = node.value
    if node.style:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] not in "+-.0123456789":
        return text
    plain = text.replace("_", "")
    if re.fullmatch(_INTEGER, plain) and len(plain) <= 66:
        number = _go_integer(plain)
        if -(2**63) <= number < 2**64:
            return number
    if re.fullmatch(_FLOAT, plain) and (real := float(plain)) not in (inf, -inf):
        return real
    return text


def _go_integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567":
        return sign * int(digits, 8)
    return sign * int(digits, 0)


_STEP = r"\.([^.\[\]]+)|\[([0-9]+)\]|\['((?:[^'\\]|\\.)*)'\]"


def _locator(root: Node) -> Callable[[str], int | None]:
    def locate(path: str) -> int | None:
        node = root
        line: int = root.start_mark.line + 1
        for match in re.finditer(_STEP, path):
            name, index = match[1] or match[3], match[2]
            if node.id == "mapping" and name is not None:
                found = [(k, v) for k, v in node.value if k.value == name]
                if not found:
                    break
                line, node = found[0][0].start_mark.line + 1, found[0][1]
            elif node.id == "sequence" and index is not None and int(index) < len(node.value):
                node = node.value[int(index)]
                line = node.start_mark.line + 1
            else:
                break
        return line

    return locate
