"""memory-drift-tolerance to a bound."""

import pytest

from memqos.memory_manager.iomem import find_image
from memqos.memory_manager.options import (
    DRIFT_TOLERANCE,
    Tolerance,
    ToleranceSource,
    resolve_tolerance,
)
from memqos.memory_manager.reasons import Reason, Refusal
from tests.support.vectors import Case, vectors


IMAGE = find_image("aff800000-b02bfffff : Kernel code")


def resolve(value: str) -> Tolerance | Refusal:
    """Resolve one value with the gate on."""
    return resolve_tolerance({DRIFT_TOLERANCE: value}, gate=True, image=IMAGE)


@pytest.mark.parametrize("case", vectors("quantity"), ids=lambda case: repr(case["text"]))
def test_quantity_vectors(case: Case) -> None:
    """Each spelling gives its bytes, or is refused: as malformed, or as negative."""
    result = resolve(case["text"])

    if case["accepted_as_tolerance"]:
        assert result == Tolerance(case["bytes"], ToleranceSource.EXPLICIT)
    else:
        assert isinstance(result, Refusal)
        assert result.reason is (Reason.OPTION_NEGATIVE if case["ok"] else Reason.OPTION_BAD_VALUE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("off", Tolerance(0, ToleranceSource.OFF)),
        ("auto", Tolerance(54525952 + 67108864, ToleranceSource.KERNEL_IMAGE)),
        ("-0", Tolerance(0, ToleranceSource.EXPLICIT)),
    ],
)
def test_words(value: str, expected: Tolerance) -> None:
    """`auto` is the image plus 64 MiB, `off` is exact comparison."""
    assert resolve(value) == expected


@pytest.mark.parametrize("value", ["Auto", "OFF", " auto", "off ", "", "false", "on", "none"])
def test_words_are_exact(value: str) -> None:
    """Neither case nor white space is forgiven, and empty is no value."""
    result = resolve(value)

    assert isinstance(result, Refusal)
    assert result.reason is Reason.OPTION_BAD_VALUE
    assert 'bad value for option "memory-drift-tolerance"' in result.message


@pytest.mark.parametrize(
    "text", [None, "", "0-0 : Kernel code", "0-0 : Kernel code\n1-2 : Kernel bss"]
)
def test_auto_without_a_size(text: str | None) -> None:
    """Where the size is unknown, `auto` is exact comparison and says why."""
    image = None if text is None else find_image(text)

    assert resolve_tolerance({DRIFT_TOLERANCE: "auto"}, gate=True, image=image) == Tolerance(
        0, ToleranceSource.UNDERIVABLE
    )


def test_unset_needs_no_gate() -> None:
    """Without the option the gate does not matter."""
    for gate in (False, True):
        assert resolve_tolerance({}, gate=gate, image=IMAGE) == Tolerance(0, ToleranceSource.UNSET)


@pytest.mark.parametrize("value", ["auto", "off", "0", "nonsense", "-1"])
def test_any_value_needs_the_gate(value: str) -> None:
    """Without the gate even `off` is refused."""
    result = resolve_tolerance({DRIFT_TOLERANCE: value}, gate=False, image=IMAGE)

    assert result == Refusal(
        Reason.OPTION_REQUIRES_GATE,
        'memory manager policy option "memory-drift-tolerance" requires the '
        "MemoryManagerDriftTolerance feature gate",
    )


@pytest.mark.parametrize("gate", [False, True])
def test_unknown_option_comes_before_the_gate(gate: bool) -> None:
    """An unknown name is refused first."""
    options = {DRIFT_TOLERANCE: "off", "Memory-Drift-Tolerance": "off"}

    assert resolve_tolerance(options, gate=gate, image=IMAGE) == Refusal(
        Reason.OPTION_UNKNOWN, 'unknown Memory Manager Policy option: "Memory-Drift-Tolerance"'
    )


def test_negative() -> None:
    """A negative quantity has its own reason."""
    result = resolve("-1n")

    assert isinstance(result, Refusal)
    assert result.reason is Reason.OPTION_NEGATIVE
    assert "is negative" in result.message


def test_saturation_is_marked() -> None:
    """Beyond 2^63-1 kubelet's value is undefined: it is cut there, and marked."""
    assert resolve("10E") == Tolerance(2**63 - 1, ToleranceSource.EXPLICIT, saturated=True)
    assert resolve("8Ei") == Tolerance(2**63 - 1, ToleranceSource.EXPLICIT, saturated=False)
