"""What ``--root`` takes: a directory, or a snapshot in a tar archive."""

from __future__ import annotations

import os

from memqos.adapters.host import Host


__all__ = ["open_host"]


def open_host(root: str) -> Host:
    """Open a root: a directory, or a snapshot in a tar archive.

    Raises:
        MachineError: a file that is no tar archive.
    """
    if os.path.isfile(root):
        from memqos.adapters.archive import Archive

        return Archive(root)
    return Host(root)
