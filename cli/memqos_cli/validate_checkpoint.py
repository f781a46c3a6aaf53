"""``memqos validate-checkpoint``."""

from __future__ import annotations

from typing import Any

import click

from memqos.adapters.files import write_atomically
from memqos.memory_manager.describe import mebibytes, message, next_step, warnings, where
from memqos.memory_manager.reasons import Verdict
from memqos.memory_manager.validation import Advice, StartDecision, advise, validate_start
from memqos_cli.checkpoint_document import checkpoint_fields, validation_fields
from memqos_cli.exit_codes import NO, YES
from memqos_cli.kubelet_options import NodeInputs, checkpoint_options, read_node
from memqos_cli.options import output_option
from memqos_cli.output import document
from memqos_cli.output.terminal import colour, note, table, wrap, write


__all__ = ["command"]


@click.command()
@checkpoint_options
@output_option("prometheus")
@click.option(
    "--textfile",
    type=click.Path(readable=False),
    metavar="FILE",
    help="Also write the Prometheus metrics to FILE, atomically, for node_exporter.",
)
def command(output: str, textfile: str | None, **options: Any) -> None:
    """Say what kubelet decides about its Memory Manager CHECKPOINT on its next start, and why.

    CHECKPOINT is ROOT/var/lib/kubelet/memory_manager_state unless given. Exits 0 when kubelet
    starts, 1 when it refuses. Writes nothing but --textfile.

    \b
    Examples:
      memqos validate-checkpoint
      memqos validate-checkpoint --drift-tolerance auto -o json
      memqos validate-checkpoint state.json --machine-info machine.json --iomem iomem.txt
    """
    node = read_node(**options)
    decision = validate_start(node.settings, node.machine, node.checkpoint, node.image)
    advice = advise(node.settings, node.machine, node.checkpoint, node.image)
    if textfile is not None:
        write_atomically(textfile, _prometheus(node, decision).encode())
    if output == "text":
        write(_text(node, decision, advice))
    elif output == "prometheus":
        write(_prometheus(node, decision))
    else:
        fields = validation_fields(node, decision, advice)
        write(document.render("CheckpointValidation", fields, output))
    for text in (*node.assumptions, *node.warnings, *warnings(decision)):
        note(text)
    click.get_current_context().exit(YES if decision.kubelet_starts else NO)


def _prometheus(node: NodeInputs, decision: StartDecision) -> str:
    from memqos.memory_manager.metrics import DRIFT_METRIC, TOLERANCE_METRIC, drift_metrics
    from memqos_cli.output.prometheus import Metric, render

    metrics = drift_metrics(decision)
    tolerance = metrics.tolerance_bytes
    size = node.image.size_bytes if node.image else None
    gauges = [
        Metric(
            TOLERANCE_METRIC,
            "Tolerated drift of a NUMA node's memory; 0 is exact comparison.",
            () if tolerance is None else (({}, tolerance),),
        ),
        Metric(
            DRIFT_METRIC,
            "Absolute drift of a NUMA node's memory at the last start that succeeds.",
            tuple(({"numa_node": str(node_id)}, value) for node_id, value in metrics.drift_bytes),
        ),
        Metric(
            "memqos_checkpoint_verdict",
            "What kubelet decides about its Memory Manager checkpoint: 1 for the verdict.",
            tuple(({"verdict": verdict}, int(verdict is decision.verdict)) for verdict in Verdict),
        ),
        Metric(
            "memqos_kubelet_starts",
            "Whether kubelet gets past its Memory Manager at its next start.",
            (({}, int(decision.kubelet_starts)),),
        ),
        Metric(
            "memqos_numa_node_memory_drift_bytes",
            "Current minus recorded memory of a NUMA node, whatever the verdict.",
            tuple(
                ({"numa_node": str(drift.node)}, drift.drift_bytes) for drift in decision.drifts
            ),
        ),
        Metric(
            "memqos_kernel_image_bytes",
            "Span of the running kernel's image.",
            () if size is None else (({}, size),),
        ),
    ]
    return render(gauges)


_VERDICT_COLOURS = {
    Verdict.EXACT: "green",
    Verdict.TOLERATED: "yellow",
    Verdict.REJECTED: "red",
    Verdict.ERROR: "red",
}


def _text(node: NodeInputs, decision: StartDecision, advice: tuple[Advice, ...]) -> str:
    verdict = decision.verdict.upper()
    sentence = wrap(f"{verdict}: {message(decision)}").removeprefix(verdict)
    parts = [f"{colour(verdict, _VERDICT_COLOURS[decision.verdict])}{sentence}\n"]
    if decision.drifts:
        parts.append(_drift_table(decision))
    facts = [("reason", _reason(decision)), ("checkpoint", _checkpoint(node))]
    facts += [("tolerance", _tolerance(node, decision)), ("next", next_step(decision, advice))]
    if decision.order_dependent:
        other = decision.other_order
        found = f"{other[0]} ({other[1]})" if other else "not all could be tried"
        facts.insert(1, ("order", f"NUMA groups are joint; other orders of the pods: {found}"))
    facts += _what_if(decision, advice)
    parts.append("".join(f"{name:<11} {wrap(text, 12)}\n" for name, text in facts))
    return "\n".join(parts)


def _what_if(decision: StartDecision, advice: tuple[Advice, ...]) -> list[tuple[str, str]]:
    if all((item.verdict, item.reason) == (decision.verdict, decision.reason) for item in advice):
        return [("what if", "no setting of memory-drift-tolerance changes this")] if advice else []
    return [
        (
            "" if index else "what if",
            f"memory-drift-tolerance {item.option}: {item.verdict} ({item.reason})",
        )
        for index, item in enumerate(advice)
    ]


def _drift_table(decision: StartDecision) -> str:
    bound = str(decision.tolerance.bytes) if decision.tolerance else "-"
    rows = []
    for drift in decision.drifts:
        moved = f"{drift.drift_bytes:+d}" if drift.drift_bytes else "0"
        if drift.drift_bytes:
            moved += f" ({mebibytes(drift.drift_bytes, sign=True)})"
        rows.append(
            (
                str(drift.node),
                str(drift.recorded.total),
                str(drift.current.total),
                moved,
                bound,
            )
        )
    return table(("NUMA NODE", "RECORDED BYTES", "BYTES NOW", "DRIFT", "BOUND"), rows)


def _reason(decision: StartDecision) -> str:
    place = where(decision)
    if place is None:
        return decision.reason
    return f"{decision.reason} at " + ", ".join(f"{key} {value}" for key, value in place.items())


def _checkpoint(node: NodeInputs) -> str:
    summary = checkpoint_fields(node.checkpoint)
    if node.checkpoint is None:
        return f"{node.checkpoint_path}: none"
    known = {key: value for key, value in summary.items() if value is not None}
    if not known.get("format"):
        return f"{node.checkpoint_path}: cannot be decoded"
    text = f"{node.checkpoint_path}: format {known['format']}, checksum {known['checksum']}"
    if "policyName" in known:
        text += f", policy {known['policyName']}"
    if "assignments" in known:
        text += f", {known['assignments']} assigned blocks"
    return text


def _tolerance(node: NodeInputs, decision: StartDecision) -> str:
    tolerance = decision.tolerance
    image = node.image.size_bytes if node.image else None
    kernel = "size unknown" if image is None else f"{image} bytes ({mebibytes(image)})"
    if tolerance is None:
        return f"not reached; kernel image {kernel}"
    return f"{tolerance.bytes} bytes ({tolerance.source}); kernel image {kernel}"
