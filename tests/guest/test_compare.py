"""watch-oom beside nohang and earlyoom under the same hog; a benchmark measures them.

systemd-oomd is left to that, as it takes minutes to do nothing.
"""

import sys
from typing import Any

import pytest

from tests.support.guest import Guest
from tests.support.watchers import run_watchers


MEMQOS, OTHERS = "memqos watch-oom", ("nohang", "earlyoom")
REST_SECONDS, LONGEST_SECONDS, ATTEMPTS = 1, 60, 3


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
