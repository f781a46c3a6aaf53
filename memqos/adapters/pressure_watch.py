"""Pressure files that are read again and again, to see whether they are as they were."""

from __future__ import annotations

import os
from collections.abc import Iterable

from memqos.oom.metrics import is_pressure
from memqos.oom.rest import is_alike, is_unchanged


__all__ = ["PressureWatch"]

# Of a file that is whole there are some 150 bytes.
_LONGEST = 400
# Before all files are opened anew, as others may stand in their places by then.
_LOOKS = 20
# Where the root's pressure moves, it will move again: it is read at every fourth look then.
_ROOTLESS = 4
# Of a cgroup that does not exist: nobody waits in it.
_ABSENT = b""
# Any wait, told once in half a second, the shortest window (Documentation/accounting/psi.rst).
# Who lacks CAP_SYS_RESOURCE cannot have it so short.
_TRIGGER = b"some 1 500000\0"


class PressureWatch:
    """The pressure files of the root and of a few cgroups, as they were at one time.

    They are kept open: to open one costs more than to read it.

    Args:
        mount: the cgroup2 mount.
    """

    def __init__(self, mount: str) -> None:
        self._mount = mount
        self._alarms: dict[str, int] = {}
        self._is_told = True
        self._descriptors: dict[str, int] = {}
        self._root: bytes | None = None
        self._texts: dict[str, bytes | None] = {}
        self._spans: frozenset[str] = frozenset()
        self._looks = 0
        # Looks until the root is read again.
        self._rootless = 0

    def remember(self, paths: Iterable[str], spans: frozenset[str]) -> None:
        """Read them; what follows must be read later.

        Args:
            paths: the cgroups that decide.
            spans: which numbers of theirs decide.
        """
        self._forget()
        self._root = self._read("")
        if self._root is not None and not is_pressure(self._root.decode("ascii", "replace")):
            self._root = None
        self._texts = {path: self._read(path) for path in paths}
        if None in self._texts.values():  # a cgroup can do without (cgroup.pressure)
            self._texts = {"": self._root}
        self._spans = spans
        self._rootless = 0
        self._is_told = True

    def is_still(self) -> bool:
        """Tell whether those that decide are as they were, but for numbers that do not.

        While the root's is as it was, so are they.
        """
        if self._root is None:
            return False
        self._looks += 1
        if self._looks > _LOOKS:
            self._forget()
        root = self._root
        self._rootless = max(0, self._rootless - 1)
        if not self._rootless:
            now = self._read("")
            if now == root:
                return True
            if now is None or not is_alike(root, now):
                return False
            if is_unchanged(root, now, self._spans):  # an average that comes down for minutes
                self._root = now
                return True
            root = now
            self._rootless = 0 if "" in self._texts else _ROOTLESS
        for path, before in self._texts.items():
            now = self._read(path) if path else root
            if before is None or now is None or not is_unchanged(before, now, self._spans):
                return False
            self._texts[path] = now
        self._root = root
        return True

    def alarms(self) -> tuple[int, ...] | None:
        """Let the kernel tell when somebody begins to wait who can end the stillness.

        Waits of less than two ticks of the kernel's clock, alone in a twentieth of a second, are
        not told.

        Returns:
            Descriptors that are urgent (POLLPRI) then; None where the kernel cannot be asked.
        """
        if not self._is_told:
            return None
        paths = {""}
        if self._rootless:  # others wait
            paths = {path for path, text in self._texts.items() if text != _ABSENT}
        for path in self._alarms.keys() - paths:
            os.close(self._alarms.pop(path))
        self._is_told = all(self._ask(path) for path in paths - self._alarms.keys())
        return tuple(self._alarms.values()) if self._is_told else None

    def _ask(self, path: str) -> bool:
        """Ask for one alarm; a file that has a size is on a disk, and not to be overwritten."""
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(f"{self._mount}/{path}/memory.pressure", flags)
            self._alarms[path] = descriptor
            return not os.fstat(descriptor).st_size and os.write(descriptor, _TRIGGER) > 0
        except OSError:
            return False

    def _forget(self) -> None:
        for descriptors in (self._descriptors, self._alarms):
            while descriptors:
                os.close(descriptors.popitem()[1])
        self._looks = 0

    def _read(self, path: str) -> bytes | None:
        """Read one; `_ABSENT` where there is no such cgroup, None where it does not say."""
        try:
            descriptor = self._descriptors.get(path)
            if descriptor is None:
                folder = f"{self._mount}/{path}/"
                if not os.access(folder, os.F_OK):
                    return _ABSENT
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(f"{folder}memory.pressure", flags)
                self._descriptors[path] = descriptor
            return os.pread(descriptor, _LONGEST, 0)
        except OSError:
            if path in self._descriptors:
                os.close(self._descriptors.pop(path))
            return None if os.access(f"{self._mount}/{path}/", os.F_OK) else _ABSENT
