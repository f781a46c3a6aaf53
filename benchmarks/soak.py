"""``watch-oom`` and nohang beside 250 pods that come and go, in an emulated machine.

Prints the memory and the CPU time of both at the same interval: while nobody waits for memory, and
while one pod meets its memory.high again and again. The time of the kernel's threads that keep
watch for memqos (psimon) is counted as its own. Times are those of emulation; compare them within
one run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.guest_image import GuestUnavailableError
from tests.support.watchers import prepare_watcher_guest, run_watchers


def cpu_ms_per_second(samples: Sequence[dict[str, float]]) -> float:
    """Return the CPU time between the first and the last of some samples."""
    first, last = samples[0], samples[-1]
    return (last["cpu_ms"] - first["cpu_ms"]) / (last["t"] - first["t"])


def main() -> None:
    """Soak, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--pods", type=int, default=250)
    options = parser.parse_args()
    try:
        guest = prepare_watcher_guest()
    except GuestUnavailableError as error:
        sys.exit(f"no guest: {error}")
    seconds = round(options.minutes * 60)
    answer: dict[str, Any] = run_watchers(
        guest, "soak.py", str(seconds), str(options.pods), timeout=seconds * 2 + 300
    )
    print(f"{options.pods} pods at a time, {answer['pods']} in all, {options.minutes:g} minutes")
    print(f"{'':8} {'RSS MiB':>15} {'CPU ms/s at rest':>17} {'CPU ms/s under pressure':>24}")
    for name, samples in answer["samples"].items():
        rss = [sample["rss_kib"] / 1024 for sample in samples]
        rest = [sample for sample in samples if sample["t"] <= answer["half"]]
        pressed = [sample for sample in samples if sample["t"] > answer["half"]]
        print(
            f"{name:8} {f'{rss[0]:.2f} - {max(rss):.2f}':>15} {cpu_ms_per_second(rest):>17.2f} "
            f"{cpu_ms_per_second(pressed):>24.2f}"
        )


if __name__ == "__main__":
    main()
