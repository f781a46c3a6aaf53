"""watch-oom, nohang, earlyoom and systemd-oomd under the same hog; a benchmark measures them."""

import sys
from typing import Any

import pytest

from tests.support.guest import Guest
from tests.support.watchers import run_watchers


MEMQOS, OTHERS, OOMD = "memqos watch-oom", ("nohang", "earlyoom"), "systemd-oomd"
REST_SECONDS, LONGEST_SECONDS, ATTEMPTS = 1, 60, 3
# systemd-oomd wants 30 s of pressure, unless told otherwise.
OOMD_SECONDS = 20


@pytest.fixture(scope="module")
def answer(watcher_guest: Guest) -> dict[str, Any]:
    """Starve the node once for each."""
    arguments = (str(REST_SECONDS), str(LONGEST_SECONDS), str(ATTEMPTS), MEMQOS, *OTHERS)
    found = run_watchers(watcher_guest, "compare.py", *arguments, timeout=600)
    sys.stdout.write(f"\nguest: {found['told']}")
    return found


@pytest.mark.parametrize("name", [MEMQOS, *OTHERS])
def test_each_helps(answer: dict[str, Any], name: str) -> None:
    """The node has memory again, without the kernel; whoever is no hog lives on."""
    assert answer["oom_kills"] == 0
    assert answer[name]["alive"]
    assert answer[name]["relief_s"] is not None
    assert answer[name]["others_left"]


def test_a_whole_pod_or_a_process(answer: dict[str, Any]) -> None:
    """Only memqos leaves nothing of the pod."""
    left = {name: answer[name]["hog_left"] for name in (MEMQOS, *OTHERS)}
    assert left == {MEMQOS: False, "nohang": True, "earlyoom": True}


def test_oomd_waits(watcher_guest: Guest) -> None:
    """It knows whom it may kill, and does nothing in the time that the others need."""
    arguments = (str(REST_SECONDS), str(OOMD_SECONDS), "1", OOMD)
    found = run_watchers(watcher_guest, "compare.py", *arguments, timeout=300)
    sys.stdout.write(f"\nguest: {found['told']}")
    assert found["oom_kills"] == 0
    assert found[OOMD]["alive"]
    assert found[OOMD]["relief_s"] is None
    assert found[OOMD]["hog_left"]
    assert found[OOMD]["others_left"]
