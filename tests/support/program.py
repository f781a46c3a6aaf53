"""Running memqos: in this process where only its answer matters, else as a program."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen
from jsonschema import Draft202012Validator

from memqos.adapters.schemas import schema_text
from memqos_cli.run import run


#: The installed entry point, beside the interpreter that runs the tests.
PROGRAM = Path(sys.executable).with_name("memqos")


@frozen
class Answer:
    """What a run left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on stdout, checked against the schema of its kind."""
        document = json.loads(self.out)
        validator(document["kind"]).validate(document)
        return document


@cache
def validator(kind: str) -> Draft202012Validator:
    """Return the validator of an output kind."""
    schema = json.loads(schema_text(kind))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def memqos(*arguments: str | Path, stdin: bytes = b"") -> Answer:
    """Run memqos in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run([str(argument) for argument in arguments])
            out.flush()
            err.flush()
    finally:
        sys.stdin = before
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Answer(code, texts[0], texts[1])


def run_program(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the installed program."""
    options = {"capture_output": True, "text": True, "timeout": 60} | options
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [PROGRAM, *arguments], check=False, **options
    )
    return done
