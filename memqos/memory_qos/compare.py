"""Two configurations or releases on the same pods: what changes, and when it takes effect."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from memqos.memory_qos.config import MemoryQOSConfig
from memqos.memory_qos.plan import CgroupPlan
from memqos.memory_qos.transition import Event, after, initial_state


__all__ = ["PlanChange", "When", "compare_plans"]


class When(StrEnum):
    """The first event after which a file has its new value."""

    KUBELET_START = "kubelet-start"
    RESIZE = "resize"
    CONTAINER_RESTART = "container-restart"
    POD_RECREATE = "pod-recreate"
    NEVER = "never"


class PlanChange(NamedTuple):
    """One file whose value changes.

    Attributes:
        role: of the cgroup.
        path: of the cgroup, in the new plan; in the old one where only that has it.
        file: its name.
        before: the value now, None where the cgroup is not managed now.
        after: the value in the end, None where nobody manages the cgroup any more.
        when: the first event that brings it; until then the file is stale.
    """

    role: str
    path: str
    file: str
    before: str | None
    after: str | None
    when: When


_STEPS = (
    (Event.RESIZE, When.RESIZE),
    (Event.CONTAINER_RESTART, When.CONTAINER_RESTART),
    (Event.POD_RECREATE, When.POD_RECREATE),
)


def compare_plans(
    old: CgroupPlan, new_config: MemoryQOSConfig, new: CgroupPlan
) -> tuple[PlanChange, ...]:
    """Compare a node as it runs under one plan with the kubelet of another.

    Args:
        old: the plan under which every running pod was started.
        new_config: what the kubelet will start with.
        new: its plan for the same pods.
    """
    started = initial_state(old)
    target = initial_state(new)
    restarted = after(started, Event.KUBELET_RESTART, new_config, new)
    later = [(after(restarted, event, new_config, new), when) for event, when in _STEPS]
    states = [(restarted, When.KUBELET_START), *later]
    paths = {cgroup.role: cgroup.path for plan in (old, new) for cgroup in plan.cgroups}
    # What a plan writes counts as managed, and only that can be compared.
    written = {
        (cgroup.role, name)
        for plan in (old, new)
        for cgroup in plan.cgroups
        for name in cgroup.files
    }
    changes = []
    for role, path in paths.items():
        if role not in started or role not in target:
            values = started.get(role) or target.get(role) or {}
            is_new = role not in started
            changes += [
                PlanChange(
                    role,
                    path,
                    name,
                    None if is_new else value,
                    value if is_new else None,
                    When.KUBELET_START if is_new else When.NEVER,
                )
                for name, value in values.items()
                if (role, name) in written
            ]
            continue
        for name, before in started[role].items():
            wanted = target[role][name]
            if (role, name) not in written or before == wanted:
                continue
            when = next(
                (when for state, when in states if state[role][name] == wanted), When.NEVER
            )
            changes.append(PlanChange(role, path, name, before, wanted, when))
    return tuple(changes)
