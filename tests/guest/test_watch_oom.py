"""watch-oom on a real kernel: nodes of each layout that starve, and who is killed."""

import json
import re
import sys
from itertools import pairwise
from typing import Any

import pytest

from tests.support.guest import Guest
from tests.support.watchers import run_watchers


LAYOUTS = ("talos", "cgroupfs", "systemd")
SCENARIOS = ("alarms", "fallbacks", "unending", "mechanics", *LAYOUTS)
MOUNT = "/sys/fs/cgroup/"
MIB = 1 << 20
# Of the pod that is protected, as in the script.
SAFE_MIB = 450
PODRUNTIME, SYSTEM = "3", "4"


@pytest.fixture(scope="module")
def answer(watcher_guest: Guest) -> dict[str, Any]:
    """Boot once and go through the scenarios."""
    found = run_watchers(watcher_guest, "watch_oom.py", *SCENARIOS, timeout=900)
    sys.stdout.write(f"\nguest: {found['told']}")
    return found


def starved(action: dict[str, Any]) -> bool:
    """Work Talos' default trigger out by hand, from the values that the action was taken on."""
    values = json.loads(action["triggerContext"])
    total, average = values["d_qos_memory_full_total"], values["qos_memory_full_avg10"]
    return bool(
        8 * total[SYSTEM] + 4 * total[PODRUNTIME] > 3000
        and average[SYSTEM] + average[PODRUNTIME] > 5
    )


def alone_dead(populated: dict[str, bool], *dead: str) -> bool:
    """Tell whether just these cgroups have no processes."""
    return populated == {path: path not in dead for path in populated}


def test_the_kernel_did_not_do_it(answer: dict[str, Any]) -> None:
    """Whoever died was killed by memqos: the kernel still found memory to reclaim."""
    assert answer["oom_kills"] == 0


def test_the_kernel_keeps_watch(answer: dict[str, Any]) -> None:
    """It tells soon when anybody waits; once others do, when those wait who decide, or go away."""
    found = answer["alarms"]
    assert found["quiet"] is None
    assert found["anybody"] is not None
    assert found["still"]
    assert found["others"] is None
    assert found["deciding"] is not None
    assert found["over"]
    assert found["gone"] is not None


def test_dry_run_kills_nobody(answer: dict[str, Any]) -> None:
    """Under the default trigger a dry run says whom it would kill, and all live on."""
    found = answer["talos"]
    assert found["dry_ready"]
    assert found["fired"]
    action = found["dry"]["actions"][0]
    assert starved(action)
    assert (action["outcome"], action["class"]) == ("dry-run", "Besteffort")
    assert action["path"] == MOUNT + found["hog"]
    assert action["processes"] == []
    line = f"trigger fired: would kill {MOUNT}{found['hog']} (score {action['score']:g})\n"
    assert found["dry"]["out"].startswith(line)
    assert all(found["after_dry"].values())


def test_sigterm_under_pressure(answer: dict[str, Any]) -> None:
    """While the node starves, SIGTERM ends it well and soon."""
    found = answer["talos"]
    assert found["available_mib"] < 100
    assert found["dry"]["code"] == 0
    assert found["dry"]["seconds"] < 20


def test_protects_itself(answer: dict[str, Any]) -> None:
    """With --kill its pages are locked and its score is low; a dry run leaves both alone."""
    found = answer["talos"]
    assert found["protection"]["locked_kib"] > 0
    assert found["protection"]["score"] == -900
    assert found["dry_protection"] == {"locked_kib": 0, "score": 0}
    assert "cannot protect" not in found["kill"]["err"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_hog_dies_whole(answer: dict[str, Any], layout: str) -> None:
    """Under the default trigger every process of the hog's containers goes, and no other."""
    found = answer[layout]
    hog = found["hog"]
    assert found["ready"]
    assert found["killed"]
    action = found["kill"]["actions"][0]
    assert starved(action)
    assert (action["outcome"], action["error"]) == ("killed", None)
    assert action["path"] == MOUNT + hog
    assert sorted(action["processes"]) == found["expected"]
    assert alone_dead(found["after_kill"], hog)
    assert found["kill"]["out"].startswith(
        f"trigger fired: killed {MOUNT}{hog} (score {action['score']:g}), "
        f"{len(found['expected'])} processes gone\n"
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_services_recover(answer: dict[str, Any], layout: str) -> None:
    """Before, some waited for the disk; afterwards all have their data in memory again."""
    found = answer[layout]
    assert max(found["slowest"].values()) > 1
    assert found["recovered"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_larger_one_is_protected(answer: dict[str, Any], layout: str) -> None:
    """By the default ranking it would have been the hog's turn second."""
    action = answer[layout]["kill"]["actions"][0]
    assert action["path"] == MOUNT + answer[layout]["hog"]
    assert 0 < action["score"] < SAFE_MIB * MIB


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_second_kill(answer: dict[str, Any], layout: str) -> None:
    """Beyond the default trigger's cool-down, too; SIGTERM ends it."""
    found = answer[layout]["kill"]
    assert len(found["actions"]) == 1
    assert 'memqos_oom_actions_total{outcome="killed"} 1\n' in found["metrics"]
    assert found["code"] == 0


def test_a_protected_pod_survives(answer: dict[str, Any]) -> None:
    """The largest pod is protected: the others go by size, then nobody is left to choose."""
    found = answer["mechanics"]
    large, middle, small = found["paths"]
    assert all(found["before"].values())
    assert found["acted"]
    actions = found["kill"]["actions"][:3]
    assert [(action["outcome"], action["path"]) for action in actions] == [
        ("killed", MOUNT + middle),
        ("killed", MOUNT + small),
        ("none", None),
    ]
    assert found["after"] == {large: True, middle: False, small: False}
    assert 80 * MIB < actions[0]["score"] < 100 * MIB
    assert 70 * MIB < actions[1]["score"] < 90 * MIB


def test_cool_down(answer: dict[str, Any]) -> None:
    """The condition holds all along, and 4 s pass between one action and the next."""
    times = [action["time"] for action in answer["mechanics"]["kill"]["actions"]]
    # An action is dated before its kill, and the time counts from the kill's end.
    assert all(later - before > 3.9 for before, later in pairwise(times))


def test_hooks(answer: dict[str, Any]) -> None:
    """The hook is told of each kill, and signals reach it."""
    found = answer["mechanics"]
    assert found["hook"].splitlines() == [f"killed {MOUNT}{path}" for path in found["paths"][1:]]
    blocked = re.search(r"^SigBlk:\s+([0-9a-f]+)$", found["hook_state"], re.MULTILINE)
    assert blocked
    assert int(blocked[1], 16) == 0


def test_hooks_are_not_protected(answer: dict[str, Any]) -> None:
    """One that eats memory must not outlive the node: its score is not ours."""
    assert answer["mechanics"]["hook_state"].splitlines()[-1] == "0"


def test_own_cgroup_is_protected(answer: dict[str, Any]) -> None:
    """Alone in a cgroup it keeps from reclaim what it holds and 64 MiB, and gives that back."""
    found = answer["mechanics"]
    assert abs(found["memory_min"] - 64 * MIB - found["rss_kib"] * 1024) < 8 * MIB
    assert found["memory_min_afterwards"] == 0


def test_kill_by_signals(answer: dict[str, Any]) -> None:
    """Without cgroup.kill, one that forks all the time is frozen and dies whole."""
    found = answer["fallbacks"]["signals"]
    assert (found["method"], found["outcome"], found["error"]) == ("signals", "killed", None)
    assert found["populated"] is False
    assert set(found["processes"]) >= {"sleep 1000"}


def test_more_processes_than_descriptors(answer: dict[str, Any]) -> None:
    """A process that may open 64 files kills 81 others."""
    found = answer["fallbacks"]["many"]
    assert (found["method"], found["outcome"], found["error"]) == ("cgroup.kill", "killed", None)
    assert len(found["processes"]) == 81
    assert found["populated"] is False


def test_one_that_stays(answer: dict[str, Any]) -> None:
    """Where the kill does not reach the kernel, the report does not claim a kill."""
    found = answer["fallbacks"]["stuck"]
    assert (found["outcome"], found["left"], found["processes"]) == ("failed", 1, [])
    assert found["populated"] is True


def test_one_that_cannot_end(answer: dict[str, Any]) -> None:
    """Its memory is free at once (process_mrelease), though it stays; it is not called killed."""
    released, left = answer["unending"]["released"], answer["unending"]["left"]
    assert released["held_mib"] < 16
    assert left["held_mib"] > 96
    for found in (released, left):
        assert found["report"]["outcome"] == "failed"
        assert found["report"]["error"] == "still there: 1 of 1 processes"
