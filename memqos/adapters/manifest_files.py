"""Reading manifests: files, directories, standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from typing import cast

from memqos.adapters.documents import Stream, iterate_documents
from memqos.adapters.files import machine_error, open_file
from memqos.errors import InputError, MachineError
from memqos.manifests import KEYS, ManifestReader


__all__ = ["MAX_STREAM_BYTES", "read_manifests"]

#: Ten thousand pods are some 20 MiB of YAML.
MAX_STREAM_BYTES = 256 * 1024 * 1024
_ENDINGS = (".yaml", ".yml", ".json")


def read_manifests(
    names: Iterable[str], reader: ManifestReader, *, directories: bool = True
) -> None:
    """Feed a reader with every document of files, directories (recursively) and ``-``.

    In a directory, documents that are no Kubernetes objects, such as a chart's values, are left
    out and counted; in a file that is named they are an error.

    Args:
        names: where the manifests are.
        reader: takes them.
        directories: whether a name may be that of a directory.

    Raises:
        MachineError: a file cannot be read, or a directory has no manifest.
        InputError: a document cannot be understood; file, document, line and path say where.
    """
    for name in names:
        for source, found in _files(name) if directories else [(name, False)]:
            with _opened(source) as stream:
                _read(stream, source, reader, lenient=found)


def _read(stream: Stream, source: str, reader: ManifestReader, *, lenient: bool) -> None:
    for document in iterate_documents(stream, source, KEYS):
        if lenient and reader.is_foreign(document.data):
            reader.foreign.append(source)
            continue
        try:
            reader.add(document.data, source=source, document=document.number, line=document.line)
        except InputError as error:
            line = document.locate(error.path) if error.path else None
            raise error.locate(
                source=source, document=document.number, line=line or document.line
            ) from None


class _Bounded:
    """A file that is read up to `MAX_STREAM_BYTES`."""

    def __init__(self, read: Callable[[int], bytes], name: str) -> None:
        self.read_some = read
        self.name = name
        self.size = 0

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        try:
            chunk = self.read_some(size)
        except OSError as error:
            raise machine_error(self.name, error) from error
        self.size += len(chunk)
        if self.size > MAX_STREAM_BYTES:
            raise MachineError(self.name, f"larger than {MAX_STREAM_BYTES} bytes")
        return chunk


@contextmanager
def _opened(name: str) -> Iterator[Stream]:
    if name == "-":
        yield _Bounded(_stdin(), "standard input")
        return
    with open_file(name) as file:
        yield _Bounded(partial(os.read, file.fileno()), name)


def _stdin() -> Callable[[int], bytes]:
    if sys.stdin is None:
        raise MachineError("standard input", "is closed")
    return cast("BufferedReader", sys.stdin.buffer).read1


def _files(name: str) -> Iterator[tuple[str, bool]]:
    """Yield files, and whether each was found in a directory."""
    if name == "-" or not os.path.isdir(name):
        yield name, False
        return

    def fail(error: OSError) -> None:
        raise machine_error(error.filename or name, error) from error

    found = False
    for folder, folders, files in os.walk(name, onerror=fail):
        folders.sort()
        for file in sorted(files):
            if file.endswith(_ENDINGS):
                found = True
                yield os.path.join(folder, file), True
    if not found:
        raise MachineError(name, f"no manifest in it ({', '.join(_ENDINGS)})")
