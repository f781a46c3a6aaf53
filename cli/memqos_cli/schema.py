"""``memqos schema``."""

from __future__ import annotations

import click

from memqos.adapters.schemas import schema_kinds, schema_text
from memqos_cli.options import debug_option
from memqos_cli.output.terminal import write


__all__ = ["command"]


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in schema_kinds() if kind.startswith(incomplete)]


@click.command()
@click.argument("kind", required=False, shell_complete=_complete)
@debug_option
def command(kind: str | None) -> None:
    """Print the JSON Schema of an output KIND; without one, list the kinds.

    \b
    Example:
      memqos schema CheckpointValidation
    """
    kinds = schema_kinds()
    if kind is None:
        write("".join(f"{name}\n" for name in kinds))
    elif kind in kinds:
        write(schema_text(kind))
    else:
        raise click.BadParameter(f"{kind!r} is not one of {', '.join(kinds)}")
