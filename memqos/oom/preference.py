"""Who goes first whatever the score: what a file says of a pod, and what a cgroup says of itself.

Talos itself knows no preferences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from memqos.errors import InputError


__all__ = ["ATTRIBUTES", "Preference", "parse_preferences", "preference_of"]


class Preference(IntEnum):
    """Cgroups go in this order; within one group the ranking decides as usual."""

    PREFER = 0
    PLAIN = 1
    AVOID = 2
    NEVER = 3

    @property
    def label(self) -> str:
        """The word, such as ``avoid``."""
        return self.name.lower()


#: Extended attributes of a cgroup's directory, by which it tells other daemons how it is to be
#: treated: those of systemd-oomd (ManagedOOMPreference=omit and avoid) and those of oomd.
ATTRIBUTES: Final[Mapping[str, Preference]] = {
    "user.oomd_omit": Preference.NEVER,
    "user.oomd_avoid": Preference.AVOID,
    "trusted.oomd_avoid": Preference.AVOID,
    "trusted.oomd_prefer": Preference.PREFER,
}

_WORDS = {
    preference.label: preference for preference in Preference if preference is not Preference.PLAIN
}
# The API's, or a static pod's: its cgroup has the hash of its manifest, as has the annotation
# kubernetes.io/config.hash of its mirror pod.
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
# All that a name may contain, one within another too: what comes before a UID can look like its
# beginning.
_UIDS = re.compile(f"(?=({_UID.pattern}))")


def parse_preferences(text: str) -> dict[str, Preference]:
    """Read lines of ``UID prefer|avoid|never``; ``#`` begins a comment.

    LF or CRLF ends a line, and nothing else that Unicode calls a line's end.

    Raises:
        InputError: a line is none; `line` says which.
    """
    found: dict[str, Preference] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not _UID.fullmatch(words[0]) or words[1] not in _WORDS:
            message = f"expected a pod's UID and {', '.join(_WORDS)}, found {line.strip()[:80]!r}"
            raise InputError(message, line=number)
        uid, preference = words[0], _WORDS[words[1]]
        found[uid] = max(preference, found.get(uid, preference))
    return found


def preference_of(
    path: str,
    by_uid: Mapping[str, Preference],
    attributes: Iterable[str] = (),
    protected: Iterable[str] = (),
) -> Preference:
    """Return a cgroup's preference; of several, never wins over avoid, and avoid over prefer.

    That a cgroup which is both preferred and avoided is avoided is the careful reading: oomd
    itself prefers it.

    Args:
        path: of the cgroup.
        by_uid: of pods.
        attributes: names of `ATTRIBUTES` that are set on its directory.
        protected: UIDs of pods that are never chosen, or parts of them.
    """
    # systemd's names of slices have _ where a UID has -.
    name = path.rpartition("/")[2].replace("_", "-")
    if any(part in name for part in protected):
        return Preference.NEVER
    given = [by_uid[uid[1]] for uid in _UIDS.finditer(name) if uid[1] in by_uid]
    given += [ATTRIBUTES[attribute] for attribute in attributes]
    return max(given, default=Preference.PLAIN)
