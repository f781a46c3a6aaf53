"""The shipped schemas."""

import pytest

from memqos.adapters.schemas import schema_kinds, schema_text


def test_every_kind_has_its_text() -> None:
    """Kinds are sorted, and each has a text."""
    assert list(schema_kinds()) == sorted(schema_kinds())
    assert all(schema_text(kind).startswith("{") for kind in schema_kinds())


def test_no_other_kind() -> None:
    """A kind without a schema is a missing file."""
    with pytest.raises(FileNotFoundError):
        schema_text("Nothing")
