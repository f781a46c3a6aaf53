"""kubelet's two drift gauges (KEP-6232, alpha), as a start would set them."""

from __future__ import annotations

from attrs import frozen

from memqos.memory_manager.validation import StartDecision


__all__ = ["DRIFT_METRIC", "TOLERANCE_METRIC", "DriftMetrics", "drift_metrics"]

TOLERANCE_METRIC = "kubelet_memory_manager_drift_tolerance_bytes"
DRIFT_METRIC = "kubelet_memory_manager_memory_drift_bytes"


@frozen
class DriftMetrics:
    """The samples.

    Attributes:
        tolerance_bytes: the bound in effect, None when kubelet stops before it is known.
        drift_bytes: (NUMA node, absolute drift) pairs; only set by a start that succeeds.
    """

    tolerance_bytes: int | None
    drift_bytes: tuple[tuple[int, int], ...]


def drift_metrics(decision: StartDecision) -> DriftMetrics:
    """Derive both gauges from a decision."""
    tolerance = decision.tolerance
    return DriftMetrics(
        None if tolerance is None else tolerance.bytes,
        tuple((drift.node, abs(drift.drift_bytes)) for drift in decision.drifts)
        if decision.kubelet_starts
        else (),
    )
