"""Pressure files that are read again and again, to see whether they are as they were."""

from __future__ import annotations

import os
from collections.abc import Iterable

from memqos.oom.metrics import is_pressure
from memqos.oom.rest import is_unchanged


__all__ = ["KeptFile", "PressureWatch"]

# Of a file that is whole there are some 150 bytes.
_LONGEST = 400
# Before all files are opened anew, as others may stand in their places by then.
_LOOKS = 20
# Where the root's pressure moves, it will move again: so many times it is not read in vain.
_ROOTLESS = 3
# Of a cgroup that does not exist: nobody waits in it.
_ABSENT = b""


class KeptFile:
    """A small file of a cgroup that is kept open: to open it costs more than to read it.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: int | None = None

    def read(self) -> bytes | None:
        """Read it, None where that cannot be done."""
        try:
            if self._descriptor is None:
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags)
            return os.pread(self._descriptor, _LONGEST, 0)
        except OSError:
            self.close()
            return None

    def close(self) -> None:
        """Close it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PressureWatch:
    """The pressure files of the root and of a few cgroups, as they were at one time.

    Args:
        mount: the cgroup2 mount.
    """

    def __init__(self, mount: str) -> None:
        self._mount = mount
        self._files: dict[str, KeptFile] = {}
        self._root: bytes | None = None
        self._texts: dict[str, bytes | None] = {}
        self._spans: frozenset[str] = frozenset()
        self._looks = 0
        # Looks to come at the others alone.
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
        if self._rootless:
            self._rootless -= 1
        else:
            now = self._read("")
            if now == root:
                return True
            if now is None or _shape(now) != _shape(root):
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

    def _forget(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._looks = 0

    def _read(self, path: str) -> bytes | None:
        """Read one; `_ABSENT` where there is no such cgroup, None where it does not say."""
        folder = f"{self._mount}/{path}/"
        file = self._files.get(path)
        if file is None:
            if not os.access(folder, os.F_OK):
                return _ABSENT
            file = self._files[path] = KeptFile(f"{folder}memory.pressure")
        text = file.read()
        if text is None:
            del self._files[path]
            return None if os.access(folder, os.F_OK) else _ABSENT
        return text


def _shape(text: bytes) -> bytes:
    """Leave the digits out: what is left is the same in every pressure file that is whole."""
    return text.translate(None, b"0123456789")
