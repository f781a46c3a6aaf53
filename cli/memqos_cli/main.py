"""The command group. Commands are imported when they are used, so that each pays for itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from memqos import __version__


__all__ = ["cli"]

_COMMANDS = {
    "audit-cgroups": "audit_cgroups",
    "check-oom-config": "check_oom_config",
    "derive-tolerance": "derive_tolerance",
    "effective-protection": "effective_protection",
    "list-killable": "list_killable",
    "measure-events": "measure_events",
    "plan-cgroups": "plan_cgroups",
    "rebaseline-checkpoint": "rebaseline_checkpoint",
    "replay-oom": "replay_oom",
    "report-drift": "report_drift",
    "schema": "schema",
    "select-victim": "select_victim",
    "snapshot": "snapshot",
    "validate-checkpoint": "validate_checkpoint",
    "watch-oom": "watch_oom",
}


class _LazyGroup(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        module = _COMMANDS.get(name)
        if module is None:
            return None
        command: Any = import_module(f"memqos_cli.{module}").command
        return command if isinstance(command, click.Command) else None


@click.group(
    cls=_LazyGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 99},
    epilog="Exit status: 0 yes, 1 no, 2 wrong usage, 3 no answer. "
    'Shell completion: eval "$(_MEMQOS_COMPLETE=bash_source memqos)" (or zsh_source, '
    "fish_source).",
)
@click.version_option(__version__, prog_name="memqos")
def cli() -> None:
    """What kubelet and the kernel will do with this node's memory, and why.

    \b
    Example:
      memqos validate-checkpoint --drift-tolerance auto
    """
