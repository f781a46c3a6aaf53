"""Running a command to measure it."""

from __future__ import annotations

import os
import subprocess
import sys
import time


def run(command: list[str]) -> tuple[float, int]:
    """Run a command; return seconds and its peak memory in KiB."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command} ended with {child.returncode}")
    return seconds, usage.ru_maxrss
