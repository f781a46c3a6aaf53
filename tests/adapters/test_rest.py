"""A watcher at rest: what it reads, and what it notices, while nobody waits for memory."""

import errno
import os
import re
import time
from itertools import accumulate
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from memqos.adapters import pressure_watch
from memqos.adapters.pressure_watch import PressureWatch
from memqos.adapters.watch import Watcher
from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.handler import Outcome
from memqos.oom.layout import LAYOUTS


STILL = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
)


def watch(mount: Path, trigger: str | None = None) -> Watcher:
    """Make a watcher of Talos' layout."""
    config = check_documents([], trigger=trigger)
    assert isinstance(config, OOMConfig)
    return Watcher(mount=str(mount), layout=LAYOUTS["talos"], config=config)


@pytest.fixture
def stalled_pods(tmp_path: Path) -> Path:
    """Return a tree in which pods wait, and nobody else."""
    for path in ("", "system", "kubepods", "kubepods/pod1"):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "memory.pressure").write_text(STILL)
    return tmp_path


def stall(mount: Path, *paths: str, total: int = 8) -> None:
    """Let somebody in a cgroup wait, which shows in all above it."""
    for path in paths:
        (mount / path / "memory.pressure").write_text(re.sub("total=.", f"total={total}", STILL))


def test_others_wait(stalled_pods: Path) -> None:
    """The default trigger does not ask for pods; it is read whether any of system waits."""
    watcher = watch(stalled_pods)
    first = watcher.observe()
    (stalled_pods / "kubepods/pod1/memory.pressure").write_text("some avg10=0.00\n")
    for total in (8, 9, 10):
        stall(stalled_pods, "", "kubepods", total=total)
        assert watcher.observe() is first
    stall(stalled_pods, "", "system", total=11)
    assert watcher.observe().cycle.outcome is Outcome.COLLECT_ERROR


@pytest.mark.parametrize(
    "trigger",
    [
        "qos_memory_full_avg10[Guaranteed] > 1.0",
        "qos_memory_full_avg10.exists(c, qos_memory_full_avg10[c] > 1.0)",
        "memory_full_avg10 > 1.0",
        "qos_memory_full_avg10[System] > 1.0 && d_memory_some_total > 1.0",
    ],
)
def test_whom_the_trigger_asks_for(trigger: str, stalled_pods: Path) -> None:
    """Pods, all, or the node."""
    watcher = watch(stalled_pods, trigger)
    watcher.observe()
    (stalled_pods / "kubepods/pod1/memory.pressure").write_text("some avg10=0.00\n")
    stall(stalled_pods, "", "kubepods")
    assert watcher.observe().cycle.outcome is Outcome.COLLECT_ERROR


def test_system_does_not_say(stalled_pods: Path) -> None:
    """Its pressure may be turned off (cgroup.pressure) while that of its members is not."""
    (stalled_pods / "system/memory.pressure").unlink()
    watcher = watch(stalled_pods)
    watcher.observe()
    (stalled_pods / "kubepods/pod1/memory.pressure").write_text("some avg10=0.00\n")
    stall(stalled_pods, "")
    assert watcher.observe().cycle.outcome is Outcome.COLLECT_ERROR


@pytest.mark.parametrize("path", ["podruntime", "system.slice"])
def test_what_appears(path: str, stalled_pods: Path) -> None:
    """A cgroup of the layout, or another layout, by the time that anybody waits."""
    watcher = watch(stalled_pods)
    watcher.follow_layout = path == "system.slice"
    first = watcher.observe()
    (stalled_pods / path / "x").mkdir(parents=True)
    stall(stalled_pods, path, f"{path}/x")
    assert watcher.observe() is first
    stall(stalled_pods, "", total=9)
    seen = watcher.observe()
    assert seen is not first
    assert seen.cycle.values["d_qos_memory_some_total"][3 if path == "podruntime" else 4] == (
        16.0 if path == "podruntime" else 0.0  # of another layout it is not known since when
    )


@pytest.mark.parametrize("trigger", [None, "qos_memory_some_avg10[Burstable] > 5.0"])
def test_kubelet_comes_during_a_rest(trigger: str | None, tmp_path: Path) -> None:
    """A node of systemd is taken for one of cgroupfs until kubelet has made its cgroups."""
    for path in ("", "system.slice", "init.scope"):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "memory.pressure").write_text(STILL)
    watcher = watch(tmp_path, trigger)
    watcher.layout, watcher.follow_layout = LAYOUTS["cgroupfs"], True
    watcher.observe()
    burstable = "kubepods.slice/kubepods-burstable.slice"
    (tmp_path / burstable).mkdir(parents=True)
    (tmp_path / burstable / "memory.pressure").write_text(STILL.replace("=0.00", "=9.00"))
    stall(tmp_path, "", "kubepods.slice")
    fired = watcher.observe().cycle.outcome is Outcome.FIRE
    assert (watcher.layout.name, fired) == (
        ("cgroupfs", False) if trigger is None else ("systemd", True)
    )


def test_the_root_is_not_read_in_vain(stalled_pods: Path) -> None:
    """Where it has moved, it is looked at again at every fourth cycle."""
    watcher = watch(stalled_pods)
    first = watcher.observe()
    stall(stalled_pods, "", "kubepods", total=8)
    assert watcher.observe() is first
    (stalled_pods / "memory.pressure").write_text("garbage\n")
    assert [watcher.observe() is first for _ in range(4)] == [True, True, True, False]


def test_only_averages_move(stalled_pods: Path) -> None:
    """Those that nobody asks for come down for minutes: no more than the root's file is read."""
    watcher = watch(stalled_pods)
    first = watcher.observe()
    stall(stalled_pods, "system")  # as it cannot be, to see whether it is read
    for average in (3, 2, 1):
        text = STILL.replace("avg300=0.00", f"avg300={average}.00")
        (stalled_pods / "memory.pressure").write_text(text)
        assert watcher.observe() is first
    stall(stalled_pods, "")
    assert watcher.observe() is not first


def test_others_in_place(stalled_pods: Path) -> None:
    """Files that stand in place of those that are kept open are read after 20 cycles."""
    watcher = watch(stalled_pods)
    first = watcher.observe()
    for path in ("memory.pressure", "system/memory.pressure"):
        text = re.sub("total=.", "total=9", STILL)
        (stalled_pods / "new").write_text(text)
        (stalled_pods / "new").rename(stalled_pods / path)
    seen = [watcher.observe() for _ in range(21)]
    assert seen[:20] == [first] * 20
    assert seen[20].cycle.values["d_qos_memory_full_total"][4] == 8.0


def test_descriptors_are_given_back(stalled_pods: Path) -> None:
    """Once a watcher is gone, as it is where a library's user has made another."""
    own = Path("/proc/self/fd")
    before = [*own.iterdir()]
    watcher = watch(stalled_pods)
    watcher.observe()
    assert len([*own.iterdir()]) > len(before)
    del watcher
    assert [*own.iterdir()] == before


def test_rates_after_others_waited(stalled_pods: Path) -> None:
    """What moved unseen has no rate; what is known to have been still has one."""
    watcher = watch(stalled_pods)
    watcher.observe()
    stall(stalled_pods, "", "kubepods", "kubepods/pod1", total=10**6)
    watcher.observe()
    stall(stalled_pods, "", "system", total=2 * 10**6 + 5)
    values = watcher.observe().cycle.values
    assert values["d_qos_memory_full_total"] == {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0, 4: 4 * 10.0**6}
    assert values["d_memory_full_total"] == 0.0
    stall(stalled_pods, "", "kubepods/pod1", total=2 * 10**6 + 8)
    values = watcher.observe().cycle.values
    assert values["d_qos_memory_full_total"][2] == 2.0 * (10**6 + 8)
    assert values["d_memory_full_total"] == 6.0


def test_rest(tmp_path: Path) -> None:
    """A file that would fail a cycle is not noticed before somebody waits."""
    root = tmp_path / "memory.pressure"
    root.write_text(STILL)
    (tmp_path / "system").mkdir()
    watcher = watch(tmp_path)
    assert watcher.observe().cycle.outcome is Outcome.NO_FIRE
    (tmp_path / "system/memory.pressure").write_text("some avg10=0.00\n")
    assert watcher.observe().cycle.outcome is Outcome.NO_FIRE
    root.write_text(STILL.replace("total=7", "total=8"))
    assert watcher.observe().cycle.outcome is Outcome.COLLECT_ERROR
    (tmp_path / "system/memory.pressure").write_text(STILL)
    assert watcher.observe().cycle.outcome is Outcome.NO_FIRE


@pytest.mark.parametrize(
    ("span", "is_noticed"), [("total", True), ("avg10", True), ("avg60", False)]
)
def test_what_is_asked_for(span: str, is_noticed: bool, tmp_path: Path) -> None:
    """Of totals and avg10, by the default trigger; avg300 falls for minutes after a stall."""
    root = tmp_path / "memory.pressure"
    root.write_text(STILL.replace("avg300=0.00", "avg300=3.00"))
    (tmp_path / "system").mkdir()
    watcher = watch(tmp_path)
    watcher.observe()
    (tmp_path / "system/memory.pressure").write_text("some avg10=0.00\n")
    for value in (2, 1):
        root.write_text(STILL.replace("avg300=0.00", f"avg300={value}.00"))
        assert watcher.observe().cycle.outcome is Outcome.NO_FIRE
    root.write_text(re.sub(rf"{span}=\S+", f"{span}=9.99", root.read_text()))
    outcome = watcher.observe().cycle.outcome
    assert (outcome is Outcome.COLLECT_ERROR) is is_noticed


def test_another_file(tmp_path: Path) -> None:
    """One that stands in place of the root's pressure is read after 20 cycles."""
    (tmp_path / "memory.pressure").write_text(STILL)
    watcher = watch(tmp_path)
    watcher.observe()
    watcher.observe()
    (tmp_path / "new").write_text("some avg10=0.00\n")
    (tmp_path / "new").rename(tmp_path / "memory.pressure")
    outcomes = [watcher.observe().cycle.outcome for _ in range(20)]
    assert outcomes == [Outcome.NO_FIRE] * 19 + [Outcome.COLLECT_ERROR]


def test_garbled_pressure_is_no_rest(tmp_path: Path) -> None:
    """It counts as 0, but it does not say that nobody waits."""
    (tmp_path / "memory.pressure").write_text("garbage\n")
    watcher = watch(tmp_path)
    watcher.observe()
    (tmp_path / "system").mkdir()
    (tmp_path / "system/memory.pressure").write_text("some avg10=0.00\n")
    assert watcher.observe().cycle.outcome is Outcome.COLLECT_ERROR


def test_another_layout_has_no_past(tmp_path: Path) -> None:
    """Its cgroups are new to the watcher, but what they waited may be long ago."""
    (tmp_path / "memory.pressure").write_text(STILL)
    (tmp_path / "system.slice/x.service").mkdir(parents=True)
    (tmp_path / "podruntime").mkdir()
    watcher = watch(tmp_path)
    watcher.follow_layout = True
    watcher.observe()
    watcher.observe()
    (tmp_path / "system.slice/x.service/memory.pressure").write_text(STILL)
    (tmp_path / "podruntime").rmdir()
    (tmp_path / "memory.pressure").write_text(STILL.replace("total=7", "total=8"))
    values = watcher.observe().cycle.values
    assert watcher.layout.name == "cgroupfs"
    assert values["qos_memory_full_total"][4] == 5.0
    assert values["d_qos_memory_full_total"][4] == 0.0


@pytest.mark.parametrize("change", ["record", "trigger", "config", "gone"])
def test_no_rest(change: str, tmp_path: Path) -> None:
    """A recording is whole; usage moves by itself; another configuration; no such file."""
    (tmp_path / "memory.pressure").write_text(STILL)
    (tmp_path / "system").mkdir()
    trigger = "qos_memory_current[System] > 1e12" if change == "trigger" else None
    watcher = watch(tmp_path, trigger)
    watcher.record = change == "record"
    watcher.observe()
    if change == "config":
        watcher.config = watch(tmp_path).config
    if change == "gone":
        (tmp_path / "memory.pressure").rename(tmp_path / "elsewhere")
        watcher._pressure._forget()
    (tmp_path / "system/memory.pressure").write_text("some avg10=0.00\n")
    assert watcher.observe().cycle.outcome is Outcome.COLLECT_ERROR


@pytest.mark.parametrize("text", [STILL, ""])
def test_a_file_on_a_disk_gives_no_alarm(
    text: str, stalled_pods: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no file of the kernel's is not written to, though it took the place of one."""
    monkeypatch.setattr(pressure_watch, "_SAFE", (0, 0))
    watcher = watch(stalled_pods)
    watcher.kill = True
    watcher.observe()
    (stalled_pods / "new").write_text(text)
    (stalled_pods / "new").rename(stalled_pods / "memory.pressure")
    for _ in range(3):
        watcher.observe()
        assert watcher.alarms() is None
    assert (stalled_pods / "memory.pressure").read_text() == text


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each file give an alarm, as the kernel's do."""

    def set_alarm(self: PressureWatch, path: str) -> bool:
        self._alarms[path] = os.open(os.devnull, os.O_RDONLY)
        return True

    monkeypatch.setattr(PressureWatch, "_set_alarm", set_alarm)


def watched_by_the_kernel(watcher: Watcher) -> set[str] | None:
    """Return the cgroups that give an alarm, None if there are to be cycles."""
    return None if watcher.alarms() is None else set(watcher._pressure._alarms)


@pytest.mark.usefixtures("told")
def test_who_gives_the_alarm(stalled_pods: Path) -> None:
    """Anybody who waits; while others do, those of whom the trigger asks."""
    watcher = watch(stalled_pods)
    watcher.kill = True
    watcher.observe()
    assert watched_by_the_kernel(watcher) is None  # there may have been a wait since
    watcher.observe()
    assert watched_by_the_kernel(watcher) == {"", "system"}
    stall(stalled_pods, "", "kubepods")
    for _ in range(4):
        watcher.observe()
        assert watched_by_the_kernel(watcher) == {"system"}
    watcher.observe()
    assert watched_by_the_kernel(watcher) == {"", "system"}
    alarms = list(watcher._pressure._alarms.values())
    stall(stalled_pods, "", "system", total=9)
    watcher.observe()
    assert list(watcher._pressure._alarms.values()) == alarms  # first comes the cycle
    assert watched_by_the_kernel(watcher) is None
    assert not watcher._pressure._alarms


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EMFILE, errno.EROFS, errno.EOPNOTSUPP])
def test_an_alarm_that_cannot_be_had(
    error: int, stalled_pods: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again when files are opened anew, and nothing is left open."""
    monkeypatch.setattr(pressure_watch, "_SAFE", (0, 0))
    tried = []

    def refuse(path: str, flags: int) -> int:
        if flags & os.O_RDWR:
            tried.append(path)
            raise OSError(error, os.strerror(error))
        return opened(path, flags)

    opened = os.open
    watcher = watch(stalled_pods)
    watcher.kill = True
    watcher.observe()
    monkeypatch.setattr(os, "open", refuse)
    for _ in range(25):
        watcher.observe()
        assert watcher.alarms() is None
    assert len(tried) == 2
    assert not watcher._pressure._alarms


def test_a_kernel_that_might_crash(stalled_pods: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 6.5 it is not asked."""
    release = SimpleNamespace(release="6.4.16-200.fc38.x86_64")
    monkeypatch.setattr(os, "uname", lambda: release)
    monkeypatch.setattr(os, "write", lambda *_: pytest.fail("written to"))
    (stalled_pods / "memory.pressure").chmod(0o400)
    watcher = watch(stalled_pods)
    watcher.kill = True
    watcher.observe()
    watcher.observe()
    assert watcher.alarms() is None


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    "trigger",
    [
        "d_qos_memory_full_total[System] > 3000.0",
        'memory_full_avg10 < 5.0 && time_since_trigger > duration("1h")',
    ],
)
def test_totals_and_time_need_each_cycle(trigger: str, stalled_pods: Path) -> None:
    """A wait too short for an alarm, or none, may be enough for them."""
    watcher = watch(stalled_pods, trigger)
    watcher.kill = True
    for _ in range(3):
        watcher.observe()
        assert watcher.alarms() is None


@pytest.mark.usefixtures("told")
def test_a_dry_run_needs_each_cycle(stalled_pods: Path) -> None:
    """An alarm is asked for by a write."""
    watcher = watch(stalled_pods)
    watcher.observe()
    watcher.observe()
    assert watcher.alarms() is None
    watcher.kill = True
    assert watcher.alarms() is not None


def test_a_wait_before_the_alarms(stalled_pods: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of none that began, and ended, before it was asked to."""

    def set_alarm(self: PressureWatch, path: str) -> bool:
        stall(stalled_pods, "", "system")
        self._alarms[path] = os.open(os.devnull, os.O_RDONLY)
        return True

    monkeypatch.setattr(PressureWatch, "_set_alarm", set_alarm)
    watcher = watch(stalled_pods)
    watcher.kill = True
    watcher.observe()
    first = watcher.observe()
    assert watcher.alarms() is None
    assert watcher.observe() is not first


@pytest.mark.usefixtures("told")
def test_another_configuration_needs_a_cycle(stalled_pods: Path) -> None:
    """However quiet it was for the one before."""
    watcher = watch(stalled_pods)
    watcher.kill = True
    watcher.observe()
    watcher.observe()
    assert watcher.alarms() is not None
    watcher.config = watch(stalled_pods, "memory_full_avg10 > 5.0").config
    assert watcher.alarms() is None


LEAVES = ("system", "podruntime", "kubepods/pod1", "kubepods/besteffort/pod2")
TRIGGERS = (
    None,
    "d_qos_memory_full_total[System] > 1000.0 || qos_memory_some_avg10[Podruntime] > 9.0",
    "memory_some_avg10 > 5.0 && qos_memory_full_avg60[Guaranteed] < 1.0",
    "d_memory_full_total > 1000.0 && qos_memory_some_avg10[Besteffort] > 2.0",
    'd_qos_memory_some_avg10[System] < -0.5 && time_since_trigger > duration("1s")',
)


# Those that need an average to move.
AWAITING = (TRIGGERS[0], TRIGGERS[2], TRIGGERS[3])


def above(path: str) -> set[str]:
    """Return a cgroup and all above it."""
    return {"", *accumulate(path.split("/"), "{}/{}".format)}


class Pressure:
    """A cgroup's numbers, as the kernel lets them rise and fall."""

    def __init__(self) -> None:
        self.totals = {"some": 0, "full": 0}
        self.averages = {"some": 0.0, "full": 0.0}

    def pass_time(self, waited: dict[str, int]) -> None:
        """Half a second in which its tasks waited so many microseconds."""
        for line, microseconds in waited.items():
            self.totals[line] += microseconds
            self.averages[line] = 0.7 * self.averages[line] + microseconds / 20_000
            if self.averages[line] < 0.005:
                self.averages[line] = 0.0

    def text(self) -> str:
        """Return its file."""
        return "".join(
            f"{line} avg10={average:.2f} avg60={average / 6:.2f} avg300={average / 30:.2f} "
            f"total={self.totals[line]}\n"
            for line, average in self.averages.items()
        )


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("seed", range(2))
def test_as_without_a_rest(
    trigger: str | None, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node that waits now here and now there, it acts when one that never rests acts.

    A third one has the kernel keep watch.
    """
    random = Random(seed)  # noqa: S311  # no secret
    paths = ("", *LEAVES, "kubepods", "kubepods/besteffort", "system/sshd")
    pressures = {path: Pressure() for path in paths}
    for path in paths:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    now = 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    watchers = [watch(tmp_path, trigger) for _ in range(3)]
    watchers[1].record = True
    watchers[2].kill = True  # nobody is there
    told: list[list[bool]] = [[], [], []]
    waiting = ""
    rests = dozed = in_a_row = 0
    for _ in range(300):
        if random.random() < 0.1:
            waiting = random.choice(("", *LEAVES, *LEAVES))
        some = random.randrange(400_000) if waiting else 0
        for path, pressure in pressures.items():
            hit = some if f"{waiting}/".startswith(f"{path}/" if path else "") else 0
            full = hit if path == waiting else hit // random.choice((2, 10**9))
            pressure.pass_time({"some": hit, "full": full})
            (tmp_path / path / "memory.pressure").write_text(pressure.text())
        now += 500_000_000
        for watcher, outcomes in zip(watchers, told, strict=True):
            before = watcher._rest
            if watcher is watchers[2]:
                kept = watched_by_the_kernel(watcher)
                quiet = kept is not None and (not some or kept.isdisjoint(above(waiting)))
                in_a_row = in_a_row + 1 if quiet and in_a_row < 3 else 0
                dozed += in_a_row > 0
                if in_a_row:
                    outcomes.append(False)
                    continue
            seen = watcher.observe()
            rests += before is not None and before.seen is seen
            outcomes.append(seen.cycle.outcome is Outcome.FIRE)
    assert told[0] == told[1] == told[2]
    assert any(told[0])
    assert rests > 10
    assert (dozed > 0) is (trigger in AWAITING)
