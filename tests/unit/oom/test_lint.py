"""What is valid and unwise; each from a public report that the code names."""

import pytest

from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.lint import lint


def codes(
    trigger: str | None = None,
    ranking: str | None = None,
    interval: int = 10**9,
    *,
    swap: bool = False,
) -> set[str]:
    """Return the codes of a configuration."""
    config = check_documents([], trigger=trigger, ranking=ranking, interval_ns=interval, swap=swap)
    assert isinstance(config, OOMConfig), config
    return {str(warning.code) for warning in lint(config)}


COOL = 'time_since_trigger > duration("5s")'


def test_defaults() -> None:
    """Talos' defaults are clean."""
    assert codes() == set()


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (f"d_memory_full_avg10 > 0.0 && {COOL}", set()),
        ("d_memory_full_avg10 > 0.0", {"no-cool-down"}),
        (f"memory_full_avg10 > 12.0 && {COOL}", {"no-growth-term"}),
        (f"d_memory_full_avg10 >= 0.0 && {COOL}", {"true-on-zero"}),
        ("true", {"trigger-constant"}),
        ("1 > 2", {"trigger-constant"}),
        (f"1 / int(d_memory_full_avg10) > 0 && {COOL}", {"trigger-fails"}),
    ],
)
def test_trigger(trigger: str, expected: set[str]) -> None:
    """One fault each."""
    assert codes(trigger=trigger) == expected


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ("double(memory_current.orValue(0u)) * {Besteffort: 1.0}[?class].orValue(0.0)", set()),
        ("0.0", {"ranking-constant"}),
        ("1.0", {"ranking-constant"}),
        ("double(memory_current.orValue(0u))", {"kills-system"}),
        ("double(memory_current.value()) * (class == Besteffort ? 1.0 : 0.0)", {"ranking-fails"}),
        ("double(memory_peak.orValue(0u)) * (class == Besteffort ? 1.0 : 0.0)", {"peak-only"}),
    ],
)
def test_ranking(ranking: str, expected: set[str]) -> None:
    """One fault each."""
    assert codes(ranking=ranking) == expected


@pytest.mark.parametrize("interval", [10**8 - 1, 10**10 + 1])
def test_interval(interval: int) -> None:
    """100 ms to 10 s is sane."""
    assert codes(interval=interval) == {"interval-extreme"}
    assert codes(interval=10**8) == codes(interval=10**10) == set()


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("swap_free < GiB", {"true-on-zero"}),
        ("swap_total > 0u && swap_free < GiB", set()),
        ("double(swap_free) / double(swap_total) < 0.1", set()),  # 0/0 is NaN, not below
        ("swap_free * 10u / swap_total < 1u", {"trigger-fails"}),
    ],
)
def test_no_swap_is_no_pressure(trigger: str, expected: set[str]) -> None:
    """A node without swap has none free (rfjakob/earlyoom#351)."""
    text = f"d_qos_memory_full_total[Burstable] >= 0.0 && {COOL} && {trigger}"
    assert codes(trigger=text, swap=True) == expected


def test_swap_of_the_system() -> None:
    """A ranking by swap can reach the node's own services like one by memory."""
    ranking = "double(memory_swap_current.orValue(0u))"
    assert codes(ranking=ranking, swap=True) == {"kills-system"}
