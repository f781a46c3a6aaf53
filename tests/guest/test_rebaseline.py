"""The problem and its repair on a real kernel: a reboot moves the image to another NUMA node."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from tests.support.guest import Guest
from tests.support.program import validator


SCRIPT = Path(__file__).parent / "scripts" / "memory_manager.py"

# The kernel chooses its place at random, each of two nodes about as often: so many boots in a row
# on one node come once in 4000.
MOST_BOOTS = 13


@frozen
class Reboot:
    """Two boots of one machine, with the image on different nodes: what the script answered."""

    first: dict[str, Any]
    later: dict[str, Any]


@pytest.fixture(scope="module")
def reboot(guest: Guest) -> Reboot:
    """Record a checkpoint in one boot, and boot until the image is on the other node."""
    first: dict[str, Any] = {}
    for boots in range(1, MOST_BOOTS + 1):
        if not first:
            answer = boot(guest, "record", {})
            first = answer if answer["image"]["node"] else {}
            continue
        home = first["image"]["node"]
        files = {"checkpoint": first["checkpoint"].encode(), "node": home.encode()}
        later = boot(guest, "drift", files)
        if later["image"]["node"] not in ("", home):
            tell(first, later, boots)
            return Reboot(first, later)
    pytest.fail(f"the kernel image stayed on one NUMA node for {MOST_BOOTS} boots")


def boot(guest: Guest, command: str, files: dict[str, bytes]) -> dict[str, Any]:
    """Boot and run the script."""
    result = guest.run(SCRIPT, command, files=files)
    assert result.status == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.files["answer"])
    return answer


def tell(first: dict[str, Any], later: dict[str, Any], boots: int) -> None:
    """Print the figures, which pytest shows with -s."""
    for name, answer in (("recorded", first), (f"boot {boots}", later)):
        image = answer["image"]
        totals = ", ".join(f"node {node} {size}" for node, size in answer["totals"].items())
        place = f"image at {image['start']}-{image['end']} on node {image['node']}"
        sys.stdout.write(f"\n{name}: MemTotal {totals} bytes; {place}")
    sys.stdout.write("\n")
    for name in ("exact", "tolerant", "refused", "rebaselined", "after"):
        document = later[name]["document"]
        picked = {
            key: document[key]
            for key in ("verdict", "reason", "toleranceBytes", "kernelImageBytes", "driftPerNode")
        }
        sys.stdout.write(f"{name}: exit {later[name]['code']}, {json.dumps(picked)}\n")


def document(answer: dict[str, Any], code: int) -> dict[str, Any]:
    """Return the document of a command that exited with `code`."""
    assert answer["code"] == code, answer["stderr"]
    found: dict[str, Any] = answer["document"]
    validator(found["kind"]).validate(found)
    return found


def moved(reboot: Reboot) -> dict[str, int]:
    """Work out each node's drift from /sys alone."""
    before, now = reboot.first["totals"], reboot.later["totals"]
    return {node: now[node] - before[node] for node in before}


def test_same_boot_is_exact(reboot: Reboot) -> None:
    """On the boot that recorded it, the checkpoint passes exact comparison."""
    assert document(reboot.first["exact"], 0)["verdict"] == "exact"


def test_the_image_took_its_memory_along(reboot: Reboot) -> None:
    """One node gained about the image's size and the other lost it."""
    image = document(reboot.later["exact"], 1)["kernelImageBytes"]
    gained, lost = reboot.first["image"]["node"], reboot.later["image"]["node"]
    assert image / 2 < moved(reboot)[gained] < image * 2
    assert image / 2 < -moved(reboot)[lost] < image * 2


def test_exact_comparison_rejects(reboot: Reboot) -> None:
    """As kubelet is configured, it does not start: the totals differ."""
    found = document(reboot.later["exact"], 1)
    assert (found["verdict"], found["reason"]) == ("rejected", "total_differs")
    assert found["checkpoint"]["format"] == "v3"
    assert found["driftPerNode"] == moved(reboot)


def test_auto_tolerates(reboot: Reboot) -> None:
    """With the tolerance of the image's size and 64 MiB it starts."""
    found = document(reboot.later["tolerant"], 0)
    assert found["verdict"] == "tolerated"
    assert found["toleranceBytes"] == found["kernelImageBytes"] + (64 << 20)
    assert max(map(abs, moved(reboot).values())) <= found["toleranceBytes"]


def test_shows_first(reboot: Reboot) -> None:
    """Without --write it says what would change; the next test's file is still the old one."""
    found = document(reboot.later["shown"], 0)
    assert (found["verdict"], found["written"]) == ("tolerated", False)


def test_refuses_beside_a_kubelet(reboot: Reboot) -> None:
    """While a process named kubelet runs, nothing is written."""
    answer = reboot.later["refused"]
    assert document(answer, 1)["written"] is False
    assert answer["checkpoint"] == reboot.first["checkpoint"]


def test_rebaselines(reboot: Reboot) -> None:
    """Without one, the file gets this boot's totals and keeps its assignments."""
    assert document(reboot.later["rebaselined"], 0)["written"] is True
    before, now = (json.loads(boot["checkpoint"]) for boot in (reboot.first, reboot.later))
    assert now["entries"] == before["entries"] != {}
    for node, size in reboot.later["totals"].items():
        table = now["machineState"][node]["memoryMap"]["memory"]
        assert table["total"] == size
        assert table["reserved"] == (256 << 20 if node == "0" else 128 << 20)
    assert json.loads(now["data"])["machineState"] == now["machineState"]


def test_then_exact_comparison_accepts(reboot: Reboot) -> None:
    """A kubelet without any tolerance starts with the re-baselined file."""
    found = document(reboot.later["after"], 0)
    assert (found["verdict"], found["checkpoint"]["format"]) == ("exact", "v3")
