"""What ``--root`` takes: a directory, or a snapshot in a tar archive."""

from __future__ import annotations

import os

from memqos.adapters.host import Host


__all__ = ["ARCHIVES", "compression_of", "open_host"]

#: Endings of archives, and how tarfile calls what compresses them.
ARCHIVES = {".tar": "", ".tar.gz": "gz", ".tgz": "gz", ".tar.bz2": "bz2", ".tar.xz": "xz"}


def compression_of(name: str) -> str | None:
    """Tell by its name how an archive is compressed; None for what is no archive."""
    endings = (ending for ending in ARCHIVES if name.lower().endswith(ending))
    return ARCHIVES.get(next(endings, ""))


def open_host(root: str) -> Host:
    """Open a root: a directory, or a snapshot in a tar archive.

    Raises:
        MachineError: a file that is no tar archive.
    """
    if os.path.isfile(root):
        from memqos.adapters.archive import Archive

        return Archive(root)
    return Host(root)
