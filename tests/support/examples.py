"""The files in examples/, and the memqos command lines in them."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from memqos_cli.main import cli


EXAMPLES = Path(__file__).parents[2] / "examples"
KUBERNETES = EXAMPLES / "kubernetes"
SYSTEMD = EXAMPLES / "systemd"

_COMMAND = re.compile(
    r"\s*(?:# |\$ |show \d |ExecStart(?:Pre)?=-?)?(?:/usr/local/bin/)?memqos ([a-z]+-.*)"
)


def documents(path: Path) -> list[Any]:
    """Read the documents of a YAML file."""
    return [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item]


def commands(text: str) -> list[list[str]]:
    """Find the lines that run memqos, and split each into its arguments."""
    matches = (_COMMAND.match(line) for line in text.splitlines())
    return [shlex.split(match[1], comments=True) for match in matches if match]


def check_command(arguments: list[str]) -> None:
    """Parse a command line with the program's own parser, and run nothing.

    Raises:
        click.UsageError: memqos would end with status 2.
    """
    group = cli.make_context("memqos", list(arguments))
    name, command, rest = cli.resolve_command(group, arguments)
    assert command is not None, name
    command.make_context(name, rest, parent=group)
