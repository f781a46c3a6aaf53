"""The texts of cgroup files."""

import pytest

from memqos.cgroup import MAX, parse_flat, parse_pressure, parse_size, size_text
from memqos.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n", 0),
        ("4096\n", 4096),
        ("max\n", MAX),
        # Values from 2^63 - 4096 on read back as "max"; whatever is larger is no more than that.
        ("18446744073709551615\n", MAX),
    ],
)
def test_size(text: str, expected: int) -> None:
    """Bytes, or max."""
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-1\n", "1.5\n", "Max\n", "1 2\n", "0x10\n", "\u0661\n", "9" * 21, "a\x1b[31m"]
)
def test_no_size(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InputError, match="expected bytes or max"):
        parse_size(text)


def test_size_is_written_as_the_kernel_does() -> None:
    """The two forms are told apart."""
    assert [size_text(value) for value in (0, 4096, MAX)] == ["0", "4096", "max"]


def test_flat() -> None:
    """Keys that a newer kernel adds are kept, missing ones are not made up."""
    assert parse_flat("low 0\nhigh 12\nsock_throttled 3\n") == {
        "low": 0,
        "high": 12,
        "sock_throttled": 3,
    }


@pytest.mark.parametrize("text", ["low\n", "low x\n", " 3\n", "low -3\n"])
def test_not_flat(text: str) -> None:
    """A line is a key and a number."""
    with pytest.raises(InputError, match="expected a key and a number"):
        parse_flat(text)


def test_pressure() -> None:
    """Fields are read by name, in any order; what is new is left out."""
    found = parse_pressure(
        "some avg10=12.50 avg60=8.00 avg300=3.00 total=1234567 new=1\n"
        "full total=9 avg300=1.00 avg60=4.00 avg10=5.01\n"
    )

    assert found.some is not None
    assert found.full is not None
    assert (found.some.avg10, found.some.total_us) == (12.5, 1234567)
    assert (found.full.avg10, found.full.avg300, found.full.total_us) == (5.01, 1.0, 9)


def test_pressure_without_full() -> None:
    """cpu.pressure of old kernels' root has no full line."""
    assert parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").full is None


@pytest.mark.parametrize(
    "text",
    [
        "some avg10=1\n",
        "full avg10=x avg60=1 avg300=1 total=1\n",
        "\n",
        "full avg10=nan avg60=1 avg300=1 total=1\n",
        "a\n",
        "full avg10=1.1.1 avg60=1 avg300=1 total=1\n",
    ],
)
def test_no_pressure(text: str) -> None:
    """A line without its fields is refused."""
    with pytest.raises(InputError, match="expected a line of PSI"):
        parse_pressure(text)
