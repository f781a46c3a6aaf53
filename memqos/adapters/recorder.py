"""Writing a recording of cgroup samples, rotated by size."""

from __future__ import annotations

import json
import os

from memqos.adapters.files import machine_error
from memqos.errors import MachineError
from memqos.oom.layout import Tree


__all__ = ["Recorder"]


class Recorder:
    """Appends samples as JSON Lines; at `limit` bytes the file becomes ``FILE.1``.

    Raises:
        MachineError: the file cannot be opened or written.
    """

    def __init__(self, path: str, *, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._descriptor = self._open()

    def add(self, seconds: float, tree: Tree, proc: dict[str, str]) -> None:
        """Append a sample: seconds, the cgroups' files, and files of /proc."""
        sample = {"t": seconds, "tree": tree, "proc": proc}
        line = f"{json.dumps(sample, separators=(',', ':'))}\n".encode()
        try:
            size = os.fstat(self._descriptor).st_size
            if size and size + len(line) > self._limit:
                self.close()
                os.replace(self._path, f"{self._path}.1")
                self._descriptor, size = self._open(), 0
            if os.write(self._descriptor, line) != len(line):
                os.ftruncate(self._descriptor, size)  # half a line would spoil the recording
                raise MachineError(self._path, "the disk is full")
        except OSError as error:
            raise machine_error(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o600)
        except OSError as error:
            raise machine_error(self._path, error) from error
