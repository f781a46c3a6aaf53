"""Typed getters."""

from collections.abc import Callable
from typing import Any

import pytest

from memqos import fields
from memqos.errors import InputError


def bounded(value: object, path: str) -> int:
    """Take an integer up to 9."""
    return fields.integer(value, path, low=0, high=9)


@pytest.mark.parametrize(
    ("get", "value"),
    [
        (fields.mapping, []),
        (fields.mapping, "x"),
        (fields.mapping, {1: "x"}),
        (fields.mapping, {True: "x"}),
        (fields.items, {}),
        (fields.items, "x"),
        (fields.string, None),
        (fields.string, True),
        (fields.string, 1),
        (fields.boolean, 1),
        (fields.boolean, "true"),
        (bounded, True),
        (bounded, 1.0),
        (bounded, "1"),
        (bounded, 10),
        (bounded, -1),
        (fields.string_map, {"a": False}),
        (fields.quantity, True),
        (fields.quantity, None),
        (fields.quantity, "1Zi"),
        (fields.quantity, float("nan")),
        (fields.quantity, float("inf")),
    ],
)
def test_nothing_is_coerced(get: Callable[[object, str], Any], value: object) -> None:
    """Another type is an error with the path."""
    with pytest.raises(InputError) as caught:
        get(value, "$.x")
    assert str(caught.value.path).startswith("$.x")


def test_null_is_empty() -> None:
    """A null object or array is an empty one."""
    assert fields.mapping(None, "$") == {}
    assert list(fields.items(None, "$")) == []


@pytest.mark.parametrize(
    ("value", "expected"), [("1Ki", 1024), (5, 5), (1.5, 2), (1e9, 10**9), (1e20, 2**63 - 1)]
)
def test_quantity(value: object, expected: int) -> None:
    """A number is a quantity in its text form."""
    assert fields.quantity(value, "$").value == expected


def test_member() -> None:
    """A key that is no plain name is quoted."""
    assert fields.member("$", "a_b") == "$.a_b"
    assert fields.member("$", "memory.available") == "$['memory.available']"
