"""Kubernetes ``resource.Quantity``: parsing, byte value, canonical form.

The grammar is apimachinery's with its oddities: ``Mi`` is zero, ``1E`` is exa, ``1K`` is refused.
"""

from __future__ import annotations

import re
from enum import StrEnum

from attrs import frozen

from memqos.errors import QuantityError


__all__ = ["MAX_INT64", "NANO", "Quantity", "QuantityFormat", "bytes_quantity", "parse_quantity"]

MAX_INT64 = 2**63 - 1
#: units of `Quantity.nanos` in one
NANO = 10**9

_FORM = r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)"
_EXPONENT = r"[eE]([+-]?[0-9]+)"
_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_DECIMAL_SUFFIXES["E"] = 18
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX_OF_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}

# More digits than this on either side of the point cannot change a value that saturates at
# 2^63-1 and is cut at 10^-9; they are only looked at for being zero or not.
_DIGITS_THAT_MATTER = 60


class QuantityFormat(StrEnum):
    """How a quantity is written back."""

    BINARY = "BinarySI"
    DECIMAL = "DecimalSI"
    EXPONENT = "DecimalExponent"


@frozen
class Quantity:
    """An exact quantity.

    Attributes:
        nanos: the value in 10^-9 units; anything finer was rounded away from zero.
        format: the notation family it was written in.
        saturated: True when a decimal form above 2^63-1 was cut to it. kubelet's own conversion
            is undefined there, so callers should warn.
    """

    nanos: int
    format: QuantityFormat = QuantityFormat.DECIMAL
    saturated: bool = False

    @property
    def value(self) -> int:
        """The value in whole units (bytes for memory), rounded away from zero as Go's Value()."""
        return _divide_away_from_zero(self.nanos, NANO)

    @property
    def is_integer(self) -> bool:
        """Whether the value has no fraction (what Go's AsInt64 needs)."""
        return self.nanos % NANO == 0

    def __str__(self) -> str:
        """The canonical form, as Go prints it."""
        if self.nanos == 0:
            return "0"
        # Go falls back to the decimal form for small binary values, to avoid rounding them.
        if self.format is QuantityFormat.BINARY and abs(self.nanos) >= 1024 * NANO:
            return _canonical_binary(self.value)
        return _canonical_decimal(self.nanos, exponent=self.format is QuantityFormat.EXPONENT)


def bytes_quantity(value: int) -> Quantity:
    """Make the binary quantity of ``value`` bytes."""
    return Quantity(value * NANO, QuantityFormat.BINARY)


def parse_quantity(text: str) -> Quantity:
    """Parse a quantity as apimachinery's ``resource.ParseQuantity`` does.

    Raises:
        QuantityError: the text does not match the quantity form, or its suffix is unknown.
    """
    match = re.fullmatch(_FORM, text)
    if match is None or not text:
        raise QuantityError(
            f"{text!r} does not match the quantity form, such as 128Mi, 1.5Gi, 1e9"
        )
    sign, whole, fraction, suffix = match.groups(default="")
    scale = _scale(suffix)
    if scale is None:
        raise QuantityError(
            f"{text!r} has the unknown suffix {suffix!r}; known are n u m k M G T P E, "
            "Ki Mi Gi Ti Pi Ei and a decimal exponent"
        )
    two_to, ten_to, format_ = scale
    nanos = _nanos(whole.lstrip("0"), fraction.rstrip("0"), two_to, ten_to + 9)
    saturated = False
    if nanos > MAX_INT64 * NANO:
        nanos = MAX_INT64 * NANO
        saturated = format_ is not QuantityFormat.BINARY
    return Quantity(-nanos if sign == "-" else nanos, format_, saturated)


def _scale(suffix: str) -> tuple[int, int, QuantityFormat] | None:
    """Return the powers of two and ten that a suffix stands for."""
    if suffix in _BINARY_SUFFIXES:
        return _BINARY_SUFFIXES[suffix], 0, QuantityFormat.BINARY
    if suffix in _DECIMAL_SUFFIXES:
        return 0, _DECIMAL_SUFFIXES[suffix], QuantityFormat.DECIMAL
    match = re.fullmatch(_EXPONENT, suffix)
    if match is None:
        return None
    digits = match[1].lstrip("+-").lstrip("0")
    exponent = int(digits or "0") if len(digits) < 19 else MAX_INT64
    return 0, -exponent if match[1].startswith("-") else exponent, QuantityFormat.EXPONENT


def _nanos(whole: str, fraction: str, two_to: int, ten_to: int) -> int:
    """Scale digits to 10^-9 units without ever building a number that cannot matter."""
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    exponent = ten_to - len(fraction)
    if len(digits) + exponent > _DIGITS_THAT_MATTER:
        return (MAX_INT64 + 1) * NANO
    if len(digits) + exponent < -_DIGITS_THAT_MATTER:
        return 1
    dropped = max(0, len(digits) - 2 * _DIGITS_THAT_MATTER)
    sticky = 1 if digits[len(digits) - dropped :].strip("0") else 0
    number = int(digits[: len(digits) - dropped]) << two_to
    exponent += dropped
    if exponent >= 0:
        return number * int(10**exponent) + sticky
    return _divide_away_from_zero(number * 10 + sticky, int(10 ** (1 - exponent)))


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor


def _canonical_binary(value: int) -> str:
    suffix = ""
    for name in _BINARY_SUFFIXES:
        if value % 1024:
            break
        value //= 1024
        suffix = name
    return f"{value}{suffix}"


def _canonical_decimal(nanos: int, *, exponent: bool) -> str:
    power = -9
    while nanos % 1000 == 0 and power < 18:
        nanos //= 1000
        power += 3
    if exponent:
        return str(nanos) if power == 0 else f"{nanos}e{power}"
    return f"{nanos}{_SUFFIX_OF_EXPONENT[power]}"
