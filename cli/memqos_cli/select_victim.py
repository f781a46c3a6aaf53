"""``memqos select-victim``."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from memqos.adapters.archive import Archive
from memqos.adapters.cgroup_tree import CGROUP_MOUNT, SWAP_FILES, check_v2
from memqos.adapters.host import Host
from memqos.adapters.oom_files import read_attributes, read_oom_tree
from memqos.errors import InputError
from memqos.oom.guards import guarded_candidates
from memqos.oom.preference import Preference
from memqos.oom.victim import Scored, Selection, score_all, select_victim
from memqos_cli.exit_codes import YES
from memqos_cli.oom_options import (
    choose_layout,
    config_option,
    guard_options,
    layout_option,
    load_config,
    ranking_option,
    read_guards,
    require_valid,
    strict_option,
    swap_option,
    xattrs_option,
)
from memqos_cli.options import (
    cgroup_root_option,
    debug_option,
    output_option,
    require_one_stdin,
    root_option,
)
from memqos_cli.output import document
from memqos_cli.output.terminal import table, wrap, write


__all__ = ["candidate_fields", "command", "victim_fields"]

_FILES = ("memory.current", "memory.peak", "memory.max", "cgroup.events")


@click.command()
@root_option
@cgroup_root_option
@layout_option
@config_option
@ranking_option
@strict_option
@swap_option
@guard_options
@xattrs_option
@output_option()
@debug_option
def command(
    host: Host,
    cgroup_root: str | None,
    layout: str,
    config: str | None,
    ranking: str | None,
    strict: bool | None,
    swap: bool,
    preferences: str | None,
    xattrs: bool,
    output: str,
    **guarding: Any,
) -> None:
    """Say whom the OOM handler would kill now, and why not the others. Kills nothing.

    \b
    Examples:
      memqos select-victim
      memqos select-victim --config oom.yaml -o json
      memqos select-victim --preferences pods.txt --xattrs
    """
    require_one_stdin(config, preferences)
    checked = require_valid(load_config(config, ranking=ranking, strict=strict, swap=swap))
    if xattrs and cgroup_root is None and isinstance(host, Archive):
        raise click.UsageError("--xattrs needs a live tree: an archive has no such attributes")
    guards = read_guards(preferences=preferences, **guarding)
    if cgroup_root is None:
        host.check()
    check_v2(host, root=cgroup_root)
    tree = read_oom_tree(host, root=cgroup_root, names=(*_FILES, *SWAP_FILES) if swap else _FILES)
    try:
        chosen = choose_layout(layout, tree)
    except InputError as error:
        raise error.locate(source=cgroup_root or host.display("sys/fs/cgroup")) from None
    attributes = partial(read_attributes, cgroup_root or host.resolve(CGROUP_MOUNT))
    candidates = guarded_candidates(tree, chosen, guards, attributes if xattrs else None)
    selection = select_victim(score_all(candidates, checked.ranking), strict=checked.strict)
    preferred = xattrs or preferences is not None or bool(guards.protected)
    if output == "text":
        write(_text(selection, strict=checked.strict))
    else:
        fields: dict[str, Any] = {
            "outcome": "victim" if selection.victim else "none",
            "victim": victim_fields(selection.victim),
            "layout": chosen.name,
            "strict": checked.strict,
            "candidates": [
                candidate_fields(item, swap=swap, preference=preferred)
                for item in selection.scored
            ],
            "tied": [item.candidate.path for item in selection.tied],
        }
        write(document.render("VictimSelection", fields, output))
    click.get_current_context().exit(YES)


def victim_fields(victim: Scored | None) -> dict[str, Any] | None:
    """Lay out a victim as the contract has it."""
    if victim is None:
        return None
    candidate = victim.candidate
    return {
        "path": candidate.path,
        "class": candidate.oom_class.label,
        "score": document.number(victim.score),
    }


def candidate_fields(item: Scored, *, swap: bool, preference: bool) -> dict[str, Any]:
    """Lay out a candidate as the contract has it, with what options add."""
    candidate = item.candidate
    return {
        "path": candidate.path,
        "class": candidate.oom_class.label,
        "memoryCurrent": candidate.current,
        "memoryPeak": candidate.peak,
        "memoryMax": candidate.max,
        "score": document.number(item.score),
        "eligible": item.eligible,
        "reason": item.eligibility,
        "error": item.error,
        **({"memorySwapCurrent": candidate.swap} if swap else {}),
        **({"preference": candidate.preference.label} if preference else {}),
    }


def _text(selection: Selection, *, strict: bool) -> str:
    victim = selection.victim
    if victim is None:
        head = f"nobody: none of {len(selection.scored)} candidates is eligible"
    else:
        rule = "the least important class goes first, then" if strict else "whatever the class,"
        if any(item.candidate.preference is not Preference.PLAIN for item in selection.scored):
            rule = f"preferences decide, then {rule}"
        head = (
            f"victim {victim.candidate.path}: {rule} the highest score ({victim.score:g}); "
            f"class {victim.candidate.oom_class.label}"
        )
    if selection.tied:
        head += f"; {len(selection.tied)} others tie with it, and Talos would choose by chance"
    rows = [
        (
            item.candidate.path.removeprefix("/sys/fs/cgroup/"),
            item.candidate.oom_class.label,
            "-" if item.candidate.current is None else str(item.candidate.current),
            "-" if item.candidate.max is None else str(item.candidate.max),
            "-" if item.score is None else f"{item.score:g}",
            item.error or item.eligibility,
        )
        for item in selection.scored
    ]
    header = ("CGROUP", "CLASS", "CURRENT", "MAX", "SCORE", "WHY")
    return f"{wrap(head)}\n\n" + table(header, rows)
