"""``memqos measure-events``: captures of real kernels, live trees, its outputs."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from memqos.adapters.schemas import schema_text
from memqos.memory_qos.events import State
from memqos.memory_qos.findings import FindingCode, Severity
from tests.support.cgroups import capture, scenario, write_tree
from tests.support.program import PROGRAM, memqos, run_program, validator
from tests.support.tools import run_tool


def compare(folder: Path, name: str, before: str, after: str, *arguments: str) -> Any:
    """Compare two captures of a scenario; return the document."""
    answer = memqos(
        "measure-events",
        "--before", capture(folder, name, before),
        "--after", capture(folder, name, after),
        "-o", "json",
        *arguments,
    )  # fmt: skip
    assert (answer.code, answer.err) == (0, "")
    return answer.json


def told(document: Any) -> set[tuple[str, str, str]]:
    """Return (code, severity, path)."""
    return {
        (item["code"], item["severity"], cgroup["path"])
        for cgroup in document["cgroups"]
        for item in cgroup["findings"]
    }


# --- the scenarios, by captures ------------------------------------------------------------------


def test_throttled(tmp_path: Path) -> None:
    """Growth past memory.high: counters, stalls, and the suspicion, at the container alone."""
    document = compare(tmp_path, "high-systemd", "t1-over-high", "t2-throttled")
    path = scenario("high-systemd")["containers"]["b1"]
    container = next(item for item in document["cgroups"] if item["path"] == path)

    assert told(document) == {
        ("livelock-suspected", "error", path),
        ("throttled", "warning", path),
        ("pressure", "warning", path),
    }
    assert document["intervalSeconds"] is None
    assert (container["state"], container["local"]["high"]) == ("same", 1962)
    assert container["stallFullMicroseconds"] > 6_000_000


def test_oom_in_a_leaf(tmp_path: Path) -> None:
    """The pod's limit was met, the container's processes were killed."""
    document = compare(tmp_path, "oom-systemd", "t0-g1-before", "t1-g1-after")
    names = scenario("oom-systemd")

    assert told(document) == {
        ("oom", "error", names["pods"]["g1"]),
        ("max-hit", "warning", names["pods"]["g1"]),
        ("oom-kill", "error", names["containers"]["g1"]),
    }


def test_idle(tmp_path: Path) -> None:
    """Nothing is said of a node where nothing happens."""
    root = capture(tmp_path, "idle-systemd", "t0")
    answer = memqos("measure-events", "--before", root, "--after", root)

    assert answer.out == "nothing happened in 26 cgroups\n"


def test_text(tmp_path: Path) -> None:
    """A table of what moved, then findings by cgroup with one remedy each; no line is long."""
    answer = memqos(
        "measure-events",
        "--before", capture(tmp_path, "oomstuck-systemd", "t0-stuck"),
        "--after", capture(tmp_path, "oomstuck-systemd", "t1-3s-later"),
    )  # fmt: skip

    assert answer.out.startswith("CGROUP")
    assert (
        "error oom: 496 allocations failed at its memory.max, and nothing was killed" in answer.out
    )
    assert "-> write 1 to its cgroup.kill" in answer.out
    assert all(len(line) <= 120 for line in answer.out.splitlines())


def test_part_of_a_capture(tmp_path: Path) -> None:
    """PATH, a pod and a container narrow the report."""
    times = ("high-systemd", "t0-before", "t1-over-high")
    names = scenario("high-systemd")
    uid = "5f0c9a1e-0002-4b6d-9c3a-0d2e6f7a0002"

    def paths(*arguments: str) -> list[str]:
        return [item["path"] for item in compare(tmp_path, *times, *arguments)["cgroups"]]

    assert paths("--pod", uid) == [names["pods"]["b1"], names["containers"]["b1"]]
    assert paths("--pod", uid, "--container", "020102010201") == [names["containers"]["b1"]]
    assert paths(names["containers"]["b1"]) == [names["containers"]["b1"]]
    # A path below another is not read twice.
    assert paths(names["pods"]["b1"], names["containers"]["b1"]) == paths("--pod", uid)


def test_new_and_vanished(tmp_path: Path) -> None:
    """A cgroup that was not there, and one that is gone, are told apart."""
    events = {"memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\n"}
    write_tree(tmp_path / "a", {"/old": events})
    write_tree(tmp_path / "b", {"/new": events})
    answer = memqos(
        "measure-events", "--before", tmp_path / "a", "--after", tmp_path / "b", "-o", "json"
    )

    assert [(item["path"], item["state"]) for item in answer.json["cgroups"]] == [
        ("/new", "new"),
        ("/old", "vanished"),
    ]


# --- live ----------------------------------------------------------------------------------------


def live(folder: Path, high: int = 1) -> Path:
    """Make a host with one pod, as kubelet lays it out."""
    uid, identifier = "0a" * 16, "01" * 32
    pod = f"/kubepods/pod{uid}"
    write_tree(
        folder / "sys/fs/cgroup",
        {
            "/": {"cgroup.controllers": "memory\n"},
            pod: {"memory.events": "high 0\n", "memory.events.local": "high 0\n"},
            f"{pod}/{identifier}": {
                "memory.events": f"high {high}\n",
                "memory.events.local": f"high {high}\n",
            },
        },
    )
    (folder / f"var/log/pods/shop_web_{uid}").mkdir(parents=True, exist_ok=True)
    (folder / "var/log/containers").mkdir(parents=True, exist_ok=True)
    (folder / f"var/log/containers/web_shop_app-{identifier}.log").touch()
    (folder / "proc/7").mkdir(parents=True, exist_ok=True)
    (folder / "proc/7/cgroup").write_text(f"0::{pod}/{identifier}\n")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pod", "shop/web", "--container", "app"],
        ["--pid", "7"],
    ],
)
def test_one_of_a_host(arguments: list[str], tmp_path: Path) -> None:
    """Names come from kubelet's log directories, a process' cgroup from /proc."""
    answer = memqos(
        "measure-events", "--root", live(tmp_path), "--interval", "1ms", "-o", "json", *arguments
    )

    assert [item["path"] for item in answer.json["cgroups"]] == [
        f"/kubepods/pod{'0a' * 16}/{'01' * 32}"
    ]
    assert answer.json["intervalSeconds"] == 0.001


def watch(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a watch."""
    return subprocess.Popen(
        [PROGRAM, "measure-events", "--root", root, "--interval", "50ms", "--watch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_watch_is_a_line_a_report(tmp_path: Path) -> None:
    """Growth is seen between two reports, a container made anew after that is a reset."""
    root = live(tmp_path)
    place = root / f"sys/fs/cgroup/kubepods/pod{'0a' * 16}/{'01' * 32}"
    with watch(root, "-o", "json", "--pod", "shop/web") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        for name in ("memory.events", "memory.events.local"):
            (place / name).write_text("high 41\n")
        grown = 0
        for _ in range(40):
            document = json.loads(process.stdout.readline())
            validator("EventDeltas").validate(document)
            grown += document["cgroups"][1]["local"]["high"]
            if grown == 40:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)

    assert first["cgroups"][1]["local"] == {"high": 0}
    assert grown == 40
    assert (process.returncode, err) == (130, "")


def test_watch_ends_on_sigterm(tmp_path: Path) -> None:
    """SIGTERM ends it, quietly."""
    with watch(live(tmp_path), "-o", "yaml") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "---\n"
        process.terminate()
        _, err = process.communicate(timeout=10)

    assert (process.returncode, err) == (-signal.SIGTERM, "")


def test_watch_ends_with_its_reader(tmp_path: Path) -> None:
    """A closed pipe ends it, quietly."""
    with watch(live(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=10)

    assert (process.returncode, err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk(tmp_path: Path) -> None:
    """What cannot be written is said, and is no answer."""
    with Path("/dev/full").open("w") as full:
        done = run_program(
            "measure-events", "--root", live(tmp_path), "--interval", "1ms",
            capture_output=False, stdout=full, stderr=subprocess.PIPE,
        )  # fmt: skip

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


def test_a_tree_that_vanishes(tmp_path: Path) -> None:
    """Cgroups that go between the readings are vanished; the whole tree is an error."""
    root = live(tmp_path)
    with watch(root, "-o", "json") as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.rename(root / "sys/fs/cgroup", root / "gone")  # noqa: PTH104
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            process.stdout.readline()
        _, err = process.communicate(timeout=10)

    assert process.returncode == 3
    assert "No such file or directory" in err


def test_prometheus(tmp_path: Path) -> None:
    """The exposition is one that Prometheus takes, whatever a cgroup is called."""
    for number, high in enumerate((1, 5)):
        write_tree(
            tmp_path / str(number),
            {
                '/a"b\\c d': {
                    "memory.events.local": f"high {high}\n",
                    "memory.events": "high 0\n",
                    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
                    f"full avg10=0.00 avg60=0.00 avg300=0.00 total={high}\n",
                }
            },
        )
    answer = memqos(
        "measure-events", "--before", tmp_path / "0", "--after", tmp_path / "1", "-o", "prometheus"
    )

    assert 'memqos_cgroup_events_delta{cgroup="/a\\"b\\\\c d",event="high"} 4' in answer.out
    done = run_tool("promtool", "check", "metrics", input=answer.out)
    assert (done.returncode, done.stderr) == (0, "")


# --- wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--interval", "10"], 2, "10"),
        (["--interval", "0s"], 2, "not between"),
        (["--interval", "48h"], 2, "not between"),
        (["--before", "x"], 2, "need each other"),
        (["--before", "x", "--after", "y", "--watch"], 2, "cannot be watched"),
        (["--before", "/nowhere", "--after", "/nowhere"], 3, "/nowhere"),
        (["/a", "--pid", "1"], 2, "exclude each other"),
        (["--pid", "0"], 2, "0 is not in the range"),
        (["--pid", "8"], 3, "proc/8/cgroup"),
        (["/nowhere", "--interval", "1ms"], 3, "nowhere: No such file"),
        (["--pod", "shop/db"], 3, "shop/db: no such pod"),
    ],
)
def test_wrong(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    """One line that says what is wrong."""
    answer = memqos("measure-events", "--root", live(tmp_path), *arguments)

    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert message in answer.err


def test_nothing_to_measure(tmp_path: Path) -> None:
    """A directory that is no cgroup tree is no answer."""
    (tmp_path / "a").mkdir()
    answer = memqos("measure-events", "--before", tmp_path, "--after", tmp_path)

    assert answer.code == 3
    assert "no cgroup tree in it" in answer.err


def test_enums() -> None:
    """The words in the schemas are exactly those of the library."""
    for kind in ("EventDeltas", "CgroupAudit"):
        words = json.loads(schema_text(kind))["$defs"]
        assert words["code"]["enum"] == [str(code) for code in FindingCode]
        assert words["severity"]["enum"] == [str(severity) for severity in Severity]
    cgroup = json.loads(schema_text("EventDeltas"))["properties"]["cgroups"]["items"]
    assert cgroup["properties"]["state"]["enum"] == [str(state) for state in State]
