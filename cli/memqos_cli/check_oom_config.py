"""``memqos check-oom-config``."""

from __future__ import annotations

from typing import Any

import click

from memqos.oom.config import OOMConfig
from memqos.oom.lint import lint
from memqos_cli.exit_codes import NO, YES
from memqos_cli.oom_options import load_config, problem_line, swap_option
from memqos_cli.options import debug_option, output_option, require_one_stdin
from memqos_cli.output import document
from memqos_cli.output.terminal import printable, wrap, write


__all__ = ["command"]


@click.command()
@click.argument("file", type=click.Path(readable=False, allow_dash=True))
@click.option(
    "--config-patch",
    "patches",
    type=click.Path(readable=False, allow_dash=True),
    multiple=True,
    metavar="FILE",
    help="OOMConfig laid over it; what it leaves out stays.  Repeatable.",
)
@swap_option
@output_option()
@debug_option
def command(file: str, patches: tuple[str, ...], swap: bool, output: str) -> None:
    """Check an OOMConfig FILE: its fields, and the types of its CEL expressions.

    The document may stand alone or in a multi-document machine configuration. Everything that is
    wrong is told, then what is unwise. Exits 1 when it is invalid.

    \b
    Examples:
      memqos check-oom-config oom.yaml
      talosctl get machineconfig -o yaml | memqos check-oom-config -
      memqos check-oom-config oom.yaml --swap-variables
    """
    require_one_stdin(file, *patches)
    config = load_config(file, patches=patches, swap=swap)
    valid = isinstance(config, OOMConfig)
    if output == "text":
        write(_text(file, config))
    else:
        write(document.render("OOMConfigCheck", _fields(config), output))
    click.get_current_context().exit(YES if valid else NO)


def _fields(config: Any) -> dict[str, Any]:
    if not isinstance(config, OOMConfig):
        return {
            "valid": False,
            "errors": [problem._asdict() for problem in config],
            "effective": None,
            "warnings": [],
        }
    return {
        "valid": True,
        "errors": [],
        "effective": {
            "triggerExpression": config.trigger.text,
            "cgroupRankingExpression": config.ranking.text,
            "strictCgroupClassOrdering": config.strict,
            "sampleIntervalNanoseconds": config.interval_ns,
        },
        "warnings": [warning._asdict() for warning in lint(config)],
    }


def _text(file: str, config: Any) -> str:
    if not isinstance(config, OOMConfig):
        lines = [f"{printable(file)}: {printable(problem_line(problem))}" for problem in config]
        return "".join(f"{line}\n" for line in lines)
    lines = [f"{printable(file)}: valid"]
    lines += [
        wrap(f"warning {warning.code} {warning.field}: {warning.message}")
        for warning in lint(config)
    ]
    return "".join(f"{line}\n" for line in lines)
