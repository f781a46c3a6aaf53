"""A saved snapshot in a tar archive as a host, read without unpacking it to disk."""

from __future__ import annotations

import errno
import lzma
import os
import tarfile
import zlib

from memqos.adapters.files import MAX_INPUT_BYTES
from memqos.adapters.host import Host
from memqos.errors import MachineError


__all__ = ["Archive"]

_MAX_MEMBERS = 500_000
_MAX_BYTES = 512 * 1024 * 1024
_MAX_LINKS = 40
_BROKEN = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)


class Archive(Host):
    """Holds the files of a tar archive, compressed or not, as if it were a host's root."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        # Path to content, link target, or None for a directory.
        self._entries: dict[str, bytes | str | None] = {"": None}
        try:
            with tarfile.open(root) as tar:
                self._read(tar)
        except _BROKEN:
            raise MachineError(root, "neither a directory nor a tar archive") from None

    def _read(self, tar: tarfile.TarFile) -> None:
        for number, member in enumerate(tar):
            if number >= _MAX_MEMBERS or member.offset_data + member.size > _MAX_BYTES:
                raise MachineError(self.root, "too large for a snapshot")
            name = _normal(member.name)
            entry: bytes | str | None = None
            if member.issym():
                folder = "" if member.linkname.startswith("/") else name.rpartition("/")[0]
                entry = _normal(f"{folder}/{member.linkname}")
            elif member.islnk():
                entry = _normal(member.linkname)
            elif member.isreg():
                file = tar.extractfile(member)
                entry = file.read() if file else b""
            elif not member.isdir():
                continue  # a device tells nothing
            parent = name.rpartition("/")[0]
            while parent not in self._entries:
                self._entries[parent] = None
                parent = parent.rpartition("/")[0]
            self._entries[name] = entry

    def check(self) -> None:
        """Nothing to check: the archive was read when it was opened."""

    def read(self, path: str, *, limit: int = MAX_INPUT_BYTES) -> bytes:
        """Read a file of the archive."""
        entry = self._entries[self._follow(path)]
        if not isinstance(entry, bytes):
            raise MachineError(self.display(path), "is a directory", errno.EISDIR)
        if len(entry) > limit:
            raise MachineError(self.display(path), f"larger than {limit} bytes")
        return entry

    def list(self, path: str) -> list[str]:
        """List the names in a directory of the archive."""
        name = self._follow(path)
        if self._entries[name] is not None:
            raise MachineError(self.display(path), os.strerror(errno.ENOTDIR), errno.ENOTDIR)
        prefix = f"{name}/" if name else ""
        inside = (entry[len(prefix) :] for entry in self._entries if entry.startswith(prefix))
        return sorted(name for name in inside if name and "/" not in name)

    def exists(self, path: str) -> bool:
        """Tell whether the archive has an entry for a path."""
        return _normal(path) in self._entries

    def place(self, path: str) -> str | None:
        """Nothing in an archive can be replaced."""
        del path
        return None

    def _follow(self, path: str) -> str:
        """Follow links to the name of a file or directory."""
        name = _normal(path)
        for _ in range(_MAX_LINKS):
            if name not in self._entries:
                raise MachineError(self.display(path), os.strerror(errno.ENOENT), errno.ENOENT)
            entry = self._entries[name]
            if not isinstance(entry, str):
                return name
            name = entry
        raise MachineError(self.display(path), "too many levels of symbolic links")


def _normal(name: str) -> str:
    parts: list[str] = []
    for part in name.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
