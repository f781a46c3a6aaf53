"""What stays behind: cgroup files after a kubelet restart, a roll-back, a resize.

A plan says what kubelet writes; this says when. Files of running pods and containers change only
where kubelet or the runtime writes them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from memqos.memory_qos.config import MemoryQOSConfig
from memqos.memory_qos.plan import BURSTABLE, KUBEPODS, CgroupPlan


__all__ = ["KERNEL_DEFAULTS", "Event", "State", "after", "initial_state"]

#: role to file name to value
State: TypeAlias = "Mapping[str, Mapping[str, str]]"

#: What a new cgroup has before anybody writes.
KERNEL_DEFAULTS: Mapping[str, str] = {
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
}

_PROTECTION = ("memory.min", "memory.low", "memory.high")


class Event(StrEnum):
    """What happens to a node."""

    KUBELET_RESTART = "kubelet-restart"
    KUBELET_UPGRADE = "kubelet-upgrade"
    QOS_RECONCILE = "qos-reconcile"
    RESIZE = "resize"
    CONTAINER_RESTART = "container-restart"
    POD_RECREATE = "pod-recreate"


def initial_state(plan: CgroupPlan) -> State:
    """Return the files of a node whose pods were all started under a plan."""
    return {
        cgroup.role: {
            name: cgroup.files.get(name, default) for name, default in KERNEL_DEFAULTS.items()
        }
        for cgroup in plan.cgroups
    }


def after(
    state: State,
    event: Event,
    config: MemoryQOSConfig,
    plan: CgroupPlan,
    *,
    unified_update: bool = True,
) -> State:
    """Return the files after an event.

    Args:
        state: the files before; roles and files that it does not name are left out.
        event: what happens; `RESIZE` reaches every pod and container.
        config: Memory QoS of the kubelet that runs from now on.
        plan: what that kubelet would write, for the pods as they are from now on.
        unified_update: whether the runtime applies the unified map on update; CRI-O does since
            March 2026.
    """
    planned = {cgroup.role: cgroup.files for cgroup in plan.cgroups}
    return {
        role: _after(role, files, planned.get(role, {}), event, config, update=unified_update)
        for role, files in state.items()
    }


def _after(
    role: str,
    files: Mapping[str, str],
    planned: Mapping[str, str],
    event: Event,
    config: MemoryQOSConfig,
    *,
    update: bool,
) -> Mapping[str, str]:
    kind = role.partition(":")[0]
    if kind == "container":
        if event in (Event.CONTAINER_RESTART, Event.POD_RECREATE):
            return _made_anew(files, planned)
        if event is Event.RESIZE:
            return _written(files, planned if update else _without_unified(planned))
        return files
    if kind == "pod":
        if event is Event.POD_RECREATE:
            return _made_anew(files, planned)
        if event is Event.RESIZE:
            return _resized_pod(files, planned, config)
        return files
    if role in (KUBEPODS, BURSTABLE):
        starts = event in (Event.KUBELET_RESTART, Event.KUBELET_UPGRADE)
        # With the gate off 1.36 never touches them again, 1.37 resets them once, at its start.
        if starts or (config.enabled and event is not Event.CONTAINER_RESTART):
            return _written(files, planned)
        return files
    # Reserved cgroups are written at kubelet's start, and nothing ever resets their memory.min.
    return (
        _written(files, planned)
        if event in (Event.KUBELET_RESTART, Event.KUBELET_UPGRADE)
        else files
    )


def _made_anew(files: Mapping[str, str], planned: Mapping[str, str]) -> Mapping[str, str]:
    return {
        name: planned.get(name, KERNEL_DEFAULTS.get(name, value)) for name, value in files.items()
    }


def _written(files: Mapping[str, str], planned: Mapping[str, str]) -> Mapping[str, str]:
    return {name: planned.get(name, value) for name, value in files.items()}


def _without_unified(planned: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in planned.items() if name == "memory.max"}


def _resized_pod(
    files: Mapping[str, str], planned: Mapping[str, str], config: MemoryQOSConfig
) -> Mapping[str, str]:
    """Rewrite a pod's cgroup: 1.37 follows with its protection when memory.max changes.

    A resize of requests alone leaves them (fixed after 1.37); 1.36 never rewrites them.
    """
    before = files.get("memory.max", planned.get("memory.max"))
    if before == planned.get("memory.max", before):
        return files
    names = ("memory.max", *(_PROTECTION if config.is_beta else ()))
    return _written(files, {name: planned[name] for name in names if name in planned})
