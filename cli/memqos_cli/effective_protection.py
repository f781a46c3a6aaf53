"""``memqos effective-protection``."""

from __future__ import annotations

from typing import Any

import click

from memqos.adapters.cgroup_tree import (
    PROTECTION_FILES,
    CgroupFiles,
    check_v2,
    read_mount,
    read_tree,
)
from memqos.adapters.host import Host
from memqos.errors import InputError
from memqos.memory_qos.protection import CgroupMemory, effective_protection
from memqos.memory_qos.tree import identify
from memqos_cli.cgroup_options import Part, is_below, part_options, sizes_of
from memqos_cli.exit_codes import YES
from memqos_cli.options import (
    cgroup_root_option,
    debug_option,
    output_option,
    page_size_option,
    root_option,
)
from memqos_cli.output import document
from memqos_cli.output.plot import PlotFile
from memqos_cli.output.protection_tree import protection_fields, render_tree
from memqos_cli.output.terminal import note, write


__all__ = ["command", "memory_of"]


@click.command()
@root_option
@cgroup_root_option
@click.option(
    "--reclaim-root",
    default="/",
    show_default=True,
    metavar="PATH",
    help="The cgroup whose limit was hit; / is global memory pressure.",
)
@part_options
@page_size_option
@click.option(
    "--memory-recursiveprot/--no-memory-recursiveprot",
    "recursive",
    default=None,
    help="The mount option.  [default: read from the mount]",
)
@output_option()
@click.option(
    "--plot",
    type=PlotFile(),
    metavar="FILE.svg|FILE.html",
    help="Also draw the tree (needs memqos[plot]).",
)
@debug_option
def command(
    host: Host,
    cgroup_root: str | None,
    reclaim_root: str,
    pods: str | None,
    pod: str | None,
    container: str | None,
    pid: int | None,
    page_size: int,
    recursive: bool | None,
    output: str,
    plot: str | None,
) -> None:
    """Show what memory.min and memory.low of every cgroup are really worth, and who limits them.

    The kernel gives a cgroup no more protection than its ancestors have. This computes it as the
    kernel does, for global pressure or for a reclaim that one cgroup's limit starts. One pod,
    container or process is shown with its ancestors, and computed with its siblings.

    \b
    Examples:
      memqos effective-protection
      memqos effective-protection --reclaim-root /kubepods.slice -o json
      memqos effective-protection --pod default/web --plot web.svg
    """
    part = Part(pods_file=pods, pod=pod, container=container, pid=pid)
    part.check()
    if cgroup_root is None:
        host.check()
    check_v2(host, root=cgroup_root)
    tree = list(read_tree(host, PROTECTION_FILES, root=cgroup_root))
    identities = identify(cgroup.path for cgroup in tree)
    names, _ = part.names(host, cgroup_root)
    tops = part.tops(host, identities, names)
    cgroups = [memory_of(cgroup) for cgroup in tree if cgroup.path != "/"]
    reclaim_root = "/" + reclaim_root.strip("/")
    if reclaim_root != "/" and reclaim_root not in {cgroup.path for cgroup in cgroups}:
        raise InputError("there is no such cgroup", source=reclaim_root)
    if recursive is None:
        recursive = read_mount(host, root=cgroup_root).recursive
    found = effective_protection(
        cgroups,
        recursive=recursive is not False,
        page_size=page_size,
        reclaim_root=reclaim_root,
    )
    if tops is not None:
        found = tuple(
            item
            for item in found
            if is_below(item.cgroup.path, tops)
            or any(is_below(top, [item.cgroup.path]) for top in tops)
        )
    if plot is not None:
        from memqos_cli.output.protection_plot import draw

        draw(found, plot)
    if output == "text":
        labels = {path: names.label(item) for path, item in identities.items()}
        write(render_tree(found, labels))
    else:
        fields: dict[str, Any] = {
            "reclaimRoot": reclaim_root,
            "pageSize": page_size,
            "memoryRecursiveprot": recursive,
            "cgroups": [protection_fields(item) for item in found],
        }
        write(document.render("EffectiveProtection", fields, output))
    if recursive is None:
        note("the mount's options are not known: memory_recursiveprot is taken as set")
    click.get_current_context().exit(YES)


def memory_of(cgroup: CgroupFiles) -> CgroupMemory:
    """Read the three values; protection that a cgroup without the memory controller lacks is 0."""
    sizes = sizes_of(cgroup)
    return CgroupMemory(
        cgroup.path,
        sizes.get("memory.current"),
        sizes.get("memory.min", 0),
        sizes.get("memory.low", 0),
    )
