"""Re-baselining a checkpoint: the file that a tolerant kubelet would write, for any kubelet.

The machine state is the re-derived one, assignments are untouched, and the format stays what it
was, so a kubelet that compares exactly starts with it.
"""

from __future__ import annotations

from typing import NamedTuple

from attrs import evolve, frozen

from memqos.memory_manager.checkpoint import Format, LoadedCheckpoint, LoadFailure, load
from memqos.memory_manager.encoding import (
    encode_v1,
    encode_v2,
    encode_v3,
    machine_state_document,
)
from memqos.memory_manager.machine import Machine
from memqos.memory_manager.reasons import Reason, Verdict
from memqos.memory_manager.state import MachineState
from memqos.memory_manager.validation import Settings, StartDecision, validate_start


__all__ = ["Change", "Rebaseline", "RebaselineRefusal", "rebaseline"]

_ENCODERS = {Format.V1: encode_v1, Format.V2: encode_v2, Format.V3: encode_v3}
_FIRST_MINOR_WITH_V3 = 37


class Change(NamedTuple):
    """One value of the machine state that changes; `path` is its JSON path in the checkpoint."""

    path: str
    recorded: object
    now: object


@frozen
class Rebaseline:
    """What to write.

    Attributes:
        text: the whole file, as kubelet's Go would write it.
        format: unchanged.
        changes: what differs from the recorded machine state.
    """

    text: str
    format: Format
    changes: tuple[Change, ...]


@frozen
class RebaselineRefusal:
    """Why nothing is written: a sentence."""

    message: str


def rebaseline(
    decision: StartDecision,
    settings: Settings,
    machine: Machine,
    checkpoint: LoadedCheckpoint | LoadFailure | None,
    data: bytes,
) -> Rebaseline | RebaselineRefusal | None:
    """Work out the re-baselined file.

    Args:
        decision: what `validate_start` said of the same inputs.
        settings: kubelet's configuration.
        machine: the NUMA nodes now.
        checkpoint: as the kubelet loads it.
        data: the file itself.

    Returns:
        The file; None when there is nothing to do; a refusal unless the verdict is `TOLERATED`
        and a kubelet without any tolerance is certain to start with the result.
    """
    if decision.verdict is Verdict.EXACT:
        return None
    if (
        decision.verdict is not Verdict.TOLERATED
        or decision.state_after is None
        or not isinstance(checkpoint, LoadedCheckpoint)
    ):
        return RebaselineRefusal(f"the verdict is {decision.verdict} ({decision.reason})")
    stored = checkpoint.content.machine_state or {}
    whole = _as_in_file(checkpoint, data)
    if whole is None:
        return RebaselineRefusal(
            "this is a v3 file whose data contradicts the copy that the older kubelet reads"
        )
    content = evolve(whole.content, machine_state=decision.state_after)
    text = _ENCODERS[whole.format](content)
    again = load(text.encode(), kubelet_minor=settings.kubelet_minor)
    exact = evolve(settings, policy_options={})
    check = validate_start(exact, machine, again, None)
    if check.reason is not Reason.EQUAL or check.order_dependent:
        return RebaselineRefusal(
            "pinned pods use overlapping NUMA groups, and kubelet re-derives them in random "
            "order: no file makes its start certain"
        )
    return Rebaseline(text, whole.format, _changes(stored, decision.state_after))


def _as_in_file(checkpoint: LoadedCheckpoint, data: bytes) -> LoadedCheckpoint | None:
    """Return the checkpoint in the file's own format, which an older kubelet may not know.

    1.36 and earlier read a v3 file through its v1 copy.
    """
    newest = load(data, kubelet_minor=_FIRST_MINOR_WITH_V3)
    if checkpoint.format is Format.V3 or (
        isinstance(newest, LoadedCheckpoint) and newest.format is not Format.V3
    ):
        return checkpoint
    if not isinstance(newest, LoadedCheckpoint):
        return checkpoint if newest.format is not Format.V3 else None
    copy = evolve(newest.content, pod_entries=checkpoint.content.pod_entries)
    return newest if copy == checkpoint.content else None


def _changes(stored: MachineState, now: MachineState) -> tuple[Change, ...]:
    before, after = machine_state_document(stored), machine_state_document(now)
    return tuple(_differences("$.machineState", before, after))


def _differences(path: str, before: object, after: object) -> list[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            change
            for key in [*before, *(key for key in after if key not in before)]
            for change in _differences(f"{path}.{key}", before.get(key), after.get(key))
        ]
    return [] if before == after else [Change(path, before, after)]
