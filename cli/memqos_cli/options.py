"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from memqos.adapters.host import Host
from memqos.adapters.roots import open_host
from memqos.errors import InputError
from memqos.quantity import parse_quantity


__all__ = [
    "KubeletVersion",
    "cgroup_root_option",
    "debug_option",
    "output_option",
    "page_size_option",
    "require_one_stdin",
    "root_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])


class _HostType(click.ParamType[Host]):
    name = "directory"

    def shell_complete(self, _ctx: Any, _param: Any, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]

    def convert(self, value: Any, _param: Any, _ctx: Any) -> Host:
        return value if isinstance(value, Host) else open_host(str(value))


class KubeletVersion(click.ParamType[int]):
    """``1.NN`` or a full version such as ``v1.36.2``; gives NN."""

    name = "1.NN"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Take NN, or fail as a usage error."""
        if isinstance(value, int):
            return value
        parts = str(value).removeprefix("v").split("+")[0].split("-")[0].split(".")
        numbers = [
            int(part) if part.isascii() and part.isdigit() and len(part) < 4 else -1
            for part in parts[:3]
        ]
        if not 2 <= len(parts) <= 3 or numbers[0] != 1 or min(numbers) < 0:
            self.fail(f"{value!r} is not a kubelet version such as 1.38 or v1.36.2", param, ctx)
        return numbers[1]


root_option = click.option(
    "--root",
    "host",
    type=_HostType(),
    default="/",
    show_default=True,
    help="The host's root: default paths are taken under it.",
)


def _page_size(_ctx: Any, _param: Any, value: str) -> int:
    try:
        size = parse_quantity(value).value
    except InputError as error:
        raise click.BadParameter(error.message) from None
    if not 512 <= size <= 1 << 30 or size & (size - 1):
        raise click.BadParameter(f"{value} is no page size: a power of two of at least 512")
    return size


page_size_option = click.option(
    "--page-size",
    default="4096",
    callback=_page_size,
    metavar="BYTES",
    show_default=True,
    help="The base page.",
)

cgroup_root_option = click.option(
    "--cgroup-root",
    type=click.Path(readable=False),
    metavar="DIR",
    help="A directory that holds the cgroup tree, in place of ROOT/sys/fs/cgroup.",
)

debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show a traceback on internal errors."
)


def require_one_stdin(*names: str | None) -> None:
    """Refuse a second ``-``: the first would leave nothing to read.

    Raises:
        click.UsageError: more than one of the inputs' names is ``-``.
    """
    if names.count("-") > 1:
        raise click.UsageError("only one input can be '-', standard input")


def output_option(*more: str) -> Callable[[Command], Command]:
    """Make ``-o/--output`` with the common formats and those in `more`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json", "yaml", *more]),
        default="text",
        show_default=True,
        help="Output format.",
    )
