"""Running the operator's own command beside a kill."""

from __future__ import annotations

import os
import shlex
import subprocess

from memqos.adapters.self_protection import raise_oom_score
from memqos.adapters.signals import unblock_signals


__all__ = ["run_hook"]


def run_hook(command: str, seconds: float, *, victim: str, outcome: str) -> str | None:
    """Run a command within a time limit; return what went wrong, None if nothing did.

    Args:
        command: split as a shell does, but run without one.
        seconds: the time limit.
        victim: path of the cgroup, in $MEMQOS_VICTIM.
        outcome: of the kill, in $MEMQOS_OUTCOME; empty before it.
    """
    try:
        subprocess.run(  # noqa: S603  # the operator's own command
            shlex.split(command),
            check=False,
            env={**os.environ, "MEMQOS_VICTIM": victim, "MEMQOS_OUTCOME": outcome},
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            preexec_fn=_prepare,
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return str(error)
    return None


def _prepare() -> None:
    """Undo what a watcher does to itself; between fork and exec, so system calls only."""
    unblock_signals()
    raise_oom_score()
