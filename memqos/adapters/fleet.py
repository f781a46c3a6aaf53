"""Reading the starts of many kubelets: snapshots and ``CheckpointValidation`` documents.

Everything streams: inputs are found one by one, read in chunks by a bounded number of workers,
and given back in the order in which they were found.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import BinaryIO, NamedTuple, TypeAlias

from attrs import frozen

from memqos.adapters.files import MAX_INPUT_BYTES, machine_error
from memqos.adapters.kubelet_node import read_kubelet_node
from memqos.adapters.roots import ARCHIVES, open_host
from memqos.errors import InputError, MachineError, MemqosError
from memqos.memory_manager.fleet import (
    DriftSummary,
    NodeFailure,
    Outcome,
    node_result,
    parse_validation,
    summarise,
)
from memqos.memory_manager.validation import validate_start


__all__ = [
    "Chunk",
    "FleetOptions",
    "Input",
    "ResultDocument",
    "Snapshot",
    "available_cores",
    "find_inputs",
    "read_fleet",
    "read_one",
]

_ROOT_FOLDERS = ("proc", "sys", "var")
_DOCUMENTS = (".json", ".jsonl")

_CHUNK = 16
_CHUNK_BYTES = 1024 * 1024  # of documents; a larger one is a chunk of its own
_CHUNKS_IN_FLIGHT = 4  # per worker
_PARENT_CHECK_SECONDS = 1.0


class Snapshot(NamedTuple):
    """A snapshot to read: a directory or a tar archive."""

    path: str


class ResultDocument(NamedTuple):
    """One JSON document to read, where it is from, and the line at which it starts."""

    source: str
    line: int
    text: bytes


Input: TypeAlias = Snapshot | ResultDocument | NodeFailure


@frozen(kw_only=True)
class FleetOptions:
    """How to decide and what to keep.

    Attributes:
        kubelet_version: NN of kubelet 1.NN.
        drift_tolerance: sets the option and its gate, for the question "what if".
        attention: how many results a summary names as worth a look.
        keep_outcomes: whether a chunk carries every outcome beside its summary.
    """

    kubelet_version: int = 38
    drift_tolerance: str | None = None
    attention: int = 20
    keep_outcomes: bool = False


class Chunk(NamedTuple):
    """Some inputs, read: their summary and, if kept, their outcomes in order."""

    summary: DriftSummary
    outcomes: tuple[Outcome, ...]


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


# --- finding -------------------------------------------------------------------------------------


def find_inputs(name: str) -> Iterator[Input]:
    """Find the inputs behind an argument, in a stable order.

    It is a snapshot, a directory of snapshots and documents, a file of documents, or ``-`` for
    documents on standard input. What is not there or cannot be listed is a failure.
    """
    if name == "-":
        if sys.stdin is None:
            yield NodeFailure(name, "standard input: is closed")
        else:
            yield from _documents(sys.stdin.buffer, "-")
        return
    try:
        if not stat.S_ISDIR(os.stat(name).st_mode):
            yield from _file(name)
            return
        if any(os.path.lexists(os.path.join(name, folder)) for folder in _ROOT_FOLDERS):
            yield Snapshot(name)
            return
        entries = sorted(os.listdir(name))
    except (OSError, ValueError) as error:
        yield _failure(name, error)
        return
    for entry in entries:
        path = os.path.join(name, entry)
        if entry.startswith("."):
            continue
        if os.path.isdir(path):
            yield Snapshot(path)
        elif entry.lower().endswith((*ARCHIVES, *_DOCUMENTS)):
            yield from _file(path)


def _file(path: str) -> Iterator[Input]:
    if not path.lower().endswith(_DOCUMENTS):
        yield Snapshot(path)
        return
    try:
        # Opening a FIFO for reading would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        yield _failure(path, error)
        return
    with os.fdopen(descriptor, "rb") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield from _documents(file, path)
        else:
            yield NodeFailure(path, f"{path}: is not a regular file; '-' reads standard input")


def _documents(file: BinaryIO, source: str) -> Iterator[Input]:
    """Cut a stream into documents: one a line, or indented between lines of `{` and `}`."""
    number = start = 0
    parts: list[bytes] = []
    size = 0
    try:
        while line := file.readline(MAX_INPUT_BYTES + 1):
            number += 1
            bare = line.removeprefix(b"\xef\xbb\xbf").rstrip() if number == 1 else line.rstrip()
            if not parts and not bare:
                continue
            start = start if parts else number
            parts.append(bare)
            size += len(line)
            if size > MAX_INPUT_BYTES:
                yield NodeFailure(
                    f"{source}:{start}",
                    f"{source}: line {start}: larger than {MAX_INPUT_BYTES} bytes; what follows "
                    "is not read",
                )
                return
            if parts[0] != b"{" or bare == b"}":
                yield ResultDocument(source, start, b"\n".join(parts))
                parts, size = [], 0
    except OSError as error:
        yield _failure(source, error)
        return
    if parts:
        yield ResultDocument(source, start, b"\n".join(parts))


def _failure(name: str, error: OSError | ValueError) -> NodeFailure:
    if isinstance(error, OSError):
        error = OSError(error.errno, error.strerror or str(error))
        return NodeFailure(name, str(machine_error(name, error)))
    return NodeFailure(name, f"{name}: {error}")


# --- reading -------------------------------------------------------------------------------------


def read_one(item: Input, options: FleetOptions) -> Outcome:
    """Read one input; whatever is wrong with it is a failure, not an exception."""
    if isinstance(item, NodeFailure):
        return item
    name = item.path if isinstance(item, Snapshot) else _document_name(item)
    try:
        if isinstance(item, ResultDocument):
            return _read_document(item, name)
        node = read_kubelet_node(
            open_host(item.path),
            kubelet_version=options.kubelet_version,
            drift_tolerance=options.drift_tolerance,
        )
        decision = validate_start(node.settings, node.machine, node.checkpoint, node.image)
        return node_result(name, decision, node.image, assumed=bool(node.assumptions))
    except MemqosError as error:
        return NodeFailure(name, str(error))
    except Exception as error:  # noqa: BLE001  # one snapshot is not to end the report on all
        return NodeFailure(name, f"{name}: internal error: {type(error).__name__}: {error}")


def _document_name(item: ResultDocument) -> str:
    whole_file = item.line == 1 and item.source.endswith(".json")
    return item.source if whole_file else f"{item.source}:{item.line}"


def _read_document(item: ResultDocument, name: str) -> Outcome:
    try:
        data = json.loads(item.text)
    except (ValueError, RecursionError) as error:
        text = f"not JSON: {error}"
        raise InputError(text, source=item.source, line=item.line) from None
    try:
        return parse_validation(data, name)
    except InputError as error:
        raise error.locate(source=item.source, line=item.line) from None


# --- in parallel ---------------------------------------------------------------------------------


def read_fleet(inputs: Iterable[Input], options: FleetOptions, *, jobs: int) -> Generator[Chunk]:
    """Read inputs with a number of workers, and give them back in chunks, in order.

    Close the iterator to end the workers early.

    Raises:
        MachineError: a worker was killed, or could not be started.
    """
    chunks = _cut(inputs)
    head = list(islice(chunks, jobs))
    chunks = chain(head, chunks)
    if len(head) < 2:
        for chunk in chunks:
            yield _read_chunk(chunk, options)
    else:
        yield from _read_in_workers(chunks, options, len(head))


def _cut(inputs: Iterable[Input]) -> Iterator[list[Input]]:
    chunk: list[Input] = []
    size = 0
    for item in inputs:
        chunk.append(item)
        size += len(item.text) if isinstance(item, ResultDocument) else 0
        if len(chunk) == _CHUNK or size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _read_chunk(chunk: list[Input], options: FleetOptions) -> Chunk:
    outcomes = tuple(read_one(item, options) for item in chunk)
    summary = summarise(outcomes, attention=options.attention)
    return Chunk(summary, outcomes if options.keep_outcomes else ())


def _read_in_workers(
    chunks: Iterator[list[Input]], options: FleetOptions, jobs: int
) -> Generator[Chunk]:
    others = set(multiprocessing.active_children())
    # Forking is fastest, and safe as long as there is one thread.
    method = "fork" if threading.active_count() == 1 else "spawn"
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context(method),
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    pending: deque[Future[Chunk]] = deque()
    try:
        for chunk in chunks:
            pending.append(_submit(pool, chunk, options))
            if len(pending) >= jobs * _CHUNKS_IN_FLIGHT:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise MachineError("a worker process", "was killed") from None
    finally:
        # On an early end nobody waits for the snapshots at hand.
        if pending or sys.exc_info()[0] is not None:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, chunk: list[Input], options: FleetOptions) -> Future[Chunk]:
    """Submit a chunk; workers that start here see no Ctrl-C before they are ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_read_chunk, chunk, options)
    except OSError as error:
        raise MachineError("a worker process", f"cannot be started: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(parent: int) -> None:
    """Let a worker die of Ctrl-C without a traceback, and with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
