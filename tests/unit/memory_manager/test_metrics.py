"""The two kubelet gauges; how they follow a decision is in test_validation.py."""

from memqos.memory_manager.metrics import DRIFT_METRIC, TOLERANCE_METRIC


def test_names() -> None:
    """The names are kubelet's."""
    assert TOLERANCE_METRIC == "kubelet_memory_manager_drift_tolerance_bytes"
    assert DRIFT_METRIC == "kubelet_memory_manager_memory_drift_bytes"
