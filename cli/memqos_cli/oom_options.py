"""Options that the OOM commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import click

from memqos.adapters.oom_files import read_oom_documents, read_preferences
from memqos.duration import parse_duration
from memqos.errors import InputError
from memqos.oom.config import ConfigProblem, OOMConfig, check_documents
from memqos.oom.guards import Guards
from memqos.oom.layout import LAYOUTS, Layout, detect_layout
from memqos_cli.exit_codes import NO
from memqos_cli.options import Command
from memqos_cli.output.terminal import note


__all__ = [
    "choose_layout",
    "config_option",
    "duration_option",
    "guard_options",
    "layout_option",
    "load_config",
    "problem_line",
    "ranking_option",
    "read_guards",
    "require_valid",
    "strict_option",
    "swap_option",
    "trigger_option",
    "xattrs_option",
]

config_option = click.option(
    "--config",
    type=click.Path(readable=False, allow_dash=True),
    metavar="FILE",
    help="OOMConfig document, alone or in a machine configuration.  [default: Talos' defaults]",
)
trigger_option = click.option("--trigger", metavar="EXPR", help="In place of triggerExpression.")
ranking_option = click.option(
    "--ranking", metavar="EXPR", help="In place of cgroupRankingExpression."
)
strict_option = click.option(
    "--strict/--no-strict",
    default=None,
    help="In place of strictCgroupClassOrdering.",
)
swap_option = click.option(
    "--swap-variables",
    "swap",
    is_flag=True,
    help="Variables that Talos lacks: qos_memory_swap_current, its d_…, swap_total and swap_free "
    "in the trigger, memory_swap_current in the ranking. Without swap, 0 bytes of 0 are free, "
    "which is no pressure: test swap_total > 0u, too.",
)
xattrs_option = click.option(
    "--xattrs",
    is_flag=True,
    help="Honour what cgroups of a live tree tell systemd-oomd (user.oomd_omit, user.oomd_avoid) "
    "and oomd (trusted.oomd_prefer, trusted.oomd_avoid).",
)
# A pod's UID, or enough of its beginning to mean one pod: what names any pod would protect all.
_UID = re.compile(r"[0-9a-f][0-9a-f-]{7,35}")


def _uids(_ctx: Any, _param: Any, values: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(value.replace("_", "-") for value in values)  # systemd's spelling
    for value, uid in zip(values, found, strict=True):
        if not _UID.fullmatch(uid):
            raise click.BadParameter(
                f"{value!r} is no pod's UID, nor at least its first 8 characters"
            )
    return found


def guard_options(command: Command) -> Command:
    """Add the options that hold candidates back, which Talos lacks; `read_guards` takes them."""
    for option in (
        click.option(
            "--preferences",
            type=click.Path(readable=False, allow_dash=True),
            metavar="FILE",
            help="Lines of `UID prefer|avoid|never`: pods that go first, last or not at all.",
        ),
        click.option(
            "--protect-uid",
            "protected",
            multiple=True,
            metavar="UID",
            callback=_uids,
            help="Never this pod; repeatable.",
        ),
        click.option(
            "--skip-unknown-limit",
            is_flag=True,
            help="Pass over cgroups whose memory.max is unreadable.",
        ),
        click.option(
            "--skip-unpopulated", is_flag=True, help="Pass over cgroups without processes."
        ),
    ):
        command = option(command)
    return command


def read_guards(
    *,
    preferences: str | None,
    protected: tuple[str, ...],
    skip_unknown_limit: bool,
    skip_unpopulated: bool,
) -> Guards:
    """Read what `guard_options` say."""
    return Guards(
        skip_unpopulated=skip_unpopulated,
        skip_unknown_limit=skip_unknown_limit,
        protected=protected,
        preferences=read_preferences(preferences),
    )


layout_option = click.option(
    "--layout",
    type=click.Choice(["auto", *LAYOUTS]),
    default="auto",
    show_default=True,
    help="How the node names its cgroups.",
)


def duration_option(
    name: str, help_text: str, *, default: str | None = None, above_zero: bool = False
) -> Callable[[Command], Command]:
    """Make an option that takes a Go duration and gives nanoseconds."""

    def convert(_ctx: Any, _param: Any, value: str | None) -> int | None:
        if value is None:
            return None
        try:
            nanoseconds = parse_duration(value)
        except InputError as error:
            raise click.BadParameter(error.message) from None
        if nanoseconds < 0:
            raise click.BadParameter(f"{value} is negative")
        if above_zero and not nanoseconds:
            raise click.BadParameter(f"{value} is not above 0")
        return nanoseconds

    return click.option(
        name,
        metavar="DURATION",
        callback=convert,
        default=default,
        show_default=default is not None,
        help=help_text,
    )


def load_config(
    name: str | None,
    *,
    patches: Iterable[str] = (),
    trigger: str | None = None,
    ranking: str | None = None,
    strict: bool | None = None,
    interval_ns: int | None = None,
    swap: bool = False,
) -> OOMConfig | tuple[ConfigProblem, ...]:
    """Read and check a configuration."""
    return check_documents(
        read_oom_documents(name),
        patches=[document for patch in patches for document in read_oom_documents(patch)],
        trigger=trigger,
        ranking=ranking,
        strict=strict,
        interval_ns=interval_ns,
        swap=swap,
    )


def require_valid(config: OOMConfig | tuple[ConfigProblem, ...]) -> OOMConfig:
    """Return a configuration, or tell what is wrong with it and exit."""
    if isinstance(config, OOMConfig):
        return config
    for problem in config:
        note(problem_line(problem))
    raise click.exceptions.Exit(NO)


def problem_line(problem: ConfigProblem) -> str:
    """Write a problem on one line, with its place."""
    place = problem.field
    if problem.line is not None:
        place += f":{problem.line}:{problem.column}"
    return f"{place}: {problem.message}" if place else problem.message


def choose_layout(name: str, directories: Collection[str]) -> Layout:
    """Return the layout asked for, or the one that a tree's directories show."""
    return detect_layout(directories) if name == "auto" else LAYOUTS[name]
