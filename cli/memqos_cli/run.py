"""Runs the command line and maps what happened to an exit status."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click
from click.exceptions import Exit

from memqos.errors import MemqosError
from memqos_cli.exit_codes import BROKEN_PIPE, INTERRUPTED, NO_ANSWER, USAGE, YES
from memqos_cli.output.terminal import printable


__all__ = ["run"]


def run(arguments: list[str]) -> int:
    """Run memqos with its command-line arguments; return the exit status."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        return _fail("memqos: standard output is closed", NO_ANSWER)
    from memqos_cli.main import cli

    if "_MEMQOS_COMPLETE" in os.environ:
        cli.main(arguments, prog_name="memqos")
    try:
        try:
            # Not cli.main(): it turns a closed pipe into exit status 1, which means "no" here.
            with cli.make_context("memqos", arguments) as context:
                cli.invoke(context)
            code = YES
        except Exit as end:
            code = end.exit_code
        sys.stdout.flush()
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "memqos"
        return _fail(f"{command}: {error.format_message()} (see {command} --help)", USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except MemqosError as error:
        return _fail(f"memqos: {error}", NO_ANSWER)
    except MemoryError:
        return _fail("memqos: out of memory", NO_ANSWER)
    except OSError as error:
        return _fail(f"memqos: {error.filename or 'output'}: {error.strerror}", NO_ANSWER)
    except Exception as error:  # a crash must not look like the answer "no"
        if "--debug" in arguments:
            raise
        return _fail(
            f"memqos: internal error: {type(error).__name__}: {error} (--debug shows where)",
            NO_ANSWER,
        )
    return code


def _fail(line: str, code: int) -> int:
    with suppress(OSError):
        sys.stderr.write(printable(line) + "\n")
        sys.stderr.flush()
    # What is still buffered for a full disk would fail once more at exit.
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
