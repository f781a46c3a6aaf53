"""Programs of Debian packages that tests run where they can be had, and skip where not.

A program on PATH is taken. Else, for root on a Debian, it is unpacked, not installed, from its
package into `.cache/tools`, once. All waiting is bounded.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from functools import cache
from pathlib import Path

import pytest


CACHE = Path(__file__).parents[2] / ".cache" / "tools"

#: Program to the Debian packages that hold it and the libraries of its own.
PACKAGES = {
    "promtool": ("prometheus",),
    "systemd-analyze": ("systemd", "libsystemd-shared"),
}

_UPDATE_SECONDS = 60
_DOWNLOAD_SECONDS = 120
_RETRY_SECONDS = 600


@cache
def tool(name: str) -> str:
    """Return the path of a program, or skip the test that asks for it."""
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None and name in PACKAGES:
        found = _unpacked(name)
    if found is None:
        packages = " ".join(PACKAGES.get(name, ()))
        pytest.skip(f"no {name} here" + (f"; Debian has it in {packages}" if packages else ""))
    return found


def run_tool(
    name: str, *arguments: str | Path, **options: str
) -> subprocess.CompletedProcess[str]:
    """Run a program, in `cwd`, with `input`; it may use the libraries that came with it."""
    path = tool(name)
    environment = dict(os.environ)
    if path.startswith(str(CACHE)):
        root = CACHE / name
        triplet = sysconfig.get_config_var("MULTIARCH") or ""
        folders = [root / "usr/lib" / triplet, root / "usr/lib" / triplet / "systemd"]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, folders))
    return subprocess.run(
        [path, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=options.get("cwd"),
        input=options.get("input"),
    )


def _unpacked(name: str) -> str | None:
    if os.geteuid() != 0 or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    target = CACHE / name
    with (CACHE / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers, one fetches and the others wait
        if not target.exists() and not _failed_lately(name):
            try:
                _fetch(name, target)
            except (OSError, subprocess.SubprocessError):
                (CACHE / f".{name}.failed").touch()
    return next((str(path) for path in target.glob(f"usr/bin/{name}")), None)


def _failed_lately(name: str) -> bool:
    try:
        failed = (CACHE / f".{name}.failed").stat().st_mtime
    except FileNotFoundError:
        return False
    return time.time() - failed < _RETRY_SECONDS


def _fetch(name: str, target: Path) -> None:
    """Download with the system's package lists, else with lists of our own."""
    work = CACHE / f".{name}.work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "lists/partial").mkdir(parents=True)
    (work / "debs").mkdir()
    apt = ["apt-get", "-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10"]
    apt += ["-o", "APT::Sandbox::User=root"]
    own = ["-o", f"Dir::State::Lists={work / 'lists'}", "-o", f"Dir::Cache={work}"]
    try:
        _run([*apt, "download", *PACKAGES[name]], work / "debs", _DOWNLOAD_SECONDS)
    except subprocess.SubprocessError:
        _run([*apt, *own, "update"], work, _UPDATE_SECONDS)
        _run([*apt, *own, "download", *PACKAGES[name]], work / "debs", _DOWNLOAD_SECONDS)
    for package in sorted((work / "debs").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(work / "root")], work, 60)
    _tidy_links(work / "root")
    (work / "root").rename(target)
    shutil.rmtree(work)


def _tidy_links(root: Path) -> None:
    """Merge /bin and /lib into /usr, as Debian does when it installs."""
    for name in ("bin", "lib"):
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)


def _run(command: list[str], cwd: Path, seconds: int) -> None:
    subprocess.run(
        command,
        check=True,
        cwd=cwd,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
