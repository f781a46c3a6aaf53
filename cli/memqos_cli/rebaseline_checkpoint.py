"""``memqos rebaseline-checkpoint``."""

from __future__ import annotations

from typing import Any

import click

from memqos.adapters.host import Host
from memqos.adapters.state_file import (
    StateFileError,
    beside,
    remove_leftovers,
    replace_checkpoint,
    running_kubelet,
)
from memqos.errors import MachineError
from memqos.memory_manager.describe import mebibytes, message, next_step, warnings
from memqos.memory_manager.reasons import Verdict
from memqos.memory_manager.rebaseline import Change, Rebaseline, RebaselineRefusal, rebaseline
from memqos.memory_manager.validation import Advice, StartDecision, advise, validate_start
from memqos_cli.checkpoint_document import validation_fields
from memqos_cli.exit_codes import NO, YES
from memqos_cli.kubelet_options import NodeInputs, checkpoint_options, read_node
from memqos_cli.options import output_option
from memqos_cli.output import document
from memqos_cli.output.terminal import note, printable, table, wrap, write


__all__ = ["command"]


@click.command()
@checkpoint_options
@output_option()
@click.option(
    "--write",
    "do_write",
    is_flag=True,
    help="Replace the file; without it, show what would change.",
)
@click.option(
    "--backup-dir", metavar="DIR", help="Put the backup here.  [default: beside the checkpoint]"
)
@click.option("--no-backup", is_flag=True, help="Make no backup.")
@click.option("--force", is_flag=True, help="Write although a kubelet is running, or may be.")
def command(
    output: str,
    do_write: bool,
    backup_dir: str | None,
    no_backup: bool,
    force: bool,
    **options: Any,
) -> None:
    """Give the Memory Manager CHECKPOINT the machine state of this boot, for any kubelet.

    Shows what would change, and with --write replaces the file: same format, right checksum,
    assignments untouched, owner and mode kept, atomically, after a backup. Only a checkpoint that
    validate-checkpoint calls "tolerated" with the same options is written; "exact" needs nothing.
    Exits 0 when kubelet starts with the file (or would, once written), 1 when it is refused.

    \b
    Examples:
      memqos rebaseline-checkpoint --drift-tolerance auto
      memqos rebaseline-checkpoint --drift-tolerance auto --write
    """
    if no_backup and backup_dir is not None:
        raise click.UsageError("--backup-dir and --no-backup exclude each other")
    node = read_node(**options)
    path = node.checkpoint_file
    if do_write and path is None:
        raise click.UsageError("--write needs a file to replace, not standard input or an archive")
    decision = validate_start(node.settings, node.machine, node.checkpoint, node.image)
    advice = advise(node.settings, node.machine, node.checkpoint, node.image)
    made = rebaseline(
        decision, node.settings, node.machine, node.checkpoint, node.checkpoint_data or b""
    )
    written, backup = False, None
    if do_write and path is not None:
        if isinstance(made, Rebaseline):
            try:
                if not force:
                    _check_no_kubelet(options["host"])
                backup = replace_checkpoint(
                    path,
                    expected=node.checkpoint_data or b"",
                    new=made.text.encode(),
                    backup_dir=None if no_backup else backup_dir or beside(path),
                )
                written = True
            except StateFileError as error:
                made = RebaselineRefusal(str(error))
        else:
            _tidy(path, backup_dir)
    if output == "text":
        write(_text(node, decision, advice, made, written=written, backup=backup))
    else:
        fields = validation_fields(node, decision, advice)
        fields |= {"written": written, "backup": backup, "changes": _changes(made)}
        write(document.render("CheckpointRebaseline", fields, output))
        if isinstance(made, RebaselineRefusal):
            note(f"refused: {made.message}")
    for text in (*node.assumptions, *node.warnings, *warnings(decision)):
        note(text)
    click.get_current_context().exit(NO if isinstance(made, RebaselineRefusal) else YES)


def _tidy(path: str, backup_dir: str | None) -> None:
    """Remove what a killed run left; the answer does not depend on it."""
    try:
        remove_leftovers(path, backup_dir=backup_dir)
    except MachineError as error:
        note(f"a temporary file of an earlier run stays: {error}")


def _check_no_kubelet(host: Host) -> None:
    try:
        pid = running_kubelet(host)
    except MachineError as error:
        raise StateFileError(
            host.display("proc"),
            f"cannot tell whether a kubelet is running ({error}); --force writes all the same",
        ) from None
    if pid is not None:
        raise StateFileError(
            host.display(f"proc/{pid}"),
            "a kubelet is running and would overwrite the file; stop it first, or --force",
        )


def _changes(made: Rebaseline | RebaselineRefusal | None) -> list[dict[str, Any]]:
    if not isinstance(made, Rebaseline):
        return []
    return [
        {"path": change.path, "recorded": change.recorded, "now": change.now}
        for change in made.changes
    ]


def _text(
    node: NodeInputs,
    decision: StartDecision,
    advice: tuple[Advice, ...],
    made: Rebaseline | RebaselineRefusal | None,
    *,
    written: bool,
    backup: str | None,
) -> str:
    path = printable(node.checkpoint_path)
    if made is None:
        return wrap(f"nothing to do: {message(decision)}") + "\n"
    if isinstance(made, RebaselineRefusal):
        head = f"refused: {made.message}\n{message(decision)}\n"
        if decision.verdict is not Verdict.TOLERATED:
            head += f"{next_step(decision, advice)}\n"
        return "".join(f"{wrap(line)}\n" for line in head.splitlines())
    head = f"re-baselined {path}" if written else f"would re-baseline {path}; --write does it"
    if backup is not None:
        head += f"; the old file is {printable(backup)}"
    rows = [
        (change.path, str(change.recorded), str(change.now), _delta(change))
        for change in made.changes
    ]
    return f"{head}\n\n" + table(("FIELD", "RECORDED", "NOW", "CHANGE"), rows)


def _delta(change: Change) -> str:
    if isinstance(change.recorded, int) and isinstance(change.now, int):
        return mebibytes(change.now - change.recorded, sign=True)
    return "-"
