"""Reading what the OOM policy works on: cgroup trees, recordings, OOMConfig files."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, cast

from memqos.adapters.cgroup_tree import OOM_FILES, read_tree
from memqos.adapters.documents import read_documents
from memqos.adapters.files import machine_error, open_file, read_input
from memqos.adapters.host import Host
from memqos.errors import InputError, MachineError
from memqos.oom.layout import Part, Tree, expand
from memqos.oom.preference import ATTRIBUTES, Preference, parse_preferences
from memqos.oom.replay import Sample, parse_sample


__all__ = [
    "list_tops",
    "read_attributes",
    "read_layout",
    "read_oom_documents",
    "read_oom_tree",
    "read_preferences",
    "read_recording",
]

_LARGEST_FILE = 64 * 1024
_LONGEST_LINE = 64 * 1024 * 1024


def read_oom_documents(name: str | None) -> list[object]:
    """Read the documents of a machine configuration; none without a file.

    Raises:
        MachineError: it cannot be read.
        InputError: it is not YAML.
    """
    if name is None:
        return []
    return [document.data for document in read_documents(read_input(name), name)]


def read_preferences(name: str | None) -> dict[str, Preference]:
    """Read a file of preferences, by UID; none without a file.

    Raises:
        MachineError: it cannot be read.
        InputError: a line is malformed.
    """
    if name is None:
        return {}
    try:
        return parse_preferences(read_input(name).decode("utf-8", "replace"))
    except InputError as error:
        raise error.locate(source=name) from None


def read_attributes(mount: str, path: str) -> tuple[str, ...]:
    """List the preferences that are set, as "1", on a cgroup's directory: names of `ATTRIBUTES`.

    Those of systemd, ``user.…``, count on directories of root only: whoever owns a directory can
    set them, so that a delegated cgroup could exempt itself. systemd-oomd has the same rule, and
    lets a cgroup's owner decide below an ancestor of his own; there is no such ancestor here.
    ``trusted.…`` take CAP_SYS_ADMIN to set and to see, and ``user.…`` Linux 5.7.
    """
    folder = os.path.join(mount, path)
    try:
        is_roots = os.stat(folder).st_uid == 0
    except OSError:
        return ()
    return tuple(
        name
        for name in ATTRIBUTES
        if (is_roots or not name.startswith("user.")) and _attribute(folder, name) == b"1"
    )


def _attribute(folder: str, name: str) -> bytes | None:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return None  # not set (ENODATA), not known here (ENOTSUP), or gone (ENOENT)


def read_oom_tree(
    host: Host, *, root: str | None = None, names: Collection[str] = OOM_FILES
) -> Tree:
    """Read a cgroup tree as the policy takes it; ``""`` is the root.

    Raises:
        MachineError: the root cannot be read.
    """
    return {cgroup.path.strip("/"): cgroup.files for cgroup in read_tree(host, names, root=root)}


def read_layout(
    mount: str,
    parts: Iterable[Part],
    names: Collection[str],
    inodes: dict[str, int] | None = None,
) -> Tree:
    """Read the root's files and those of a layout's parts, and nothing else.

    What vanishes meanwhile, or cannot be read, is left out.

    Args:
        mount: the cgroup2 mount.
        parts: which cgroups.
        names: which of their files.
        inodes: takes each cgroup's, as it was before its files were read.
    """
    listed = tuple(parts)
    below = {
        part.path: _directories(os.path.join(mount, part.path)) for part in listed if part.each
    }
    tree = {"": _texts(mount, names)}
    for path, _ in expand(listed, below):
        if path in tree:
            continue
        folder = os.path.join(mount, path)
        if inodes is not None:
            with suppress(OSError):
                inodes[path] = os.stat(folder).st_ino
        tree[path] = _texts(folder, names)
    return tree


def list_tops(mount: str) -> list[str]:
    """List the cgroups right below a mount, or another directory, in byte order.

    Raises:
        MachineError: it cannot be listed.
    """
    try:
        with os.scandir(mount) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise machine_error(mount, error) from error
    return sorted(found, key=os.fsencode)


def _directories(path: str) -> list[str]:
    try:
        return list_tops(path)
    except MachineError:
        return []


def _texts(folder: str, names: Collection[str]) -> dict[str, str]:
    texts = {}
    for name in names:
        try:
            descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            texts[name] = os.read(descriptor, _LARGEST_FILE).decode("ascii", "replace")
        except OSError:
            continue  # it went away, or has no pressure (EOPNOTSUPP)
        finally:
            os.close(descriptor)
    return texts


def read_recording(name: str) -> Iterator[Sample]:
    """Stream a recording: JSON Lines, gzipped or not; ``-`` is standard input.

    Raises:
        MachineError: it cannot be read.
        InputError: a line is no sample; `line` and `path` say where.
    """
    with _open(name) as file:
        number = 0
        while True:
            try:
                line = file.readline(_LONGEST_LINE + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise MachineError(name, f"cannot be read to its end: {error}") from None
            if not line:
                return
            number += 1
            if len(line) > _LONGEST_LINE:
                raise InputError("the line is too long", source=name, line=number)
            if not line.strip():
                continue
            try:
                yield parse_sample(json.loads(line))
            except InputError as error:
                raise error.locate(source=name, line=number) from None
            except (ValueError, RecursionError):
                raise InputError("not a line of JSON", source=name, line=number) from None


@contextmanager
def _open(name: str) -> Iterator[IO[bytes]]:
    """Open a recording, unpacked if it is gzipped, which its first bytes say."""
    with ExitStack() as stack:
        if name != "-":
            raw: IO[bytes] = stack.enter_context(open_file(name))
        elif sys.stdin is not None:
            raw = sys.stdin.buffer
        else:
            raise MachineError("standard input", "is closed")
        stream = io.BufferedReader(cast("io.RawIOBase", raw))
        stack.callback(stream.detach)  # standard input is not ours to close
        try:
            packed = stream.peek(2).startswith(b"\x1f\x8b")
        except OSError as error:
            raise machine_error(name, error) from error
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=stream) if packed else stream)
