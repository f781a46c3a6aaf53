"""From a KubeletConfiguration to what the Memory Manager looks at; and a guess without one."""

from __future__ import annotations

from collections.abc import Mapping

from memqos.errors import InputError, QuantityError
from memqos.kubelet_config import KubeletConfig, eviction_threshold_bytes
from memqos.memory_manager.checkpoint import LoadedCheckpoint, LoadFailure
from memqos.memory_manager.machine import Machine, SystemReserved
from memqos.memory_manager.options import DRIFT_TOLERANCE, GATE
from memqos.memory_manager.reasons import Reason, Refusal
from memqos.memory_manager.reserved import check_reserved_memory
from memqos.memory_manager.state import MEMORY, is_hugepages
from memqos.memory_manager.validation import Settings
from memqos.quantity import Quantity, QuantityFormat, bytes_quantity, parse_quantity


__all__ = [
    "FIRST_MINOR_WITH_DRIFT_TOLERANCE",
    "assume_settings",
    "config_warnings",
    "settings_from_config",
]

#: KEP-6232 is alpha in 1.38; earlier kubelets know neither the gate nor the option.
FIRST_MINOR_WITH_DRIFT_TOLERANCE = 38
_POD_LEVEL_GATE = "PodLevelResourceManagers"
_RESERVABLE = ("cpu", MEMORY, "ephemeral-storage", "pid")


def settings_from_config(
    config: KubeletConfig,
    machine: Machine,
    *,
    kubelet_minor: int,
    drift_tolerance: str | None = None,
) -> Settings:
    """Read kubelet's configuration as its Memory Manager does.

    Args:
        config: the configuration.
        machine: the NUMA nodes, for the checks of ``reservedMemory``.
        kubelet_minor: NN of kubelet 1.NN.
        drift_tolerance: sets the ``memory-drift-tolerance`` option and its gate, whatever the
            release, for the question "what if".
    """
    options: dict[str, str] = {}
    if _knows_drift_tolerance(kubelet_minor):
        options |= config.memory_manager_policy_options
    if drift_tolerance is not None:
        options[DRIFT_TOLERANCE] = drift_tolerance
    reserved: SystemReserved | Refusal
    try:
        refusal = _config_refusal(config, kubelet_minor)
        reservation = _node_reservation(config, machine)
        reserved = check_reserved_memory(config.reserved_memory, reservation, machine)
    except (InputError, QuantityError) as error:
        refusal = Refusal(Reason.CONFIG_INVALID, str(error))
        reserved = refusal
    return Settings(
        policy_name=config.memory_manager_policy,
        policy_options=options,
        drift_tolerance_gate=drift_tolerance is not None or config.gate(GATE, alpha=True),
        pod_level_gate=config.gate(_POD_LEVEL_GATE, alpha=False),
        system_reserved=reserved,
        config_refusal=refusal,
        kubelet_minor=kubelet_minor,
    )


def config_warnings(config: KubeletConfig, *, kubelet_minor: int) -> list[str]:
    """Say what kubelet reads otherwise than one may think."""
    found = []
    threshold = config.memory_available or ""
    if threshold and not threshold.endswith("%") and _is_zero(threshold):
        found.append(
            f"kubelet itself refuses an evictionHard memory.available of {threshold}; it is taken "
            "for none here (0% says so)"
        )
    if config.memory_manager_policy_options and not _knows_drift_tolerance(kubelet_minor):
        found.append(f"kubelet 1.{kubelet_minor} ignores memoryManagerPolicyOptions")
    return found


def _is_zero(text: str) -> bool:
    try:
        return parse_quantity(text).nanos == 0
    except QuantityError:
        return False


def _knows_drift_tolerance(kubelet_minor: int) -> bool:
    return kubelet_minor >= FIRST_MINOR_WITH_DRIFT_TOLERANCE


def assume_settings(
    checkpoint: LoadedCheckpoint | LoadFailure | None,
    *,
    kubelet_minor: int,
    drift_tolerance: str | None = None,
    feature_gates: Mapping[str, bool] | None = None,
) -> Settings:
    """Take policy and reservations from the checkpoint, where no configuration is known.

    That is, the configuration is taken to be what it was when the checkpoint was written.
    """
    content = checkpoint.content if isinstance(checkpoint, LoadedCheckpoint) else None
    reserved = {
        node_id: {
            name: table.system_reserved
            for name, table in (node.memory_map or {}).items()
            if table is not None
        }
        for node_id, node in ((content and content.machine_state) or {}).items()
        if node is not None
    }
    gates = KubeletConfig(feature_gates=feature_gates or {})
    return Settings(
        policy_name=content.policy_name if content else "Static",
        policy_options={} if drift_tolerance is None else {DRIFT_TOLERANCE: drift_tolerance},
        drift_tolerance_gate=drift_tolerance is not None or gates.gate(GATE, alpha=True),
        pod_level_gate=gates.gate(_POD_LEVEL_GATE, alpha=False),
        system_reserved=reserved,
        config_refusal=_config_refusal(gates, kubelet_minor),
        kubelet_minor=kubelet_minor,
    )


def _config_refusal(config: KubeletConfig, kubelet_minor: int) -> Refusal | None:
    """Give the first thing that kubelet refuses while it reads its configuration."""
    if not _knows_drift_tolerance(kubelet_minor) and GATE in config.feature_gates:
        return Refusal(Reason.CONFIG_INVALID, f"unrecognized feature gate: {GATE}")
    seen = set()
    for item in config.reserved_memory:
        for resource, quantity in item.limits.items():
            place = f"reservedMemory of {resource!r} on NUMA node {item.numa_node}"
            if resource != MEMORY and not is_hugepages(resource):
                return Refusal(
                    Reason.CONFIG_INVALID, f"{place}: only memory and hugepages-* can be reserved"
                )
            if quantity.nanos == 0:
                return Refusal(Reason.CONFIG_INVALID, f"{place} is zero")
            if (item.numa_node, resource) in seen:
                return Refusal(Reason.CONFIG_INVALID, f"{place} is given twice")
            seen.add((item.numa_node, resource))
    for name in ("systemReserved", "kubeReserved"):
        amounts = config.system_reserved if name == "systemReserved" else config.kube_reserved
        for resource, text in amounts.items():
            if resource not in _RESERVABLE:
                return Refusal(
                    Reason.CONFIG_INVALID, f'cannot reserve "{resource}" resource ({name})'
                )
            if _quantity(f"{name}.{resource}", text).nanos < 0:
                return Refusal(
                    Reason.CONFIG_INVALID,
                    f'resource quantity for "{resource}" cannot be negative: {text} ({name})',
                )
    return None


def _node_reservation(config: KubeletConfig, machine: Machine) -> Mapping[str, Quantity]:
    """Add up what Node Allocatable sets aside: system, kube, and the hard eviction threshold."""
    nanos = 0
    format_ = QuantityFormat.BINARY
    for name, amounts in (("system", config.system_reserved), ("kube", config.kube_reserved)):
        if MEMORY in amounts:
            quantity = _quantity(f"{name}Reserved.memory", amounts[MEMORY])
            nanos += quantity.nanos
            format_ = quantity.format
    threshold = eviction_threshold_bytes(config.memory_available, machine.capacity_bytes)
    nanos += bytes_quantity(threshold).nanos
    return {MEMORY: Quantity(nanos, format_)} if nanos else {}


def _quantity(name: str, text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise QuantityError(f"{name}: {error.message}") from None
