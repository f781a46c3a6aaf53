"""A watcher that acts: on whom, on what it has seen, and when the next time may be."""

import time
from pathlib import Path

import pytest

from memqos.adapters import kill, watch
from memqos.adapters.watch import Observation, Watcher
from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.guards import Guards
from memqos.oom.layout import LAYOUTS
from memqos.oom.victim import MOUNT


PODS = "kubepods/besteffort"
LARGE, SMALL = f"{PODS}/podlarge", f"{PODS}/podsmall"


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree with two pods, of which nobody is really killed."""
    for path, size in ((LARGE, 9), (SMALL, 5)):
        folder = tmp_path / path
        folder.mkdir(parents=True)
        (folder / "memory.current").write_text(f"{size}\n")
        (folder / "memory.max").write_text("max\n")
        (folder / "cgroup.events").write_text("populated 1\n")
    report = kill.KillReport(outcome=kill.KillOutcome.KILLED)
    monkeypatch.setattr(watch, "kill_cgroup", lambda _target: report)
    return tmp_path


def watcher(mount: Path, trigger: str = "true") -> Watcher:
    """Make one that kills."""
    config = check_documents([], trigger=trigger)
    assert isinstance(config, OOMConfig)
    return Watcher(mount=str(mount), layout=LAYOUTS["talos"], config=config, kill=True)


def acted(seen: Observation) -> tuple[str, str]:
    """Return what was done to whom."""
    assert seen.action is not None
    return seen.action.outcome, (seen.action.path or "").removeprefix(f"{MOUNT}/")


@pytest.mark.parametrize("really", [True, False])
def test_not_itself(really: bool, mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it runs in the largest pod itself, the next one goes; a dry run says the same."""
    monkeypatch.setattr(kill, "cgroup_of", lambda *_: f"/{LARGE}/container")
    found = watcher(mount)
    found.kill = really
    assert acted(found.observe()) == ("killed" if really else "dry-run", SMALL)
    (mount / SMALL / "memory.max").write_text("1000\n")
    assert acted(found.observe()) == ("none", "")


def test_another_one_by_now(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What took the victim's name after its figures were read was not chosen."""
    identify = kill.identify_target

    def late(*arguments: object) -> kill.KillTarget:
        (mount / LARGE).rename(mount / "elsewhere")
        (mount / LARGE).mkdir()
        return identify(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(watch, "identify_target", late)
    seen = watcher(mount).observe()
    assert acted(seen) == ("refused", LARGE)
    assert seen.action is not None
    assert "another cgroup by now" in (seen.action.error or "")


def test_the_cool_down_begins_after_the_kill(mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Talos: what the kill and its hooks took does not count."""
    now = 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)

    def hook(*_: str) -> None:
        nonlocal now
        now += 10 * 10**9

    found = watcher(mount, 'time_since_trigger > duration("5s")')
    found.after = hook
    assert acted(found.observe()) == ("killed", LARGE)
    for seconds, fires in ((0, False), (5, False), (1, True)):
        now += seconds * 10**9
        assert (found.observe().action is not None) is fires


@pytest.mark.parametrize(
    ("guards", "chosen"),
    [
        (Guards(skip_unpopulated=True), ("dry-run", SMALL)),
        (Guards(skip_unknown_limit=True), ("dry-run", SMALL)),
        (Guards(protected=("large",)), ("dry-run", SMALL)),
        (Guards(), ("dry-run", LARGE)),
    ],
)
def test_guards(guards: Guards, chosen: tuple[str, str], mount: Path) -> None:
    """Each holds the largest back."""
    if guards.skip_unpopulated:
        (mount / LARGE / "cgroup.events").write_text("populated 0\n")
    if guards.skip_unknown_limit:
        (mount / LARGE / "memory.max").unlink()
    found = watcher(mount)
    found.kill, found.guards = False, guards
    assert acted(found.observe()) == chosen


@pytest.mark.parametrize("xattrs", [True, False])
def test_attributes(xattrs: bool, mount: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count where that was asked for."""

    def read(folder: str, path: str) -> tuple[str, ...]:
        assert folder == str(mount)
        return ("user.oomd_omit",) if path == LARGE else ()

    monkeypatch.setattr(watch, "read_attributes", read)
    found = watcher(mount)
    found.kill, found.xattrs = False, xattrs
    assert acted(found.observe()) == ("dry-run", SMALL if xattrs else LARGE)


def test_memory_of_what_is_gone(tmp_path: Path) -> None:
    """Of thousands of pods that came and went no more is kept than of those that are there."""
    found = watcher(tmp_path, "false")
    for number in range(3):
        for pod in range(900):
            (tmp_path / f"kubepods/pod{number}-{pod}").mkdir(parents=True)
        found.observe()
        for pod in range(900):
            (tmp_path / f"kubepods/pod{number}-{pod}").rmdir()
    assert len(found._state.previous) < 1_000
