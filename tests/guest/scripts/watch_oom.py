"""Runs in the guest: nodes that starve, in each layout, and watch-oom beside them.

The answer is JSON in the file `answer`, an object for each scenario.
"""

import errno
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from memqos.adapters.kill import identify_target, kill_cgroup
from memqos.adapters.pressure_watch import PressureWatch
from tests.guest.scripts.node import (
    BESTEFFORT,
    MIB,
    MOUNT,
    NODES,
    SAFE_UID,
    THRESHOLD,
    available_mib,
    clear,
    commands,
    end,
    furnish,
    make,
    number,
    passes,
    populated,
    run,
    serve,
    starve,
    wait_for,
    wait_for_end,
    wait_for_use,
)


# Seconds until a node that starves must have been noticed.
PATIENCE = 60
# Of the default trigger, and a little more.
COOL_DOWN = 6
# So much has a pod that is protected, more than the hog will have.
SAFE_MIB = 450
# linux/fs.h
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
# What a pod holds that cannot end.
HELD_MIB = 96
HOLD = f"held = b'1' * ({HELD_MIB} << 20); open('/scratch/held', 'wb')"
HOOK = (
    "bash -c 'echo $MEMQOS_OUTCOME $MEMQOS_VICTIM >> hook;"
    " cat /proc/self/status /proc/self/oom_score_adj > hook.state'"
)


class Watch:
    """A watch-oom that runs."""

    def __init__(self, name: str, *options: str, cgroup: str | None = None) -> None:
        self.actions_file = Path(f"{name}.jsonl")
        self.metrics = Path(f"{name}.prom")
        self.out, self.err = Path(f"{name}.out"), Path(f"{name}.err")
        words = ["memqos", "watch-oom", "--actions", str(self.actions_file)]
        words += ["--textfile", str(self.metrics), *options]
        with self.out.open("w") as out, self.err.open("w") as err:
            # In a process group of its own: while it is stopped, the kernel sends its group
            # SIGHUP when an orphan in it ends, as some of the hog's do.
            self.process = subprocess.Popen(words, stdout=out, stderr=err, start_new_session=True)
        if cgroup is not None:
            (make(cgroup) / "cgroup.procs").write_text(str(self.process.pid))

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


def provoke(hog: str, watch: Watch) -> tuple[list[str], bool]:
    """Starve the node until a watcher acts; return what the hog runs, and whether it did.

    The default trigger needs a stall and an average of stalls in the same sample, which is a
    matter of luck: so there are three attempts.
    """
    for _ in range(3):
        expected = starve(hog)
        if wait_for(watch.actions, PATIENCE):
            return expected, True
        for file in MOUNT.glob("*/memory.pressure"):
            sys.stderr.write(f"{file.parent.name}: {file.read_text()}")
        end(hog)
    return expected, False


def starving(name: str, *, dry_first: bool) -> dict[str, Any]:
    """Starve a node: a dry run that only tells, if wanted, then a kill, then its relief."""
    node = NODES[name]
    for number_, path in enumerate((*node.others, node.init)):
        run(path, "sleep", f"100{number_}")
    make(node.hog)
    run(f"{node.safe}/main", "memtool", "anon", str(SAFE_MIB))
    wait_for_use(node.safe, SAFE_MIB)
    watched = [node.hog, node.safe, *node.others, *node.services, node.init]
    protect = ("--protect-uid", SAFE_UID)
    dry = Watch(f"{name}-dry", *protect) if dry_first else None
    kill = Watch(f"{name}-kill", "--kill", *protect)
    serve(node.services)
    answer: dict[str, Any] = {"hog": node.hog, "ready": kill.ready()}
    answer["protection"] = kill.protection()
    if dry is not None:
        answer["dry_ready"] = dry.ready()
        answer["dry_protection"] = dry.protection()
        kill.process.send_signal(signal.SIGSTOP)  # its turn comes
        answer["expected"], answer["fired"] = provoke(node.hog, dry)
        answer["available_mib"] = available_mib()
        answer["after_dry"] = populated(*watched)
        answer["dry"] = dry.stop()
        kill.process.send_signal(signal.SIGCONT)
        answer["killed"] = wait_for(kill.actions, PATIENCE)
        if not answer["killed"]:
            end(node.hog)
    if not answer.get("killed"):
        answer["expected"], answer["killed"] = provoke(node.hog, kill)
    answer["after_kill"] = populated(*watched)
    time.sleep(COOL_DOWN)
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
    watch = Watch("mechanics", *options, cgroup="memqos")
    answer: dict[str, Any] = {"paths": paths, "before": populated(*paths)}
    answer["acted"] = watch.acted(3)
    reserve = MOUNT / "memqos/memory.min"
    answer["rss_kib"] = number(f"/proc/{watch.process.pid}/status", "VmRSS:")
    answer["memory_min"] = int(reserve.read_text())
    answer["after"] = populated(*paths)
    answer["kill"] = watch.stop()
    answer["memory_min_afterwards"] = int(reserve.read_text())
    answer["hook"] = Path("hook").read_text()
    answer["hook_state"] = Path("hook.state").read_text()
    clear("kubepods.slice")
    return answer


def kill(path: str) -> dict[str, Any]:
    """Kill without the program around it."""
    inode = (MOUNT / path).stat().st_ino
    report = kill_cgroup(identify_target(str(MOUNT), path, (), inode))
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


def unending() -> dict[str, Any]:
    """Kill one that waits for a frozen disk, where no signal reaches it."""
    path = "test/waiting"
    processes, usage = MOUNT / path / "cgroup.procs", MOUNT / path / "memory.current"
    scratch = os.open("/scratch", os.O_RDONLY)

    def waits() -> bool:
        """Tell whether it waits in the kernel, and cannot be woken."""
        pid = int(processes.read_text())
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "D"

    def kill_one() -> dict[str, Any]:
        fcntl.ioctl(scratch, FIFREEZE, 0)
        run(path, "python3", "-c", HOLD)
        wait_for_use(path, HELD_MIB)
        wait_for(waits)
        report = kill(path)
        held = int(usage.read_text()) / MIB
        fcntl.ioctl(scratch, FITHAW, 0)
        wait_for_end(path)
        return {"report": report, "held_mib": held}

    answer = {"released": kill_one()}
    with patch("memqos.adapters.kill._release"):
        answer["left"] = kill_one()
    os.close(scratch)
    clear("test")
    return answer


def alarms() -> dict[str, Any]:
    """Have the kernel tell when somebody waits: anybody at first, then those who decide."""
    watch = PressureWatch(str(MOUNT))
    make("deciding/x")
    watch.remember(["deciding"], frozenset({"total"}))

    def rings(seconds: float) -> float | None:
        """Return after which time an alarm comes, None if none does."""
        poll, start = select.poll(), time.monotonic()
        for descriptor in watch.alarms() or ():
            poll.register(descriptor, select.POLLPRI)
        return time.monotonic() - start if poll.poll(seconds * 1000) else None

    def stall(path: str) -> None:
        (make(path) / "memory.high").write_text(str(24 * MIB))
        run(path, "memtool", "hot", "64", "50")

    answer: dict[str, Any] = {"quiet": rings(2)}
    stall("other")
    answer["anybody"] = rings(PATIENCE)
    answer["still"] = watch.is_still()
    answer["others"] = rings(5)
    stall("deciding/x")
    answer["deciding"] = rings(PATIENCE)
    answer["over"] = not watch.is_still()
    end("deciding/x")
    watch.remember(["deciding"], frozenset({"total"}))
    wait_for(lambda: (watch.is_still(), rings(1))[1] is None)
    (MOUNT / "deciding/x").rmdir()
    (MOUNT / "deciding").rmdir()
    answer["gone"] = rings(PATIENCE)
    clear("other")
    return answer


SCENARIOS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "alarms": alarms,
    "fallbacks": fallbacks,
    "unending": unending,
    "mechanics": mechanics,
    "talos": lambda: starving("talos", dry_first=True),
    "cgroupfs": lambda: starving("cgroupfs", dry_first=False),
    "systemd": lambda: starving("systemd", dry_first=False),
}


def main(*names: str) -> None:
    """Go through the scenarios of these names."""
    furnish()
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
