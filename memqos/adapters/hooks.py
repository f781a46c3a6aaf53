"""Running the operator's own command beside a kill."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from contextlib import suppress

from memqos.adapters.self_protection import raise_oom_score
from memqos.adapters.signals import unblock_signals


__all__ = ["run_hook"]

_END_SECONDS = 1


def run_hook(command: str, seconds: float, *, victim: str, outcome: str) -> str | None:
    """Run a command within a time limit; return what went wrong, None if nothing did.

    Args:
        command: split as a shell does, but run without one.
        seconds: the time limit.
        victim: path of the cgroup, in $MEMQOS_VICTIM.
        outcome: of the kill, in $MEMQOS_OUTCOME; empty before it.
    """
    try:
        words = shlex.split(command)
        if not words:
            return "names no program"
        process = subprocess.Popen(  # noqa: S603  # the operator's own command
            words,
            env={**os.environ, "MEMQOS_VICTIM": victim, "MEMQOS_OUTCOME": outcome},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_prepare,  # noqa: PLW1509  # it takes no lock
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return str(error)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):  # another user's by now
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
        with suppress(subprocess.TimeoutExpired):  # one that waits for a disk does not end
            process.wait(_END_SECONDS)
        return f"timed out after {seconds:g} s, and was killed"
    if status < 0:
        return f"ended by signal {-status}"
    return f"exit status {status}" if status else None


def _prepare() -> None:
    """Undo what a watcher does to itself; between fork and exec, so without a lock."""
    unblock_signals()
    raise_oom_score()
