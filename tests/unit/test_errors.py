"""The exceptions."""

from memqos.errors import InputError, MachineError, MemqosError


def test_place_comes_first() -> None:
    """A message begins with file, document, line and path, as far as they are known."""
    error = InputError("wrong", path="$.a")

    assert str(error) == "$.a: wrong"
    assert error.locate(source="f", document=2, line=3) is error
    assert str(error) == "f: document 2: line 3: $.a: wrong"
    assert str(error.locate(source="other", line=9)) == "f: document 2: line 3: $.a: wrong"


def test_machine_error() -> None:
    """A file's error names it and keeps the number."""
    error = MachineError("/x", "gone", 2)

    assert (str(error), error.path, error.errno) == ("/x: gone", "/x", 2)
    assert isinstance(error, MemqosError)
