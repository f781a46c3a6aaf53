"""What a terminal needs: safe characters, columns, colour where it is wanted."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TextIO


__all__ = ["colour", "note", "offer", "printable", "table", "wrap", "write", "write_bytes"]

_COLOURS = {"green": "32", "yellow": "33", "red": "31"}


_LONGEST = 2000


def printable(text: str) -> str:
    """Escape control characters and cut monsters: names in files are not to steer a terminal."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def note(text: str) -> None:
    """Write one line to standard error."""
    with suppress(OSError):  # nobody listens; the answer matters more
        sys.stderr.write(f"memqos: {printable(text)}\n")
        sys.stderr.flush()


def offer(stream: TextIO, line: str) -> None:
    """Write a line, cut to what fits a pipe at once, without waiting for a reader.

    Raises:
        OSError: it cannot be written; BlockingIOError where nobody reads, and the line is dropped.
    """
    stream.flush()
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # no file
        stream.write(line)
        stream.flush()
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if not poll.poll(0):
        raise BlockingIOError(errno.EAGAIN, "nobody reads it")
    data = line.encode("utf-8", "replace")
    if len(data) > select.PIPE_BUF:
        data = data[: select.PIPE_BUF - 1] + b"\n"
    os.write(descriptor, data)


def write(text: str) -> None:
    """Write a result to standard output, in UTF-8 whatever the locale."""
    write_bytes(text.encode("utf-8", "replace"))


def write_bytes(data: bytes | memoryview) -> None:
    """Write binary data to standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def colour(text: str, name: str) -> str:
    """Colour a text, on a terminal only and not with NO_COLOR."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if not wanted or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"


def wrap(text: str, indent: int = 0) -> str:
    """Break a paragraph into lines of at most 99 columns; all but the first are indented."""
    from textwrap import fill

    return fill(
        printable(text),
        99,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )[indent:]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out columns as kubectl does: upper-case titles, three spaces between."""
    lines = [tuple(header), *(tuple(printable(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
