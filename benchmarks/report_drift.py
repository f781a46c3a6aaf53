"""Time and memory of ``report-drift`` over many snapshots.

Prints snapshots per second, the ratios of wall and CPU time for 2N snapshots to N (linear is 2),
the speed-up of two workers over one process, and the peak memory of the main process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from memqos.adapters.fleet import available_cores


NODES = Path(__file__).parents[1] / "examples" / "nodes"
SEED = 6232
FILES = (
    "proc/iomem",
    "proc/meminfo",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node1/meminfo",
    "var/lib/kubelet/config.yaml",
    "var/lib/kubelet/memory_manager_state",
)


def make_snapshots(folder: Path, count: int) -> None:
    """Copy the drifted example node, with another drift each time; some moved too far."""
    chance = random.Random(SEED)
    source = NODES / "drifted"
    texts = {name: (source / name).read_bytes() for name in FILES}
    sizes = sorted(path.relative_to(source) for path in source.rglob("nr_hugepages"))
    pages = {name: (source / name).read_bytes() for name in sizes}
    for number in range(count):
        root = folder / f"node-{number:05d}"
        moved_kib = chance.choice((0, 0, 4, 12)) + chance.choice((0, 0, 37656, 48524))
        moved_kib += chance.choice((0,) * 40 + (70_000, 98_304, 131_072))
        for name, data in texts.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            node = re.search(r"node([01])/meminfo", name)
            recorded_kib = {"0": 1055453184 // 1024, "1": 1011990528 // 1024}
            if node:
                now = recorded_kib[node[1]] + (moved_kib if node[1] == "1" else -moved_kib)
                data = re.sub(rb"MemTotal: +\d+", b"MemTotal: %d" % now, data)  # noqa: PLW2901
            path.write_bytes(data)
        for size, data in pages.items():
            (root / size).parent.mkdir(parents=True, exist_ok=True)
            (root / size).write_bytes(data)


class Run(NamedTuple):
    """What one run took; the memory is that of the main process, the CPU time that of all."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def run(folder: Path, jobs: int) -> Run:
    """Report on a folder."""
    command = [str(Path(sys.executable).with_name("memqos")), "report-drift", str(folder)]
    start = time.perf_counter()
    with subprocess.Popen([*command, "--jobs", str(jobs)], stdout=subprocess.DEVNULL) as child:
        peak = pid = status = 0
        while not pid:
            # VmHWM: wait4() gives the largest of the main process and its workers.
            text = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
            found = re.search(r"VmHWM:\s+(\d+)", text)
            peak = max(peak, int(found[1]) if found else 0)
            time.sleep(0.02)
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        sys.exit(f"report-drift ended with {child.returncode}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak / 1024)


def measure(counts: list[int], rounds: int) -> None:
    """Measure N and 2N snapshots, for each N, and print a line each."""
    cores = available_cores()
    print(
        f"{'N':>6} {'jobs':>4} {'snapshots/s':>11} {'time 2N / N':>11} {'CPU 2N / N':>10} "
        f"{'jobs 1 / jobs 2':>15} {'peak MiB at N':>13} {'at 2N':>6}",
        flush=True,
    )
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            once, twice = Path(name, "once"), Path(name, "twice")
            make_snapshots(twice, 2 * count)
            once.mkdir()
            for root in sorted(twice.iterdir())[:count]:
                shutil.copytree(root, once / root.name, copy_function=os.link)
            run(twice, cores)  # fills the page cache
            results = [
                (run(once, cores), run(twice, cores), run(once, 1), run(once, 2))
                for _ in range(rounds)
            ]
        ratios = [
            statistics.median(ratio)
            for ratio in zip(
                *(
                    (
                        double.seconds / single.seconds,
                        double.cpu_seconds / single.cpu_seconds,
                        alone.seconds / pair.seconds,
                    )
                    for single, double, alone, pair in results
                ),
                strict=True,
            )
        ]
        speed = count / statistics.median(result[0].seconds for result in results)
        peaks = [max(result[which].peak_mib for result in results) for which in (0, 1)]
        print(
            f"{count:>6} {cores:>4} {speed:>11.0f} {ratios[0]:>11.2f} {ratios[1]:>10.2f} "
            f"{ratios[2]:>15.2f} {peaks[0]:>13.1f} {peaks[1]:>6.1f}",
            flush=True,
        )


def main() -> None:
    """Read the options, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, action="append", help="snapshots (repeatable; 2000)")
    parser.add_argument("--large", action="store_true", help="10,000 snapshots as well")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measure((options.n or [2000]) + ([10_000] if options.large else []), options.rounds)


if __name__ == "__main__":
    main()
