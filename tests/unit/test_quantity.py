"""Kubernetes quantities."""

import pytest

from memqos.errors import QuantityError
from memqos.quantity import bytes_quantity, parse_quantity
from tests.support.vectors import Case, vectors


@pytest.mark.parametrize("case", vectors("quantity"), ids=lambda case: repr(case["text"]))
def test_vectors(case: Case) -> None:
    """Each spelling has its value and sign, or is refused."""
    if not case["ok"]:
        with pytest.raises(QuantityError):
            parse_quantity(case["text"])
        return
    quantity = parse_quantity(case["text"])

    assert abs(quantity.value) == case["bytes"]
    assert (quantity.nanos > 0) - (quantity.nanos < 0) == case["sign"]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        *(("0", "0"), ("0Mi", "0"), ("-0", "0"), ("00128Mi", "128Mi"), ("1024Mi", "1Gi")),
        *(("1.5Gi", "1536Mi"), ("1536Mi", "1536Mi"), ("1Ki", "1Ki"), ("0.5Ki", "512")),
        *(
            ("1025Ki", "1025Ki"),
            ("1.5", "1500m"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("1000k", "1M"),
        ),
        *(("100", "100"), ("1024", "1024"), ("0.001", "1m"), ("1e3", "1e3"), ("1e4", "10e3")),
        *(
            ("1E", "1E"),
            ("1n", "1n"),
            ("-1.5Gi", "-1536Mi"),
            ("-1500m", "-1500m"),
            ("1e-3", "1e-3"),
        ),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    """The canonical form has no fraction and the largest suffix, in its own notation."""
    assert str(parse_quantity(text)) == canonical


def test_bytes() -> None:
    """A byte count is written with the largest power of 1024 that divides it."""
    assert [str(bytes_quantity(2**n)) for n in (0, 9, 10, 31, 40)] == [
        "1",
        "512",
        "1Ki",
        "2Gi",
        "1Ti",
    ]
    assert str(bytes_quantity(10240 * 2**20 + 1)) == "10737418241"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1n", 1), ("0.1", 1), ("-0.1", -1), ("1.0000000001", 2), ("1.1Mi", 1153434), ("-1500m", -2)],
)
def test_rounding(text: str, value: int) -> None:
    """Bytes are rounded away from zero; what is finer than 10^-9 too."""
    assert parse_quantity(text).value == value


@pytest.mark.parametrize("text", ["10E", "1e30", "9" * 20, "1e" + "9" * 5000, "9" * 100_000])
def test_saturation(text: str) -> None:
    """Decimal forms above 2^63-1 are cut to it and marked, however long they are."""
    assert parse_quantity(text).value == 2**63 - 1
    assert parse_quantity(text).saturated


def test_tiny() -> None:
    """However small, what is not zero is 10^-9 at least."""
    assert parse_quantity("1e-" + "9" * 5000).nanos == 1
    assert parse_quantity("0." + "0" * 100_000 + "1").nanos == 1
    assert parse_quantity("-1e-99").nanos == -1
    assert parse_quantity("0e-99").nanos == 0


def test_integers() -> None:
    """An integer has no fraction, in whatever notation."""
    assert parse_quantity("1000m").is_integer
    assert not parse_quantity("1001m").is_integer
