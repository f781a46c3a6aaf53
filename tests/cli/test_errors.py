"""What every command does when things go wrong around it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memqos import __version__
from memqos_cli import validate_checkpoint
from tests.support.boots import boots
from tests.support.program import PROGRAM, memqos, run_program


ROOT = boots("2node-6.12-cloud")[0].root
DERIVE = ("derive-tolerance", "--root", str(ROOT))


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["--no-such-option"],
        ["validate-checkpoint", "--no-such-option"],
        ["validate-checkpoint", "a", "b"],
        ["validate-checkpoint", "-o", "xml"],
        ["validate-checkpoint", "--kubelet-version", "2.0"],
        ["validate-checkpoint", "--kubelet-version", "1.x"],
        ["validate-checkpoint", "--kubelet-version", "1.\u0663"],
        ["validate-checkpoint", "--kubelet-version", ""],
        ["validate-checkpoint", "--reserved-memory", "memory=1Gi"],
        ["validate-checkpoint", "--reserved-memory", "0:memory"],
        ["validate-checkpoint", "--reserved-memory", "0:memory=1Zi"],
        ["validate-checkpoint", "--reserved-memory", "-1:memory=1Gi"],
        ["validate-checkpoint", "--system-reserved", "memory"],
        ["validate-checkpoint", "--eviction-hard", "memory.available"],
        ["validate-checkpoint", "--feature-gates", "X=maybe"],
        ["validate-checkpoint", "--feature-gates", "X"],
        ["derive-tolerance", "--iomem"],
        ["derive-tolerance", "extra"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    """Wrong usage exits 2 with one line and nothing on stdout."""
    answer = memqos(*arguments)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    "command", [[], ["validate-checkpoint"], ["derive-tolerance"], ["schema"]]
)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(command: list[str], option: str) -> None:
    """Help is everywhere, with an example."""
    answer = memqos(*command, option)

    assert answer.code == 0
    assert "Example" in answer.out
    assert f"memqos {' '.join(command)}".strip() in answer.out


def test_version() -> None:
    """--version prints the library's version."""
    assert memqos("--version").out == f"memqos, version {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """Each shell gets its completion script."""
    done = run_program(env={**os.environ, "_MEMQOS_COMPLETE": f"{shell}_source"})

    assert done.returncode == 0
    assert "_MEMQOS_COMPLETE" in done.stdout


def test_a_bug_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of memqos itself exits 3 with one line, and shows a traceback with --debug."""

    def crash(*_args: Any) -> None:
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setattr(validate_checkpoint, "read_node", lambda **_options: crash())

    answer = memqos("validate-checkpoint")

    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert "internal error: ZeroDivisionError" in answer.err
    with pytest.raises(ZeroDivisionError):
        memqos("validate-checkpoint", "--debug")


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (MemoryError(), 3), (RecursionError(), 3)]
)
def test_other_ends(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is 130; running out of memory or stack is no answer."""

    def end(**_options: Any) -> None:
        raise error

    monkeypatch.setattr(validate_checkpoint, "read_node", end)

    answer = memqos("validate-checkpoint")

    assert answer.code == code
    assert answer.err.count("\n") <= 1


def test_interrupt() -> None:
    """Ctrl-C while standard input is awaited ends quietly with 130."""
    with subprocess.Popen(
        [PROGRAM, "derive-tolerance", "--iomem", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        process.stdin.write(b"x" * 200_000)  # more than a pipe holds: it is reading now
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def test_closed_pipe() -> None:
    """`| head` ends quietly."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = run_program(
            "schema",
            "CheckpointValidation",
            stdout=write,
            stderr=subprocess.PIPE,
            capture_output=False,
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [DERIVE, ("schema",), ("--version",), ("-h",)])
def test_full_disk(arguments: tuple[str, ...]) -> None:
    """A full disk is no answer, with one line."""
    with Path("/dev/full").open("wb") as full:
        done = run_program(*arguments, stdout=full, stderr=subprocess.PIPE, capture_output=False)

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1, done.stderr
    assert "No space left" in done.stderr


@pytest.mark.parametrize("descriptor", [0, 1, 2])
@pytest.mark.parametrize(
    "arguments", [DERIVE, ("derive-tolerance", "--iomem", "-"), ("--version",)]
)
def test_closed_descriptors(descriptor: int, arguments: tuple[str, ...]) -> None:
    """A closed stdin, stdout or stderr makes no traceback and no bogus answer."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {descriptor}>&-', "sh", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )

    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    if descriptor == 1:
        assert done.returncode == 3
    elif "-" in arguments:
        assert done.returncode == (3 if descriptor == 0 else 1)
    else:
        assert done.returncode == 0


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_locale(locale: str, tmp_path: Path) -> None:
    """Output is UTF-8 in any locale, and file names may hold any byte."""
    odd = os.fsencode(tmp_path) + b"/\xff\xc3\xa9"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": locale, "PYTHONUTF8": "0"}
    environment["PYTHONCOERCECLOCALE"] = "0"

    done = subprocess.run(
        [os.fsencode(PROGRAM), b"derive-tolerance", b"--iomem", odd],
        capture_output=True,
        check=False,
        env=environment,
        timeout=60,
    )

    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr
    assert b"No such file" in done.stderr


def on_a_terminal(**environment: str) -> str:
    """Run a refused start with a terminal as stdout, and return what it shows."""
    leader, follower = os.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    try:
        subprocess.run(
            [PROGRAM, "validate-checkpoint", "-", "--root", ROOT],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.DEVNULL,
            check=False,
            env=env | {"TERM": "xterm"} | environment,
            timeout=60,
        )
        return os.read(leader, 1 << 16).decode()
    finally:
        os.close(leader)
        os.close(follower)


def test_colour() -> None:
    """Colour is for terminals, and NO_COLOR or a dumb terminal switches it off."""
    assert "\x1b[31mERROR\x1b[0m: " in on_a_terminal()
    assert "\x1b" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(TERM="dumb")
    piped = run_program("validate-checkpoint", "-", "--root", ROOT, stdin=subprocess.DEVNULL)
    assert "\x1b" not in piped.stdout


def test_python_module() -> None:
    """`python -m memqos_cli` is the same program."""
    done = subprocess.run(
        [sys.executable, "-m", "memqos_cli", *DERIVE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (0, memqos(*DERIVE).out)
