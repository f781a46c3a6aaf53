"""Runs in the guest below a real systemd: the units, as they are shipped.

They lie beside it. The answer is JSON in the file `answer`, an object for each of two services.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.guest.scripts.kubelet import CHECKPOINT, DATABASE, KUBELET, checkpoint
from tests.guest.scripts.node import (
    BESTEFFORT,
    MIB,
    MOUNT,
    THRESHOLD,
    number,
    populated,
    run,
    wait_for,
    wait_for_use,
)


WATCH = "memqos-watch-oom.service"
REBASELINE, VALIDATE = "memqos-rebaseline.service", "memqos-validate.service"
INPUTS = Path("/job/in")
UNITS = Path("/run/systemd/system")
ACTIONS = Path("/var/lib/memqos/actions.jsonl")
LOG = Path("/job/out/watch.err")
CONFIG = Path("/run/oom.yaml")
POD = f"{BESTEFFORT}2d0f4f3f_9d1c.slice"
POD_MIB = 80
# Fires while the pod is there, once in four seconds.
# There is no journal here.
WATCHDOG_SECONDS = 10
TEST = f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\nStandardError=append:{LOG}\n"
TEXTFILE = Path("/var/lib/node_exporter/textfile_collector/memqos.prom")
DRIFT_MIB = 20
KUBELET_CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
memoryManagerPolicy: Static
evictionHard: {memory.available: 100Mi}
reservedMemory:
- {numaNode: 0, limits: {memory: 100Mi}}
"""


def systemctl(*words: str) -> str:
    """Run systemctl; return what it says."""
    done = subprocess.run(
        ["systemctl", *words], check=False, capture_output=True, text=True, timeout=120
    )
    return f"{done.stdout}{done.stderr}"


def state(name: str) -> dict[str, str]:
    """Return what systemd knows of a unit."""
    names = "ActiveState,SubState,Result,MainPID,NRestarts,ExecMainStatus"
    shown = systemctl("show", name, f"--property={names}")
    return dict(line.split("=", 1) for line in shown.splitlines())


def put(name: str) -> Path:
    """Install a unit or a drop-in."""
    target = UNITS / name
    target.parent.mkdir(exist_ok=True)
    target.write_text((INPUTS / name).read_text())
    return target


def install(*dropins: str) -> None:
    """Install watch-oom's unit with drop-ins, and a configuration in its command line."""
    for name in (WATCH, *dropins):
        target = put(name)
        text = target.read_text()
        target.write_text(
            text.replace("memqos watch-oom ", f"memqos watch-oom --config {CONFIG} ")
        )
    folder = UNITS / f"{WATCH}.d"
    folder.mkdir(exist_ok=True)
    (folder / "90-test.conf").write_text(TEST)
    systemctl("daemon-reload")


def actions() -> list[dict[str, Any]]:
    """Return what was done."""
    return [json.loads(line) for line in ACTIONS.read_text().splitlines()]


def metrics() -> str:
    """Scrape."""
    with urllib.request.urlopen("http://127.0.0.1:9810/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def process(pid: str) -> dict[str, Any]:
    """Return how a process is protected and what it may do."""
    status = f"/proc/{pid}/status"
    words = Path(status).read_text().split()
    return {
        "score": int(Path(f"/proc/{pid}/oom_score_adj").read_text()),
        "locked_kib": number(status, "VmLck:"),
        "capabilities": words[words.index("CapBnd:") + 1],
        "seccomp": number(status, "Seccomp:"),
        "cgroup": Path(f"/proc/{pid}/cgroup").read_text(),
    }


def watch() -> dict[str, Any]:
    """Start, watch, reload, let it kill, let it hang, stop."""
    CONFIG.write_text(THRESHOLD)
    install()
    answer: dict[str, Any] = {"start": systemctl("start", WATCH), "started": state(WATCH)}
    begin = time.monotonic()
    answer["process"] = process(answer["started"]["MainPID"])
    answer["memory_min"] = int((MOUNT / WATCH / "memory.min").read_text())
    answer["metrics"] = metrics()
    run(f"{POD}/main.scope", "memtool", "anon", str(POD_MIB))
    wait_for_use(POD, POD_MIB)
    answer["acted"] = wait_for(ACTIONS.exists)
    answer["dry"] = actions()
    answer["after_dry"] = populated(POD)[POD]
    time.sleep(max(0, begin + WATCHDOG_SECONDS + 2 - time.monotonic()))
    answer["worked"] = state(WATCH)
    before = LOG.read_text()
    answer["reload"] = systemctl("reload", WATCH)
    wait_for(lambda: LOG.read_text() != before)
    answer["reloaded"] = LOG.read_text().removeprefix(before)
    install(f"{WATCH}.d/10-kill.conf")
    answer["restart"] = systemctl("restart", WATCH)
    answer["killed"] = wait_for(lambda: actions()[-1]["outcome"] != "dry-run")
    answer["kill"] = actions()
    answer["after_kill"] = populated(POD)[POD]
    pid = state(WATCH)["MainPID"]
    answer["kill_process"] = process(pid)
    os.kill(int(pid), signal.SIGSTOP)
    answer["noticed"] = wait_for(lambda: state(WATCH)["NRestarts"] == "1")
    wait_for(lambda: state(WATCH)["ActiveState"] == "active")
    answer["again"] = state(WATCH)
    start = time.monotonic()
    answer["stop"] = systemctl("stop", WATCH)
    answer["stop_seconds"] = time.monotonic() - start
    answer["stopped"] = state(WATCH)
    answer["log"] = LOG.read_text()
    return answer


def start_kubelet() -> dict[str, Any]:
    """Start what is called kubelet, on a checkpoint that it would refuse."""
    CHECKPOINT.write_text(checkpoint(DATABASE, gained_bytes=DRIFT_MIB * MIB))
    TEXTFILE.unlink(missing_ok=True)
    before = CHECKPOINT.read_text()
    said = systemctl("start", "kubelet.service")
    return {
        "start": said,
        "kubelet": state("kubelet.service"),
        "before": before,
        "after": CHECKPOINT.read_text(),
        "textfile": TEXTFILE.read_text() if TEXTFILE.exists() else "",
        "mem_total": number("/proc/meminfo", "MemTotal:") * 1024,
    }


def rebaseline() -> dict[str, Any]:
    """Start kubelet with the unit, and again with the drop-in; validate beside it."""
    TEXTFILE.parent.mkdir(parents=True)
    (KUBELET / "config.yaml").write_text(KUBELET_CONFIG)
    program = shutil.copy("/usr/bin/sleep", "/run/kubelet")
    (UNITS / "kubelet.service").write_text(f"[Service]\nExecStart={program} 1000\n")
    put(REBASELINE)
    wants = UNITS / "kubelet.service.wants"
    wants.mkdir()
    (wants / REBASELINE).symlink_to(UNITS / REBASELINE)
    put(VALIDATE)
    systemctl("daemon-reload")
    answer: dict[str, Any] = {"unit": start_kubelet(), "state": state(REBASELINE)}
    TEXTFILE.unlink(missing_ok=True)
    answer["validate"] = systemctl("start", VALIDATE)
    answer["validated"] = TEXTFILE.read_text() if TEXTFILE.exists() else ""
    systemctl("stop", "kubelet.service")
    (wants / REBASELINE).unlink()
    put("kubelet.service.d/10-memqos.conf")
    systemctl("daemon-reload")
    answer["drop-in"] = start_kubelet()
    return answer


def main() -> None:
    """Go through both."""
    answer = {"rebaseline": rebaseline(), "watch": watch()}
    Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
