"""Runs in the guest: nodes that starve, in each layout, and watch-oom beside them.

The answer is JSON in the file `answer`, an object for each scenario.
"""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from memqos.adapters.kill import identify_target, kill_cgroup


MOUNT = Path("/sys/fs/cgroup")
MEMTOOL = "/usr/bin/python3 -ISu /usr/local/bin/memtool"
MIB = 1 << 20
SERVICE_MIB = 24
# So much page cache is left to services that touch four times as much all the time.
LEFT_MIB = 16
LONGEST = 60
# The kernel's own OOM killer chooses by these if it must; it must not come to that.
SERVICE_ADJ, POD_ADJ, HOG_ADJ = -999, 0, 1000

THRESHOLD = """\
apiVersion: v1alpha1
kind: OOMConfig
sampleInterval: 200ms
triggerExpression: |
  qos_memory_current[Besteffort] > 64.0 * double(MiB) && time_since_trigger > duration("4s")
"""
HOOK = (
    "bash -c 'echo $MEMQOS_OUTCOME $MEMQOS_VICTIM >> hook;"
    " cat /proc/self/status /proc/self/oom_score_adj > hook.state'"
)
BESTEFFORT = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"


class Node(NamedTuple):
    """Where things are on a node."""

    services: tuple[str, ...]
    init: str
    hog: str
    others: tuple[str, ...]


_UNITS = ("sshd", "udevd", "containerd", "kubelet")
NODES: Mapping[str, Node] = {
    "talos": Node(
        ("system/sshd", "system/udevd", "podruntime/containerd", "podruntime/kubelet"),
        "init",
        "kubepods/besteffort/podhog",
        ("kubepods/besteffort/podsmall", "kubepods/burstable/podburst", "kubepods/podsure"),
    ),
    "cgroupfs": Node(
        tuple(f"system.slice/{name}.service" for name in _UNITS),
        "init.scope",
        "kubepods/besteffort/podhog",
        ("kubepods/besteffort/podsmall", "kubepods/burstable/podburst", "kubepods/podsure"),
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


def wait_for_use(path: str, mebibytes: int) -> None:
    """Wait until a cgroup uses that much."""
    file = MOUNT / path / "memory.current"
    wait_for(lambda: int(file.read_text()) > mebibytes * MIB)


def wait_for_end(path: str) -> None:
    """Wait until a cgroup has no processes."""
    wait_for(lambda: not populated(path)[path])


def make(path: str) -> Path:
    """Make a cgroup with the memory controller."""
    folder = MOUNT
    for name in path.split("/"):
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


class Watch:
    """A watch-oom that runs."""

    def __init__(self, name: str, *options: str) -> None:
        self.actions_file = Path(f"{name}.jsonl")
        self.metrics = Path(f"{name}.prom")
        self.out, self.err = Path(f"{name}.out"), Path(f"{name}.err")
        words = ["memqos", "watch-oom", "--actions", str(self.actions_file)]
        words += ["--textfile", str(self.metrics), *options]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(words, stdout=out, stderr=err)

    def ready(self) -> bool:
        """Wait for its first cycle."""
        return wait_for(lambda: self.metrics.exists() or self.process.poll() is not None)

    def actions(self) -> list[dict[str, Any]]:
        """Return what it has done."""
        if not self.actions_file.exists():
            return []
        return [json.loads(line) for line in self.actions_file.read_text().splitlines()]

    def acted(self, times: int = 1) -> bool:
        """Wait until it has acted so many times."""
        return wait_for(lambda: len(self.actions()) >= times)

    def protection(self) -> dict[str, int]:
        """Return what it did to stay alive."""
        place = f"/proc/{self.process.pid}"
        return {
            "locked_kib": number(f"{place}/status", "VmLck:"),
            "score": int(Path(f"{place}/oom_score_adj").read_text()),
        }

    def stop(self) -> dict[str, Any]:
        """End it with SIGTERM."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return {
            "code": code,
            "seconds": time.monotonic() - start,
            "out": self.out.read_text(),
            "err": self.err.read_text(),
            "metrics": self.metrics.read_text() if self.metrics.exists() else "",
            "actions": self.actions(),
        }


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
    """Start services that touch a file each, again and again, once that is in memory."""
    for number_, path in enumerate(services):
        # Pages that are cached would stay charged to the cgroup that read them first.
        subprocess.run(["memtool", "drop", f"/scratch/{number_}"], check=True)
        words = ("memtool", "mapread", f"/scratch/{number_}", "100")
        run(path, *words, adj=SERVICE_ADJ, log=str(log_of(path)))
    wait_for(lambda: all(len(times) > 1 for times in passes(services).values()))


def starve(path: str) -> list[str]:
    """Start the hog in two containers of a pod; return the command lines of all that it runs."""
    size = free_mib() - LEFT_MIB
    grow = ("memtool", "anon", str(size), "64", "100")
    run(f"{path}/aa", *grow, adj=HOG_ADJ)
    script = "sleep 1001 & sleep 1002 & wait"
    run(f"{path}/bb", "bash", "-c", script, adj=HOG_ADJ)
    expected = [f"{MEMTOOL} {' '.join(grow[1:])}", f"bash -c {script}", "sleep 1001", "sleep 1002"]
    wait_for(lambda: commands(path) == expected)
    return expected


def starving(name: str, *, dry_first: bool) -> dict[str, Any]:
    """Starve a node: a dry run that only tells, if wanted, then a kill, then its relief."""
    node = NODES[name]
    for number_, path in enumerate((*node.others, node.init)):
        run(path, "sleep", f"100{number_}")
    make(node.hog)
    watched = [node.hog, *node.others, *node.services, node.init]
    dry = Watch(f"{name}-dry") if dry_first else None
    kill = Watch(f"{name}-kill", "--kill")
    serve(node.services)
    answer: dict[str, Any] = {"hog": node.hog, "ready": kill.ready()}
    answer["protection"] = kill.protection()
    if dry is not None:
        answer["dry_ready"] = dry.ready()
        answer["dry_protection"] = dry.protection()
        kill.process.send_signal(signal.SIGSTOP)  # its turn comes
    start = time.time()
    answer["expected"] = starve(node.hog)
    if dry is not None:
        answer["fired"] = dry.acted()
        answer["available_mib"] = available_mib()
        answer["after_dry"] = populated(*watched)
        answer["dry"] = dry.stop()
        start = time.time()
        kill.process.send_signal(signal.SIGCONT)
    answer["inside"] = commands(node.hog)
    answer["killed"] = kill.acted()
    answer["seconds"] = kill.actions()[0]["time"] - start if answer["killed"] else None
    answer["after_kill"] = populated(*watched)
    time.sleep(3)  # less than the default trigger's cool-down
    answer["kill"] = kill.stop()
    done = {path: len(times) for path, times in passes(node.services).items()}
    answer["recovered"] = wait_for(
        lambda: all(
            len(times) > done[path] + 2 and times[-1] < 1
            for path, times in passes(node.services).items()
        )
    )
    answer["slowest"] = {path: max(times[1:]) for path, times in passes(node.services).items()}
    clear(*{path.partition("/")[0] for path in watched})
    return answer


def mechanics() -> dict[str, Any]:
    """Kill by usage: a protected pod, the cool-down, hooks."""
    uids = {"2d0f4f3f-9d1c": 100, "6f6b3c1f-0a01": 80, "6f6b3c1f-0a02": 70}
    paths = [f"{BESTEFFORT}{uid.replace('-', '_')}.slice" for uid in uids]
    for path, size in zip(paths, uids.values(), strict=True):
        run(f"{path}/main.scope", "memtool", "anon", str(size))
        wait_for_use(path, size)
    Path("oom.yaml").write_text(THRESHOLD)
    options = ["--kill", "--config", "oom.yaml", "--protect-uid", next(iter(uids))]
    options += ["--after-kill", HOOK, "--hook-timeout", "20s", "--skip-unpopulated"]
    watch = Watch("mechanics", *options)
    answer: dict[str, Any] = {"paths": paths, "before": populated(*paths)}
    answer["acted"] = watch.acted(3)
    answer["after"] = populated(*paths)
    answer["kill"] = watch.stop()
    answer["hook"] = Path("hook").read_text()
    answer["hook_state"] = Path("hook.state").read_text()
    clear("kubepods.slice")
    return answer


def kill(path: str) -> dict[str, Any]:
    """Kill without the program around it."""
    report = kill_cgroup(identify_target(str(MOUNT), path, ()))
    return {
        "outcome": report.outcome,
        "method": report.method,
        "processes": [text for _, text in report.processes],
        "left": len(report.left),
        "error": report.error,
        "populated": populated(path)[path],
    }


def fallbacks() -> dict[str, Any]:
    """Kill where something is missing."""
    answer = {}
    path = "test/forking"
    run(path, "bash", "-c", "for i in {1..500}; do sleep 1000 & done; wait")
    wait_for(lambda: len(commands(path)) > 20)
    opened = os.open

    def without_kill(name: Any, *arguments: Any, **keywords: Any) -> int:
        """Open files as a kernel before 5.14 does."""
        if name == "cgroup.kill":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return opened(name, *arguments, **keywords)

    with patch.object(os, "open", without_kill):
        answer["signals"] = kill(path)
    path = "test/many"
    run(path, "bash", "-c", "for i in {1..80}; do sleep 1000 & done; wait")
    wait_for(lambda: commands(path).count("sleep 1000") == 80)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        answer["many"] = kill(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    path = "test/stuck"
    run(path, "sleep", "1000")
    wait_for(lambda: commands(path) == ["sleep 1000"])
    over = str(MOUNT / path / "cgroup.kill")
    subprocess.run(["mount", "--bind", os.devnull, over], check=True)
    answer["stuck"] = kill(path)
    subprocess.run(["umount", over], check=True)
    clear("test")
    return answer


SCENARIOS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "fallbacks": fallbacks,
    "mechanics": mechanics,
    "talos": lambda: starving("talos", dry_first=True),
    "cgroupfs": lambda: starving("cgroupfs", dry_first=False),
    "systemd": lambda: starving("systemd", dry_first=False),
}


def main(*names: str) -> None:
    """Go through the scenarios of these names."""
    # The multi-generational LRU stalls services less, and at other times on each run.
    Path("/sys/kernel/mm/lru_gen/enabled").write_text("n")
    for service in range(4):
        file = f"/scratch/{service}"
        subprocess.run(["memtool", "mkfile", file, str(SERVICE_MIB)], check=True)
    answer: dict[str, Any] = {}
    for name in names:
        start = time.monotonic()
        answer[name] = SCENARIOS[name]()
        sys.stdout.write(f"{name}: {time.monotonic() - start:.1f} s\n")
        sys.stdout.flush()
        Path("answer").write_text(json.dumps(answer))
    answer["oom_kills"] = number("/proc/vmstat", "oom_kill")
    Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
