"""The units in examples/systemd, as systemd itself judges them."""

import shutil
from pathlib import Path

import pytest

from tests.support.examples import SYSTEMD, check_command, commands
from tests.support.tools import run_tool, tool


WATCH = "memqos-watch-oom.service"
UNITS = ("memqos-rebaseline.service", "memqos-validate.service", "memqos-validate.timer", WATCH)
#: Those about kubelet's checkpoint.
SERVICES = ["memqos-rebaseline.service", "memqos-validate.service"]
DROP_IN = SYSTEMD / "kubelet.service.d" / "10-memqos.conf"
KILL = SYSTEMD / f"{WATCH}.d" / "10-kill.conf"

# Settings that hide addresses in /proc/iomem, /proc/meminfo, or other processes.
BLINDING = {"PrivateUsers", "ProtectProc", "ProcSubset", "PrivatePIDs", "DynamicUser", "User"}


def settings(path: Path) -> list[tuple[str, str]]:
    """Read the assignments of a unit, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assigned = [line.partition("=") for line in lines if line[:1].isalpha()]
    return [(name, value) for name, _, value in assigned]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a root with the programs that the units start, and no unit of this machine."""
    tool("systemd-analyze")
    for name in ("usr/local/bin/memqos", "usr/local/bin/kubelet", "bin/kill"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(SYSTEMD / unit, units / unit)
    (units / "kubelet.service").write_text("[Service]\nExecStart=/usr/local/bin/kubelet\n")
    for drop_in in (DROP_IN, KILL):
        shutil.copytree(drop_in.parent, units / drop_in.parent.name)
    targets = ("sysinit", "basic", "multi-user", "shutdown", "timers", "time-set", "time-sync")
    for name in targets:
        (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    for name in ("system.slice", "-.slice", "-.mount", "systemd-journald.socket"):
        (units / name).write_text("[Unit]\nDefaultDependencies=no\n")
    (units / "tmp.mount").write_text("[Mount]\nWhat=tmpfs\nWhere=/tmp\n")  # a unit
    return tmp_path


def verify(root: Path, *units: str) -> str:
    """Run `systemd-analyze verify`, and return what it says and its exit status."""
    done = run_tool("systemd-analyze", "verify", "--man=no", f"--root={root}", *units)
    return f"{done.stdout}{done.stderr}exit status {done.returncode}"


@pytest.mark.parametrize("unit", [*UNITS, "kubelet.service"])
def test_systemd_accepts_the_unit(root: Path, unit: str) -> None:
    """Every unit, with its drop-in if it has one, passes `systemd-analyze verify`."""
    assert verify(root, unit) == "exit status 0"


def test_systemd_accepts_the_watcher_without_its_drop_in(root: Path) -> None:
    """The unit is complete without --kill."""
    shutil.rmtree(root / "etc/systemd/system" / KILL.parent.name)

    assert verify(root, WATCH) == "exit status 0"


@pytest.mark.parametrize(
    ("drop_in", "unit"), [(DROP_IN, "kubelet.service"), (KILL, WATCH)], ids=["kubelet", "watch"]
)
def test_systemd_reads_the_drop_in(root: Path, drop_in: Path, unit: str) -> None:
    """An error in a drop-in is found, so the test above has looked at it."""
    path = root / "etc/systemd/system" / drop_in.parent.name / drop_in.name
    path.write_text("[Service]\nExecStartPre=-/usr/local/bin/no-such-program\nNoSuchKey=1\n")

    assert "NoSuchKey" in verify(root, unit)


@pytest.mark.parametrize("unit", [*SERVICES, WATCH])
def test_systemd_rates_the_sandbox_as_tight(root: Path, unit: str) -> None:
    """`systemd-analyze security` finds an exposure of 3 or less out of 10."""
    review = ("security", "--offline=true", f"--root={root}", "--threshold=30", unit)
    done = run_tool("systemd-analyze", *review)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze reviews no files")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"exposure level for {unit}" in done.stdout


@pytest.mark.parametrize("path", [*(SYSTEMD / name for name in (*SERVICES, WATCH)), DROP_IN, KILL])
def test_command_lines_are_memqos_ones(path: Path) -> None:
    """Each program that a unit starts is memqos, with options that it takes."""
    started = [value for key, value in settings(path) if key.startswith("ExecStart") and value]

    assert {value.lstrip("-").split()[0] for value in started} == {"/usr/local/bin/memqos"}
    for arguments in (words for value in started for words in commands(f"ExecStart={value}")):
        check_command(arguments)


def test_drop_in_is_advisory() -> None:
    """Nothing in the drop-in can keep kubelet from starting, and ExecCondition is not used."""
    assert [key for key, _ in settings(DROP_IN)] == ["ExecStartPre", "ExecStartPre"]
    assert all(value.startswith("-") for _, value in settings(DROP_IN))


def test_drift_is_recorded_before_it_is_removed() -> None:
    """Metrics are written first: after a re-baseline, there is no drift to see any more."""
    unit = settings(SYSTEMD / "memqos-rebaseline.service")
    for assigned in (settings(DROP_IN), unit):
        verbs = [value.split()[1] for key, value in assigned if key.startswith("Exec")]
        assert verbs == ["validate-checkpoint", "rebaseline-checkpoint"]


@pytest.mark.parametrize("name", SERVICES)
def test_sandbox_hides_what_it_can_and_nothing_that_memqos_needs(name: str) -> None:
    """One capability, a read-only system, no network; addresses and processes stay visible."""
    assigned = dict(settings(SYSTEMD / name))

    assert assigned["CapabilityBoundingSet"] == "CAP_SYS_ADMIN"
    assert assigned["ProtectSystem"] == "strict"
    assert {assigned[key] for key in ("NoNewPrivileges", "PrivateNetwork")} == {"yes"}
    assert BLINDING & set(assigned) == set()


def test_only_the_rebaseline_may_write_the_checkpoint() -> None:
    """The unit that validates can write to node_exporter's directory alone."""
    writable = {name: dict(settings(SYSTEMD / name))["ReadWritePaths"] for name in SERVICES}

    assert writable == {
        "memqos-rebaseline.service": (
            "/var/lib/kubelet -/var/lib/node_exporter/textfile_collector"
        ),
        "memqos-validate.service": "/var/lib/node_exporter/textfile_collector",
    }


def test_rebaseline_comes_before_each_start_of_kubelet() -> None:
    """Ordered before kubelet, wanted by it, and not kept active after the first run."""
    assigned = dict(settings(SYSTEMD / "memqos-rebaseline.service"))

    assert (assigned["Before"], assigned["WantedBy"]) == ("kubelet.service", "kubelet.service")
    assert "RemainAfterExit" not in assigned


def test_watcher_cannot_kill_as_shipped() -> None:
    """No --kill, no capability, and the cgroups are read-only."""
    assigned = dict(settings(SYSTEMD / WATCH))

    assert "--kill" not in assigned["ExecStart"]
    assert (assigned["CapabilityBoundingSet"], assigned["ProtectControlGroups"]) == ("", "yes")


def test_drop_in_adds_what_a_kill_needs_and_nothing_else() -> None:
    """The same command line with --kill, and cgroups to write to."""
    command = dict(settings(SYSTEMD / WATCH))["ExecStart"]

    assert settings(KILL) == [
        ("ExecStart", ""),
        ("ExecStart", f"{command} --kill"),
        ("ProtectControlGroups", "no"),
    ]


def test_watcher_is_confined_and_not_blinded() -> None:
    """A read-only system, the loopback interface alone, and processes stay visible."""
    assigned = dict(settings(SYSTEMD / WATCH))

    assert (assigned["ProtectSystem"], assigned["NoNewPrivileges"]) == ("strict", "yes")
    assert (assigned["IPAddressDeny"], assigned["IPAddressAllow"]) == ("any", "localhost")
    assert assigned["RestrictAddressFamilies"] == "AF_UNIX AF_INET"
    assert "--listen 127.0.0.1:" in assigned["ExecStart"]
    assert assigned["SystemCallFilter"] == "@system-service process_mrelease"
    assert "ReadWritePaths" not in assigned
    assert (assigned["StateDirectory"], assigned["StateDirectoryMode"]) == ("memqos", "0700")
    assert "--actions /var/lib/memqos/" in assigned["ExecStart"]
    assert BLINDING & set(assigned) == set()


def test_watcher_outlives_what_it_watches() -> None:
    """No ancestor voids its memory.min, its pages are locked, and it is always started again."""
    assigned = dict(settings(SYSTEMD / WATCH))

    assert assigned["Slice"] == "-.slice"
    assert int(assigned["MemoryMin"].removesuffix("M")) >= 128
    assert (assigned["LimitMEMLOCK"], assigned["OOMScoreAdjust"]) == ("infinity", "-900")
    assert "--protect-self" in assigned["ExecStart"]
    assert (assigned["Restart"], assigned["StartLimitIntervalSec"]) == ("always", "0")
    assert assigned["OOMPolicy"] == "continue"


def test_watcher_tells_systemd_how_it_is() -> None:
    """It notifies and feeds the watchdog; a reload is SIGHUP."""
    assigned = dict(settings(SYSTEMD / WATCH))

    assert (assigned["Type"], assigned["NotifyAccess"]) == ("notify", "main")
    assert int(assigned["WatchdogSec"]) >= 30
    assert assigned["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_watcher_serves_either_cgroup_driver() -> None:
    """No layout is named: it finds kubelet's cgroups once they are made."""
    assert "--layout" not in dict(settings(SYSTEMD / WATCH))["ExecStart"]
