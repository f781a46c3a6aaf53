"""``memqos snapshot``."""

from __future__ import annotations

import io

import click

from memqos.adapters.host import Host
from memqos.adapters.signals import exit_on_sigterm
from memqos.adapters.snapshot import save_snapshot, take_snapshot, write_archive
from memqos.errors import MachineError
from memqos_cli.exit_codes import YES
from memqos_cli.options import debug_option, output_option, root_option
from memqos_cli.output import document
from memqos_cli.output.terminal import note, printable, write, write_bytes


__all__ = ["command"]


@click.command()
@click.argument("target", metavar="FILE.tar|DIR")
@root_option
@click.option(
    "--cgroups/--no-cgroups",
    default=True,
    help="Leave the cgroup tree out: report-drift needs none, and reads thousands faster.",
)
@output_option()
@debug_option
def command(target: str, host: Host, cgroups: bool, output: str) -> None:
    """Save exactly the files that the commands read, to run them elsewhere with --root.

    FILE.tar, .tar.gz, .tgz, .tar.bz2 or .tar.xz is written as an archive, "-" is an archive on
    standard output, any other name is a new directory. No process command lines, no environment;
    of the kubelet configuration only the fields that memqos reads, of the pods' logs only the
    names.

    \b
    Examples:
      memqos snapshot node-1.tar
      memqos validate-checkpoint --root node-1.tar
      memqos audit-cgroups --root node-1.tar
    """
    host.check()
    snapshot = take_snapshot(host, cgroups=cgroups)
    if not snapshot.files:
        raise MachineError(host.root, f"there is nothing to save: {snapshot.missing[0]}")
    for text in snapshot.missing:
        note(f"not saved: {text}")
    if target == "-":
        buffer = io.BytesIO()  # nothing is written of what turns out to be too large
        write_archive(snapshot, buffer, "standard output")
        write_bytes(buffer.getbuffer())
    else:
        with exit_on_sigterm():
            save_snapshot(snapshot, target)
        if output == "text":
            write(f"saved {len(snapshot.files)} files to {printable(target)}\n")
        else:
            fields = {
                "path": target,
                "files": sorted(snapshot.files),
                "missing": snapshot.missing,
            }
            write(document.render("Snapshot", fields, output))
    click.get_current_context().exit(YES)
