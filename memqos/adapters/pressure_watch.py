"""Pressure files that are read again and again, to see whether they are as they were."""

from __future__ import annotations

import os
import re
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
# Before, the kernel could use what it had freed: of a cgroup that went away, and of the root.
_SAFE = (6, 5)


class PressureWatch:
    """The pressure files of the root and of a few cgroups, as they were at one time.

    They are kept open: to open one costs more than to read it.

    Args:
        mount: the cgroup2 mount.
    """

    def __init__(self, mount: str) -> None:
        self._mount = mount
        self._alarms: dict[str, int] = {}
        self._can_ask = True
        self._descriptors: dict[str, int] = {}
        self._root: bytes | None = None
        self._texts: dict[str, bytes | None] = {}
        self._spans: frozenset[str] = frozenset()
        self._looks = 0
        # Looks until the root is read again.
        self._rootless = 0

    def __del__(self) -> None:
        self._forget()
        self.silence()

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

    def is_still(self) -> bool:
        """Tell whether those that decide are as they were, but for numbers that do not.

        While the root's is as it was, so are they.
        """
        self._looks += 1
        if self._looks > _LOOKS:
            self._forget()
            self.silence()
        return self._look()

    def _look(self) -> bool:
        root = self._root
        if root is None:
            return False
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
        """Have the kernel tell when somebody begins to wait who can end the stillness.

        A wait of less than two ticks of the kernel's clock is not told if it is the only one in
        half a second, nor is one in a cgroup that has come since.

        Returns:
            Descriptors that are urgent (POLLPRI) then; None where the kernel does not tell, or
            where somebody has waited before it was asked to.
        """
        if not self._can_ask:
            return None
        paths = {path for path, text in self._texts.items() if text != _ABSENT}
        if not self._rootless:  # else others wait
            paths.add("")
        new = paths - self._alarms.keys()
        if not all(self._set_alarm(path) for path in new):
            self.silence()
            self._can_ask = False
            return None
        if new and not self._look():
            return None
        # It takes tens of milliseconds: by now the others are set.
        for path in self._alarms.keys() - paths:
            os.close(self._alarms.pop(path))
        return tuple(self._alarms.values())

    def silence(self) -> None:
        """Have the kernel tell no more."""
        while self._alarms:
            os.close(self._alarms.popitem()[1])

    def _set_alarm(self, path: str) -> bool:
        if _kernel() < _SAFE:
            return False
        text = self._read(path)
        if not text:  # gone, with all who could wait
            return text is not None
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(f"{self._mount}/{path}/memory.pressure", flags)
            self._alarms[path] = descriptor
            opened, read = os.fstat(descriptor), os.fstat(self._descriptors[path])
            # What has content and no size is not on a disk, where it would be overwritten.
            is_kernels = not opened.st_size and os.path.samestat(opened, read)
            return is_kernels and os.write(descriptor, _TRIGGER) > 0
        except OSError:
            return False

    def _forget(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
        self._looks = 0
        self._can_ask = True

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


def _kernel() -> tuple[int, int]:
    major, minor = re.findall("[0-9]+", os.uname().release)[:2]
    return int(major), int(minor)
