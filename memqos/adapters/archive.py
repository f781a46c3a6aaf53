"""A saved snapshot in a tar archive as a host, read without unpacking it to disk."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import sys
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias

from memqos.adapters.files import MAX_INPUT_BYTES, machine_error
from memqos.adapters.host import MAX_LINKS, Host
from memqos.errors import MachineError


__all__ = ["Archive", "Room", "TooLargeError"]

_MAX_BYTES = 512 * 1024 * 1024  # of the archive, unpacked
_MAX_HELD = 128 * 1024 * 1024  # of what is kept of it
_HELD_PER_ENTRY = 120  # beside a name and a content
_BLOCK = 512
_STEP = 1024 * 1024
_BROKEN = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    OSError,
    ValueError,
    OverflowError,
    RecursionError,
)


class _Link(NamedTuple):
    """A link, with its target as it stands there."""

    target: str


class _Unreadable(NamedTuple):
    """A file that cannot be read, and why."""

    message: str


# A file, a link, or None for a directory.
_Entry: TypeAlias = "bytes | _Link | _Unreadable | None"
_NOTHING = _Unreadable("is not there")


class TooLargeError(Exception):
    """The archive is not one of a snapshot."""


class Room:
    """How much an archive may hold: who makes one keeps to it, too."""

    def __init__(self) -> None:
        self._held = 0

    def hold(self, name: str, content: str | bytes = b"") -> None:
        """Make room for an entry.

        Raises:
            TooLargeError: there is none.
        """
        # Not the lengths: one character can make all others of a text four bytes long.
        self._held += sys.getsizeof(name) + sys.getsizeof(content) + _HELD_PER_ENTRY
        if self._held > _MAX_HELD:
            raise TooLargeError

    @staticmethod
    def reach(offset: int) -> None:
        """Let the archive grow, but for its end.

        Raises:
            TooLargeError: it is too long.
        """
        if offset > _MAX_BYTES - 2 * _STEP:  # its end is padded, and read in steps
            raise TooLargeError


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Forward:
    """A file that is read from front to back once, however hostile the archive in it is."""

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self._end = 0  # of what was read from the file
        self._last = b""  # the end of it
        self._back = 0  # how many bytes of that are to be given again

    def tell(self) -> int:
        return self._end - self._back

    def seek(self, offset: int) -> int:
        if offset < self._end:
            self._back = self._end - offset
            if self._back > len(self._last):
                raise ValueError("the archive leads backwards")
        else:
            self._back = 0
            while self._end < offset and self.read(min(_STEP, offset - self._end)):
                pass
        return self.tell()

    def read(self, size: int) -> bytes:
        if size < 0:
            raise ValueError("a negative size")
        if size > MAX_INPUT_BYTES or self._end + size > _MAX_BYTES:
            raise TooLargeError
        again = self._last[len(self._last) - self._back :][:size] if self._back else b""
        self._back -= len(again)
        if len(again) == size:
            return again
        data = self._file.read(size - len(again))
        self._end += len(data)
        self._last = data[-_BLOCK:] if len(data) >= _BLOCK else (self._last + data)[-_BLOCK:]
        return again + data


class Archive(Host):
    """Holds the files of a tar archive, compressed or not, as if it were a host's root."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._entries: dict[str, _Entry] = {"": None}
        self._room = Room()
        problem = "neither a directory nor a tar archive"
        try:
            with ExitStack() as stack:
                file = _Forward(_unpacked(root, stack))
                tar = stack.enter_context(tarfile.TarFile(fileobj=file, mode="r"))  # type: ignore[arg-type]  # it reads, seeks and tells
                problem = "the archive is damaged or incomplete"
                self._read(tar)
                self._check_end(tar, file)
        except TooLargeError:
            raise MachineError(self.root, "too large for a snapshot") from None
        except _BROKEN as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise machine_error(root, error) from error
            raise MachineError(root, problem) from None

    def _read(self, tar: tarfile.TarFile) -> None:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # or it keeps them all
            if member.size < 0:
                raise ValueError("a negative size")
            name = _inside(member.name)
            entry: _Entry = None
            if member.issym():
                entry = _Link(member.linkname)
            elif member.islnk():
                entry = _Link(f"/{member.linkname}")
            elif member.isreg():
                if member.size > MAX_INPUT_BYTES:
                    entry = _Unreadable(f"larger than {MAX_INPUT_BYTES} bytes")
                else:
                    file = tar.extractfile(member)
                    entry = file.read() if file else b""
            elif not member.isdir():
                entry = _Unreadable("is not a regular file")
            self._add(name, entry)

    def _add(self, name: str, entry: _Entry) -> None:
        """Add an entry and the directories that lead to it; the last of a name counts."""
        content = entry.target if isinstance(entry, _Link) else entry
        self._room.hold(name, content if isinstance(content, str | bytes) else b"")
        if name:
            self._entries[name] = entry
        parent = name.rpartition("/")[0]
        while parent not in self._entries:
            self._room.hold(parent)
            self._entries[parent] = None
            parent = parent.rpartition("/")[0]

    @staticmethod
    def _check_end(tar: tarfile.TarFile, file: _Forward) -> None:
        """Make sure that nothing is missing: tarfile takes a cut or broken header for the end."""
        file.seek(tar.offset)
        if file.read(_BLOCK) != bytes(_BLOCK):
            raise EOFError
        while file.read(_STEP):  # a compressed file has its checksum at the end
            pass

    def check(self) -> None:
        """Nothing to check: the archive was read when it was opened."""

    def read(self, path: str, *, limit: int = MAX_INPUT_BYTES) -> bytes:
        """Read a file of the archive."""
        entry = self._find(path)
        if isinstance(entry, _Unreadable):
            raise MachineError(self.display(path), entry.message)
        if not isinstance(entry, bytes):
            raise MachineError(self.display(path), "is a directory", errno.EISDIR)
        if len(entry) > limit:
            raise MachineError(self.display(path), f"larger than {limit} bytes")
        return entry

    def list(self, path: str) -> list[str]:
        """List the names in a directory of the archive."""
        if self._find(path) is not None:
            raise self._error(path, errno.ENOTDIR)
        name = self._follow(path)
        return sorted(self._names.get(name, ()))

    @cached_property
    def _names(self) -> Mapping[str, Sequence[str]]:
        """The names in each directory: many commands never ask."""
        found = defaultdict(list)
        for entry in filter(None, self._entries):
            directory, _, name = entry.rpartition("/")
            found[directory].append(name)
        return found

    def exists(self, path: str) -> bool:
        """Tell whether the archive has a file or directory at a path."""
        try:
            return self._follow(path) in self._entries
        except MachineError:
            return False

    def is_link(self, path: str) -> bool:
        """Tell whether a path itself is a symbolic link."""
        return isinstance(self._itself(path), _Link)

    def is_directory(self, path: str) -> bool:
        """Tell whether a path itself is a directory, and no link to one."""
        return self._itself(path) is None

    def place(self, path: str) -> str | None:
        """Nothing in an archive can be replaced."""
        del path
        return None

    def _itself(self, path: str) -> _Entry:
        """Return what is at a path, a link not followed."""
        directory, name = os.path.split(path)
        try:
            place = "/".join(filter(None, (self._follow(directory), name)))
        except MachineError:
            return _NOTHING
        return self._entries.get(place, _NOTHING)

    def _error(self, path: str, number: int) -> MachineError:
        return MachineError(self.display(path), os.strerror(number), number)

    def _find(self, path: str) -> _Entry:
        name = self._follow(path)
        if name not in self._entries:
            raise self._error(path, errno.ENOENT)
        return self._entries[name]

    def _follow(self, path: str) -> str:
        """Follow links to the name of a file or directory, which need not exist."""
        done = ""
        todo = _steps(path)[::-1]
        links = 0
        while todo:
            step = todo.pop()
            if step == "..":
                done = done.rpartition("/")[0]
                continue
            place = f"{done}/{step}" if done else step
            entry = self._entries.get(place)
            if isinstance(entry, _Link):
                links += 1
                if links > MAX_LINKS:
                    raise MachineError(self.display(path), "too many levels of symbolic links")
                if entry.target.startswith("/"):
                    done = ""
                todo += _steps(entry.target)[::-1]
                continue
            if todo and entry is not None:
                raise self._error(path, errno.ENOTDIR)
            done = place
        return done


def _unpacked(path: str, stack: ExitStack) -> _Readable:
    """Open a file, through what unpacks it if it is compressed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    file = stack.enter_context(os.fdopen(descriptor, "rb"))
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return stack.enter_context(gzip.GzipFile(fileobj=file))
    if start.startswith(b"BZh"):
        return stack.enter_context(bz2.BZ2File(file))
    if start.startswith(b"\xfd7zXZ\0"):
        return stack.enter_context(lzma.LZMAFile(file))
    return file


def _steps(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _inside(name: str) -> str:
    """Return the plain form of a member's name, which does not lead out of the root."""
    parts: list[str] = []
    for part in _steps(name):
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)
