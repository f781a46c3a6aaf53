"""Finding and reading snapshots and result documents."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from memqos.adapters import fleet
from memqos.adapters.fleet import (
    Chunk,
    FleetOptions,
    Input,
    ResultDocument,
    Snapshot,
    available_cores,
    find_inputs,
    read_fleet,
    read_one,
)
from memqos.errors import MachineError
from memqos.memory_manager.fleet import NodeFailure, NodeResult, summarise
from memqos.memory_manager.reasons import Verdict


NODES = Path(__file__).parents[2] / "examples" / "nodes"
DRIFTED = NODES / "drifted"
OPTIONS = FleetOptions(keep_outcomes=True)
RESULT = {
    "apiVersion": "memqos/v1",
    "kind": "CheckpointValidation",
    "verdict": "exact",
    "reason": "equal",
    "message": "",
}
LINE = json.dumps(RESULT)


def found(name: str | Path) -> list[Input]:
    """Find the inputs behind a name."""
    return list(find_inputs(str(name)))


def archive(path: Path) -> Path:
    """Pack the drifted node."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        tar.add(DRIFTED, ".")
    return path


# --- finding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["proc", "sys", "var"])
def test_snapshot_directory(folder: str, tmp_path: Path) -> None:
    """A directory with any folder of a root is one snapshot."""
    (tmp_path / folder).mkdir()
    (tmp_path / "other").mkdir()

    assert found(tmp_path) == [Snapshot(str(tmp_path))]


def test_directory_of_snapshots(tmp_path: Path) -> None:
    """In other directories, each directory, archive and document is an input, in order of name."""
    for name in ("b", ".hidden"):
        (tmp_path / name).mkdir()
    for name in ("c.tar", "a.tar.gz", "d.tgz", "e.Tar.XZ", "README", ".x.tar"):
        (tmp_path / name).touch()
    (tmp_path / "e.json").write_text(LINE)

    assert found(tmp_path) == [
        *(
            Snapshot(str(tmp_path / name))
            for name in ("a.tar.gz", "b", "c.tar", "d.tgz", "e.Tar.XZ")
        ),
        ResultDocument(str(tmp_path / "e.json"), 1, LINE.encode()),
    ]


def test_empty_directory(tmp_path: Path) -> None:
    """An empty directory holds nothing."""
    assert found(tmp_path) == []


def test_missing(tmp_path: Path) -> None:
    """What is not there is a failure with the system's words."""
    for name in ("no", "no.json"):
        path = str(tmp_path / name)
        assert found(path) == [NodeFailure(path, f"{path}: No such file or directory")]
    (failure,) = found("a\0b")
    assert isinstance(failure, NodeFailure)
    assert "null" in failure.message


def test_unlistable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that may not be listed is a failure."""

    def refuse(_path: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)

    assert found(tmp_path) == [NodeFailure(str(tmp_path), f"{tmp_path}: Permission denied")]


def test_broken_link_in_a_directory(tmp_path: Path) -> None:
    """A document that is a broken link is one failure among the others."""
    (tmp_path / "a.json").symlink_to("nowhere")
    (tmp_path / "b.json").write_text(LINE)
    os.mkfifo(tmp_path / "c.json")

    kinds = [type(item) for item in found(tmp_path)]

    assert kinds == [NodeFailure, ResultDocument, NodeFailure]


def test_lines(tmp_path: Path) -> None:
    """Each line is a document, blank ones aside; an indented document ends at its brace."""
    pretty = json.dumps(RESULT, indent=2)
    path = tmp_path / "r.jsonl"
    path.write_text(f"\ufeff{LINE}\r\n\n{pretty}\n{LINE}\n{{\n", encoding="utf-8")

    lines = len(pretty.splitlines())
    assert found(path) == [
        ResultDocument(str(path), 1, LINE.encode()),
        ResultDocument(str(path), 3, pretty.encode()),
        ResultDocument(str(path), 3 + lines, LINE.encode()),
        ResultDocument(str(path), 4 + lines, b"{"),
    ]


@pytest.mark.parametrize("text", ["x" * 101, "{\n" + " \n" * 60])
def test_endless_document(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document without an end is a failure, not a full memory."""
    monkeypatch.setattr(fleet, "MAX_INPUT_BYTES", 100)
    path = tmp_path / "r.jsonl"
    path.write_text(text)

    (failure,) = found(path)

    assert isinstance(failure, NodeFailure)
    assert failure.message.startswith(f"{path}: line 1: larger than 100 bytes")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is documents on standard input; a closed one is a failure."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    assert found("-") == [ResultDocument("-", 1, LINE.encode())]
    monkeypatch.setattr(sys, "stdin", None)
    assert found("-") == [NodeFailure("-", "standard input: is closed")]


def test_failing_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while reading ends the stream with a failure."""

    class Broken(io.BytesIO):
        def readline(self, _size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))

    assert found("-") == [NodeFailure("-", "-: Input/output error")]


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["node.tar", "node.tar.gz", "directory"])
def test_snapshot(name: str, tmp_path: Path) -> None:
    """A snapshot is decided with its own configuration, packed or not."""
    path = DRIFTED if name == "directory" else archive(tmp_path / name)

    outcome = read_one(Snapshot(str(path)), OPTIONS)

    assert isinstance(outcome, NodeResult)
    assert (outcome.name, outcome.verdict) == (str(path), Verdict.TOLERATED)
    assert [drift.drift_bytes for drift in outcome.drifts] == [-38559744, 38559744]
    assert [drift.recorded_bytes for drift in outcome.drifts] == [1055453184, 1011990528]
    assert (outcome.tolerance_bytes, outcome.auto_bound_bytes) == (113246208, 113246208)


def test_what_if() -> None:
    """The tolerance can be overridden; the auto bound stays what it is."""
    outcome = read_one(Snapshot(str(DRIFTED)), FleetOptions(drift_tolerance="off"))

    assert isinstance(outcome, NodeResult)
    assert outcome.verdict is Verdict.REJECTED
    assert (outcome.tolerance_bytes, outcome.auto_bound_bytes) == (0, 113246208)


def test_assumed_configuration(tmp_path: Path) -> None:
    """A snapshot without a kubelet configuration says so."""
    shutil.copytree(DRIFTED, tmp_path / "n")
    (tmp_path / "n/var/lib/kubelet/config.yaml").unlink()

    outcome = read_one(Snapshot(str(tmp_path / "n")), OPTIONS)

    assert isinstance(outcome, NodeResult)
    assert outcome.assumed


@pytest.mark.parametrize("content", [b"", b"not a tar"])
def test_broken_archive(content: bytes, tmp_path: Path) -> None:
    """A file that is no archive is a failure."""
    path = tmp_path / "n.tar"
    path.write_bytes(content)

    assert isinstance(read_one(Snapshot(str(path)), OPTIONS), NodeFailure)


def test_a_bug_is_one_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash over one snapshot does not end the report."""

    def crash(*_args: object, **_options: object) -> None:
        raise ZeroDivisionError("what")

    monkeypatch.setattr(fleet, "read_kubelet_node", crash)

    assert read_one(Snapshot("n"), OPTIONS) == NodeFailure(
        "n", "n: internal error: ZeroDivisionError: what"
    )


@pytest.mark.parametrize(
    ("source", "line", "name"),
    [("r.jsonl", 1, "r.jsonl:1"), ("n.json", 1, "n.json"), ("n.json", 2, "n.json:2")],
)
def test_names_of_documents(source: str, line: int, name: str) -> None:
    """A document is named by file and line, and by the file alone if that holds just it."""
    outcome = read_one(ResultDocument(source, line, LINE.encode()), OPTIONS)

    assert outcome.name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "r.jsonl: line 3: not JSON: "),
        (b"\xff", "r.jsonl: line 3: not JSON: "),
        (b"[" * 100_000, "r.jsonl: line 3: not JSON: "),
        (b"[1]", "r.jsonl: line 3: $: an array where an object is expected"),
        (b"{}", "r.jsonl: line 3: $: not a CheckpointValidation of memqos/v1"),
    ],
)
def test_broken_documents(text: bytes, message: str) -> None:
    """A broken document is a failure that names file and line."""
    outcome = read_one(ResultDocument("r.jsonl", 3, text), OPTIONS)

    assert isinstance(outcome, NodeFailure)
    assert outcome.message.startswith(message)


# --- in parallel ---------------------------------------------------------------------------------


def documents(count: int) -> list[Input]:
    """Make some documents with names in order."""
    return [ResultDocument("r.jsonl", number, LINE.encode()) for number in range(count)]


def outcome_names(chunks: Iterator[Chunk]) -> list[str]:
    """List the names of all outcomes."""
    return [outcome.name for chunk in chunks for outcome in chunk.outcomes]


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 16, 17, 300])
def test_order(count: int, jobs: int) -> None:
    """Outcomes come in the order of the inputs, whoever read them."""
    chunks = read_fleet(documents(count), OPTIONS, jobs=jobs)

    assert outcome_names(chunks) == [f"r.jsonl:{number}" for number in range(count)]


def test_outcomes_are_kept_only_if_wanted() -> None:
    """Without need of them the outcomes stay where they were read."""
    chunks = list(read_fleet(documents(40), FleetOptions(), jobs=2))

    assert [chunk.outcomes for chunk in chunks] == [(), (), ()]
    assert sum(chunk.summary.results for chunk in chunks) == 40


def test_bounded_in_flight() -> None:
    """However many inputs there are, few are taken ahead of what was given back."""
    taken = 0

    def endless() -> Iterator[Input]:
        nonlocal taken
        while True:
            taken += 1
            yield ResultDocument("r.jsonl", taken, LINE.encode())

    chunks = read_fleet(endless(), OPTIONS, jobs=2)
    for given in range(1, 20):
        next(chunks)
        assert taken <= (given + 10) * 16
    chunks.close()


def test_large_documents_in_flight() -> None:
    """Large documents travel alone, so that few of them are held at a time."""
    large = b" " * (fleet._CHUNK_BYTES + 1)
    taken = 0

    def many() -> Iterator[Input]:
        nonlocal taken
        for taken in range(100):
            yield ResultDocument("r.jsonl", taken, large)

    chunks = read_fleet(many(), OPTIONS, jobs=2)
    next(chunks)
    assert taken <= 10
    chunks.close()


def test_no_more_workers_than_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are not started for chunks that do not exist."""
    asked = []

    def note_jobs(chunks: Iterator[list[Input]], _options: object, jobs: int) -> Iterator[Chunk]:
        asked.append(jobs)
        return iter(Chunk(summarise((), attention=0), ()) for _ in chunks)

    monkeypatch.setattr(fleet, "_read_in_workers", note_jobs)
    assert len(list(read_fleet(documents(40), OPTIONS, jobs=1024))) == 3
    assert asked == [3]


def test_workers_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be made, the message says so."""

    def refuse(*_args: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", refuse)
    with pytest.raises(MachineError, match="a worker process: cannot be started: Resource"):
        list(read_fleet(documents(40), OPTIONS, jobs=2))
    assert multiprocessing.active_children() == []


def test_early_end_leaves_no_worker() -> None:
    """Closing the iterator ends the workers and their thread."""
    before = threading.active_count()
    chunks = read_fleet(documents(2000), OPTIONS, jobs=2)
    next(chunks)
    chunks.close()

    assert multiprocessing.active_children() == []
    assert threading.active_count() == before


def test_a_killed_worker_is_an_error() -> None:
    """A worker that the kernel kills is no answer, and nothing hangs."""
    chunks = read_fleet(documents(2000), OPTIONS, jobs=2)
    next(chunks)
    for worker in multiprocessing.active_children():
        os.kill(worker.pid or 0, signal.SIGKILL)

    with pytest.raises(MachineError, match="a worker process: was killed"):
        list(chunks)


def test_other_threads() -> None:
    """In a process with threads, where forking is not safe, workers start afresh."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        chunks = read_fleet(documents(40), OPTIONS, jobs=2)
        assert len(outcome_names(chunks)) == 40
    finally:
        done.set()
        thread.join()


def test_interrupts_are_not_left_blocked() -> None:
    """Starting workers leaves the signal mask as it was."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    list(read_fleet(documents(40), OPTIONS, jobs=2))

    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_cores() -> None:
    """There is at least one core, and no more than the machine has."""
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
