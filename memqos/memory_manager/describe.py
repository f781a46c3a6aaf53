"""A start decision in words: one sentence of verdict, and what to do next."""

from __future__ import annotations

from memqos.memory_manager.assignments import AssignmentFailure
from memqos.memory_manager.checkpoint import LoadFailure, LoadFailureKind
from memqos.memory_manager.comparison import Difference
from memqos.memory_manager.reasons import Reason, Refusal, Verdict
from memqos.memory_manager.validation import Advice, StartDecision


__all__ = ["mebibytes", "message", "next_step", "warnings", "where"]

_CORRUPT = (LoadFailureKind.CORRUPTED, LoadFailureKind.V3_CORRUPTED)
_CONFIGURATION = (
    Reason.UNKNOWN_POLICY,
    Reason.POLICY_UNAVAILABLE,
    Reason.NO_SYSTEM_RESERVED_MEMORY,
    Reason.RESERVED_MEMORY_MISMATCH,
    Reason.RESERVED_MEMORY_UNKNOWN_NODE,
    Reason.OPTION_UNKNOWN,
    Reason.OPTION_REQUIRES_GATE,
    Reason.OPTION_BAD_VALUE,
    Reason.OPTION_NEGATIVE,
    Reason.OPTION_UNSUPPORTED_FOR_POLICY,
    Reason.CONFIG_INVALID,
)
_DRIFT = (Reason.TOTAL_DIFFERS, Reason.ALLOCATABLE_DIFFERS)
_UNREADABLE = (Reason.CHECKPOINT_CORRUPT, Reason.CHECKPOINT_INVALID_JSON)


def mebibytes(value: int, *, sign: bool = False) -> str:
    """Write a byte count for a person, with an explicit sign where it is a difference."""
    prefix = "+" if sign and value > 0 else ""
    if abs(value) < 1024 * 1024:
        return f"{prefix}{value / 1024:.4g} KiB"
    if abs(value) < 1024**3:
        return f"{prefix}{value / 1024**2:.2f} MiB"
    return f"{prefix}{value / 1024**3:.2f} GiB"


def where(decision: StartDecision) -> dict[str, int | str] | None:
    """Name the node, resource, pod, container that a decision turns on, where they apply."""
    cause = decision.cause
    found: dict[str, int | str | None] = {}
    if isinstance(cause, AssignmentFailure):
        found = {
            "node": cause.node,
            "pod": cause.pod,
            "container": cause.container,
            "resource": cause.resource,
        }
    elif isinstance(cause, Difference):
        found = {"node": cause.node, "resource": cause.resource}
    return {key: value for key, value in found.items() if value is not None} or None


def message(decision: StartDecision) -> str:
    """Say what kubelet does, and why, with the figures."""
    reason = decision.reason
    if decision.verdict is Verdict.EXACT:
        return {
            Reason.INITIALIZED: "kubelet starts and writes a fresh machine state: "
            "there is none to compare",
            Reason.POLICY_NONE_NOT_VALIDATED: "kubelet starts: policy None does not compare the "
            "machine state",
        }.get(reason, "kubelet starts: the checkpoint matches this machine exactly")
    bound = decision.tolerance.bytes if decision.tolerance else 0
    if decision.verdict is Verdict.TOLERATED:
        worst = max(decision.drifts, key=lambda drift: drift.needed_bytes, default=None)
        drifted = (
            f"the largest drift is {worst.drift_bytes} bytes "
            f"({mebibytes(worst.drift_bytes, sign=True)}) on NUMA node {worst.node}"
            if worst is not None and worst.drift_bytes
            else "no total drifted, only the recorded split differs"
        )
        return (
            f"kubelet starts and re-baselines the checkpoint: {drifted}, within the bound of "
            f"{bound} bytes ({mebibytes(bound)})"
        )
    return f"kubelet refuses to start: {_cause(decision, bound)}"


def _cause(decision: StartDecision, bound: int) -> str:
    cause = decision.cause
    if isinstance(cause, Refusal):
        return cause.message
    if isinstance(cause, LoadFailure):
        if cause.kind in _CORRUPT:
            text = f"checkpoint is corrupted: {cause.message}"
        else:
            text = f"the checkpoint is not the JSON that kubelet reads: {cause.message}"
        return text + (f" ({cause.hint})" if cause.hint else "")
    if isinstance(cause, AssignmentFailure):
        short = f", {cause.missing_bytes} bytes short" if cause.missing_bytes else ""
        what = f" ({cause.resource}{short})" if cause.resource is not None else ""
        place = f" on NUMA node {cause.node}" if cause.node is not None else ""
        return cause.message + what + place
    if isinstance(cause, Difference):
        return _difference(cause, bound)
    return "[memorymanager] machine state can not be empty when it has memory assignments"


def _difference(difference: Difference, bound: int) -> str:
    place = f"NUMA node {difference.node}"
    if difference.resource is not None:
        place = f"{difference.resource} on {place}"
    recorded, expected = difference.recorded, difference.expected
    match difference.reason:
        case Reason.KUBELET_WOULD_PANIC:
            return f"it would crash on {place} (nil dereference), and again at every restart"
        case Reason.NODE_SET_DIFFERS:
            return (
                f"the checkpoint has the NUMA nodes {_listing(recorded)}, "
                f"this machine has {_listing(expected)}"
            )
        case Reason.RESOURCE_SET_DIFFERS:
            if difference.resource is not None:
                return f"this machine has no {place}"
            return (
                f"{place} has {_listing(recorded)} in the checkpoint, "
                f"and {_listing(expected)} on this machine"
            )
        case Reason.CELLS_DIFFER:
            return (
                f"the group of {place} is recorded as {_listing(recorded)}, "
                f"and works out as {_listing(expected)}"
            )
        case Reason.DRIFT_EXCEEDS_BOUND:
            text = _figures(difference, place)
            return f"{text}, more than the bound of {bound} bytes ({mebibytes(bound)})"
        case _:
            return _figures(difference, place)


def _listing(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list) and names else "none"


def _figures(difference: Difference, place: str) -> str:
    recorded, expected = difference.recorded, difference.expected
    if not isinstance(recorded, int) or not isinstance(expected, int):
        return f"{difference.field} of {place} differs"
    grouped = difference.reason in (Reason.GROUP_FREE_DIFFERS, Reason.GROUP_RESERVED_DIFFERS)
    field = f"{difference.field}{' of the group' if grouped else ''}"
    change = expected - recorded
    amount = f"{change:+d}"
    if difference.reason is not Reason.ASSIGNMENT_COUNT_DIFFERS:
        amount = f"{change:+d} bytes, {mebibytes(change, sign=True)}"
    return f"{field} of {place} is recorded as {recorded}, and is {expected} now ({amount})"


def next_step(decision: StartDecision, advice: tuple[Advice, ...]) -> str:
    """Say what an operator does next."""
    reason = decision.reason
    if decision.order_dependent:
        return (
            "the pinned pods use overlapping NUMA groups, and kubelet re-derives them in random "
            "order: it may start at one attempt and fail at another; drain the node and remove "
            "the file"
        )
    if decision.verdict is Verdict.EXACT:
        return "nothing to do"
    if decision.verdict is Verdict.TOLERATED:
        return "nothing to do on a kubelet with this tolerance; others need a re-baseline"
    if reason in _CONFIGURATION:
        return "correct the kubelet configuration; the checkpoint was not looked at yet"
    if reason is Reason.POLICY_MISMATCH:
        return "drain the node and remove the checkpoint to change the policy"
    if reason in _UNREADABLE or reason is Reason.KUBELET_WOULD_PANIC:
        return "restore the file from a backup, or drain the node and remove it"
    if any(item.option == "auto" and item.verdict is Verdict.TOLERATED for item in advice):
        return (
            "kubelet exits and is restarted in a loop, for a drift that a moved kernel image "
            "explains; re-baseline the checkpoint, or set memory-drift-tolerance: auto on "
            "kubelet 1.38 or later"
        )
    if reason in _DRIFT and not any(item.option == "auto" for item in advice):
        return (
            "kubelet exits and is restarted in a loop; run memqos as root to see whether a moved "
            "kernel image explains the drift"
        )
    if reason in (Reason.ASSIGNMENT_DOES_NOT_FIT, Reason.GROUP_FREE_DIFFERS):
        return (
            "kubelet exits and is restarted in a loop; no tolerance helps: the pinned containers "
            "no longer match this machine; drain the node and remove the checkpoint"
        )
    return (
        "kubelet exits and is restarted in a loop; find out what changed (memory, hugepages, "
        "reservations, NUMA nodes), then drain the node and remove the checkpoint"
    )


def warnings(decision: StartDecision) -> list[str]:
    """Say what is odd about the figures although kubelet goes on with them."""
    found = []
    if decision.tolerance is not None and decision.tolerance.saturated:
        found.append(
            "memory-drift-tolerance is beyond 2^63-1, where kubelet's own value is undefined; "
            "2^63-1 is used here"
        )
    for node_id, node in sorted((decision.expected or {}).items()):
        for resource, table in sorted(((node and node.memory_map) or {}).items()):
            if table is not None and table.allocatable > table.total:
                found.append(
                    f"{resource} on NUMA node {node_id}: more is reserved than there is, and "
                    f"kubelet's arithmetic wraps to {table.allocatable} bytes allocatable"
                )
    return found
