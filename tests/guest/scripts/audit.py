"""Runs in the guest: trees made from plans, damaged; and page cache under pressure.

The answer is JSON in the file `answer`, an object for each scenario.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.guest.scripts.node import (
    MIB,
    MOUNT,
    available_mib,
    clear,
    make,
    run,
    wait_for,
    wait_for_use,
)


IN = Path("/job/in")
MGLRU = Path("/sys/kernel/mm/lru_gen/enabled")


def holds(file: Path, size: int) -> bool:
    """Tell whether a file says at least so much."""
    return int(file.read_text()) >= size


def memqos(*arguments: str) -> Any:
    """Run memqos; return its document and its exit status."""
    done = subprocess.run(
        ["memqos", *arguments, "-o", "json"], check=False, capture_output=True, text=True
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return {"code": done.returncode, **json.loads(done.stdout)}


def audit(*arguments: str) -> list[list[str | None]]:
    """Audit; return code, path and file of each finding."""
    found = memqos("audit-cgroups", *arguments)["findings"]
    return sorted(([item["code"], item["path"], item["file"]] for item in found), key=str)


def ids() -> dict[str, str]:
    """Return each container's id by its role."""
    found = {}
    for pod in json.loads((IN / "pods.json").read_text())["items"]:
        for status in pod["status"]["containerStatuses"]:
            name = f"Pod/default/{pod['metadata']['name']}/{status['name']}"
            found[f"container:{name}"] = status["containerID"].rpartition("/")[2]
    return found


def plan(driver: str) -> dict[str, str]:
    """Write what the plan says, as kubelet and containerd would; return paths by role."""
    total = next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines())
    document = memqos(
        "plan-cgroups", "-f", str(IN / "pods.json"), "--kubelet-config", str(IN / "on.json"),
        "--cgroup-driver", driver, "--capacity", f"memory={total}Ki",
    )  # fmt: skip
    paths = {}
    for cgroup in document["cgroups"]:
        path = cgroup["path"]
        if cgroup["role"] in ids():
            identity = ids()[cgroup["role"]]
            scope = f"cri-containerd-{identity}.scope" if driver == "systemd" else identity
            path = f"{path.rpartition('/')[0]}/{scope}"
        folder = make(path)
        for name, text in cgroup["files"].items():
            (folder / name).write_text(text)
        paths[cgroup["role"]] = f"/{path}"
    for role, path in paths.items():
        if role in ids():
            run(path, "sleep", "1000")
            # The sandbox is a container that no status names.
            sandbox = "f0" * 32
            scope = f"cri-containerd-{sandbox}.scope" if driver == "systemd" else sandbox
            run(f"{path.rpartition('/')[0]}/{scope}", "sleep", "1000")
    for role, path in paths.items():
        if role in ids():
            current = MOUNT / path.lstrip("/") / "memory.current"
            wait_for(partial(holds, current, 16 * 4096))
    return paths


def tree(driver: str) -> dict[str, Any]:
    """Audit a tree as planned, then with one damage at a time."""
    paths = plan(driver)
    options = ("--pods", str(IN / "pods.json"), "--kubelet-config", str(IN / "on.json"))
    answer: dict[str, Any] = {"paths": paths, "clean": audit(*options), "damage": {}}
    damages: dict[str, Mapping[str, str]] = json.loads((IN / "damages.json").read_text())
    for name, changes in damages.items():
        before = {}
        for key, text in changes.items():
            role, file = key.split(" ")
            place = MOUNT / paths[role].lstrip("/") / file
            before[place] = place.read_text()
            place.write_text(text)
        answer["damage"][name] = audit(*options)
        for place, text in before.items():
            place.write_text(text)
    answer["again"] = audit(*options)
    gone = "container:Pod/default/b1/c"
    clear(paths[gone].lstrip("/"))
    answer["damage"]["removed"] = audit(*options)
    for role, file in (
        ("kubepods", "memory.min"),
        ("kubepods", "memory.low"),
        ("qos:burstable", "memory.low"),
    ):
        (MOUNT / paths[role].lstrip("/") / file).write_text("0")
    answer["rollback"] = audit("--rollback", "--kubelet-config", str(IN / "off.json"))
    clear(paths["kubepods"].lstrip("/"))
    return answer


def file_cache(path: str) -> int:
    """Return how much page cache a cgroup holds."""
    words = (MOUNT / path / "memory.stat").read_text().split()
    return int(words[words.index("file") + 1])


def is_cached(path: str, size: int) -> bool:
    """Tell whether a cgroup holds so much page cache."""
    return file_cache(path) >= size


def pressure(ancestors: bool) -> dict[str, Any]:
    """Fill page cache in four cgroups, start a hog, and see what is kept."""
    leaves = {
        "g1": "kubepods/podg/g",
        "b1": "kubepods/burstable/podb/b",
        "e1": "kubepods/besteffort/pode/e",
        "other": "other/o",
    }
    for path in leaves.values():
        make(path)
    minimum, low = 128 * MIB, 64 * MIB
    values = {
        "kubepods": {
            "memory.min": minimum if ancestors else 0,
            "memory.low": low if ancestors else 0,
        },
        "kubepods/burstable": {"memory.low": low if ancestors else 0},
        "kubepods/podg": {"memory.min": minimum},
        "kubepods/podg/g": {"memory.min": minimum},
        "kubepods/burstable/podb": {"memory.low": low},
        "kubepods/burstable/podb/b": {"memory.low": low},
    }
    for path, files in values.items():
        for name, size in files.items():
            (MOUNT / path / name).write_text(str(size))
    for name, path in leaves.items():
        run(path, "memtool", "cache", f"/scratch/{name}")
        wait_for(partial(is_cached, path, 95 * MIB))
    predicted = memqos("effective-protection")["cgroups"]
    before = {name: file_cache(path) for name, path in leaves.items()}
    size = available_mib() - 230
    run("hog", "memtool", "anon", str(size), "8", "20")
    done = wait_for_use("hog", size)
    time.sleep(1)
    answer = {
        "predicted": {
            name: next(item for item in predicted if item["path"] == f"/{path}")
            for name, path in leaves.items()
        },
        "before": before,
        "kept": {name: file_cache(path) for name, path in leaves.items()},
        "grown": done,
        "size": size,
    }
    clear("hog", "kubepods", "other")
    for name in leaves:
        subprocess.run(
            ["memtool", "drop", f"/scratch/{name}"], check=True, stdout=subprocess.DEVNULL
        )
    return answer


def main() -> None:
    """Go through the scenarios."""
    if MGLRU.exists():
        MGLRU.write_text("0")
    answer: dict[str, Any] = {"release": os.uname().release}
    for driver in ("systemd", "cgroupfs"):
        answer[driver] = tree(driver)
        Path("answer").write_text(json.dumps(answer))
    for name in ("g1", "b1", "e1", "other"):
        subprocess.run(
            ["memtool", "mkfile", f"/scratch/{name}", "96"], check=True, stdout=subprocess.DEVNULL
        )
    for name, ancestors in (("held", True), ("stale", False)):
        start = time.monotonic()
        answer[name] = pressure(ancestors)
        sys.stdout.write(f"{name}: {time.monotonic() - start:.1f} s\n")
        Path("answer").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
