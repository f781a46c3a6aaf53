"""Running one script as root on a real kernel, in a machine that is thrown away.

QEMU emulates the machine, so that it needs no help of the processor: a boot takes seconds, and
times inside are not those of hardware. One guest runs at a time: two, side by side on two
processors, take longer than one after the other.
"""

import ctypes
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import field, frozen

from tests.support.guest_image import CACHE, Image, compile_python, guest_image, locked, make_disk


_ROOT = Path(__file__).parents[2]
_DISK = "if=virtio,format=raw"
_RESULT_BYTES = 64 << 20
_PR_SET_PDEATHSIG = 1
_KILLED = (124, 137)  # as timeout(1) says it
# An emulated kernel, on a busy machine, may panic while it starts its processors; rarely twice.
_PANIC = b"Kernel panic - not syncing"
_BOOTS = 3

#: What an installed memqos consists of.
_PACKAGES = ("memqos", "memqos_cli", "click", "attr", "attrs", "yaml", "_yaml")
#: What its expressions need, partly built for one version of Python.
_CEL_PACKAGES = ("celpy", "lark", "pendulum", "dateutil", "re2", "tzdata")


class GuestError(Exception):
    """The guest gave no answer; the message ends with the end of its console."""


@frozen
class GuestResult:
    """What a run left behind.

    Attributes:
        status: the script's exit status.
        stdout: its output.
        stderr: its complaints.
        files: what it left in its directory, by path.
        console: what the kernel said on the console.
        seconds: from start to power-off.
    """

    status: int
    stdout: str
    stderr: str
    files: Mapping[str, bytes]
    console: str
    seconds: float


@frozen
class Guest:
    """A machine to run scripts in."""

    image: Image
    site: Mapping[str, bytes] = field(repr=False)

    @property
    def has_expressions(self) -> bool:
        """Whether memqos can read expressions there: its Python is that of this interpreter."""
        return _has_our_python(self.image)

    def run(
        self,
        script: str | Path,
        *arguments: str,
        nodes: int = 2,
        memory_mib: int = 2048,
        append: str = "",
        cgroup_options: str = "memory_recursiveprot",
        systemd: bool = False,
        files: Mapping[str, bytes] | None = None,
        scratch_mib: int = 0,
        scratch_mib_per_second: int = 0,
        timeout: int = 300,
        boot_timeout: int = 300,
    ) -> GuestResult:
        """Boot, run a script as root, and power off.

        The script runs in an empty directory and what it leaves there comes back. It finds
        `memqos`, `memtool`, Python, bash and busybox on PATH, cgroup v2 mounted, and an empty
        /var/lib/kubelet. A kernel that panics is booted again, twice at most.

        Args:
            script: the text of a bash script, or the path of a Python script, which can import
                those that lie beside it.
            arguments: of the script.
            nodes: NUMA nodes; memory and processors are split evenly.
            memory_mib: memory in all.
            append: more kernel parameters.
            cgroup_options: mount options of cgroup v2.
            systemd: whether systemd is the first process, and runs the script as a service.
            files: what the script finds in /job/in, by path.
            scratch_mib: the size of an empty disk at /scratch, 0 for none.
            scratch_mib_per_second: how fast it is read, 0 for as fast as it goes.
            timeout: seconds until the script is killed.
            boot_timeout: seconds on top of it until the machine is killed.

        Raises:
            GuestError: one of them was killed, or there is no answer.
        """
        if isinstance(script, str):
            interpreter, name, scripts = "bash", "script.sh", {"script.sh": script.encode()}
        else:
            interpreter, name = "python3", script.name
            scripts = {
                str(path.relative_to(_ROOT)): path.read_bytes()
                for path in script.parent.glob("*.py")
            }
            scripts[name] = script.read_bytes()
        command = [str(timeout), interpreter, f"/job/in/{name}", *arguments]
        job = {f"in/{path}": content for path, content in {**(files or {}), **scripts}.items()}
        job["command"] = "".join(f"{word}\0" for word in command).encode()
        parameters = f"console=ttyS0 panic=-1 quiet guest.cgroup={cgroup_options} {append}"
        parameters += " guest.systemd" if systemd else ""
        machine = [
            *self.image.qemu,
            *_machine(nodes, memory_mib),
            *("-kernel", str(self.image.kernel)),
            *("-initrd", str(self.image.initrd)),
            *("-append", parameters),
        ]
        with locked(CACHE / "run.lock"):
            for others in reversed(range(_BOOTS)):
                with _emptied(CACHE / "run") as work:
                    disks = self._disks(work, job, scratch_mib, scratch_mib_per_second)
                    drives = [word for disk in disks for word in ("-drive", f"{disk},{_DISK}")]
                    serial = ["-serial", f"file:{work / 'console'}"]
                    start = time.monotonic()
                    _boot([*machine, *drives, *serial], work, timeout + boot_timeout)
                    if others and _panicked(work):
                        continue
                    result = _result(work, time.monotonic() - start)
                break
        if result.status in _KILLED:
            texts = _indented(result.stdout, result.stderr)
            raise GuestError(f"the script was killed after {timeout} s{texts}")
        return result

    def _disks(
        self, work: Path, job: Mapping[str, bytes], scratch_mib: int, scratch_mib_per_second: int
    ) -> list[str]:
        (work / "in").write_bytes(_tar({**self.site, **job}))
        os.truncate(work / "in", -((work / "in").stat().st_size // -512) * 512)
        (work / "out").touch()
        os.truncate(work / "out", _RESULT_BYTES)
        disks = [
            f"file={self.image.root},readonly=on",
            f"file={work / 'in'},readonly=on",
            f"file={work / 'out'},cache=unsafe",
        ]
        if scratch_mib:
            make_disk(self.image, work / "scratch", scratch_mib)
            disk = f"file={work / 'scratch'},cache=unsafe"
            if scratch_mib_per_second:
                disk += f",throttling.bps-read={scratch_mib_per_second << 20}"
            disks.append(disk)
        return disks


def prepare_guest() -> Guest:
    """Make ready to run guests.

    Raises:
        GuestUnavailableError: this machine cannot.
    """
    image = guest_image()
    return Guest(image, _site(image))


@contextmanager
def _emptied(work: Path) -> Iterator[Path]:
    shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _machine(nodes: int, memory_mib: int) -> list[str]:
    processors = max(nodes, 2)
    words = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    words += ["-monitor", "none", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"]
    words += ["-smp", str(processors), "-m", f"{memory_mib}M"]
    for node in range(nodes):
        first, last = processors * node // nodes, processors * (node + 1) // nodes - 1
        words += ["-object", f"memory-backend-ram,id=m{node},size={memory_mib // nodes}M"]
        words += ["-numa", f"node,nodeid={node},cpus={first}-{last},memdev=m{node}"]
    return words


def _boot(command: list[str], work: Path, timeout: int) -> None:
    """Run QEMU to its end, or ours: timeout(1) ends it when it is told that we are gone."""
    bounded = ["timeout", "--signal=KILL", str(timeout + 5), *command]
    with (work / "qemu").open("w") as log:
        process = subprocess.Popen(
            bounded,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  # one system call, no lock
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise GuestError(f"the machine was killed after {timeout} s{_tail(work)}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _panicked(work: Path) -> bool:
    with suppress(OSError):
        return _PANIC in (work / "console").read_bytes()
    return False


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _result(work: Path, seconds: float) -> GuestResult:
    try:
        with tarfile.open(work / "out") as tar:
            found = {
                member.name: file.read()
                for member in tar
                if member.isreg() and (file := tar.extractfile(member))
            }
        status = int(found["status"])
    except (tarfile.TarError, KeyError, ValueError):
        raise GuestError(f"no answer{_tail(work)}") from None
    return GuestResult(
        status,
        found["stdout"].decode("utf-8", "replace"),
        found["stderr"].decode("utf-8", "replace"),
        {name[4:]: data for name, data in found.items() if name.startswith("out/")},
        (work / "console").read_bytes().decode("utf-8", "replace"),
        seconds,
    )


def _tail(work: Path) -> str:
    texts = [work / name for name in ("qemu", "console")]
    return _indented(*(path.read_text("utf-8", "replace") for path in texts if path.exists()))


def _indented(*texts: str) -> str:
    return "".join(f"\n  {line}" for text in texts for line in text.splitlines()[-20:])


def _has_our_python(image: Image) -> bool:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return any(word.endswith(f"/{name}") for word in image.python)


def _site(image: Image) -> dict[str, bytes]:
    """Pack the packages that this interpreter imports, compiled for the guest's Python."""
    work = CACHE / f"site-{os.getpid()}"
    try:
        more = _CEL_PACKAGES if _has_our_python(image) else ()
        for name in (*_PACKAGES, *more):
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None:
                raise GuestError(f"no package {name} to take into the guest")
            source = Path(spec.origin).parent
            shutil.copytree(source, work / name, ignore=shutil.ignore_patterns("__pycache__"))
        compile_python(image, work, prefix=work)
        return {
            f"site/{path.relative_to(work)}": path.read_bytes()
            for path in sorted(work.rglob("*"))
            if path.is_file()
        }
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
