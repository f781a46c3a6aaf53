"""Which pods the OOM handler can kill, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from memqos.oom.classes import OOMClass
from memqos.oom.config import OOMConfig
from memqos.oom.victim import MOUNT, Candidate, score
from memqos.pods import (
    ContainerRole,
    Pod,
    QOSClass,
    limits_declared,
    pod_limit,
    qos_class,
    to_bytes,
)


__all__ = ["KillablePod", "find_killable"]

_CLASSES = {
    QOSClass.BEST_EFFORT: OOMClass.BESTEFFORT,
    QOSClass.BURSTABLE: OOMClass.BURSTABLE,
    QOSClass.GUARANTEED: OOMClass.GUARANTEED,
}
_FOLDERS = {
    OOMClass.BESTEFFORT: "kubepods/besteffort",
    OOMClass.BURSTABLE: "kubepods/burstable",
    OOMClass.GUARANTEED: "kubepods",
}

# Usage is not known yet; any that is above 0 tells whether a pod can be chosen at all.
_SAMPLE = 1024 * 1024 * 1024


class KillablePod(NamedTuple):
    """One pod.

    Attributes:
        pod: ``Kind/namespace/name``.
        oom_class: its class.
        memory_max: of its cgroup; bytes, None for no limit.
        eligible: whether it can ever be chosen; None where the expression fails for it.
        order: which class goes first, from 1; None if it is not eligible.
        reason: why.
        remedy: what would protect it, None if it is protected.
    """

    pod: str
    oom_class: OOMClass
    memory_max: int | None
    eligible: bool | None
    order: int | None
    reason: str
    remedy: str | None


def find_killable(pods: Iterable[Pod], config: OOMConfig) -> tuple[KillablePod, ...]:
    """Judge every active pod, in order."""
    judged = [_judge(pod, config) for pod in pods if pod.active]
    classes = sorted({item.oom_class for item in judged if item.eligible})
    if not config.strict:
        return tuple(item._replace(order=1) if item.eligible else item for item in judged)
    return tuple(
        item._replace(order=classes.index(item.oom_class) + 1) if item.eligible else item
        for item in judged
    )


def _judge(pod: Pod, config: OOMConfig) -> KillablePod:
    qos = qos_class(pod)
    oom_class = _CLASSES[qos]
    limit = to_bytes(pod_limit(pod))
    if qos is QOSClass.BEST_EFFORT or not limits_declared(pod):
        limit = 0
    path = f"{MOUNT}/{_FOLDERS[oom_class]}/pod{pod.uid or '?'}"
    candidate = Candidate(path, oom_class, _SAMPLE, _SAMPLE, limit or None, _SAMPLE)
    scored = score(candidate, config.ranking)
    found = KillablePod(pod.path, oom_class, limit or None, scored.eligible, None, "", None)
    if scored.error is not None:
        return found._replace(
            eligible=None,
            reason=f"the ranking expression fails for it: {scored.error}",
            remedy="correct the ranking expression",
        )
    if scored.eligible:
        return found._replace(
            reason=f"scores {scored.score:g} at 1 GiB of use; {_why_unlimited(pod, qos)}",
            remedy=_remedy(pod, config, oom_class),
        )
    if limit:
        return found._replace(reason=f"its cgroup has a limit of {limit} bytes")
    return found._replace(reason=f"class {oom_class.label} scores {scored.score:g}")


def _without_limit(pod: Pod) -> list[str]:
    return [
        container.name
        for container in pod.containers
        if not container.limits.memory and container.role is not ContainerRole.EPHEMERAL
    ]


def _why_unlimited(pod: Pod, qos: QOSClass) -> str:
    missing = _without_limit(pod)
    if qos is QOSClass.BEST_EFFORT or len(missing) == len(pod.containers):
        return "no container has a memory limit"
    if missing:
        return f"its cgroup has no limit, as these have none: {', '.join(missing)}"
    return "whatever its limit is"


def _remedy(pod: Pod, config: OOMConfig, oom_class: OOMClass) -> str:
    candidate = Candidate("", oom_class, _SAMPLE, _SAMPLE, 2 * _SAMPLE, _SAMPLE)
    limited = score(candidate, config.ranking)
    if limited.score is not None and not limited.eligible:
        missing = ", ".join(_without_limit(pod)) or "the pod"
        return f"a memory limit on {missing}"
    return "another class or weight in the ranking expression; a limit does not protect it"
