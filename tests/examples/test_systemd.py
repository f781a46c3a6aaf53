"""The units in examples/systemd, as systemd itself judges them."""

import shutil
from pathlib import Path

import pytest

from tests.support.examples import SYSTEMD, check_command, commands
from tests.support.tools import run_tool, tool


UNITS = ("memqos-rebaseline.service", "memqos-validate.service", "memqos-validate.timer")
SERVICES = [name for name in UNITS if name.endswith(".service")]
DROP_IN = SYSTEMD / "kubelet.service.d" / "10-memqos.conf"

# Settings that hide addresses in /proc/iomem, or kubelet's process.
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
    for name in ("memqos", "kubelet"):
        program = tmp_path / "usr/local/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(SYSTEMD / unit, units / unit)
    (units / "kubelet.service").write_text("[Service]\nExecStart=/usr/local/bin/kubelet\n")
    shutil.copytree(DROP_IN.parent, units / DROP_IN.parent.name)
    for name in ("sysinit", "basic", "shutdown", "timers", "time-set", "time-sync"):
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
    """Every unit, and a kubelet with the drop-in, passes `systemd-analyze verify`."""
    assert verify(root, unit) == "exit status 0"


def test_systemd_reads_the_drop_in(root: Path) -> None:
    """An error in the drop-in is found, so the test above has looked at it."""
    drop_in = root / "etc/systemd/system/kubelet.service.d/10-memqos.conf"
    drop_in.write_text("[Service]\nExecStartPre=-/usr/local/bin/no-such-program\nNoSuchKey=1\n")

    assert "NoSuchKey" in verify(root, "kubelet.service")


@pytest.mark.parametrize("name", [*SERVICES, "kubelet.service.d/10-memqos.conf"])
def test_command_lines_are_memqos_ones(name: str) -> None:
    """Each program that a unit starts is memqos, with options that it takes."""
    path = SYSTEMD / name
    started = [value for key, value in settings(path) if key.startswith("Exec")]

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
