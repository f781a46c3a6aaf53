"""What the scripts in the guest share: a node's cgroups, services, and a pod that starves it."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


MOUNT = Path("/sys/fs/cgroup")
MEMTOOL = "/usr/bin/python3 -ISu /usr/local/bin/memtool"
MIB = 1 << 20
SERVICE_MIB = 24
# So much page cache is left, in the end, to services that touch 96 MiB all the time. To come there
# slowly matters: once nearly all of it is gone, the kernel takes what is read again and again for
# what is read once, and nobody counts as waiting for memory.
LEFT_MIB = 16
SLOW_MIB = 96
LONGEST = 60
# The kernel's own OOM killer chooses by these if it must; it must not come to that.
SERVICE_ADJ, POD_ADJ, HOG_ADJ = -999, 0, 1000
# A configuration that needs no stall.
THRESHOLD = """\
apiVersion: v1alpha1
kind: OOMConfig
sampleInterval: 200ms
triggerExpression: |
  qos_memory_current[Besteffort] > 64.0 * double(MiB) && time_since_trigger > duration("4s")
"""
SAFE_UID = "5afe5afe-0000-4000-8000-000000000001"
BESTEFFORT = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"


class Node(NamedTuple):
    """Where things are on a node."""

    services: tuple[str, ...]
    init: str
    hog: str
    others: tuple[str, ...]
    # The pod of `SAFE_UID`.
    safe: str


_UNITS = ("sshd", "udevd", "containerd", "kubelet")
NODES: Mapping[str, Node] = {
    "talos": Node(
        ("system/sshd", "system/udevd", "podruntime/containerd", "podruntime/kubelet"),
        "init",
        "kubepods/besteffort/podhog",
        ("kubepods/besteffort/podsmall", "kubepods/burstable/podburst", "kubepods/podsure"),
        f"kubepods/besteffort/pod{SAFE_UID}",
    ),
    "cgroupfs": Node(
        tuple(f"system.slice/{name}.service" for name in _UNITS),
        "init.scope",
        "kubepods/besteffort/podhog",
        ("kubepods/besteffort/podsmall", "kubepods/burstable/podburst", "kubepods/podsure"),
        f"kubepods/besteffort/pod{SAFE_UID}",
    ),
    "systemd": Node(
        tuple(f"system.slice/{name}.service" for name in _UNITS),
        "init.scope",
        f"{BESTEFFORT}0a_hog.slice",
        (
            f"{BESTEFFORT}0b_small.slice",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c.slice",
            "kubepods.slice/kubepods-pod0d.slice",
        ),
        f"{BESTEFFORT}{SAFE_UID.replace('-', '_')}.slice",
    ),
}


def wait_for(condition: Callable[[], object], seconds: float = LONGEST) -> bool:
    """Wait until it holds; whether it did in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.stderr.write(f"line {condition.__code__.co_firstlineno}: timed out\n")
            return False
        time.sleep(0.1)
    return True


def wait_for_use(path: str, mebibytes: int) -> bool:
    """Wait until a cgroup uses that much; whether it did in time."""
    file = MOUNT / path / "memory.current"
    return wait_for(lambda: int(file.read_text()) > mebibytes * MIB)


def wait_for_end(path: str) -> None:
    """Wait until a cgroup has no processes."""
    wait_for(lambda: not populated(path)[path])


def make(path: str) -> Path:
    """Make a cgroup with the memory controller."""
    folder = MOUNT
    for name in path.strip("/").split("/"):
        (folder / "cgroup.subtree_control").write_text("+memory")
        folder /= name
        folder.mkdir(exist_ok=True)
    return folder


def run(path: str, *command: str, adj: int = POD_ADJ, log: str = os.devnull) -> None:
    """Start a command in a cgroup."""
    start = 'echo $$ > "$0/cgroup.procs"; echo $1 > /proc/self/oom_score_adj; shift; exec "$@"'
    words = ["bash", "-c", start, str(make(path)), str(adj), *command]
    with Path(log).open("w") as output:
        subprocess.Popen(words, stdout=output)


def commands(path: str) -> list[str]:
    """List the command lines of the processes in a cgroup and all below it."""
    found = []
    for file in sorted((MOUNT / path).rglob("cgroup.procs")):
        for pid in file.read_text().split():
            try:
                data = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            found.append(data.rstrip(b"\0").replace(b"\0", b" ").decode())
    return sorted(found)


def populated(*paths: str) -> dict[str, bool]:
    """Tell which cgroups have processes."""
    return {path: "populated 1" in (MOUNT / path / "cgroup.events").read_text() for path in paths}


def number(path: str, name: str) -> int:
    """Read a number at a name within a file."""
    words = Path(path).read_text().split()
    return int(words[words.index(name) + 1])


def cpu_ms(pid: int | str) -> float:
    """Return the CPU time that a process has had, to the nanosecond: ticks are too coarse."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def kernel_cpu_ms(name: str) -> dict[str, float]:
    """Return the CPU time of the kernel's threads of a name, by process."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone
            if file.read_text().partition(" ")[2].startswith(f"({name})"):
                found[file.parent.name] = cpu_ms(file.parent.name)
    return found


def available_mib() -> int:
    """Return MemAvailable."""
    return number("/proc/meminfo", "MemAvailable:") // 1024


def free_mib() -> int:
    """Return what can be had before page cache must be read again all the time."""
    names = ("MemFree:", "Cached:", "Buffers:")
    kib = sum(number("/proc/meminfo", name) for name in names)
    zones = Path("/proc/zoneinfo").read_text()
    reserve = sum(int(pages) for pages in re.findall(r"\n\s+high\s+(\d+)", zones)) * 4
    return (kib - number("/proc/meminfo", "Shmem:") - reserve) // 1024


def clear(*tops: str) -> None:
    """Kill and remove everything below some cgroups."""
    for top in tops:
        (MOUNT / top / "cgroup.kill").write_text("1")
        wait_for_end(top)
        folders = [file.parent for file in (MOUNT / top).rglob("cgroup.procs")]
        for folder in sorted(folders, reverse=True):
            folder.rmdir()


def passes(services: tuple[str, ...]) -> dict[str, list[float]]:
    """Return how long each service took for every pass over its data, in seconds."""
    return {
        path: [float(text) for text in re.findall(r"seconds=([0-9.]+)", log_of(path).read_text())]
        for path in services
    }


def log_of(path: str) -> Path:
    """Return the log of a service."""
    return Path(path.replace("/", "-"))


def serve(services: tuple[str, ...]) -> None:
    """Start services that touch a file each, again and again, once that is in memory.

    It is mapped as their code would be, which the kernel holds on to before other page cache.
    """
    for number_, path in enumerate(services):
        # Pages that are cached would stay charged to the cgroup that read them first.
        subprocess.run(["memtool", "drop", f"/scratch/{number_}"], check=True)
        words = ("memtool", "maptext", f"/scratch/{number_}", "100")
        run(path, *words, adj=SERVICE_ADJ, log=str(log_of(path)))
    wait_for(lambda: all(len(times) > 1 for times in passes(services).values()))


def starve(path: str) -> list[str]:
    """Start the hog in three containers of a pod; return the command lines of all that it runs."""
    size = free_mib() - LEFT_MIB - SLOW_MIB
    growths = (("anon", str(size), "64", "100"), ("anon", str(SLOW_MIB), "1", "200"))
    script = "sleep 1001 & sleep 1002 & wait"
    for name, growth in zip(("aa", "bb"), growths, strict=True):
        run(f"{path}/{name}", "memtool", *growth, adj=HOG_ADJ)
    run(f"{path}/cc", "bash", "-c", script, adj=HOG_ADJ)
    expected = [f"{MEMTOOL} {' '.join(growth)}" for growth in growths]
    expected = sorted([*expected, f"bash -c {script}", "sleep 1001", "sleep 1002"])
    if not wait_for(lambda: commands(path) == expected):
        raise SystemExit(f"the hog does not run: {commands(path)}")
    return expected


def end(hog: str) -> None:
    """End a hog that nobody has killed."""
    (MOUNT / hog / "cgroup.kill").write_text("1")
    wait_for_end(hog)


def furnish() -> None:
    """Make what the services read, and have the kernel reclaim as it did before 6.1."""
    # The multi-generational LRU stalls services less, and at other times on each run.
    Path("/sys/kernel/mm/lru_gen/enabled").write_text("n")
    for service in range(4):
        file = f"/scratch/{service}"
        subprocess.run(["memtool", "mkfile", file, str(SERVICE_MIB)], check=True)
