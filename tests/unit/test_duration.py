"""Go durations."""

import pytest

from memqos.duration import parse_duration
from memqos.errors import InputError


SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("5s", 5 * SECOND),
        ("-5s", -5 * SECOND),
        ("5.s", 5 * SECOND),
        (".5s", SECOND // 2),
        ("-.5s", -SECOND // 2),
        ("1.004s", 1_004_000_000),
        ("100.00100s", 100_001_000_000),
        ("10ns", 10),
        ("11us", 11_000),
        ("12\u00b5s", 12_000),
        ("12\u03bcs", 12_000),
        ("13ms", 13_000_000),
        ("14m", 840 * SECOND),
        ("3h30m", 12_600 * SECOND),
        ("10.5s4m", 250_500_000_000),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("39h9m14.425s", 140_954_425_000_000),
        ("0.9ns", 0),
        ("0.3333333333333333333h", 1200 * SECOND),
        ("0.100000000000000000000h", 360 * SECOND),
        ("0.830103483285477580700h", 2_988_372_539_827),
        ("9007199254740993ns", 9007199254740993),
        ("9223372036854775807ns", 2**63 - 1),
        ("9223372036854775.807us", 2**63 - 1),
        ("9223372036s854ms775us807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
        ("-9223372036854775.808us", -(2**63)),
        ("-2562047h47m16.854775808s", -(2**63)),
    ],
)
def test_accepted(text: str, expected: int) -> None:
    """The value is Go's, to the nanosecond."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "3",
            "-",
            "+",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "1 s",
            " 1s",
            "1s ",
            "1_0s",
            "--1s",
        ),
        *("1S", "1e3s", "1,5s", "\u0661s", "9223372036854775808ns", "9223372036854775810ns"),
        *("-9223372036854775809ns", "9223372036854776us", "3000000h", "9" * 5000 + "s"),
        *("9223372036854775.808us", "9223372036854ms775us808ns", "1h1"),
    ],
)
def test_refused(text: str) -> None:
    """What Go refuses is refused."""
    with pytest.raises(InputError):
        parse_duration(text)
