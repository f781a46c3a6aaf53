"""Building what a guest is booted from: QEMU where it is missing, a kernel, a small root.

All of it comes out of Debian packages, which are unpacked into a cache and never installed. Apt
resolves them against an empty system, so that the cache depends on nothing of this one. A second
build finds the cache and takes no time. Every command is bounded.
"""

import fcntl
import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen


CACHE = Path(__file__).parents[2] / ".cache" / "guest"

_MACHINE = Path(__file__).parents[1] / "guest" / "machine"

# The newest that the release has; 6.12 is in bookworm-security, and plain in later releases.
_KERNELS = ("linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64")
# libstdc++6 is for what memqos depends on, the last three are what it is compared with.
_GUEST = (
    *("python3", "bash", "coreutils", "busybox-static", "libstdc++6"),
    *("nohang", "earlyoom", "systemd-oomd"),
)
_QEMU = "qemu-system-x86_64"
_PROGRAMS = {_QEMU: "qemu-system-x86", "mke2fs": "e2fsprogs"}
_MODULES = ("virtio_pci", "virtio_blk", "ext4")
_SOFT_DEPENDENCIES = {"ext4": ("crc32c_generic", "crc32c"), "libcrc32c": ("crc32c_generic",)}
_UNUSED = ("usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/info")
_UNUSED_PYTHON = r"/(test|idlelib|lib2to3|tkinter|turtledemo|ensurepip|pydoc_data|distutils)/"

_UPDATE_SECONDS = 120
_DOWNLOAD_SECONDS = 300
_STEP_SECONDS = 120
_RETRY_SECONDS = 600


class GuestUnavailableError(Exception):
    """No guest can be had here; the message says why."""


@frozen
class Image:
    """What a guest is booted from.

    Attributes:
        qemu: the beginning of a command that runs QEMU.
        mke2fs: a command that makes file systems.
        python: a command that runs the guest's Python on this machine.
        kernel: the kernel image.
        initrd: its initial RAM file system.
        root: the root disk, only ever read.
    """

    qemu: tuple[str, ...]
    mke2fs: tuple[str, ...]
    python: tuple[str, ...]
    kernel: Path
    initrd: Path
    root: Path


def guest_image() -> Image:
    """Return the image in the cache; build it when there is none.

    Raises:
        GuestUnavailableError: this machine cannot have one.
    """
    if platform.machine() != "x86_64":
        raise GuestUnavailableError("the guest is an x86-64 machine, and this one is not")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", encoding="utf-8")
    target = CACHE / _recipe()
    with locked(CACHE / "build.lock"):  # of several workers, one builds and the others wait
        if not target.exists():
            _build(target)
    return _image(target)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among processes."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _recipe() -> str:
    """Name the image by what it is made from: this file, the guest's, the release, and QEMU."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(_MACHINE.iterdir()), Path("/etc/os-release")):
        if path.is_file():
            digest.update(path.read_bytes())
    digest.update(" ".join(_missing()).encode())
    return f"image-{digest.hexdigest()[:12]}"


def _missing() -> tuple[str, ...]:
    """List the packages whose programs this machine lacks."""
    return tuple(package for program, package in _PROGRAMS.items() if not _on_path(program))


def _image(folder: Path) -> Image:
    host = folder / "host"
    (kernel,) = folder.glob("vmlinuz-*")
    (python,) = (folder / "root/usr/bin").glob("python3.[0-9]*")
    mke2fs = _on_path("mke2fs")
    qemu = _on_path(_QEMU)
    return Image(
        (qemu,)
        if qemu
        else (
            *("env", f"QEMU_MODULE_DIR={host / 'usr/lib/x86_64-linux-gnu/qemu'}"),
            *_unpacked(host, _QEMU),
            *("-L", str(host / "usr/share/qemu")),
            *("-L", str(host / "usr/share/seabios")),
        ),
        (mke2fs,) if mke2fs else _unpacked(host, "mke2fs"),
        _unpacked(folder / "root", python.name),
        kernel,
        folder / "initrd",
        folder / "root.img",
    )


def _on_path(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _unpacked(root: Path, program: str) -> tuple[str, ...]:
    """Run a program in an unpacked root with its own dynamic linker and libraries."""
    folder = "sbin" if (root / "usr/sbin" / program).exists() else "bin"
    return (
        str(root / "usr/lib64/ld-linux-x86-64.so.2"),
        "--library-path",
        str(root / "usr/lib/x86_64-linux-gnu"),
        str(root / "usr" / folder / program),
    )


def _build(target: Path) -> None:
    failed = CACHE / ".failed"
    if failed.exists() and time.time() - failed.stat().st_mtime < _RETRY_SECONDS:
        raise GuestUnavailableError(failed.read_text(encoding="utf-8"))
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise GuestUnavailableError(f"no {tool} here to get QEMU and a kernel with")
    for stale in [*CACHE.glob("image-*"), CACHE / "work"]:
        shutil.rmtree(stale, ignore_errors=True)
    work = CACHE / "work"
    work.mkdir()
    try:
        _download(work)
        _make(work, work / "image")
        (work / "image").rename(target)
        failed.unlink(missing_ok=True)
    except GuestUnavailableError as error:
        failed.write_text(str(error), encoding="utf-8")
        raise
    finally:
        shutil.rmtree(work)


def _make(work: Path, folder: Path) -> None:
    """Make the image of the downloaded packages."""
    for name in ("host", "root"):
        _unpack(work / name, folder / name)
    _unpack(work / "kernel", work / "kernel-files")
    (kernel,) = (work / "kernel-files/boot").glob("vmlinuz-*")
    kernel.rename(folder / kernel.name)
    (modules,) = (work / "kernel-files/usr/lib/modules").iterdir()
    root = folder / "root"
    (folder / "initrd").write_bytes(_initrd(modules, root / "usr/bin/busybox"))
    _furnish(root)
    image = _image(folder)
    compile_python(image, root / "usr/lib", prefix=root, skip=_UNUSED_PYTHON)
    size = sum(path.lstat().st_size for path in root.rglob("*"))
    make_disk(image, image.root, (size >> 20) * 5 // 4 + 32, content=root)


def compile_python(image: Image, folder: Path, *, prefix: Path, skip: str = "^$") -> None:
    """Compile modules beforehand with the guest's Python: under emulation that takes long."""
    command = [*image.python, "-E", "-s", "-m", "compileall", "-q", "-x", skip]
    command += ["--invalidation-mode", "unchecked-hash", "-s", str(prefix), "-p", "/", str(folder)]
    home = next((image.root.parent / "root/usr").glob("lib/python3.[0-9]*")).parents[1]
    _run(command, environment={"PYTHONHOME": str(home)})


def make_disk(image: Image, path: Path, mebibytes: int, content: Path | None = None) -> None:
    """Make an ext4 disk."""
    path.unlink(missing_ok=True)
    command = [*image.mke2fs, "-q", "-F", "-t", "ext4", "-O", "^has_journal"]
    command += ["-E", "lazy_itable_init=0"]
    command += [] if content is None else ["-d", str(content)]
    _run([*command, str(path), f"{mebibytes}M"])


def _download(work: Path) -> None:
    """Get the packages with the system's package lists, else with lists of our own."""
    host = _missing()
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True)
    own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={work}"]
    try:
        _packages(work, host, [])
    except GuestUnavailableError:
        _apt([*own, "update"], work, _UPDATE_SECONDS)
        _packages(work, host, own)


def _packages(work: Path, host: Sequence[str], options: list[str]) -> None:
    for name, packages in (("host", host), ("root", _GUEST)):
        debs = work / name
        shutil.rmtree(debs, ignore_errors=True)
        (debs / "partial").mkdir(parents=True)
        if packages:
            (work / "status").touch()
            into = ["-o", f"Dir::State::status={work / 'status'}"]
            into += ["-o", f"Dir::Cache::archives={debs}", "--no-install-recommends"]
            _apt(
                [*options, *into, "--yes", "--download-only", "install", *packages],
                work,
                _DOWNLOAD_SECONDS,
            )
    debs = work / "kernel"
    debs.mkdir(exist_ok=True)
    _apt([*options, "download", _kernel_package(work, options)], debs, _DOWNLOAD_SECONDS)


def _kernel_package(work: Path, options: list[str]) -> str:
    """Follow the first known meta package to the kernel's own."""
    for meta in _KERNELS:
        command = ["apt-cache", *options, "depends", meta]
        done = subprocess.run(
            command, check=False, cwd=work, timeout=60, capture_output=True, text=True
        )
        found = re.search(r"Depends: (linux-image-\S+)", done.stdout)
        if found:
            return found[1]
    raise GuestUnavailableError(f"apt knows neither {' nor '.join(_KERNELS)}")


def _apt(arguments: list[str], cwd: Path, seconds: int) -> None:
    command = ["apt-get", "-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15"]
    command += ["-o", "APT::Sandbox::User=root", *arguments]
    try:
        done = subprocess.run(
            command, check=False, cwd=cwd, timeout=seconds, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        raise GuestUnavailableError(f"apt-get took more than {seconds} s") from None
    if done.returncode:
        last = (done.stderr.strip() or "it failed").splitlines()[-1]
        raise GuestUnavailableError(f"apt-get cannot get QEMU, a kernel and a root: {last}")


def _unpack(debs: Path, root: Path) -> None:
    """Unpack packages into a root in which /bin, /lib and /sbin are those of /usr."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for deb in sorted(debs.glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as data:
            command = ["tar", "-C", str(root), "-x", "--keep-directory-symlink", "--no-same-owner"]
            subprocess.run(command, check=True, stdin=data.stdout, timeout=_STEP_SECONDS)


def _furnish(root: Path) -> None:
    """Make a root for a guest of unpacked packages."""
    for name in _UNUSED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("dev", "job", "proc", "run", "scratch", "sys", "tmp", "var/lib/kubelet"):
        (root / name).mkdir(parents=True, exist_ok=True)
    site = root / "usr/lib/python3/dist-packages"
    shutil.rmtree(site, ignore_errors=True)
    site.parent.mkdir(exist_ok=True)
    site.symlink_to("/job/site")  # which is unpacked anew for every run
    for path in _MACHINE.iterdir():
        if path.is_file() and path.name != "init":
            place = root / "usr/local/bin" / path.stem
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            place.chmod(0o755)
    listed = _run([str(root / "usr/bin/busybox"), "--list"])
    for applet in listed.split():
        if not any((root / "usr" / name / applet).exists() for name in ("bin", "sbin")):
            (root / "usr/bin" / applet).symlink_to("busybox")


def _initrd(modules: Path, busybox: Path) -> bytes:
    """Make the initial RAM file system: busybox, drivers in the order of their names, /init."""
    folders = ("bin", "dev", "mod", "newroot", "proc", "sys")
    files: dict[str, tuple[int, bytes]] = dict.fromkeys(folders, (0o040755, b""))
    files["bin/busybox"] = (0o100755, busybox.read_bytes())
    files["bin/sh"] = (0o120777, b"busybox")
    files["init"] = (0o100755, (_MACHINE / "init").read_bytes())
    for number, (name, data) in enumerate(_drivers(modules).items()):
        files[f"mod/{number:03d}-{name}.ko"] = (0o100644, data)
    return b"".join(
        _cpio(number, name, mode, data)
        for number, (name, (mode, data)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))])
    )


def _cpio(inode: int, name: str, mode: int, data: bytes) -> bytes:
    """Make one entry of a cpio archive in the new ASCII format."""
    numbers = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    header = "070701" + "".join(f"{number:08x}" for number in numbers)
    head = header.encode() + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def _drivers(modules: Path) -> dict[str, bytes]:
    """Return the wanted modules after those that they depend on; what is built in is absent."""
    files = {
        path.name.partition(".ko")[0].replace("-", "_"): path for path in modules.rglob("*.ko*")
    }
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in found or name not in files:
            return
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            data = lzma.decompress(data)
        listed = re.search(rb"\0depends=([^\0]*)\0", data)
        names = listed[1].decode().split(",") if listed else []
        for other in (*_SOFT_DEPENDENCIES.get(name, ()), *names):
            add(other)
        found[name] = data

    for name in _MODULES:
        add(name)
    return found


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        check=False,
        timeout=_STEP_SECONDS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise RuntimeError(f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
