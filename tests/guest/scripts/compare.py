"""Runs in the guest: the same hog again and again, each time with another watcher.

Usage: compare.py REST LONGEST ATTEMPTS NAME… where REST is how many seconds each watcher is
measured before the hog starts, and LONGEST how many it has to act, at each attempt. The answer is
JSON in the file `answer`, an object for each watcher.
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
    NODES,
    available_mib,
    clear,
    cpu_ms,
    end,
    furnish,
    make,
    number,
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


def start(*command: str) -> subprocess.Popen[bytes]:
    """Start a watcher as the machine's own service manager would protect it."""
    with Path(f"{Path(command[0]).name}.err").open("wb") as output:
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

    is_told = threading.Event()

    def manage() -> None:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(reply.encode() + b"\0")
        is_told.set()
        time.sleep(1000)

    threading.Thread(target=manage, daemon=True).start()
    oomd = start("/usr/lib/systemd/systemd-oomd")
    if not is_told.wait(60):
        raise SystemExit("systemd-oomd does not ask whom it may kill")
    return oomd


WATCHERS: Mapping[str, Callable[[], subprocess.Popen[bytes]]] = {
    "memqos watch-oom": start_memqos,
    "nohang": lambda: start(
        "/usr/sbin/nohang", "--monitor", "--config", "/etc/nohang/nohang.conf"
    ),
    "earlyoom": lambda: start("earlyoom", "-r", "0"),
    "systemd-oomd": start_oomd,
}


def measure(name: str, rest: int, longest: int, attempts: int) -> dict[str, Any]:
    """Starve the node beside a watcher, until it has memory again.

    memqos' default trigger needs a stall and an average of stalls at the same time, which not each
    hog brings about: so there are several attempts.
    """
    for index, path in enumerate((*NODE.others, NODE.init)):
        run(path, "sleep", f"100{index}")
    make(NODE.hog)
    watcher = WATCHERS[name]()
    serve(NODE.services)
    time.sleep(10)  # whatever a watcher does once
    if watcher.poll() is not None:
        raise SystemExit(f"{name} ended")
    before = cpu_ms(watcher.pid)
    time.sleep(rest)
    answer: dict[str, Any] = {"rest_ms_per_s": (cpu_ms(watcher.pid) - before) / rest}
    limit = number("/proc/meminfo", "MemTotal:") // 1024 * SHORT_PERCENT // 100
    before, begin = cpu_ms(watcher.pid), time.monotonic()
    relief = None
    highest = attempt = 0
    while relief is None and attempt < attempts:
        if attempt:
            end(NODE.hog)
        attempt += 1
        starve(NODE.hog)
        short = None
        start_of_attempt = time.monotonic()
        while relief is None and (now := time.monotonic()) < start_of_attempt + longest:
            available = available_mib()
            if short is None and available < limit:
                short = now
            if short is not None and available >= limit:
                relief = now - short
            if watcher.poll() is None:
                highest = max(highest, number(f"/proc/{watcher.pid}/status", "VmRSS:"))
            time.sleep(0.05)
    time.sleep(1)
    answer |= {
        "alive": watcher.poll() is None,
        "relief_s": relief,
        "attempts": attempt,
        "storm_ms_per_s": (cpu_ms(watcher.pid) - before) / (time.monotonic() - begin)
        if watcher.poll() is None
        else None,
        "rss_kib": highest,
        "hog_left": populated(NODE.hog)[NODE.hog],
        "others_left": all(populated(*NODE.others, *NODE.services, NODE.init).values()),
    }
    watcher.terminate()
    try:
        watcher.wait(20)
    except subprocess.TimeoutExpired:
        watcher.kill()
    tops = {path.partition("/")[0] for path in (NODE.hog, *NODE.services, NODE.init)}
    clear(*tops)
    wait_for(lambda: available_mib() > 500)
    return answer


def main(rest: str, longest: str, attempts: str, *names: str) -> None:
    """Measure some watchers."""
    furnish()
    answer: dict[str, Any] = {}
    for name in names:
        answer[name] = measure(name, int(rest), int(longest), int(attempts))
        Path("answer").write_text(json.dumps(answer))
    answer["oom_kills"] = number("/proc/vmstat", "oom_kill")
    Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
