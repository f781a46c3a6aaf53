"""kubelet's start with the Memory Manager: one verdict, with its reason.

Source: kubelet policy_static.go (Start, validateState) and KEP-6232, whose text wins over the
early revisions of its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attrs import evolve, frozen

from memqos.memory_manager.assignments import (
    Assignment,
    AssignmentFailure,
    apply_assignments,
    assignments,
    other_orders,
)
from memqos.memory_manager.checkpoint import (
    LoadedCheckpoint,
    LoadFailure,
    LoadFailureKind,
)
from memqos.memory_manager.comparison import Difference, compare_exactly, compare_within
from memqos.memory_manager.iomem import ImageStatus, KernelImage
from memqos.memory_manager.machine import Machine, SystemReserved, default_state
from memqos.memory_manager.options import (
    DRIFT_TOLERANCE,
    Tolerance,
    ToleranceSource,
    resolve_tolerance,
)
from memqos.memory_manager.reasons import Reason, Refusal, Verdict
from memqos.memory_manager.state import MEMORY, CheckpointContent, MachineState, MemoryTable


__all__ = [
    "Advice",
    "NodeDrift",
    "Settings",
    "StartDecision",
    "advise",
    "node_drifts",
    "validate_start",
]

_STARTS = (Verdict.EXACT, Verdict.TOLERATED)
_CORRUPT = (LoadFailureKind.CORRUPTED, LoadFailureKind.V3_CORRUPTED)

# Up to 1.31 nodes were compared one by one; kubernetes/kubernetes#127074 made it group sums.
_FIRST_MINOR_WITH_GROUP_SUMS = 32


@frozen(kw_only=True)
class Settings:
    """The part of kubelet's configuration that its Memory Manager looks at.

    Attributes:
        policy_name: ``memoryManagerPolicy``.
        policy_options: ``memoryManagerPolicyOptions``.
        drift_tolerance_gate: whether MemoryManagerDriftTolerance is on.
        pod_level_gate: whether PodLevelResourceManagers is on.
        system_reserved: bytes per NUMA node, or kubelet's refusal of ``reservedMemory``.
        config_refusal: what kubelet refuses before any of this, or None.
        kubelet_minor: NN of kubelet 1.NN.
    """

    policy_name: str
    policy_options: Mapping[str, str]
    drift_tolerance_gate: bool
    pod_level_gate: bool
    system_reserved: SystemReserved | Refusal
    config_refusal: Refusal | None = None
    kubelet_minor: int = 38


class NodeDrift(NamedTuple):
    """`memory` of one NUMA node that is in both states; bytes."""

    node: int
    recorded: MemoryTable
    current: MemoryTable

    @property
    def drift_bytes(self) -> int:
        """Current minus recorded total."""
        return self.current.total - self.recorded.total

    @property
    def needed_bytes(self) -> int:
        """The smallest bound that lets this node through."""
        return max(
            abs(self.drift_bytes), abs(self.current.allocatable - self.recorded.allocatable)
        )


@frozen(kw_only=True)
class StartDecision:
    """What kubelet decides.

    Attributes:
        verdict: the answer.
        reason: its code.
        cause: the load failure, refusal, assignment failure or first difference behind it.
        tolerance: the bound in effect, None when kubelet stops before it knows one.
        drifts: per NUMA node in both states; empty when no state was compared.
        file_rewritten: kubelet writes the checkpoint at this start.
        state_after: the machine state kubelet runs with, None when it does not start.
        expected: the state re-derived on this machine (idle if the assignments failed), None
            when it was not needed.
        order_dependent: another order of the pods gives another verdict, or may: kubelet's own
            order is random, and of many pods in joint NUMA groups not all orders were tried.
        other_order: a (verdict, reason) that another order gives, None if none was found.
    """

    verdict: Verdict
    reason: Reason
    cause: LoadFailure | Refusal | AssignmentFailure | Difference | None = None
    tolerance: Tolerance | None = None
    drifts: tuple[NodeDrift, ...] = ()
    file_rewritten: bool = False
    state_after: MachineState | None = None
    expected: MachineState | None = None
    order_dependent: bool = False
    other_order: tuple[Verdict, Reason] | None = None

    @property
    def kubelet_starts(self) -> bool:
        """Whether kubelet gets past the Memory Manager."""
        return self.verdict in _STARTS


class Advice(NamedTuple):
    """What another ``memory-drift-tolerance`` would give."""

    option: str
    verdict: Verdict
    reason: Reason


def validate_start(
    settings: Settings,
    machine: Machine,
    checkpoint: LoadedCheckpoint | LoadFailure | None,
    image: KernelImage | None,
) -> StartDecision:
    """Decide a kubelet start.

    Args:
        settings: kubelet's configuration.
        machine: the NUMA nodes now.
        checkpoint: as this kubelet loads it, None when there is no file.
        image: the kernel image, None when ``/proc/iomem`` cannot be read.
    """
    refusal = _policy_refusal(settings)
    if refusal is not None:
        return _error(refusal.reason, refusal)
    if settings.policy_name != "Static":
        return _load_without_validation(settings, checkpoint)
    if isinstance(settings.system_reserved, Refusal):
        return _error(settings.system_reserved.reason, settings.system_reserved)
    tolerance = resolve_tolerance(
        settings.policy_options, gate=settings.drift_tolerance_gate, image=image
    )
    if isinstance(tolerance, Refusal):
        return _error(tolerance.reason, tolerance)
    idle = default_state(machine, settings.system_reserved)
    content = _load(settings, checkpoint)
    if isinstance(content, StartDecision):
        decision = content
    elif not content.machine_state:
        decision = _start_from_nothing(content, idle)
    else:
        decision = _validate_state(settings, content, content.machine_state, idle, tolerance)
    return evolve(decision, tolerance=tolerance)


def advise(
    settings: Settings,
    machine: Machine,
    checkpoint: LoadedCheckpoint | LoadFailure | None,
    image: KernelImage | None,
) -> tuple[Advice, ...]:
    """Say what ``off``, ``auto`` and the smallest sufficient quantity would give.

    ``auto`` is left out where the kernel image cannot be seen: kubelet may see it.
    """
    if settings.policy_name != "Static":
        return ()

    def decide(option: str) -> StartDecision:
        changed = evolve(
            settings, policy_options={DRIFT_TOLERANCE: option}, drift_tolerance_gate=True
        )
        return validate_start(changed, machine, checkpoint, image)

    exact = decide("off")
    needed = max((drift.needed_bytes for drift in exact.drifts), default=0)
    unseen = image is None or image.status is ImageStatus.HIDDEN
    options = ["off", *([] if unseen else ["auto"]), *([str(needed)] if needed else [])]
    decisions = [(option, decide(option)) for option in options]
    return tuple(Advice(option, made.verdict, made.reason) for option, made in decisions)


def _error(
    reason: Reason, cause: LoadFailure | Refusal | AssignmentFailure | Difference | None = None
) -> StartDecision:
    return StartDecision(verdict=Verdict.ERROR, reason=reason, cause=cause)


def _policy_refusal(settings: Settings) -> Refusal | None:
    name = settings.policy_name
    if settings.config_refusal is not None:
        return settings.config_refusal
    if name not in ("None", "Static", "BestEffort"):
        return Refusal(Reason.UNKNOWN_POLICY, f'unknown policy: "{name}"')
    if name != "Static" and settings.policy_options:
        options = " ".join(sorted(settings.policy_options))
        return Refusal(
            Reason.OPTION_UNSUPPORTED_FOR_POLICY,
            f'policy "{name}" does not support policy options: {options}',
        )
    if name == "BestEffort":
        return Refusal(
            Reason.POLICY_UNAVAILABLE, 'policy "BestEffort" is not available on this platform'
        )
    return None


def _load(
    settings: Settings, checkpoint: LoadedCheckpoint | LoadFailure | None
) -> CheckpointContent | StartDecision:
    """Take the content of a checkpoint, or decide what stops kubelet from doing so."""
    if checkpoint is None:
        return CheckpointContent(policy_name=settings.policy_name)
    if isinstance(checkpoint, LoadFailure):
        corrupt = checkpoint.kind in _CORRUPT
        return _error(
            Reason.CHECKPOINT_CORRUPT if corrupt else Reason.CHECKPOINT_INVALID_JSON, checkpoint
        )
    content = checkpoint.content
    if content.policy_name != settings.policy_name:
        return _error(
            Reason.POLICY_MISMATCH,
            Refusal(
                Reason.POLICY_MISMATCH,
                f'[memorymanager] configured policy "{settings.policy_name}" differs from '
                f'state checkpoint policy "{content.policy_name}"',
            ),
        )
    for node_id, node in sorted((content.machine_state or {}).items()):
        for resource, table in sorted(((node and node.memory_map) or {}).items()):
            if table is None:
                return _error(
                    Reason.KUBELET_WOULD_PANIC,
                    Difference(reason=Reason.KUBELET_WOULD_PANIC, node=node_id, resource=resource),
                )
    return content


def _load_without_validation(
    settings: Settings, checkpoint: LoadedCheckpoint | LoadFailure | None
) -> StartDecision:
    content = _load(settings, checkpoint)
    if isinstance(content, StartDecision):
        return evolve(content, tolerance=_NO_TOLERANCE)
    return StartDecision(
        verdict=Verdict.EXACT,
        reason=Reason.POLICY_NONE_NOT_VALIDATED,
        tolerance=_NO_TOLERANCE,
        file_rewritten=checkpoint is None,
        state_after=content.machine_state or {},
    )


_NO_TOLERANCE = Tolerance(0, ToleranceSource.UNSET)


def _start_from_nothing(content: CheckpointContent, idle: MachineState) -> StartDecision:
    if content.entries:
        return StartDecision(
            verdict=Verdict.REJECTED, reason=Reason.MACHINE_STATE_EMPTY_WITH_ASSIGNMENTS
        )
    return StartDecision(
        verdict=Verdict.EXACT,
        reason=Reason.INITIALIZED,
        file_rewritten=True,
        state_after=idle,
        expected=idle,
    )


def _validate_state(
    settings: Settings,
    content: CheckpointContent,
    stored: MachineState,
    idle: MachineState,
    tolerance: Tolerance,
) -> StartDecision:
    items = assignments(
        content.entries or {}, content.pod_entries if settings.pod_level_gate else None
    )
    per_node = settings.kubelet_minor < _FIRST_MINOR_WITH_GROUP_SUMS

    def decide(order: tuple[Assignment, ...]) -> StartDecision:
        return _decide(stored, idle, order, tolerance.bytes, per_node=per_node)

    decision = decide(items)
    orders = other_orders(items)
    decision = evolve(decision, order_dependent=not orders.complete)
    for order in orders.tried:
        other = decide(order)
        if other.verdict is not decision.verdict:
            decision = evolve(
                decision, order_dependent=True, other_order=(other.verdict, other.reason)
            )
            break
    return evolve(decision, drifts=node_drifts(stored, idle))


def _decide(
    stored: MachineState,
    idle: MachineState,
    items: tuple[Assignment, ...],
    bound_bytes: int,
    *,
    per_node: bool,
) -> StartDecision:
    expected = apply_assignments(idle, items)
    if isinstance(expected, AssignmentFailure):
        return StartDecision(
            verdict=Verdict.REJECTED, reason=expected.reason, cause=expected, expected=idle
        )
    difference = compare_exactly(stored, expected, per_node=per_node)
    if difference is None:
        return StartDecision(
            verdict=Verdict.EXACT, reason=Reason.EQUAL, state_after=stored, expected=expected
        )
    if bound_bytes > 0:
        difference = compare_within(stored, expected, bound_bytes)
    if difference is None:
        return StartDecision(
            verdict=Verdict.TOLERATED,
            reason=Reason.DRIFT_WITHIN_BOUND,
            file_rewritten=True,
            state_after=_sort_cells(expected),
            expected=expected,
        )
    panics = difference.reason is Reason.KUBELET_WOULD_PANIC
    return StartDecision(
        verdict=Verdict.ERROR if panics else Verdict.REJECTED,
        reason=difference.reason,
        cause=difference,
        expected=expected,
    )


def _sort_cells(state: MachineState) -> MachineState:
    return {
        node_id: node and node._replace(cells=tuple(sorted(node.cells or ())))
        for node_id, node in state.items()
    }


def node_drifts(stored: MachineState, current: MachineState) -> tuple[NodeDrift, ...]:
    """Pair the `memory` tables of the nodes that both states have."""
    drifts = []
    for node_id in sorted(stored.keys() & current.keys()):
        old, new = stored[node_id], current[node_id]
        recorded = ((old and old.memory_map) or {}).get(MEMORY)
        now = ((new and new.memory_map) or {}).get(MEMORY)
        if recorded is not None and now is not None:
            drifts.append(NodeDrift(node_id, recorded, now))
    return tuple(drifts)
