"""YAML and JSON as Kubernetes reads them."""

from io import BytesIO
from typing import Any

import pytest

from memqos.adapters import documents
from memqos.adapters.documents import iterate_documents, read_documents
from memqos.errors import InputError


def data(text: str | bytes) -> list[Any]:
    """Read a stream."""
    raw = text.encode() if isinstance(text, str) else text
    return [document.data for document in read_documents(raw, "f.yaml")]


def refused(text: str | bytes) -> InputError:
    """Read a stream that is expected to be refused."""
    with pytest.raises(InputError) as caught:
        data(text)
    assert caught.value.source == "f.yaml"
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        *(
            (word, True)
            for word in ("on", "On", "ON", "yes", "Yes", "YES", "y", "Y", "true", "True")
        ),
        *(
            (word, False)
            for word in ("off", "Off", "OFF", "no", "No", "NO", "n", "N", "false", "FALSE")
        ),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        *(
            (word, word)
            for word in ("oN", "yEs", "nULL", "tRUE", "128Mi", "auto", "1:30", "190:20:30")
        ),
        ("1e9", 1e9),
        ("1E3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("0644", 420),
        ("0o644", 420),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("-12", -12),
        ("+12", 12),
        ("0", 0),
        ("089", 89.0),
        ("18446744073709551615", 2**64 - 1),
        ("2026-09-14", "2026-09-14"),
        ("2026-09-14T10:00:00Z", "2026-09-14T10:00:00Z"),
        ("'off'", "off"),
        ('"1e3"', "1e3"),
        ("'~'", "~"),
        ("|\n  off\n", "off\n"),
        (">\n  off\n", "off\n"),
    ],
)
def test_scalars(scalar: str, expected: object) -> None:
    """A bare scalar is what Go's YAML makes of it; a quoted one is a string."""
    (found,) = data(f"a: {scalar}")

    assert found == {"a": expected}
    assert type(found["a"]) is type(expected)


def test_streams() -> None:
    """All documents of a stream are read; empty ones are left out, but counted."""
    documents = read_documents(b"---\n# nothing\n---\na: 1\n---\n\n---\nb: 2\n...\n", "f")

    assert [(d.data, d.number) for d in documents] == [({"a": 1}, 2), ({"b": 2}, 4)]
    assert [d.line for d in documents] == [4, 8]
    assert data("") == data("# only\n") == []


@pytest.mark.parametrize(
    "text", ['{"a": [1, 2.5, "x", null, true]}', '\n {"a": [1, 2.5, "x", null, true]}']
)
def test_json(text: str) -> None:
    """JSON is read as such, and so is YAML's flow style; a byte order mark is left out."""
    assert data(text) == [{"a": [1, 2.5, "x", None, True]}]
    assert data(b"\xef\xbb\xbf" + text.encode()) == data(text)
    assert data("{a: [1, off]}") == [{"a": [1, False]}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", 3),
        ("x:\n  a: 1\n  a: 1\n", 3),
        ('{"a": 1,\n "a": 2}', 2),
        ("a: 1\n'a': 2\n", 2),
    ],
)
def test_duplicate_keys(text: str, line: int) -> None:
    """A repeated key is an error with its line, in YAML and in JSON."""
    error = refused(text)

    assert "given twice" in error.message
    assert error.line == line


def test_merge_keys() -> None:
    """`<<` merges: own keys win, then the first source; a quoted one is a key."""
    base = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\n"

    assert data(f"{base}z: {{<<: [*x, *y], c: 3}}")[0]["z"] == {"a": 1, "b": 1, "c": 3}
    assert data(f"{base}z: {{c: 3, <<: *y}}")[0]["z"] == {"b": 2, "c": 3}
    assert data("z: {'<<': 1}")[0]["z"] == {"<<": 1}
    assert "mapping" in refused("z: {<<: 1}").message


def test_alias_bomb() -> None:
    """Aliases that expand to a billion nodes are refused."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    assert refused("\n".join(lines)).document == 1


def test_aliases() -> None:
    """An honest alias is its anchor's value."""
    assert data("a: &x [1]\nb: *x") == [{"a": [1], "b": [1]}]


def test_recursion() -> None:
    """A node within itself is refused."""
    for text in ("&a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}"):
        refused(text)


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_depth(depth: int) -> None:
    """Deep nesting is refused, in JSON too."""
    refused("[" * depth)
    refused("[" * depth + "]" * depth)
    refused('{"a":' * depth + "1" + "}" * depth)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a: 1\nb: \xff\n", 2),
        (b"a: 1\n\tb: 2\n", 2),
        (b"a: [1\n", None),
        (b"a: b: c\n", 1),
        (b"a: \0\n", None),
        (b"? [a]\n: 1\n", 1),
        ("a: 1".encode("utf-16"), None),
    ],
)
def test_not_yaml(text: bytes, line: int | None) -> None:
    """What is no YAML or no UTF-8 is an error with its line."""
    error = refused(text)

    if line is not None:
        assert error.line == line


def test_tags() -> None:
    """A tag makes no Python object."""
    assert data("a: !!python/object/apply:os.system ['true']") == [{"a": ["true"]}]


def test_locate() -> None:
    """A JSON path is mapped to its line, or to that of the nearest parent."""
    text = b"# top\na:\n  b:\n  - x: 1\n  - y: 2\n'c d':\n  e: 3\n---\na: 1\n"
    first, second = read_documents(text, "f")

    assert {
        path: first.locate(path)
        for path in (
            "$",
            "$.a",
            "$.a.b",
            "$.a.b[1]",
            "$.a.b[1].y",
            "$.a.b[7]",
            "$['c d'].e",
            "$.no",
        )
    } == {
        "$": 2,
        "$.a": 2,
        "$.a.b": 3,
        "$.a.b[1]": 5,
        "$.a.b[1].y": 5,
        "$.a.b[7]": 3,
        "$['c d'].e": 7,
        "$.no": 2,
    }
    assert second.locate("$.a") == 9


def test_json_stream() -> None:
    """JSON documents may follow one another; each has its number and line."""
    found = read_documents(b'{"a":\n1} {"b": 2}\n\n[3]\n', "f")

    assert [(d.data, d.number, d.line) for d in found] == [
        ({"a": 1}, 1, 1),
        ({"b": 2}, 2, 2),
        ([3], 3, 4),
    ]
    assert found[0].locate("$.a") == 1
    assert found[2].locate("$[0]") == 4


def test_json_that_yaml_cannot_locate() -> None:
    """A line is not guessed where the text cannot be read as YAML."""
    text = '{"a": "\\ud800\\uZ"}'.replace("\\uZ", "\\/")

    (found,) = read_documents(text.encode(), "f")

    assert found.locate("$.a") in (None, 1)


class Drops:
    """A stream that gives a byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = BytesIO(data)

    def read(self, _size: int, /) -> bytes:
        """Give the next byte."""
        return self.data.read(1)


@pytest.mark.parametrize(
    "text", ["a: \u00e9\u20ac\U0001f600\n---\nb: 1\n", ' \n{"a": "\u20ac"}', "\ufeffa: 1\n", ""]
)
def test_drops(text: str) -> None:
    """However a stream is cut, even within a character, the documents are the same."""
    whole = [document.data for document in read_documents(text.encode(), "f")]

    assert [d.data for d in iterate_documents(Drops(text.encode()), "f")] == whole


def test_not_utf8_far_into_a_stream() -> None:
    """The line of a broken character is counted from the start, across reads."""
    lines = [b"- " + b"x" * 100] * 5000

    error = refused(b"\n".join([*lines, b"- \xe9"]))

    assert error.line == 5001


def test_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that would need too much memory is refused while it is read."""
    monkeypatch.setattr(documents, "_MAX_NODES", 10)

    assert data("\n---\n".join(["[1, 2, 3, 4, 5]"] * 5))
    assert "more than 10 nodes" in refused("a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]").message


@pytest.mark.parametrize("text", ["a: {{ .Values.a }}\n", "{{- if .a }}\na: 1\n", "a: {{b}}: c\n"])
def test_templates(text: str) -> None:
    """A template is called one."""
    assert "template" in refused(text).message
