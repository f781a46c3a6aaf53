"""Writing a recording of cgroup samples, rotated by size."""

from __future__ import annotations

import errno
import json
import os
import stat

from memqos.adapters.files import machine_error
from memqos.errors import MachineError
from memqos.oom.layout import Tree


__all__ = ["Recorder"]

# How each line begins.
_HEAD = b'{"t":'
_CHUNK = 64 * 1024


class Recorder:
    """Appends samples as JSON Lines; at `limit` bytes the file becomes ``FILE.1``.

    A recording of an earlier run goes on, without the half line that a power loss may have left.

    Raises:
        MachineError: the file cannot be opened or written, is no regular file or no recording.
    """

    def __init__(self, path: str, *, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._descriptor: int | None = self._open()

    def add(self, seconds: float, tree: Tree, proc: dict[str, str]) -> None:
        """Append a sample: seconds, the cgroups' files, and files of /proc."""
        sample = {"t": seconds, "tree": tree, "proc": proc}
        line = f"{json.dumps(sample, separators=(',', ':'))}\n".encode()
        try:
            descriptor = self._opened()
            if not self._is_there(descriptor):
                self.close()
                descriptor = self._opened()
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > self._limit:
                self.close()
                os.replace(self._path, f"{self._path}.1")
                descriptor, size = self._opened(), 0
            if os.write(descriptor, line) != len(line):
                os.ftruncate(descriptor, size)  # half a line would spoil the recording
                raise MachineError(self._path, "the disk is full")
        except OSError as error:
            raise machine_error(self._path, error) from error

    def close(self) -> None:
        """Close the file; what is added later opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _opened(self) -> int:
        if self._descriptor is None:  # it could not be opened after the last rotation
            self._descriptor = self._open()
        return self._descriptor

    def _is_there(self, descriptor: int) -> bool:
        """Tell whether the file still has its name; logrotate(8) takes that away."""
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_NONBLOCK | os.O_NOCTTY  # a FIFO would wait for a reader
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a FIFO without a reader, or a socket
                raise MachineError(self._path, "is not a regular file") from error
            raise machine_error(self._path, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise MachineError(self._path, "is not a regular file")
        try:
            if not _HEAD.startswith(os.pread(descriptor, len(_HEAD), 0)):
                os.close(descriptor)
                raise MachineError(self._path, "is no recording")
            _cut_half_line(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise machine_error(self._path, error) from error
        return descriptor


def _cut_half_line(descriptor: int) -> None:
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _CHUNK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            os.ftruncate(descriptor, start + found + 1)
            return
        end = start
    os.ftruncate(descriptor, 0)
