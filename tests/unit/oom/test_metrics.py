"""Metrics where the vectors do not look: spec section 4."""

import pytest

from memqos.oom.layout import LAYOUTS
from memqos.oom.meminfo import meminfo_bytes
from memqos.oom.metrics import CollectError, collect, metric_names, zero_values


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
    before: dict[str, tuple[float, ...]] = {}
    collect({"system": {"memory.pressure": WHOLE}}, TALOS, before, 10**9)
    assert before == {}


def test_memory_figures() -> None:
    """An int64, or nothing; 'max' is no number."""
    files = {"memory.current": "7\n", "memory.max": "max\n", "memory.peak": f"{2**63}\n"}
    found = collect({"podruntime": files}, TALOS, {}, 10**9).values
    assert found["qos_memory_current"][3] == 7.0
    assert found["qos_memory_max"][3] == found["qos_memory_peak"][3] == 0.0


MEMINFO = "MemTotal:  100 kB\nSwapCached:        9 kB\nSwapTotal:  8 kB\nSwapFree:  3 kB\n"


def test_swap() -> None:
    """Per class from memory.swap.current, with its rate; the node's from /proc/meminfo."""
    tree = {
        "kubepods/pod1": {"memory.swap.current": "1000\n"},
        "kubepods/pod2": {"memory.swap.current": "24\n"},
        "system": {"memory.swap.current": "garbage"},
        "podruntime": {},
    }
    first = collect(tree, TALOS, {}, 500_000_000, swap=True, meminfo=MEMINFO)
    assert first.values["qos_memory_swap_current"] == {0: 0.0, 1: 0.0, 2: 1024.0, 3: 0.0, 4: 0.0}
    assert set(first.values["d_qos_memory_swap_current"].values()) == {0.0}
    assert (first.values["swap_total"], first.values["swap_free"]) == (8192, 3072)
    tree["kubepods/pod1"] = {"memory.swap.current": "1500\n"}
    second = collect(tree, TALOS, first.previous, 500_000_000, swap=True)
    assert second.values["d_qos_memory_swap_current"][2] == 1000.0  # 500 bytes in half a second
    assert (second.values["swap_total"], second.values["swap_free"]) == (0, 0)


def test_no_swap_unless_asked() -> None:
    """Neither the values nor the memory of the derivatives know of it."""
    tree = {"system": {"memory.swap.current": "1\n"}}
    found = collect(tree, TALOS, {}, 10**9, meminfo=MEMINFO)
    assert not [name for name in (*found.values, *found.previous) if "swap" in name]
    assert set(found.values) == set(metric_names()) == set(zero_values())
    more = set(metric_names(swap=True)) - set(metric_names())
    assert more == {"qos_memory_swap_current", "d_qos_memory_swap_current"}
    assert set(zero_values(swap=True)) - set(zero_values()) == more | {"swap_total", "swap_free"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("SwapTotal", 8192), ("MemTotal", 102400), ("Swap", None), ("MemAvailable", None)],
)
def test_meminfo(name: str, expected: int | None) -> None:
    """A line by its whole name; KiB become bytes."""
    assert meminfo_bytes(MEMINFO, name) == expected
