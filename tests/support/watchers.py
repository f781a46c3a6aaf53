"""Running the scripts about OOM watchers in the guest."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.guest import Guest, prepare_guest
from tests.support.guest_image import GuestUnavailableError


_SCRIPTS = Path(__file__).parents[1] / "guest" / "scripts"


def prepare_watcher_guest() -> Guest:
    """Make ready to run guests in which memqos can read expressions.

    Raises:
        GuestUnavailableError: this machine cannot, or the guest's Python is not ours.
    """
    guest = prepare_guest()
    if not guest.has_expressions:
        raise GuestUnavailableError("its Python is another, for which celpy's parts are not built")
    return guest


def run_watchers(
    guest: Guest,
    script: str,
    *arguments: str,
    timeout: int,
    files: Mapping[str, bytes] | None = None,
    systemd: bool = False,
) -> dict[str, Any]:
    """Run a script of tests/guest/scripts on a small node with a slow disk; return its answer.

    The slow disk makes it hurt to read again what was in memory.

    Args:
        guest: the machine.
        script: its file name.
        arguments: its own.
        timeout: seconds until it is killed.
        files: what it finds beside itself, by name.
        systemd: whether systemd is the first process.

    Raises:
        GuestError: there is no answer.
        RuntimeError: the script failed.
    """
    result = guest.run(
        _SCRIPTS / script,
        *arguments,
        nodes=1,
        memory_mib=1024,
        scratch_mib=256,
        scratch_mib_per_second=16,
        files=files,
        systemd=systemd,
        timeout=timeout,
    )
    complaints = "".join(
        f"{name}: {text.decode('utf-8', 'replace')}\n"
        for name, text in sorted(result.files.items())
        if name.endswith(".err") and text
    )
    told = f"{result.seconds:.1f} s\n{result.stdout}{result.stderr}{complaints}"
    if result.status:
        raise RuntimeError(f"{script}: status {result.status}: {told}")
    answer: dict[str, Any] = json.loads(result.files["answer"])
    return {**answer, "told": told}
