"""``audit-cgroups`` on 2,000 pods x 3 containers, beside merely reading the same files.

The tree lies on tmpfs where there is one. Both run in turns in one run; the command's time is that
of its process, start included, the reads' that of os.scandir, os.open and os.read alone.
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
from pathlib import Path


PROGRAM = Path(sys.executable).with_name("memqos")
MIB = 1 << 20
FILES = {
    "memory.current": str(96 * MIB),
    "memory.min": "0",
    "memory.low": str(64 * MIB),
    "memory.high": str(243 * MIB),
    "memory.max": str(256 * MIB),
    "memory.swap.max": "0",
    "memory.oom.group": "1",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.events.local": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
}
EVENTS = frozenset({"memory.current", "memory.events", "memory.events.local", "memory.pressure"})
AUDIT = frozenset(FILES) - {"memory.events", "memory.events.local"}

# A cgroup has some 60 files; these are listed, and not read.
OTHERS = ("cgroup.procs", "cgroup.events", "cgroup.type", "cpu.stat", "io.stat", "memory.stat")


def make_node(root: Path, pods: int, containers: int) -> Path:
    """Write a node's tree and its PodList; return the PodList."""
    items = []
    burstable = root / "kubepods.slice/kubepods-burstable.slice"
    fill(root / "kubepods.slice", pods * containers)
    fill(burstable, pods * containers)
    fill(root / "kubepods.slice/kubepods-besteffort.slice", 0)
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "256Mi"}}
    for number in range(pods):
        uid = f"{number:08x}-0000-4000-8000-{number:012x}"
        place = burstable / f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        fill(place, containers)
        names = [f"c{index}" for index in range(containers)]
        ids = [f"{number * containers + index:064x}" for index in range(containers)]
        for identity in ids:
            fill(place / f"cri-containerd-{identity}.scope", 1)
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
    file = root.parent / "pods.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}))
    return file


def fill(place: Path, claims: int) -> None:
    """Write the files of one cgroup that claims as much as so many containers."""
    place.mkdir(parents=True, exist_ok=True)
    own = {"memory.current": claims * 96 * MIB, "memory.low": claims * 64 * MIB}
    for name, text in FILES.items():
        (place / name).write_text(f"{own.get(name, text)}\n")
    for name in OTHERS:
        (place / name).touch()


def read_only(root: str, names: frozenset[str]) -> int:
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


def seconds_of(command: list[str | Path]) -> float:
    """Time a command; that it finds something is no failure."""
    start = time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
        root = folder / "cgroup"
        pods = make_node(root, options.pods, options.containers)
        audit: list[str | Path] = [PROGRAM, "audit-cgroups", "--cgroup-root", root]
        watch: list[str | Path] = [
            PROGRAM,
            "measure-events",
            "--cgroup-root",
            root,
            "--interval",
            "1ms",
        ]
        # Each command, the files that it reads, and how often it reads them.
        commands: dict[str, tuple[list[str | Path], frozenset[str], int]] = {
            "audit-cgroups": (audit, AUDIT, 1),
            "audit-cgroups --pods": ([*audit, "--pods", pods, "-o", "json"], AUDIT, 1),
            "effective-protection": (
                [PROGRAM, "effective-protection", "--cgroup-root", root],
                frozenset({"memory.current", "memory.min", "memory.low"}),
                1,
            ),
            "measure-events": (watch, EVENTS, 2),
        }
        print(f"{options.pods} pods x {options.containers} containers, {os.cpu_count()} CPUs")
        for name, (command, names, times) in commands.items():
            count = read_only(str(root), names)
            took: list[float] = []
            reads: list[float] = []
            for _ in range(options.runs):
                start = time.perf_counter()
                for _ in range(times):
                    read_only(str(root), names)
                reads.append(time.perf_counter() - start)
                took.append(seconds_of(command))
            whole, alone = statistics.median(took), statistics.median(reads)
            print(
                f"{name:22} {whole:6.3f} s, reading {times} x {count} files {alone:6.3f} s: "
                f"ratio {whole / alone:.2f}"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
