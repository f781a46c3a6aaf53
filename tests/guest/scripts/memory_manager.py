"""Runs in the guest: a node with a Memory Manager checkpoint, made from its own /sys.

Usage:
    memory_manager.py record    write the checkpoint of this boot; it is the answer
    memory_manager.py drift     after a later boot, with that checkpoint: go through the commands
    memory_manager.py snapshot  validate the checkpoint of this boot, and take a snapshot
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from memqos.memory_manager.state import Block, ContainerAssignments
from tests.guest.scripts.kubelet import CHECKPOINT, DATABASE, KUBELET, MIB, checkpoint


CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
memoryManagerPolicy: Static
systemReserved: {memory: 100Mi}
evictionHard: {memory.available: 100Mi}
reservedMemory:
- {numaNode: 0, limits: {memory: 100Mi}}
- {numaNode: 1, limits: {memory: 100Mi}}
"""
ENTRIES: ContainerAssignments = {
    **DATABASE,
    "5b0c2f0e-0d0f-4f3f-9d1c-6f6b3c1f0a02": {"cache": (Block((1,), "memory", 128 * MIB),)},
}


def memqos(*arguments: str) -> dict[str, Any]:
    """Run memqos as a user does."""
    command = ["memqos", *arguments, "-o", "json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return {"code": done.returncode, "document": json.loads(done.stdout), "stderr": done.stderr}


def facts() -> dict[str, Any]:
    """Read by hand, not with the library: each node's memory, and the image's place.

    Its node is empty where it lies across the border between two.
    """
    nodes = Path("/sys/devices/system/node")
    totals = {
        folder.name[4:]: int((folder / "meminfo").read_text().split()[3]) * 1024
        for folder in sorted(nodes.glob("node[0-9]*"))
    }
    iomem = Path("/proc/iomem").read_text()
    ((start, _),) = re.findall(r"([0-9a-f]+)-([0-9a-f]+) : Kernel code", iomem)
    ((_, end),) = re.findall(r"([0-9a-f]+)-([0-9a-f]+) : Kernel bss", iomem)
    block = int(Path("/sys/devices/system/memory/block_size_bytes").read_text(), 16)
    homes = {
        folder.parent.name[4:]
        for address in (start, end)
        for folder in nodes.glob(f"node[0-9]*/memory{int(address, 16) // block}")
    }
    home = homes.pop() if len(homes) == 1 else ""
    return {"totals": totals, "image": {"node": home, "start": start, "end": end}}


def refused_beside_kubelet() -> dict[str, Any]:
    """Try to write while a process of kubelet's name runs."""
    program = shutil.copy("/usr/bin/sleep", "/run/kubelet")
    with subprocess.Popen([program, "600"]) as process:
        answer = memqos("rebaseline-checkpoint", "--drift-tolerance", "auto", "--write")
        process.kill()
    return {**answer, "pid": process.pid, "checkpoint": CHECKPOINT.read_text()}


def main(command: str) -> None:
    """Answer with JSON in the file `answer`."""
    given = Path("/job/in/checkpoint")
    answer = facts()
    (KUBELET / "config.yaml").write_text(CONFIG)
    CHECKPOINT.write_text(given.read_text() if given.exists() else checkpoint(ENTRIES))
    if command == "record":
        answer["checkpoint"] = CHECKPOINT.read_text()
        answer["exact"] = memqos("validate-checkpoint")
    elif command == "snapshot":
        answer["inside"] = memqos("validate-checkpoint", "--drift-tolerance", "auto")
        answer["snapshot"] = memqos("snapshot", "snapshot.tar")
    elif answer["image"]["node"] not in ("", Path("/job/in/node").read_text()):
        answer["exact"] = memqos("validate-checkpoint")
        answer["tolerant"] = memqos("validate-checkpoint", "--drift-tolerance", "auto")
        answer["shown"] = memqos("rebaseline-checkpoint", "--drift-tolerance", "auto")
        answer["refused"] = refused_beside_kubelet()
        answer["rebaselined"] = memqos(
            "rebaseline-checkpoint", "--drift-tolerance", "auto", "--write"
        )
        answer["checkpoint"] = CHECKPOINT.read_text()
        answer["after"] = memqos("validate-checkpoint", "--drift-tolerance", "off")
    Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
