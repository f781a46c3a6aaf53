"""watch-oom beside 250 pods that come and go: a minute here, longer with benchmarks/soak.py."""

import sys
from typing import Any

import pytest

from tests.support.guest import Guest
from tests.support.watchers import run_watchers


PODS, SECONDS = 250, 60
# What the design allows it, and what may come on top within the minute.
LARGEST_KB, GROWTH_KIB = 40_000, 512


@pytest.fixture(scope="module")
def answer(watcher_guest: Guest) -> dict[str, Any]:
    """Soak once."""
    found = run_watchers(watcher_guest, "soak.py", str(SECONDS), str(PODS), timeout=400)
    sys.stdout.write(f"\nguest: {found['told']}")
    return found


def test_it_lives(answer: dict[str, Any]) -> None:
    """It watches to the end, and ends well on SIGTERM."""
    assert answer["pods"] > PODS + SECONDS / 2
    assert answer["alive"]["memqos"]
    assert answer["codes"]["memqos"] == 0


def test_memory_is_flat(answer: dict[str, Any]) -> None:
    """At most 40 MB, no matter how many pods have gone by."""
    resident = [sample["rss_kib"] for sample in answer["samples"]["memqos"]]
    assert len(resident) >= SECONDS / 5
    assert max(resident) * 1.024 <= LARGEST_KB
    assert resident[-1] - resident[0] <= GROWTH_KIB


@pytest.mark.parametrize("waiting", ["nobody", "a pod"])
def test_it_sleeps(answer: dict[str, Any], waiting: str) -> None:
    """Two seconds at a time, as the kernel keeps watch; the interval is half a second."""
    samples = [
        sample
        for sample in answer["samples"]["memqos"]
        if (sample["t"] > answer["half"]) is (waiting == "a pod")
    ]
    seconds = samples[-1]["t"] - samples[0]["t"]
    assert (samples[-1]["sleeps"] - samples[0]["sleeps"]) / seconds < 1


def test_files_are_closed(answer: dict[str, Any]) -> None:
    """Its three streams, signals, the root's pressure, and what tells that it moves."""
    assert answer["descriptors"] <= 6
