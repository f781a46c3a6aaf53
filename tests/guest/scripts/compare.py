"""Runs in the guest: the same hog again and again, each time with another watcher.

Usage: compare.py REST LONGEST NAME… where REST is how many seconds each watcher is measured before
the hog starts, and LONGEST how many it has to act. The answer is JSON in the file `answer`, an
object for each watcher.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.guest.scripts.node import (
    MOUNT,
    NODES,
    available_mib,
    clear,
    furnish,
    make,
    number,
    passes,
    populated,
    run,
    serve,
    starve,
    wait_for,
)


NODE = NODES["systemd"]
# Which is when earlyoom and nohang act by default, too.
SHORT_PERCENT = 10
OOMD_SOCKET = Path("/run/systemd/io.system.ManagedOOM")


def start(*command: str, log: str = "watcher.log") -> subprocess.Popen[bytes]:
    """Start a watcher as the machine's own service manager would protect it."""
    with Path(log).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    Path(f"/proc/{process.pid}/oom_score_adj").write_text("-900")
    return process


def start_memqos() -> subprocess.Popen[bytes]:
    """Start watch-oom with Talos' default expressions."""
    return start("memqos", "watch-oom", "--kill", "--actions", "actions.jsonl")


def start_oomd() -> subprocess.Popen[bytes]:
    """Start systemd-oomd, with a stand-in for systemd.

    It tells oomd that pods of the slice of BestEffort ones may be killed for pressure.
    """
    parent = NODE.hog.rpartition("/")[0]
    (OOMD_SOCKET.parent / "oom").mkdir(parents=True, exist_ok=True)  # for a socket of its own
    OOMD_SOCKET.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(OOMD_SOCKET))
    server.listen()
    managed = {"mode": "kill", "path": f"/{parent}", "property": "ManagedOOMMemoryPressure"}
    reply = json.dumps({"parameters": {"cgroups": [managed]}, "continues": True})

    def manage() -> None:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(reply.encode() + b"\0")
        time.sleep(1000)

    threading.Thread(target=manage, daemon=True).start()
    return start("/usr/lib/systemd/systemd-oomd")


WATCHERS: Mapping[str, Callable[[], subprocess.Popen[bytes]]] = {
    "memqos watch-oom": start_memqos,
    "nohang": lambda: start(
        "/usr/sbin/nohang", "--monitor", "--config", "/etc/nohang/nohang.conf"
    ),
    "earlyoom": lambda: start("earlyoom", "-r", "0"),
    "systemd-oomd": start_oomd,
}


def cpu_ms(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time that a process has had, to the nanosecond: ticks are too coarse."""
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e6


def measure(name: str, rest: int, longest: int) -> dict[str, Any]:
    """Starve the node beside a watcher, until it has memory again."""
    for index, path in enumerate((*NODE.others, NODE.init)):
        run(path, "sleep", f"100{index}")
    make(NODE.hog)
    watcher = WATCHERS[name]()
    serve(NODE.services)
    time.sleep(10)  # whatever a watcher does once
    if watcher.poll() is not None:
        raise SystemExit(f"{name} ended: {Path('watcher.log').read_text(errors='replace')}")
    before = cpu_ms(watcher)
    time.sleep(rest)
    answer: dict[str, Any] = {"rest_ms_per_s": (cpu_ms(watcher) - before) / rest}
    limit = number("/proc/meminfo", "MemTotal:") // 1024 * SHORT_PERCENT // 100
    before = cpu_ms(watcher)
    starve(NODE.hog)
    short = relief = None
    highest = 0
    begin = time.monotonic()
    while relief is None and (now := time.monotonic()) < begin + longest:
        available = available_mib()
        if short is None and available < limit:
            short = now
        if short is not None and available >= limit:
            relief = now
        if watcher.poll() is None:
            highest = max(highest, number(f"/proc/{watcher.pid}/status", "VmRSS:"))
        time.sleep(0.05)
    time.sleep(1)
    answer |= {
        "alive": watcher.poll() is None,
        "relief_s": None if short is None or relief is None else relief - short,
        "storm_ms": cpu_ms(watcher) - before if watcher.poll() is None else None,
        "rss_kib": highest,
        "hog_left": populated(NODE.hog)[NODE.hog],
        "others_left": all(populated(*NODE.others, *NODE.services, NODE.init).values()),
        "slowest_pass_s": max(max(times[1:]) for times in passes(NODE.services).values()),
    }
    watcher.terminate()
    try:
        watcher.wait(20)
    except subprocess.TimeoutExpired:
        watcher.kill()
    answer["log"] = Path("watcher.log").read_text(errors="replace")[-2000:]
    tops = {path.partition("/")[0] for path in (NODE.hog, *NODE.services, NODE.init)}
    clear(*tops)
    wait_for(lambda: available_mib() > 500)
    return answer


def main(rest: str, longest: str, *names: str) -> None:
    """Measure some watchers."""
    furnish()
    answer: dict[str, Any] = {"kib": number("/proc/meminfo", "MemTotal:")}
    for name in names:
        answer[name] = measure(name, int(rest), int(longest))
        Path("answer").write_text(json.dumps(answer))
    answer["oom_kills"] = number("/proc/vmstat", "oom_kill")
    answer["mount"] = str(MOUNT)
    Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
