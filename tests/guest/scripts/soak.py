"""Runs in the guest: 250 pods that come and go, and watchers beside them.

Usage: soak.py SECONDS PODS. In the first half nobody waits for memory, in the second one pod meets
its memory.high again and again. The answer is JSON in the file `answer`.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.guest.scripts.node import MOUNT, cpu_ms, kernel_cpu_ms, make, number, run, wait_for


# One in five is Guaranteed, which the trigger reads one by one, and one BestEffort.
CLASSES = ("-burstable", "-burstable", "-burstable", "-besteffort", "")
# Pods that go and come in a second.
CHURN = 2
SAMPLE_SECONDS = 5
INTERVAL = 0.5


def start_pod(number_: int) -> Path:
    """Make a pod of one container with one process; return its directory."""
    qos = CLASSES[number_ % len(CLASSES)]
    parent = f"kubepods.slice/kubepods{qos}.slice" if qos else "kubepods.slice"
    pod = f"{parent}/kubepods{qos}-pod{number_:08x}_0000_4000_8000_{number_:012x}.slice"
    container = make(f"{pod}/cri-containerd-{number_:064x}.scope")
    child = subprocess.Popen(["sleep", "100000"])
    (container / "cgroup.procs").write_text(str(child.pid))
    return container.parent


def end_pod(pod: Path) -> None:
    """Kill and remove a pod."""
    (pod / "cgroup.kill").write_text("1")
    wait_for(lambda: "populated 0" in (pod / "cgroup.events").read_text())
    for container in [*pod.glob("*.scope"), pod]:
        container.rmdir()
    while os.waitpid(-1, os.WNOHANG)[0]:
        pass


def start_memqos() -> subprocess.Popen[bytes]:
    """Start watch-oom, and wait until it tells that it is ready, as it would tell systemd."""
    address = str(Path("notify").absolute())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(address)
        server.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": address}
        process = subprocess.Popen(["memqos", "watch-oom", "--kill"], env=environment)
        if server.recv(100) != b"READY=1":
            raise SystemExit("no READY=1")
    return process


def start_nohang() -> subprocess.Popen[bytes]:
    """Start nohang at the same interval, with its check of pressure."""
    config = Path("/etc/nohang/nohang.conf").read_text()
    wanted = dict.fromkeys(("min_sleep", "max_sleep"), str(INTERVAL))
    for name, value in {**wanted, "psi_checking_enabled": "True"}.items():
        config, times = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", config)
        if times != 1:
            raise SystemExit(f"{name} is set {times} times in nohang's configuration")
    Path("nohang.conf").write_text(config)
    command = ["/usr/sbin/nohang", "--monitor", "--config", "nohang.conf"]
    with Path("nohang.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def main(seconds: int, pods: int) -> None:
    """Soak."""
    started = (start_pod(index) for index in range(10**9))
    alive = deque(next(started) for _ in range(pods))
    # A container that wants more than its memory.high.
    stalled = make(
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podff.slice/a.scope"
    )
    watchers = {"memqos": start_memqos(), "nohang": start_nohang()}
    time.sleep(10)  # whatever they do once
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in watchers}
    # CPU time of the kernel's threads that keep watch for memqos; they come and go.
    kept_watch: dict[str, float] = {}
    begin = time.monotonic()
    stalls = False
    churned = pods
    next_sample = begin
    while (now := time.monotonic()) < begin + seconds + SAMPLE_SECONDS:
        if now >= next_sample:
            next_sample += SAMPLE_SECONDS
            kept_watch |= kernel_cpu_ms("psimon")
            for name, process in watchers.items():
                status = f"/proc/{process.pid}/status"
                sample = {
                    "t": now - begin,
                    "cpu_ms": cpu_ms(process.pid),
                    "rss_kib": number(status, "VmRSS:"),
                    "sleeps": number(status, "voluntary_ctxt_switches:"),
                }
                samples[name].append(sample)
            samples["memqos"][-1]["cpu_ms"] += sum(kept_watch.values())
        if not stalls and now >= begin + seconds / 2:
            stalls = True
            (stalled / "memory.high").write_text(str(24 << 20))
            path = str(stalled.relative_to(MOUNT))
            run(path, "memtool", "hot", "64", "50")
        for _ in range(CHURN):
            end_pod(alive.popleft())
            alive.append(next(started))
            churned += 1
        time.sleep(1)
    answer: dict[str, Any] = {"samples": samples, "pods": churned, "half": seconds / 2}
    answer["alive"] = {name: process.poll() is None for name, process in watchers.items()}
    answer["descriptors"] = len(list(Path(f"/proc/{watchers['memqos'].pid}/fd").iterdir()))
    for process in watchers.values():
        process.terminate()
    answer["codes"] = {name: process.wait(60) for name, process in watchers.items()}
    Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
