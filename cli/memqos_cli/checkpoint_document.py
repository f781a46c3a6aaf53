"""The fields of ``kind: CheckpointValidation``."""

from __future__ import annotations

from typing import Any

from memqos.memory_manager.checkpoint import LoadedCheckpoint, LoadFailure
from memqos.memory_manager.comparison import Difference
from memqos.memory_manager.describe import message, warnings, where
from memqos.memory_manager.encoding import machine_state_document
from memqos.memory_manager.validation import Advice, StartDecision
from memqos_cli.kubelet_options import NodeInputs


__all__ = ["checkpoint_fields", "validation_fields"]


def validation_fields(
    node: NodeInputs, decision: StartDecision, advice: tuple[Advice, ...]
) -> dict[str, Any]:
    """Lay out a decision as the contract has it."""
    tolerance = decision.tolerance
    other = decision.other_order
    return {
        "verdict": decision.verdict,
        "reason": decision.reason,
        "message": message(decision),
        "kubeletStarts": decision.kubelet_starts,
        "toleranceBytes": None if tolerance is None else tolerance.bytes,
        "toleranceSource": None if tolerance is None else tolerance.source,
        "kernelImageBytes": node.image.size_bytes if node.image else None,
        "driftPerNode": {str(drift.node): drift.drift_bytes for drift in decision.drifts},
        "where": where(decision),
        "difference": _difference(decision),
        "orderDependent": decision.order_dependent,
        "otherOrder": None if other is None else {"verdict": other[0], "reason": other[1]},
        "checkpoint": checkpoint_fields(node.checkpoint),
        "fileRewritten": decision.file_rewritten,
        "stateAfter": machine_state_document(decision.state_after),
        "advice": [
            {"option": item.option, "verdict": item.verdict, "reason": item.reason}
            for item in advice
        ],
        "assumptions": node.assumptions,
        "warnings": [*node.warnings, *warnings(decision)],
    }


def checkpoint_fields(checkpoint: LoadedCheckpoint | LoadFailure | None) -> dict[str, Any]:
    """Summarise the file: format, checksum, policy name, number of assigned blocks."""
    if checkpoint is None:
        return {"format": "none", "checksum": "absent", "policyName": None, "assignments": None}
    if isinstance(checkpoint, LoadFailure):
        return {
            "format": checkpoint.format,
            "checksum": checkpoint.checksum_status,
            "policyName": checkpoint.policy_name,
            "assignments": None,
        }
    return {
        "format": checkpoint.format,
        "checksum": checkpoint.checksum_status,
        "policyName": checkpoint.content.policy_name,
        "assignments": checkpoint.content.block_count,
    }


def _difference(decision: StartDecision) -> dict[str, Any] | None:
    cause = decision.cause
    if not isinstance(cause, Difference):
        return None
    return {"field": cause.field, "recorded": cause.recorded, "expected": cause.expected}
