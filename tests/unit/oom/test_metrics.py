"""Metrics where the vectors do not look: spec section 4."""

import pytest

from memqos.oom.layout import LAYOUTS
from memqos.oom.metrics import CollectError, collect, metric_names


TALOS = LAYOUTS["talos"]
WHOLE = (
    "some avg10=1.50 avg60=0.00 avg300=0.00 total=10\n"
    "full avg10=0.25 avg60=0.00 avg300=0.00 total=20\n"
)


def test_names() -> None:
    """38 metrics, of which half are derivatives."""
    names = metric_names()
    assert len(names) == len(set(names)) == 38
    assert sum(name.startswith("d_") for name in names) == 19


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "some avg10",
        "some avg10=1.5x avg60=0 avg300=0 total=1",
        "",
        "some avg10=" + "9" * 50,
    ],
)
def test_garbled_pressure_counts_as_none(text: str) -> None:
    """Only a file that is readable and not whole fails the cycle; '' has no line at all."""
    if text == "":
        with pytest.raises(CollectError):
            collect({"system": {"memory.pressure": text}}, TALOS, {}, 10**9)
        return
    found = collect({"system": {"memory.pressure": text}}, TALOS, {}, 10**9)
    assert found.values["qos_memory_some_avg10"][4] == 0.0


@pytest.mark.parametrize("interval", [0, -1])
def test_no_interval(interval: int) -> None:
    """There is nothing to divide by."""
    with pytest.raises(CollectError, match="interval"):
        collect({}, TALOS, {}, interval)


def test_derivatives_use_the_configured_interval() -> None:
    """A late tick inflates the rate, as in Talos."""
    first = collect({"system": {"memory.pressure": WHOLE}}, TALOS, {}, 500_000_000)
    assert first.values["d_qos_memory_full_total"][4] == 0.0
    text = WHOLE.replace("total=20", "total=70")
    second = collect({"system": {"memory.pressure": text}}, TALOS, first.previous, 500_000_000)
    assert second.values["d_qos_memory_full_total"][4] == 100.0
    assert second.values["qos_memory_some_avg10"][4] == 1.5


def test_the_input_is_left_alone() -> None:
    """The state is a value."""
    before: dict[str, float] = {}
    collect({"system": {"memory.pressure": WHOLE}}, TALOS, before, 10**9)
    assert before == {}


def test_memory_figures() -> None:
    """An int64, or nothing; 'max' is no number."""
    files = {"memory.current": "7\n", "memory.max": "max\n", "memory.peak": f"{2**63}\n"}
    found = collect({"podruntime": files}, TALOS, {}, 10**9).values
    assert found["qos_memory_current"][3] == 7.0
    assert found["qos_memory_max"][3] == found["qos_memory_peak"][3] == 0.0
