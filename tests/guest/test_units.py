"""The units below a real systemd: kubelet starts re-baselined, watch-oom kills and comes back."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.guest import Guest
from tests.support.watchers import run_watchers


UNITS = Path(__file__).parents[2] / "examples" / "systemd"
NAME = "memqos-watch-oom.service"
DRIFT = 20 << 20
DRIFT_METRIC = r'^memqos_numa_node_memory_drift_bytes\{numa_node="0"\} (\S+)$'
POD = (
    "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice"
    "/kubepods-besteffort-pod2d0f4f3f_9d1c.slice"
)


@pytest.fixture(scope="module")
def answer(watcher_guest: Guest) -> dict[str, Any]:
    """Boot systemd once."""
    files = {
        str(path.relative_to(UNITS)): path.read_bytes()
        for path in UNITS.rglob("*")
        if path.is_file()
    }
    found = run_watchers(watcher_guest, "units.py", files=files, systemd=True, timeout=300)
    sys.stdout.write(f"\nguest: {found['told']}")
    return found


@pytest.fixture(scope="module")
def watch(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what became of watch-oom's unit."""
    found: dict[str, Any] = answer["watch"]
    return found


@pytest.mark.parametrize("how", ["unit", "drop-in"])
def test_kubelet_starts_rebaselined(answer: dict[str, Any], how: str) -> None:
    """The drift is recorded and taken into the file before kubelet runs: then memqos refuses."""
    found = answer["rebaseline"][how]
    assert found["start"] == ""
    assert found["kubelet"]["ActiveState"] == "active"
    before, after = (
        json.loads(found[name])["machineState"]["0"]["memoryMap"]["memory"]
        for name in ("before", "after")
    )
    assert after["total"] == found["mem_total"]
    assert after["total"] - before["total"] == DRIFT
    assert after["reserved"] == before["reserved"] == 256 << 20
    (drift,) = re.findall(DRIFT_METRIC, found["textfile"], re.MULTILINE)
    assert float(drift) == DRIFT


def test_the_unit_ends_well(answer: dict[str, Any]) -> None:
    """In its sandbox, which lets it see /proc/iomem and write one directory."""
    found = answer["rebaseline"]["state"]
    assert (found["Result"], found["ExecMainStatus"]) == ("success", "0")


def test_validation_beside_kubelet(answer: dict[str, Any]) -> None:
    """The timer's service finds nothing left to tolerate."""
    found = answer["rebaseline"]
    assert found["validate"] == ""
    (drift,) = re.findall(DRIFT_METRIC, found["validated"], re.MULTILINE)
    assert float(drift) == 0


def test_it_starts(watch: dict[str, Any]) -> None:
    """Systemd waits for its first word, and it serves metrics."""
    assert watch["start"] == ""
    found = watch["started"]
    assert (found["ActiveState"], found["SubState"]) == ("active", "running")
    assert found["NRestarts"] == "0"
    assert "memqos_oom_cycles_total" in watch["metrics"]


def test_it_is_protected(watch: dict[str, Any]) -> None:
    """In the root slice, its memory locked and reserved, without a capability."""
    found = watch["process"]
    assert found["cgroup"] == f"0::/{NAME}\n"
    assert found["score"] == -900
    assert found["locked_kib"] > 0
    assert watch["memory_min"] == 128 << 20
    assert int(found["capabilities"], 16) == 0
    assert found["seccomp"] == 2


def test_as_shipped_it_only_tells(watch: dict[str, Any]) -> None:
    """Whom it would kill is in its state directory."""
    assert watch["acted"]
    action = watch["dry"][0]
    assert (action["outcome"], action["path"]) == ("dry-run", POD)
    assert watch["after_dry"]


def test_reload(watch: dict[str, Any]) -> None:
    """Its configuration is read again."""
    assert watch["reload"] == ""
    assert watch["reloaded"] == "memqos: the configuration was read again\n"


def test_with_the_drop_in_it_kills(watch: dict[str, Any]) -> None:
    """The pod dies, and what it was is known."""
    assert watch["restart"] == ""
    assert watch["killed"]
    action = watch["kill"][-1]
    assert (action["outcome"], action["error"], action["path"]) == ("killed", None, POD)
    assert len(action["processes"]) == 1
    assert "memtool anon" in action["processes"][0]
    assert not watch["after_kill"]
    assert int(watch["kill_process"]["capabilities"], 16) == 0


def test_the_watchdog(watch: dict[str, Any]) -> None:
    """One that works is let work for longer than it has; one that hangs is started again."""
    assert watch["worked"]["NRestarts"] == "0"
    assert watch["noticed"]
    assert watch["again"]["ActiveState"] == "active"


def test_it_stops(watch: dict[str, Any]) -> None:
    """At once, and well."""
    assert watch["stop"] == ""
    assert watch["stop_seconds"] < 10
    found = watch["stopped"]
    assert (found["ActiveState"], found["Result"]) == ("inactive", "success")
    assert found["ExecMainStatus"] == "0"


def test_it_has_nothing_to_complain_of(watch: dict[str, Any]) -> None:
    """Apart from late ticks, and what it says on purpose."""
    told = re.compile(
        r"memqos: (serving metrics on 127\.0\.0\.1:9810"
        r"|the layout is systemd now; it was cgroupfs"
        r"|the configuration was read again"
        r"|a cycle was late and [0-9]+ ticks were missed)"
    )
    assert [line for line in watch["log"].splitlines() if not told.fullmatch(line)] == []
