"""YAML and JSON documents as plain data, read as Kubernetes reads them.

Kubernetes decodes YAML 1.1 with Go's yaml v2 rules: `y` and `off` are booleans, `0644` is 420,
`1e3` is a number, `1:30` and dates are strings.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from io import BytesIO
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

from memqos.errors import InputError


__all__ = ["Document", "Stream", "iterate_documents", "read_documents"]

#: a PyYAML node; its stubs know too little of it
Node: TypeAlias = Any

# An alias bomb passes this at once. libyaml itself stops at 1000 levels.
_MAX_EXPANDED_NODES = 1_000_000
_MAX_DEPTH = 200
# Some 400 bytes each while a document is read.
_MAX_NODES = 5_000_000
_CHUNK = 1 << 16


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
    return list(iterate_documents(BytesIO(data), source))


class Stream(Protocol):
    """What is read bit by bit: a file, or standard input."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""


def iterate_documents(
    stream: Stream, source: str, keys: Collection[str] | None = None
) -> Iterator[Document]:
    """Yield the documents of a YAML or JSON stream, as `read_documents` does.

    A YAML stream is never held as a whole, only its largest document is.

    Args:
        stream: the bytes.
        source: its name, for errors.
        keys: the only keys that the caller reads, at any depth; the values of others are not
            built, which saves most of the work on manifests.
    """
    text = _Text(stream, source)
    start = text.peek()
    if start[:1] in ("{", "["):
        whole = text.read_all()
        documents = _read_json(whole)
        if documents is not None:
            yield from documents
            return
        text.push(whole)
    yield from _read_yaml(text, source, keys)


class _Text:
    """Decodes a stream as it is read."""

    def __init__(self, stream: Stream, source: str) -> None:
        self.stream = stream
        self.source = source
        self.decoder = getincrementaldecoder("utf-8")()
        self.lines = 0
        self.ahead = ""
        self.template = False

    def read(self, size: int) -> str:
        """Return some characters, none at the end. The YAML reader keeps more than `size`."""
        if self.ahead:
            text, self.ahead = self.ahead, ""
            return text
        return self._next(max(size, _CHUNK))

    def _next(self, size: int = _CHUNK) -> str:
        text = ""
        while not text:
            chunk = self.stream.read(size)
            try:
                text = self.decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line = self.lines + error.object.count(b"\n", 0, error.start) + 1
                raise InputError("not UTF-8 text", source=self.source, line=line) from None
            self.lines += chunk.count(b"\n")
            if not chunk:
                break
        self.template = self.template or "{{" in text
        return text

    def peek(self) -> str:
        """Read up to the first visible character, drop a byte order mark; return what follows."""
        chunks = [self._next().removeprefix("\ufeff")]
        while chunks[-1] and not chunks[-1].strip():
            chunks.append(self._next())
        self.ahead = "".join(chunks)
        return chunks[-1].lstrip()

    def read_all(self) -> str:
        """Read the rest."""
        chunks = [self.ahead]
        while chunk := self._next():
            chunks.append(chunk)
        self.ahead = ""
        return "".join(chunks)

    def push(self, text: str) -> None:
        """Put text back."""
        self.ahead = text


def _read_json(text: str) -> list[Document] | None:
    """Read JSON documents, one after another; None for something else, as YAML's flow style."""

    def refuse(_name: str) -> None:
        raise ValueError

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError
        return result

    decoder = json.JSONDecoder(parse_constant=refuse, object_pairs_hook=members)
    found: list[Document] = []
    line, end = 1, 0
    while match := re.compile(r"[ \t\r\n]*(?=[^ \t\r\n])").match(text, end):
        line += text.count("\n", end, match.end())
        start = match.end()
        try:
            data, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return None
        locate = partial(_locate_json, text[start:end], line)
        found.append(Document(data, len(found) + 1, line, locate))
        line += text.count("\n", start, end)
    return found


def _locate_json(text: str, first: int, path: str) -> int | None:
    """Find a line in JSON, which is read as YAML for that: only an error needs it."""
    import yaml

    try:
        node: Node = yaml.compose(text, Loader=_loader_class())
    except (yaml.YAMLError, RecursionError):
        return None
    line = _locator(node)(path)
    return None if line is None else first + line - 1


def _read_yaml(text: _Text, source: str, keys: Collection[str] | None) -> Iterator[Document]:
    import yaml

    try:
        loader = _loader_class()(text)
    except yaml.YAMLError as error:
        raise _yaml_error(error, source, None) from None
    number = 0
    try:
        while True:
            try:
                if not loader.check_node():
                    return
                number += 1
                loader.nodes = 0
                node: Node = loader.get_node()
            except (yaml.YAMLError, RecursionError) as error:
                raise _yaml_error(error, source, number, template=text.template) from None
            except InputError as error:
                raise error.locate(source=source, document=number) from None
            builder = _Builder(source, number, keys)
            data = builder.build(node, 0)
            if data is not None:
                yield Document(data, number, node.start_mark.line + 1, _locator(node))
    finally:
        loader.dispose()


@cache
def _loader_class() -> type[Any]:
    """Make the loader: libyaml's where there is one, with tags left to us.

    PyYAML would guess a tag for every node, by rules that are not Kubernetes'.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        nodes = 0

        def resolve(self, *_: Any) -> str:
            self.nodes += 1
            if self.nodes > _MAX_NODES:
                raise InputError(f"more than {_MAX_NODES} nodes in one document")
            return ""

        def descend_resolver(self, *_: Any) -> None:
            pass

        def ascend_resolver(self) -> None:
            pass

    return Loader


def _yaml_error(
    error: Exception, source: str, number: int | None, *, template: bool = False
) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    hint = " ({{ }} looks like a template; render it first)" if template else ""
    return InputError(
        f"not YAML: {problem}{hint}",
        source=source,
        document=number or None,
        line=None if mark is None else mark.line + 1,
    )


class _Builder:
    """Makes plain data of a node graph."""

    def __init__(self, source: str, number: int, keys: Collection[str] | None) -> None:
        self.source = source
        self.number = number
        self.keys = keys
        self.nodes = 0
        self.open: set[int] = set()

    def error(self, message: str, node: Node) -> InputError:
        return InputError(
            message, source=self.source, document=self.number, line=node.start_mark.line + 1
        )

    def build(self, node: Node, depth: int) -> Any:
        if node.id == "scalar":
            return _scalar(node)
        # Entries are counted, not nodes: a scalar costs little.
        self.nodes += len(node.value)
        if self.nodes > _MAX_EXPANDED_NODES:
            raise self.error(f"more than {_MAX_EXPANDED_NODES} nodes", node)
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
        keys = self.keys
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise self.error("a key is not a scalar; render templates first", key_node)
            if key_node.value == "<<" and not key_node.style:
                self._merge(merged, value_node, depth)
                continue
            key = _scalar(key_node)
            if key in result:
                raise self.error(f"the key {key_node.value!r} is given twice", key_node)
            if keys is not None and key not in keys:
                result[key] = None
            elif value_node.id == "scalar":
                result[key] = _scalar(value_node)
            else:
                result[key] = self.build(value_node, depth + 1)
        return {**merged, **result} if merged else result

    def _merge(self, merged: dict[Any, Any], value_node: Node, depth: int) -> None:
        sources = value_node.value if value_node.id == "sequence" else [value_node]
        for item in sources:
            if item.id != "mapping":
                raise self.error("'<<' takes a mapping", value_node)
            for name, value in self.build(item, depth + 1).items():
                merged.setdefault(name, value)


_WORDS: dict[str, Any] = dict.fromkeys(["", "~", "null", "Null", "NULL"])
_WORDS |= dict.fromkeys(
    ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True
)
_WORDS |= dict.fromkeys(
    ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False
)
_FIRST_OF_NUMBERS = frozenset("+-.0123456789") | {""}
_INTEGER = r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"


def _scalar(node: Node) -> Any:
    text: str = node.value
    if node.style or node.tag == "tag:yaml.org,2002:str":  # quoted, a block, or !!str
        return text
    if text[:1] not in _FIRST_OF_NUMBERS:
        return _WORDS.get(text, text)
    if not text:
        return None
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
