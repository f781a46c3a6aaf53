"""A host's files under a root: ``/``, a mounted host, or a saved snapshot."""

from __future__ import annotations

import os

from memqos.adapters.files import MAX_INPUT_BYTES, machine_error, read_file
from memqos.errors import MachineError


__all__ = ["Host"]

_MAX_LINKS = 40


class Host:
    """Reads paths such as ``proc/iomem`` below a root directory.

    Symbolic links are followed inside the root: on a mounted host an absolute link means the
    host's own path, not ours.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def display(self, path: str) -> str:
        """Return the path as the user would type it."""
        return os.path.join(self.root, path)

    def check(self) -> None:
        """Make sure that the root is a directory.

        Raises:
            MachineError: it is not.
        """
        if not os.path.isdir(self.root):
            raise MachineError(self.root, "the root is not a directory")

    def read(self, path: str, *, limit: int = MAX_INPUT_BYTES) -> bytes:
        """Read a file.

        Raises:
            MachineError: it cannot be read; `errno` tells a missing one.
        """
        return read_file(self.resolve(path), limit=limit)

    def read_text(self, path: str) -> str:
        """Read a file of /proc or /sys as text; bytes that are not UTF-8 are replaced."""
        return self.read(path).decode("utf-8", "replace")

    def list(self, path: str) -> list[str]:
        """List the names in a directory, sorted.

        Raises:
            MachineError: it cannot be listed.
        """
        try:
            return sorted(os.listdir(self.resolve(path)))
        except OSError as error:
            raise machine_error(self.display(path), error) from error

    def exists(self, path: str) -> bool:
        """Tell whether something stands at a path."""
        return os.path.lexists(self.resolve(path))

    def place(self, path: str) -> str | None:
        """Return the real path of a file to replace: its directory resolved, its name as it is.

        None where nothing can be replaced.
        """
        directory, name = os.path.split(path)
        return os.path.join(self.resolve(directory), name)

    def resolve(self, path: str) -> str:
        """Follow symbolic links within the root.

        Raises:
            MachineError: too many links.
        """
        if self.root == "/":
            return self.display(path)
        done: list[str] = []
        todo = [part for part in path.split("/") if part not in ("", ".")]
        links = 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            place = os.path.join(self.root, *done, part)
            try:
                target = os.readlink(place)
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise MachineError(self.display(path), "too many levels of symbolic links")
            if target.startswith("/"):
                done = []
            todo = [step for step in target.split("/") if step not in ("", ".")] + todo
        return os.path.join(self.root, *done)
