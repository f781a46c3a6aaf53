"""Reading files without trusting them: bounded, never blocking, one error type."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from memqos.errors import MachineError


__all__ = [
    "MAX_INPUT_BYTES",
    "machine_error",
    "open_file",
    "read_file",
    "read_input",
    "replacing",
    "write_atomically",
]

#: No document that memqos reads on a node is near this size.
MAX_INPUT_BYTES = 16 * 1024 * 1024


def machine_error(path: str, error: OSError) -> MachineError:
    """Wrap an OSError with the path that the user knows."""
    return MachineError(path, error.strerror or str(error), error.errno)


def read_input(name: str, *, limit: int = MAX_INPUT_BYTES) -> bytes:
    """Read a file given on the command line; ``-`` is standard input.

    Raises:
        MachineError: it cannot be read, is no regular file, or is larger than `limit` bytes.
    """
    if name != "-":
        return read_file(name, limit=limit)
    if sys.stdin is None:
        raise MachineError("standard input", "is closed")
    try:
        data = sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise machine_error("standard input", error) from error
    if len(data) > limit:
        raise MachineError("standard input", f"larger than {limit} bytes")
    return data


def read_file(path: str, *, limit: int = MAX_INPUT_BYTES) -> bytes:
    """Read a regular file, which may be one of /proc or /sys.

    Raises:
        MachineError: it cannot be read, is no regular file, or is larger than `limit` bytes.
    """
    descriptor = _open(path)
    try:
        chunks = []
        size = 0
        while chunk := os.read(descriptor, min(1 << 20, limit + 1 - size)):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise MachineError(path, f"larger than {limit} bytes")
        return b"".join(chunks)
    except OSError as error:
        raise machine_error(path, error) from error
    finally:
        os.close(descriptor)


def open_file(path: str) -> BinaryIO:
    """Open a regular file to read it piece by piece.

    Raises:
        MachineError: it cannot be opened, or is no regular file.
    """
    return os.fdopen(_open(path), "rb")


def _open(path: str) -> int:
    try:
        # Opening a FIFO for reading would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise MachineError(path, str(error)) from error
    except OSError as error:
        raise machine_error(path, error) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise MachineError(path, "is a directory")
        raise MachineError(path, "is not a regular file; '-' reads standard input")
    return descriptor


def write_atomically(path: str, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a file by a complete new one, or leave it as it is.

    Raises:
        MachineError: it cannot be written; the temporary file is gone then.
    """
    with replacing(path, mode=mode) as file:
        file.write(data)


@contextmanager
def replacing(path: str, *, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Give a new file to write, which replaces another as soon as it is complete.

    Raises:
        MachineError: it cannot be written; the temporary file is gone then.
    """
    from tempfile import mkstemp  # slow to import, and most commands write nothing

    try:
        path = os.path.realpath(path)
        if os.path.lexists(path) and not os.path.isfile(path):
            raise MachineError(path, "is not a regular file")
        directory, name = os.path.split(path)
        descriptor, temporary = mkstemp(prefix=f".{name[:100]}.", dir=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise machine_error(path, error) from error
