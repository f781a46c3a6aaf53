"""``audit-cgroups`` on 2,000 pods x 3 containers, beside merely reading the same files.

The tree is as kubelet writes it, and lies on tmpfs where there is one. Both run in turns in one
run; the command's time is that of its process, start included, the walk's that of `read_tree`
alone, the reads' that of os.scandir, os.open and os.read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from memqos.adapters.cgroup_tree import AUDIT_FILES, EVENT_FILES, PROTECTION_FILES, read_tree
from memqos.adapters.host import Host


PROGRAM = Path(sys.executable).with_name("memqos")
MIB = 1 << 20
FILES = {
    "memory.min": "0",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.events.local": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
}
# 64 Mi + 0.9 * (256 Mi - 64 Mi), in whole pages: KEP-2570's formula.
CONTAINER = {"memory.high": 248299520, "memory.swap.max": 0, "memory.oom.group": 1}
CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "memoryReservationPolicy": "TieredReservation",
    "memoryThrottlingFactor": 0.9,
}

# A cgroup has some 60 files; these are listed, and not read.
OTHERS = ("cgroup.procs", "cgroup.events", "cgroup.type", "cpu.stat", "io.stat", "memory.stat")


def make_node(folder: Path, pods: int, containers: int) -> tuple[Path, list[str | Path]]:
    """Write a node's tree; return it, and the options for what belongs there."""
    items = []
    root = folder / "cgroup"
    burstable = root / "kubepods.slice/kubepods-burstable.slice"
    claim = pods * containers * 64 * MIB
    fill(root / "kubepods.slice", pods * containers, {"memory.min": claim})
    fill(burstable, pods * containers)
    fill(root / "kubepods.slice/kubepods-besteffort.slice", 0)
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    for number in range(pods):
        uid = f"{number:08x}-0000-4000-8000-{number:012x}"
        place = burstable / f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        fill(place, containers, {"memory.max": containers * 256 * MIB})
        names = [f"c{index}" for index in range(containers)]
        ids = [f"{number * containers + index:064x}" for index in range(containers)]
        for identity in ids:
            fill(
                place / f"cri-containerd-{identity}.scope",
                1,
                {"memory.max": 256 * MIB, **CONTAINER},
            )
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "namespace": "default", "uid": uid},
                "spec": {"containers": [{"name": name, "resources": resources} for name in names]},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": name, "containerID": f"containerd://{identity}"}
                        for name, identity in zip(names, ids, strict=True)
                    ],
                },
            }
        )
    file, config = folder / "pods.json", folder / "kubelet.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}))
    config.write_text(json.dumps(CONFIG))
    return root, ["--pods", file, "--kubelet-config", config]


def fill(place: Path, claims: int, own: Mapping[str, int] | None = None) -> None:
    """Write the files of one cgroup that claims as much as so many containers."""
    place.mkdir(parents=True, exist_ok=True)
    sizes = {
        "memory.current": claims * 96 * MIB,
        "memory.low": claims * 64 * MIB,
        "memory.high": "max",
        "memory.max": "max",
        **(own or {}),
    }
    for name, text in {**FILES, **sizes}.items():
        (place / name).write_text(f"{text}\n")
    for name in OTHERS:
        (place / name).touch()


def read_only(root: str, names: Collection[str]) -> int:
    """Read the same files, and do nothing with them; return how many."""
    count = 0
    todo = [root]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.name in names:
                    descriptor = os.open(entry.path, os.O_RDONLY)
                    os.read(descriptor, 65536)
                    os.close(descriptor)
                    count += 1
                elif entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return count


def run(command: list[str | Path]) -> None:
    """Run a command, to which the tree is as it should be."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def walk(root: Path) -> None:
    """Read a tree as the commands do."""
    for _ in read_tree(Host(), AUDIT_FILES, root=str(root)):
        pass


def seconds_of(task: Callable[[], object]) -> float:
    """Time something."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--containers", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    folder = Path(tempfile.mkdtemp(dir=base))
    try:
        root, wanted = make_node(folder, options.pods, options.containers)

        def command(name: str, *arguments: str | Path) -> Callable[[], None]:
            return partial(run, [PROGRAM, name, "--cgroup-root", root, *arguments])

        # Each task, the files that it reads, and how often it reads them.
        tasks: dict[str, tuple[Callable[[], None], Collection[str], int]] = {
            "the walk alone": (partial(walk, root), AUDIT_FILES, 1),
            "audit-cgroups": (command("audit-cgroups"), AUDIT_FILES, 1),
            "audit-cgroups --pods": (command("audit-cgroups", *wanted), AUDIT_FILES, 1),
            "effective-protection": (command("effective-protection"), PROTECTION_FILES, 1),
            "measure-events": (command("measure-events", "--interval", "1ms"), EVENT_FILES, 2),
        }
        print(f"{options.pods} pods x {options.containers} containers, {os.cpu_count()} CPUs")
        for name, (task, names, times) in tasks.items():
            count = read_only(str(root), names)
            took: list[float] = []
            reads: list[float] = []
            for _ in range(options.runs):
                reads.append(seconds_of(lambda: read_only(str(root), names)) * times)  # noqa: B023  # called at once
                took.append(seconds_of(task))
            whole, alone = statistics.median(took), statistics.median(reads)
            print(
                f"{name:22} {whole:6.3f} s, reading {times} x {count} files {alone:6.3f} s: "
                f"ratio {whole / alone:.2f}"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
