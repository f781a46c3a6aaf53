"""The guest is the machine that the other tests here count on."""

import re
from pathlib import Path

import pytest

from tests.support import guest as support
from tests.support.guest import Guest, GuestError, GuestResult
from tests.support.guest_image import CACHE, locked


FACTS = """
uname -r > release
cp /proc/iomem /proc/pressure/memory /sys/fs/cgroup/cgroup.controllers .
stat -f -c %T /sys/fs/cgroup > cgroup
cat /sys/devices/system/node/online > nodes
grep -h MemTotal /sys/devices/system/node/node*/meminfo > totals
memqos --version > version
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/test
(echo $BASHPID > /sys/fs/cgroup/test/cgroup.procs; exec memtool anon 32 > progress) &
until grep -qs touched_mib=32 progress; do sleep 0.1; done
grep '^anon ' /sys/fs/cgroup/test/memory.stat > held
cat "$1" > given
exit 7
"""


@pytest.fixture(scope="module")
def facts(guest: Guest) -> GuestResult:
    """Boot once and look around."""
    return guest.run(FACTS, "/job/in/some/file", files={"some/file": b"\0 bytes"})


def test_answers(facts: GuestResult) -> None:
    """A script gets its files and arguments; its status, output and files come back."""
    assert (facts.status, facts.stdout, facts.stderr) == (7, "", "")
    assert facts.files["given"] == b"\0 bytes"


def test_kernel_accounts_for_memory(facts: GuestResult) -> None:
    """Cgroup v2 with the memory controller, and pressure stall information."""
    assert facts.files["cgroup"] == b"cgroup2fs\n"
    assert b"memory" in facts.files["cgroup.controllers"].split()
    assert facts.files["memory"].startswith(b"some avg10=")


def test_two_numa_nodes(facts: GuestResult) -> None:
    """Two nodes share 2 GiB, less what the kernel keeps of them."""
    assert facts.files["nodes"] == b"0-1\n"
    sizes = [
        int(size) << 10 for size in re.findall(rb"MemTotal: +(\d+) kB", facts.files["totals"])
    ]
    assert all(900 << 20 < size <= 1 << 30 for size in sizes)
    assert len(sizes) == 2


def test_addresses_are_real(facts: GuestResult) -> None:
    """/proc/iomem shows root where the kernel image lies."""
    found = re.search(
        rb"^ *([0-9a-f]+)-([0-9a-f]+) : Kernel code$", facts.files["iomem"], re.MULTILINE
    )
    assert found
    assert 0 < int(found[1], 16) < int(found[2], 16) < 2 << 30


def test_memqos_is_installed(facts: GuestResult) -> None:
    """The same memqos as outside is on PATH."""
    import memqos

    assert memqos.__version__ in facts.files["version"].decode()


def test_memtool_uses_memory(facts: GuestResult) -> None:
    """A cgroup is charged for what memtool was asked to use, and for a small interpreter."""
    held = int(facts.files["held"].split()[1])
    assert 32 << 20 <= held < 48 << 20


def test_script_is_bounded(guest: Guest) -> None:
    """A script that takes too long is killed, and the error ends with its output."""
    with pytest.raises(GuestError, match="script was killed after 1 s\n  so far"):
        guest.run("echo so far; sleep 60", timeout=1)


def test_machine_is_bounded(guest: Guest) -> None:
    """A machine that takes too long is killed, and nothing of it stays."""
    with pytest.raises(GuestError, match="machine was killed after 2 s"):
        guest.run("sleep 60", timeout=1, boot_timeout=1)
    with locked(CACHE / "run.lock"):  # another worker's guest has a folder there
        assert not (CACHE / "run").exists()


def test_panic(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that panics gets two more chances."""
    boots = []
    boot = support._boot

    def count(command: list[str], work: Path, timeout: int) -> None:
        boots.append(timeout)
        boot(command, work, timeout)

    monkeypatch.setattr(support, "_boot", count)
    with pytest.raises(GuestError, match="no answer"):
        guest.run("echo c > /proc/sysrq-trigger; sleep 60")
    assert len(boots) == 3
