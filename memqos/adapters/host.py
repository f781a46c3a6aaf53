"""A host's files under a root: ``/``, a mounted host, or a saved snapshot."""

from __future__ import annotations

import os

from memqos.adapters.files import MAX_INPUT_BYTES, machine_error, read_file
from memqos.errors import MachineError


__all__ = ["MAX_LINKS", "Host"]

#: As many links as Linux follows.
MAX_LINKS = 40


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
        """Tell whether there is a file or directory at a path, links followed."""
        try:
            return os.path.exists(self.resolve(path))
        except MachineError:
            return False

    def is_link(self, path: str) -> bool:
        """Tell whether a path itself is a symbolic link."""
        return os.path.islink(self._beside(path))

    def place(self, path: str) -> str | None:
        """Return the real path of a file to replace: its directory resolved, its name as it is.

        None where nothing can be replaced.
        """
        return self._beside(path)

    def _beside(self, path: str) -> str:
        directory, name = os.path.split(path)
        return os.path.join(self.resolve(directory), name)

    def resolve(self, path: str) -> str:
        """Follow symbolic links within the root.

        Raises:
            MachineError: too many links.
        """
        if self.root == "/":
            return self.display(path)
        # The directories that lead to where we are, each with its slash.
        done = [os.path.join(self.root, "")]
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del done[max(1, len(done) - 1) :]
                continue
            place = done[-1] + part
            try:
                target = os.readlink(place)
            except OSError:
                done.append(f"{place}/")
                continue
            links += 1
            if links > MAX_LINKS:
                raise MachineError(self.display(path), "too many levels of symbolic links")
            if target.startswith("/"):
                del done[1:]
            todo += [step for step in reversed(target.split("/")) if step not in ("", ".")]
        return done[-1][:-1] if len(done) > 1 else self.root
