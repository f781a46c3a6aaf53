"""``watch-oom`` beside nohang, earlyoom and systemd-oomd: the same hog on the same emulated node.

Prints a table in Markdown. Each runs as its Debian package configures it, memqos with Talos'
default expressions. Short of memory is the node while MemAvailable is below a tenth. Times are
those of emulation; compare them within one run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.guest_image import GuestUnavailableError
from tests.support.watchers import prepare_watcher_guest, run_watchers


NAMES = ("memqos watch-oom", "nohang", "earlyoom", "systemd-oomd")
REST_SECONDS, LONGEST_SECONDS, ATTEMPTS = 20, 60, 2
SECONDS_EACH = 240


def row(name: str, found: Mapping[str, Any]) -> str:
    """Write one line of the table."""
    if found["relief_s"] is None:
        relief = f"over {LONGEST_SECONDS} s, {ATTEMPTS} times"
        killed = "nothing in that time"
    else:
        relief = f"{found['relief_s']:.1f} s"
        killed = "one process of the pod" if found["hog_left"] else "the whole pod"
    figures = (
        f"{found['rest_ms_per_s']:.1f} ms/s",
        f"{found['storm_ms_per_s']:.1f} ms/s",
        f"{found['rss_kib'] / 1024:.0f} MiB",
    )
    return "| " + " | ".join((name, killed, relief, *figures)) + " |"


def main() -> None:
    """Measure, and print."""
    try:
        guest = prepare_watcher_guest()
    except GuestUnavailableError as error:
        sys.exit(f"no guest: {error}")
    arguments = (str(REST_SECONDS), str(LONGEST_SECONDS), str(ATTEMPTS), *NAMES)
    answer = run_watchers(guest, "compare.py", *arguments, timeout=SECONDS_EACH * len(NAMES))
    print("| | kills | short of memory for | CPU at rest | CPU in the storm | memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in NAMES:
        print(row(name, answer[name]))


if __name__ == "__main__":
    main()
