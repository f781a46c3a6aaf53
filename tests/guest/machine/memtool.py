#!/usr/bin/python3 -ISu
"""Uses memory in known ways, for the guest.

Usage:
    memtool anon MIB [STEP_MIB MS]  touch anonymous memory, step by step, and hold it
    memtool hot MIB [MS]            touch all of it again and again
    memtool cache FILE              read a file once and hold it open
    memtool reread FILE [MS]        read it again and again
    memtool mapread FILE [MS]       map it and touch every page again and again
    memtool maptext FILE [MS]       the same, mapped as the code of a program is
    memtool mkfile FILE MIB         write a file and drop it from the page cache
    memtool drop FILE               drop a file from the page cache
    memtool mrelease PID            process_mrelease(2)
    memtool killrelease PID         SIGKILL, then process_mrelease(2)

The first six run until they are killed. Progress goes to stdout as `name=value` words. The
interpreter's own memory, some MiB, comes on top.
"""

import ctypes
import mmap
import os
import signal
import sys
import time
from pathlib import Path


MIB = 1 << 20
PAGE = 4096
MAP_NORESERVE = 0x4000  # the module has it from 3.13 on
SYS_PROCESS_MRELEASE = 448


def say(text: str) -> None:
    """Write one line."""
    sys.stdout.write(f"{text}\n")


def touch(memory: mmap.mmap, start: int, end: int) -> None:
    """Write to every page."""
    memory[start:end:PAGE] = b"\1" * len(range(start, end, PAGE))


def anonymous(size: int) -> mmap.mmap:
    """Map private memory in base pages, so that usage moves in steps of 4 KiB."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


def anon(mebibytes: int, step: int = 0, milliseconds: int = 1000) -> None:
    """Touch memory step by step, and hold it."""
    memory = anonymous(mebibytes * MIB)
    step = step or mebibytes
    for start in range(0, mebibytes, step):
        end = min(start + step, mebibytes)
        touch(memory, start * MIB, end * MIB)
        say(f"touched_mib={end}")
        if end < mebibytes:
            time.sleep(milliseconds / 1000)
    signal.pause()


def hot(mebibytes: int, milliseconds: int = 1000) -> None:
    """Touch memory again and again."""
    memory = anonymous(mebibytes * MIB)
    number = 0
    while True:
        touch(memory, 0, len(memory))
        say(f"pass={number}")
        number += 1
        time.sleep(milliseconds / 1000)


def read(path: str, milliseconds: int | None) -> None:
    """Read a file, once or again and again."""
    descriptor = os.open(path, os.O_RDONLY)
    number = 0
    while True:
        os.lseek(descriptor, 0, os.SEEK_SET)
        size = 0
        while chunk := os.read(descriptor, 1 << 18):
            size += len(chunk)
        say(f"pass={number} bytes={size}")
        number += 1
        if milliseconds is None:
            signal.pause()
        else:
            time.sleep(milliseconds / 1000)


def mapread(path: str, milliseconds: int = 0, *, more: int = 0) -> None:
    """Map a file and read from every page again and again."""
    descriptor = os.open(path, os.O_RDONLY)
    memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ | more)
    number = 0
    while True:
        start = time.monotonic()
        size = len(memory[::PAGE])
        say(f"pass={number} pages={size} seconds={time.monotonic() - start:.3f}")
        number += 1
        time.sleep(milliseconds / 1000)


def mkfile(path: str, mebibytes: int) -> None:
    """Write a file and drop it from the page cache."""
    with Path(path).open("wb") as file:
        file.writelines(b"Z" * MIB for _ in range(mebibytes))
        file.flush()
        os.fsync(file.fileno())
    drop(path)


def drop(path: str) -> None:
    """Drop a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def mrelease(pid: int, *, kill: bool) -> int:
    """Let the kernel free the memory of a dying process at once; ESRCH when it is gone."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    descriptor = os.pidfd_open(pid)
    if kill:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    start = time.monotonic()
    result = syscall(SYS_PROCESS_MRELEASE, descriptor, 0)
    error = ctypes.get_errno() if result else 0
    say(f"process_mrelease={result} errno={error} seconds={time.monotonic() - start:.6f}")
    return 1 if result else 0


def main(command: str, first: str, *more: str) -> int:
    """Run one command."""
    numbers = [int(text) for text in more]
    match command:
        case "anon":
            anon(int(first), *numbers)
        case "hot":
            hot(int(first), *numbers)
        case "cache":
            read(first, None)
        case "reread":
            read(first, *(numbers or [0]))
        case "mapread":
            mapread(first, *numbers)
        case "maptext":
            mapread(first, *numbers, more=mmap.PROT_EXEC)
        case "mkfile":
            mkfile(first, *numbers)
        case "drop":
            drop(first)
        case "mrelease" | "killrelease":
            return mrelease(int(first), kill=command == "killrelease")
        case _:
            raise SystemExit(f"memtool: unknown command {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
