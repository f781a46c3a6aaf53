"""watch-oom, on a directory that looks like a cgroup tree; the real kernel is in tests/guest."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from memqos.oom.config import check_documents
from memqos_cli.output.oom_metrics import Counters
from memqos_cli.output.watch_outputs import WatchOutputs
from memqos_cli.watch_oom import _doze, _loop
from tests.support.program import PROGRAM, memqos, run_program


VICTIM = "kubepods/besteffort/pod1234abcd-0a01"


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """Return a tree with one best-effort pod and one that is limited."""
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "memory.pressure").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    for path, current, limit in ((VICTIM, "5", "max"), ("kubepods/burstable/pod2", "9", "10")):
        folder = root / path
        folder.mkdir(parents=True)
        (folder / "memory.current").write_text(f"{current}\n")
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "cgroup.procs").write_text("")
    return root


def config_file(folder: Path, trigger: str = "true", interval: str = "20ms") -> Path:
    """Write an OOMConfig."""
    path = folder / "oom.yaml"
    fields = {"triggerExpression": trigger, "sampleInterval": interval}
    path.write_text(json.dumps({"apiVersion": "v1alpha1", "kind": "OOMConfig", **fields}))
    return path


@contextmanager
def watching(*arguments: str | Path, stdin: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run the loop until the block ends, or for a minute: a line that never comes is told."""
    with subprocess.Popen(
        [PROGRAM, "watch-oom", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        limit = threading.Timer(60, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def read_until(process: subprocess.Popen[str], text: str, *, err: bool = False) -> str:
    """Read lines until one has a text."""
    stream = process.stderr if err else process.stdout
    assert stream is not None
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"ended without {text!r}")


def test_dry_run(mount: Path, tmp_path: Path) -> None:
    """Nothing is killed unless asked; what would be is told everywhere."""
    actions, metrics, recording = (tmp_path / name for name in ("a.jsonl", "m.prom", "r.jsonl"))
    config = config_file(tmp_path, interval="2s")  # no tick is late on a busy machine
    answer = memqos(
        *("watch-oom", "--cgroup-root", mount, "--once", "--config", config),
        *("--actions", actions, "--textfile", metrics, "--record", recording),
    )
    assert (answer.code, answer.err) == (0, "")
    line = f"trigger fired: would kill /sys/fs/cgroup/{VICTIM} (score 5)\n"
    assert answer.out == line * 2
    records = [json.loads(text) for text in actions.read_text().splitlines()]
    assert [(r["id"], r["outcome"], r["class"]) for r in records] == [
        ("0", "dry-run", "Besteffort"),
        ("1", "dry-run", "Besteffort"),
    ]
    assert actions.stat().st_mode & 0o777 == 0o600
    assert 'memqos_oom_actions_total{outcome="dry-run"} 2\n' in metrics.read_text()
    replayed = memqos("replay-oom", recording, "--trigger", "true", "-o", "json")
    assert replayed.json["summary"]["outcomes"] == {"fire": 2}


def test_kill(mount: Path, tmp_path: Path) -> None:
    """With --kill the cgroup's kill file is written, hooks run, and the action says so."""
    kill_file = mount / VICTIM / "cgroup.kill"
    kill_file.write_text("")
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1 $MEMQOS_VICTIM $MEMQOS_OUTCOME" >> {tmp_path}/hooks\n')
    hook.chmod(0o755)
    actions = tmp_path / "a.jsonl"
    answer = memqos(
        *("watch-oom", "--cgroup-root", mount, "--once", "--config", config_file(tmp_path)),
        *("--kill", "--no-protect-self", "--actions", actions),
        *("--before-kill", f"{hook} before", "--after-kill", f"{hook} after"),
    )
    assert answer.code == 0
    assert kill_file.read_text() == "1"
    assert answer.out.startswith(f"trigger fired: killed /sys/fs/cgroup/{VICTIM} (score 5)")
    path = f"/sys/fs/cgroup/{VICTIM}"
    hooks = (tmp_path / "hooks").read_text().splitlines()
    assert hooks[:2] == [f"before {path} ", f"after {path} killed"]
    assert json.loads(actions.read_text().splitlines()[0])["outcome"] == "killed"


def test_hooks_take_signals(mount: Path, tmp_path: Path) -> None:
    """A hook does not inherit that signals wait for the next cycle."""
    (mount / VICTIM / "cgroup.kill").write_text("")
    copy = tmp_path / "status"
    answer = memqos(
        *("watch-oom", "--cgroup-root", mount, "--once", "--config", config_file(tmp_path)),
        *("--kill", "--no-protect-self", "--after-kill", f"cp /proc/self/status {copy}"),
    )
    assert answer.code == 0
    blocked = int(copy.read_text().split("SigBlk:")[1].split()[0], 16)
    assert not blocked & (1 << signal.SIGTERM - 1 | 1 << signal.SIGHUP - 1)


def test_hooks_do_not_inherit_protection(mount: Path, tmp_path: Path) -> None:
    """The kernel may kill a hook, though not (where that can be had) the watcher."""
    (mount / VICTIM / "cgroup.kill").write_text("")
    copy = tmp_path / "score"
    done = run_program(
        *("watch-oom", "--cgroup-root", mount, "--once", "--config", config_file(tmp_path)),
        *("--kill", "--after-kill", f"cp /proc/self/oom_score_adj {copy}"),
    )
    assert done.returncode == 0
    assert int(copy.read_text()) >= 0


def test_hooks_that_fail(mount: Path, tmp_path: Path) -> None:
    """A hook has a time limit, and no hook keeps the kill from happening."""
    (mount / VICTIM / "cgroup.kill").write_text("")
    answer = memqos(
        *("watch-oom", "--cgroup-root", mount, "--once", "--config", config_file(tmp_path)),
        *("--kill", "--no-protect-self", "--hook-timeout", "50ms"),
        *("--before-kill", "sleep 60", "--after-kill", "/nonexistent"),
    )
    assert answer.code == 0
    assert "timed out" in answer.err
    assert "/nonexistent" in answer.err
    assert answer.out.startswith("trigger fired: killed")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--protect-uid", "1234abcd"], "nobody is eligible"),
        (["--protect-uid", "1234abcd_0a01"], "nobody is eligible"),
        (["--unless-available", "1"], "held back from"),
        (["--unless-available", "1Ei"], "would kill"),
        (["--skip-unpopulated"], "would kill"),
    ],
)
def test_guards(mount: Path, tmp_path: Path, arguments: list[str], expected: str) -> None:
    """Each holds back what it says."""
    config = config_file(tmp_path)
    answer = memqos("watch-oom", "--cgroup-root", mount, "--once", "--config", config, *arguments)
    assert answer.code == 0
    assert expected in answer.out


UID = "5f0c9a1e-0000-4000-8000-00000000000a"


@pytest.fixture
def two(mount: Path) -> Path:
    """Return a tree with one more best-effort pod, which uses less and has a UID."""
    folder = mount / f"kubepods/besteffort/pod{UID}"
    folder.mkdir()
    (folder / "memory.current").write_text("3\n")
    (folder / "memory.max").write_text("max\n")
    return mount


def test_preferences(two: Path, tmp_path: Path) -> None:
    """A pod that is preferred goes first, one that is protected never, whatever the file says."""
    preferences = tmp_path / "pods"
    arguments: list[Any] = ["watch-oom", "--cgroup-root", two, "--once"]
    arguments += ["--config", config_file(tmp_path), "--xattrs", "--preferences", preferences]
    preferences.write_text(f"{UID} prefer\n")
    line = f"would kill /sys/fs/cgroup/kubepods/besteffort/pod{UID} (score 3)"
    assert line in memqos(*arguments).out
    assert f"would kill /sys/fs/cgroup/{VICTIM}" in memqos(*arguments, "--protect-uid", UID).out
    preferences.write_text(f"{UID} maybe\n")
    answer = memqos(*arguments)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith(f"memqos: {preferences}: line 1: expected a pod's UID")


def test_preferences_are_read_again(two: Path, tmp_path: Path) -> None:
    """At SIGHUP; a bad file keeps the old ones, and --protect-uid stays."""
    preferences = tmp_path / "pods"
    preferences.write_text(f"{UID} prefer\n")
    config = config_file(tmp_path)
    arguments = ("--cgroup-root", two, "--config", config, "--preferences", preferences)
    with watching(*arguments, "--protect-uid", "1234abcd-0a01") as process:
        read_until(process, UID)
        preferences.write_text(f"{UID} prefer\nnonsense\n")
        process.send_signal(signal.SIGHUP)
        line = read_until(process, "the preferences stay as they were", err=True)
        assert f"{preferences}: line 2: " in line
        read_until(process, UID)
        preferences.write_text(f"{UID} never\n")
        process.send_signal(signal.SIGHUP)
        read_until(process, "the preferences were read again", err=True)
        read_until(process, "nobody is eligible")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_standard_input_is_read_once(mount: Path, tmp_path: Path) -> None:
    """At SIGHUP it has ended, which must not stand for an empty file."""
    config = config_file(tmp_path)
    arguments = ("--cgroup-root", mount, "--config", config, "--preferences", "-")
    with watching(*arguments, stdin=f"{UID} never\n") as process:
        read_until(process, "would kill")
        process.send_signal(signal.SIGHUP)
        line = read_until(process, "the preferences stay as they were", err=True)
        assert "standard input cannot be read again" in line


def test_swap(two: Path, tmp_path: Path) -> None:
    """Metrics and ranking see swap, and a recording replays alike; without the option, neither."""
    for path, size in ((VICTIM, 7), (f"kubepods/besteffort/pod{UID}", 8)):
        (two / path / "memory.swap.current").write_text(f"{size}\n")
    (two / "kubepods/besteffort/memory.swap.current").write_text("15\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("SwapTotal:  64 kB\nSwapFree:  4 kB\n")
    config = tmp_path / "swap.yaml"
    fields = {
        "triggerExpression": "qos_memory_swap_current[Besteffort] == 15.0 "
        "&& swap_free == 4u * KiB && swap_total == 64u * KiB",
        "cgroupRankingExpression": "double(memory_swap_current.orValue(0u))",
        "sampleInterval": "2s",
    }
    config.write_text(json.dumps({"apiVersion": "v1alpha1", "kind": "OOMConfig", **fields}))
    recording = tmp_path / "r.jsonl"
    arguments: list[Any] = ["--root", tmp_path, "--cgroup-root", two, "--once"]
    swap: list[Any] = ["--config", config, "--swap-variables"]
    answer = memqos("watch-oom", *arguments, *swap, "--record", recording)
    victim = f"/sys/fs/cgroup/kubepods/besteffort/pod{UID}"
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"trigger fired: would kill {victim} (score 8)\n" * 2
    replayed = memqos("replay-oom", recording, *swap, "--metrics", "-o", "json").json
    assert replayed["summary"]["victims"] == [victim, victim]
    assert replayed["steps"][0]["metrics"]["qos_memory_swap_current"]["Besteffort"] == 15.0
    assert replayed["steps"][0]["metrics"]["swap_total"] == 65536
    refused = memqos("watch-oom", *arguments, "--config", config)
    assert refused.code == 1
    assert "undeclared reference to 'swap_free'" in refused.err
    recording.unlink()
    assert memqos("watch-oom", *arguments, "--record", recording).code == 0
    assert "swap.current" not in recording.read_text()


def test_signals(mount: Path, tmp_path: Path) -> None:
    """SIGHUP reads the configuration again, a bad one keeps the old; SIGTERM ends it."""
    config = config_file(tmp_path)
    with watching("--cgroup-root", mount, "--config", config) as process:
        read_until(process, "would kill")
        config_file(tmp_path, trigger="nonsense")
        process.send_signal(signal.SIGHUP)
        line = read_until(process, "stays as it was", err=True)
        assert "undeclared reference to 'nonsense'" in line
        read_until(process, "would kill")
        config.unlink()
        process.send_signal(signal.SIGHUP)
        assert "No such file" in read_until(process, "stays as it was", err=True)
        config_file(tmp_path, trigger="false")
        process.send_signal(signal.SIGHUP)
        read_until(process, "was read again", err=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_listen(mount: Path, tmp_path: Path) -> None:
    """Metrics over HTTP, on loopback unless told otherwise."""
    arguments = ("--cgroup-root", mount, "--config", config_file(tmp_path), "--listen", ":0")
    with watching(*arguments) as process:
        line = read_until(process, "serving metrics on 127.0.0.1:", err=True)
        read_until(process, "would kill")
        read_until(process, "would kill")
        url = f"http://127.0.0.1:{line.rpartition(':')[2].strip()}/metrics"
        with urllib.request.urlopen(url) as answer:
            assert b"memqos_oom_cycles_total" in answer.read()


def test_listen_on_ipv6(mount: Path, tmp_path: Path) -> None:
    """In brackets, as in a URL, and told so."""
    config = config_file(tmp_path, interval="2s")
    arguments: list[Any] = ["watch-oom", "--cgroup-root", mount, "--once", "--config", config]
    answer = memqos(*arguments, "--listen", "[::1]:0")
    if answer.code == 3:
        assert re.fullmatch(r"memqos: \[::1\]:0: [^\n]+\n", answer.err)
        pytest.skip(f"no IPv6 here: {answer.err}")
    assert answer.code == 0
    assert re.fullmatch(r"memqos: serving metrics on \[::1\]:[0-9]+\n", answer.err)


def test_reload_is_told_to_systemd(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Type=notify-reload waits for RELOADING=1 with the monotonic time in µs: sd_notify(3)."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with watching("--cgroup-root", mount, "--config", config_file(tmp_path)) as process:
            assert server.recv(64) == b"READY=1"
            before = time.monotonic_ns() // 1000
            process.send_signal(signal.SIGHUP)
            message = server.recv(64).decode()
            after = time.monotonic_ns() // 1000
            match = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=([0-9]+)", message)
            assert match
            assert before <= int(match[1]) <= after
            assert server.recv(64) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert server.recv(64) == b"STOPPING=1"
            assert process.wait(20) == 0


def test_outcomes_that_have_not_come_are_exported(mount: Path, tmp_path: Path) -> None:
    """With 0, since to increase() a series that begins with 1 has not increased."""
    metrics = tmp_path / "m.prom"
    config = config_file(tmp_path, interval="2s")
    arguments: list[Any] = ["watch-oom", "--cgroup-root", mount, "--once", "--config", config]
    assert memqos(*arguments, "--textfile", metrics).code == 0
    found = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines() if "{" in line)
    cycles = ("fire", "no-fire", "eval-error", "collect-error")
    actions = ("none", "dry-run", "held-back", "killed", "partly-killed", "empty", "refused")
    assert found == {
        **{f'memqos_oom_cycles_total{{outcome="{name}"}}': "0" for name in cycles},
        **{f'memqos_oom_actions_total{{outcome="{name}"}}': "0" for name in (*actions, "failed")},
        'memqos_oom_cycles_total{outcome="fire"}': "2",
        'memqos_oom_actions_total{outcome="dry-run"}': "2",
    }


def test_kubelet_comes_later(tmp_path: Path) -> None:
    """With --layout auto its pods are found once they are there, and the change is told."""
    root = tmp_path / "cgroup"
    (root / "system.slice").mkdir(parents=True)
    with watching("--cgroup-root", root, "--config", config_file(tmp_path)) as process:
        read_until(process, "nobody is eligible")
        pod = root / "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"
        pod.mkdir(parents=True)
        (pod / "memory.current").write_text("5\n")
        (pod / "memory.max").write_text("max\n")
        line = read_until(process, "the layout is", err=True)
        assert line == "memqos: the layout is systemd now; it was cgroupfs\n"
        read_until(process, f"would kill /sys/fs/cgroup/{pod.relative_to(root)} (score 5)")


def test_late_ticks_are_told(mount: Path, tmp_path: Path) -> None:
    """Ticks that cannot be kept are dropped and counted."""
    config = config_file(tmp_path, interval="1ns")
    answer = memqos("watch-oom", "--cgroup-root", mount, "--once", "--config", config)
    assert answer.code == 0
    assert "ticks were missed" in answer.err


def test_late_ticks_are_not_told_all_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that is too slow is late each time: all are counted, one in ten seconds is told."""
    outputs = WatchOutputs(is_sole=True, actions=None, textfile=None)
    for missed, seconds in ((3, 0.5), (2, 5.0), (1, 10.0), (4, 10.5)):
        outputs.late(missed, seconds)
    assert re.findall(r"and (\d) ticks", capsys.readouterr().err) == ["3", "4"]
    assert "memqos_oom_missed_ticks_total 10\n" in outputs.counters.render()


def test_openssl_is_left_out(mount: Path, tmp_path: Path) -> None:
    """Nothing of it is used, and all that is mapped gets locked."""
    with watching("--cgroup-root", mount, "--config", config_file(tmp_path)) as process:
        read_until(process, "would kill")
        assert "libcrypto" not in Path(f"/proc/{process.pid}/maps").read_text()


def test_collect_errors_are_told(mount: Path, tmp_path: Path) -> None:
    """The cycle is skipped, the watch goes on; the same error is told once."""
    (mount / "system").mkdir()
    (mount / "system/memory.pressure").write_text("some avg10=0.00\n")
    config = config_file(tmp_path)
    answer = memqos("watch-oom", "--cgroup-root", mount, "--once", "--config", config)
    assert answer.code == 0
    assert answer.err.count("cannot populate PSI context") == 1


def test_a_full_disk_does_not_end_the_watch(mount: Path, tmp_path: Path) -> None:
    """What cannot be written is told once, as long as it is the same."""
    config = config_file(tmp_path)
    arguments: list[Any] = ["watch-oom", "--cgroup-root", mount, "--once", "--config", config]
    answer = memqos(*arguments, "--textfile", tmp_path / "gone/m.prom")
    assert answer.code == 0
    assert answer.err.count("cannot write") == 1
    assert memqos(*arguments, "--record", tmp_path / "gone/r.jsonl").code == 3


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--listen", "8080"], 2),
        (["--listen", "127.0.0.1:99999"], 2),
        (["--listen", "::1:9810"], 2),
        (["--listen", "[::1:9810"], 2),
        (["--listen", ":²"], 2),
        (["--listen", "256.0.0.1:0"], 3),
        (["--record-size", "0"], 2),
        (["--record-size", "big"], 2),
        (["--hook-timeout", "5"], 2),
        (["--hook-timeout", "0"], 2),
        (["--listen", "\udcff:0"], 2),
        (["--before-kill", " "], 2),
        (["--before-kill", "''"], 2),
        (["--after-kill", "'"], 2),
        (["--protect-uid", ""], 2),
        (["--protect-uid", "1234abc"], 2),
        (["--protect-uid", "kubepods"], 2),
        (["--protect-uid", "--------"], 2),
        (["--actions", "x", "--textfile", "x"], 2),
        (["--cgroup-root", "/nonexistent"], 3),
        (["--cgroup-root", ""], 3),
    ],
)
def test_wrong_usage(arguments: list[str], code: int) -> None:
    """One line that says what is wrong."""
    started = time.monotonic()
    answer = memqos("watch-oom", "--once", *arguments)
    assert answer.code == code
    assert time.monotonic() - started < 30


def test_cgroup_v1(mount: Path) -> None:
    """Refused, as by the other commands: its files mean something else."""
    (mount / "memory").mkdir()
    (mount / "memory/cgroup.procs").write_text("")
    answer = memqos("watch-oom", "--once", "--cgroup-root", mount)
    assert (answer.code, answer.out) == (3, "")
    assert "cgroup v1" in answer.err


@pytest.mark.parametrize("output", ["full", "pipe"])
def test_standard_output_fails(mount: Path, tmp_path: Path, output: str) -> None:
    """That lines are lost is told once, and the watch goes on; the action log is whole."""
    actions = tmp_path / "a.jsonl"
    if output == "full":
        stdout = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, stdout = os.pipe()
        os.close(reader)
    try:
        done = run_program(
            *("watch-oom", "--cgroup-root", mount, "--once", "--actions", actions),
            *("--config", config_file(tmp_path, interval="2s")),
            capture_output=False,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(stdout)
    message = "No space left on device" if output == "full" else "Broken pipe"
    line = f"memqos: cannot write: standard output: {message}\n"
    assert (done.returncode, done.stderr) == (0, line)
    assert len(actions.read_text().splitlines()) == 2


@pytest.mark.parametrize("is_socket", [False, True])
def test_nobody_reads(mount: Path, tmp_path: Path, is_socket: bool) -> None:
    """What is full, as of a container runtime that starves too, does not stop the watch."""
    config = config_file(tmp_path, interval="2ms")
    actions = tmp_path / "a.jsonl"
    if is_socket:
        reader, writer = (end.detach() for end in socket.socketpair())
    else:
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    words: list[str | Path] = [PROGRAM, "watch-oom", "--cgroup-root", mount]
    words += ["--config", config, "--actions", actions]
    with subprocess.Popen(words, stdout=writer, stderr=writer) as process:
        try:
            deadline = time.monotonic() + 60
            last = -1
            # More lines than the pipe or the socket holds.
            while last < (4_000 if is_socket else 200) and time.monotonic() < deadline:
                time.sleep(0.05)
                if actions.exists():
                    last = int(json.loads(actions.read_text().splitlines()[-1])["id"])
            process.terminate()
            assert process.wait(20) == 0
            assert time.monotonic() < deadline
        finally:
            process.kill()
            os.close(reader)
            os.close(writer)


def test_a_closed_pipe_ends_a_dry_run(mount: Path, tmp_path: Path) -> None:
    """As of head(1): if there is no other output it is over, and quiet."""
    reader, writer = os.pipe()
    os.close(reader)
    config = config_file(tmp_path)
    words = ("watch-oom", "--cgroup-root", mount, "--config", config)
    try:
        done = run_program(*words, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_one_standard_input() -> None:
    """The preferences would be empty, and nobody protected."""
    answer = memqos("watch-oom", "--once", "--config", "-", "--preferences", "-")
    assert answer.code == 2
    assert "only one input can be '-'" in answer.err


def test_outputs_fail_alone(mount: Path, tmp_path: Path) -> None:
    """An action log that cannot be written does not suppress the recording."""
    recording = tmp_path / "r.jsonl"
    answer = memqos(
        *("watch-oom", "--cgroup-root", mount, "--once", "--record", recording),
        *("--config", config_file(tmp_path), "--actions", "/proc/self/a.jsonl"),
    )
    assert answer.code == 0
    assert answer.err.count("cannot write") == 1
    assert len(recording.read_text().splitlines()) == 2


def test_the_action_log_goes_on(mount: Path, tmp_path: Path) -> None:
    """What an earlier run did is still there after a restart."""
    actions = tmp_path / "a.jsonl"
    arguments = ("--cgroup-root", mount, "--config", config_file(tmp_path), "--actions", actions)
    for times in (1, 2):
        assert memqos("watch-oom", "--once", *arguments).code == 0
        ids = [json.loads(line)["id"] for line in actions.read_text().splitlines()]
        assert ids == ["0", "1"] * times


def test_no_directory_for_the_action_log(mount: Path, tmp_path: Path) -> None:
    """It is told at the start, not at the first kill."""
    path = tmp_path / "gone/a.jsonl"
    arguments = ("--cgroup-root", mount, "--config", config_file(tmp_path), "--actions", path)
    answer = memqos("watch-oom", "--once", *arguments)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"memqos: {path}: No such file or directory\n"


def test_a_storm_of_reloads(mount: Path, tmp_path: Path) -> None:
    """Cycles go on all the while."""
    config = config_file(tmp_path)
    actions = tmp_path / "a.jsonl"
    arguments = ("--cgroup-root", mount, "--config", config, "--actions", actions)
    with watching(*arguments) as process:
        read_until(process, "would kill")
        done = threading.Event()

        def storm() -> None:
            while not done.is_set():
                process.send_signal(signal.SIGHUP)

        thread = threading.Thread(target=storm)
        thread.start()
        try:
            for _ in range(5):
                read_until(process, "would kill")
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize("text", ["precious\n", '{"t": 0}\n'])
def test_another_file_as_the_action_log(mount: Path, tmp_path: Path, text: str) -> None:
    """It is refused before the watch begins, and not replaced."""
    path = tmp_path / "precious"
    path.write_text(text)
    arguments = ("--cgroup-root", mount, "--config", config_file(tmp_path), "--actions", path)
    answer = memqos("watch-oom", "--once", *arguments)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"memqos: {path}: line 1: not an action, as memqos logs them\n"
    assert path.read_text() == text


UNSEEN = "memqos: the root's memory.pressure cannot be read: nobody is seen to wait for memory\n"


def test_a_complaint_is_told_once(mount: Path, tmp_path: Path) -> None:
    """Not in each of two cycles: that would drown the kills."""
    (mount / "memory.pressure").unlink()
    config = config_file(tmp_path, interval="2s")
    answer = memqos("watch-oom", "--once", "--cgroup-root", mount, "--config", config)
    assert (answer.code, answer.err) == (0, UNSEEN)


def test_another_complaint_is_told(mount: Path, tmp_path: Path) -> None:
    """And so is the same one after that."""
    pressure = mount / "memory.pressure"
    pressure.unlink()
    with watching("--cgroup-root", mount, "--config", config_file(tmp_path)) as process:
        read_until(process, UNSEEN, err=True)
        pressure.write_text("some avg10=0.00\n")
        read_until(process, "avg60", err=True)
        pressure.unlink()
        read_until(process, UNSEEN, err=True)


def test_ticks_do_not_drift(mount: Path, tmp_path: Path) -> None:
    """However long a cycle takes, the next one is on the grid."""
    recording = tmp_path / "r.jsonl"
    config = config_file(tmp_path, interval="20ms")
    arguments = ("--cgroup-root", mount, "--config", config, "--record", recording)
    with watching(*arguments) as process:
        for _ in range(20):
            read_until(process, "would kill")
    ticks = [json.loads(line)["t"] / 0.02 for line in recording.read_text().splitlines()[:20]]
    assert [round(tick, 6) for tick in ticks] == [round(tick) for tick in ticks]
    assert ticks == sorted(set(ticks))


class Night:
    """A watcher that the kernel keeps watch for, and a clock that is woken at some time."""

    config = check_documents([])
    can_doze = True

    def __init__(self, woken_ms: float, *, is_kept: bool = True) -> None:
        self.now_ms, self.woken_ms, self.is_kept = -400.0, woken_ms, is_kept
        self.ends: list[int] = []
        self.is_silent = False

    def silence(self) -> None:
        """Take it that no alarm is wanted any more."""
        self.is_silent = True

    def alarms(self) -> tuple[int, ...] | None:
        """Return no alarm, but that there could be one."""
        return () if self.is_kept else None

    def doze(self, deadline_ns: int, _alarms: tuple[int, ...]) -> None:
        """Sleep."""
        self.ends.append(deadline_ns // 10**6)
        self.now_ms = self.woken_ms

    def now_ns(self) -> int:
        """Tell the time."""
        return round(self.now_ms * 1e6)


@pytest.mark.parametrize(
    ("woken_ms", "left_out"),
    [(1500.2, 3), (9000, 3), (1499, 3), (500.1, 2), (500, 1), (0.1, 1), (0, 0), (-200, 0)],
)
def test_ticks_after_a_doze(woken_ms: float, left_out: int) -> None:
    """The next on the grid: after two seconds without an alarm, or the first one behind it."""
    night: Any = Night(woken_ms)
    assert _doze(night, night, 0, None) == left_out
    assert night.ends == [1500]


@pytest.mark.parametrize(("watchdog_ms", "ends"), [(4000, [1500]), (3999, [1000]), (1999, [])])
def test_a_watchdog_is_not_kept_waiting(watchdog_ms: int, ends: list[int]) -> None:
    """Two intervals may be too long for it, and then there is no doze."""
    night: Any = Night(0)
    assert _doze(night, night, 0, watchdog_ms * 10**6) == 0
    assert night.ends == ends
    assert night.is_silent is not bool(ends)  # nor is the kernel to watch in vain


def test_no_doze_without_alarms() -> None:
    """There is a cycle at the next tick, in a dry run for one."""
    night: Any = Night(0, is_kept=False)
    assert _doze(night, night, 0, None) == 0
    assert night.ends == []


def test_no_doze_without_signals() -> None:
    """Where they would not end it, no alarm is asked for."""
    night: Any = Night(0)
    night.can_doze, night.alarms = False, pytest.fail
    assert _doze(night, night, 0, None) == 0


def test_one_doze_a_cycle() -> None:
    """Signals that change nothing do not keep cycles from running."""
    signals = iter([None, signal.SIGHUP, signal.SIGHUP, None, signal.SIGTERM])
    night: Any = Mock(config=check_documents([]), layout=Mock())
    night.now_ns.side_effect = count(0, 10**6).__next__
    night.alarms.return_value = ()
    night.wait.side_effect = lambda _: next(signals)
    assert _loop(night, night, night, reloads=(), cycles=None) is signal.SIGTERM
    calls = [call[0] for call in night.mock_calls if call[0] in ("wait", "observe", "doze")]
    cycle = ["observe", "doze"]
    assert calls == ["wait", *cycle, "wait", "wait", "wait", *cycle, "wait"]


def test_ticks_left_out_are_counted() -> None:
    """As cycles that did not fire: alerts go by how many of them there are."""
    night: Any = Mock(config=check_documents([]), layout=Mock())
    times = iter([0, 1, 2 * 10**9 + 1])
    night.now_ns.side_effect = lambda: next(times)
    night.alarms.return_value = ()
    night.wait.side_effect = [None, signal.SIGTERM]
    _loop(night, night, night, reloads=(), cycles=None)
    night.counters.left_out.assert_called_once_with(3)
    assert night.wait.call_args.args == (2 * 10**9,)
    counters = Counters()
    counters.left_out(3)
    assert 'memqos_oom_cycles_total{outcome="no-fire"} 3\n' in counters.render()


@pytest.mark.parametrize("is_watched", [True, False])
def test_systemd_is_told(is_watched: bool, mount: Path, tmp_path: Path) -> None:
    """That it is ready, and after each cycle, if asked for, that it is alive."""
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "s")}
    environment |= {"WATCHDOG_USEC": "60000000"} if is_watched else {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "s"))
        config = config_file(tmp_path)
        arguments = ("--cgroup-root", mount, "--config", config)
        assert run_program("watch-oom", "--once", *arguments, env=environment).returncode == 0
        server.setblocking(False)
        told = []
        with suppress(BlockingIOError):
            while True:
                told.append(server.recv(64))
    assert told == [b"READY=1", *([b"WATCHDOG=1"] * 2 if is_watched else [])]


def test_recordings_rotate(mount: Path, tmp_path: Path) -> None:
    """Two samples are more than a byte."""
    recording = tmp_path / "r.jsonl"
    config = config_file(tmp_path)
    arguments = ("--cgroup-root", mount, "--config", config, "--record", recording)
    assert memqos("watch-oom", "--once", *arguments, "--record-size", "1").code == 0
    first, second = (json.loads(Path(f"{recording}{end}").read_text()) for end in (".1", ""))
    assert first["t"] < second["t"]


@pytest.mark.parametrize("enabled", ["0x0007", "0x0000"])
@pytest.mark.parametrize("own", [True, False])
def test_mglru_is_told(enabled: str, own: bool, mount: Path, tmp_path: Path) -> None:
    """Where the default trigger may stay silent."""
    switch = tmp_path / "sys/kernel/mm/lru_gen/enabled"
    switch.parent.mkdir(parents=True)
    switch.write_text(f"{enabled}\n")
    config = config_file(tmp_path, trigger="false")
    arguments = ("--config", config) if own else ()
    answer = memqos("watch-oom", "--once", "--root", tmp_path, "--cgroup-root", mount, *arguments)
    assert answer.code == 0
    assert ("multi-generational LRU is on" in answer.err) is (enabled == "0x0007" and not own)


def test_unknown_available_memory(mount: Path, tmp_path: Path) -> None:
    """Nothing is held back then, which is told."""
    (tmp_path / "proc").mkdir()
    arguments = ("--root", tmp_path, "--cgroup-root", mount, "--config", config_file(tmp_path))
    answer = memqos("watch-oom", "--once", *arguments, "--unless-available", "1")
    assert answer.code == 0
    assert answer.out.count("would kill") == 2
    assert answer.err.count("MemAvailable cannot be read") == 2


def test_a_shorter_interval_takes_effect_at_once(mount: Path, tmp_path: Path) -> None:
    """The old one, which may be an hour, is not waited for."""
    config = config_file(tmp_path, interval="1h")
    with watching("--cgroup-root", mount, "--config", config) as process:
        read_until(process, "would kill")
        config_file(tmp_path, interval="20ms")
        process.send_signal(signal.SIGHUP)
        read_until(process, "would kill")


def test_a_configuration_without_its_document(mount: Path, tmp_path: Path) -> None:
    """That the defaults apply after SIGHUP is told: the file may be half of what was meant."""
    config = config_file(tmp_path)
    with watching("--cgroup-root", mount, "--config", config) as process:
        read_until(process, "would kill")
        config.write_text("")
        process.send_signal(signal.SIGHUP)
        line = read_until(process, "no OOMConfig in it", err=True)
        assert line == f"memqos: {config}: no OOMConfig in it: Talos' defaults apply\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_exit_status(mount: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C is told from the end that a service manager asks for; more signals change nothing."""
    config = config_file(tmp_path, trigger="false", interval="1h")
    arguments = ("--cgroup-root", mount, "--config", config, "--listen", ":0")
    with watching(*arguments) as process:
        read_until(process, "serving metrics", err=True)
        process.send_signal(number)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM if number is signal.SIGINT else signal.SIGHUP)
            time.sleep(0.01)
        assert process.returncode == code
