"""Keeping the action log in a file."""

from __future__ import annotations

import errno
import os

from memqos.adapters.files import read_file, write_atomically
from memqos.errors import InputError, MachineError
from memqos.oom.action import ActionRecord, append_record, parse_log


__all__ = ["ActionLog"]


class ActionLog:
    """The last actions as JSON Lines, those of earlier runs among them.

    Args:
        path: of the file, which need not be there yet.

    Raises:
        MachineError: it is there and cannot be read, or its directory is missing.
        InputError: it is no action log, so it must not be replaced.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines = _earlier(path)

    def add(self, record: ActionRecord) -> None:
        """Add an action, and write the file anew.

        Raises:
            MachineError: it cannot be written; the next one is written with this one.
        """
        self._lines = append_record(self._lines, record)
        text = "".join(f"{line}\n" for line in self._lines)
        write_atomically(self._path, text.encode(), mode=0o600)


def _earlier(path: str) -> tuple[str, ...]:
    try:
        return parse_log(read_file(path).decode("utf-8", "replace"))
    except MachineError as error:
        if error.errno == errno.ENOENT and os.path.isdir(os.path.dirname(path) or "."):
            return ()
        raise
    except InputError as error:
        raise error.locate(source=path) from None
