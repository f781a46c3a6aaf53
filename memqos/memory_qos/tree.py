"""Which cgroup is what: kubelet's roles read off the paths of a live tree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from memqos.errors import InputError
from memqos.memory_qos.identity import Identity, PodNames
from memqos.memory_qos.plan import (
    BESTEFFORT,
    BURSTABLE,
    KUBE_RESERVED,
    KUBEPODS,
    SYSTEM_RESERVED,
    CgroupPlan,
)
from memqos.memory_qos.protection import parent_of
from memqos.pods import Pod, QOSClass


__all__ = [
    "PARTITION",
    "Matched",
    "desired_after_rollback",
    "find_pod",
    "identify",
    "match_plan",
    "pods_of_node",
]

#: Prefix of the roles in the subtree that the gate NodeSystemPartition adds after 1.37.
PARTITION = "system:"

_KUBEPODS = re.compile(r"(?:.*-)?kubepods(?:\.slice)?")
_PARTITION = re.compile(r"(?:(?:.*-)?kubepods-)?system(?:\.slice)?")
_QOS = re.compile(r"(?:(?:.*-)?kubepods-(?:system-)?)?(burstable|besteffort)(?:\.slice)?")
_POD = re.compile(
    r"(?:(?:.*-)?kubepods(?:-system)?(?:-burstable|-besteffort)?-)?"
    r"pod([0-9a-zA-Z_-]+?)(\.slice)?"
)
_CONTAINER = re.compile(r"(?:cri-containerd-|crio-|docker-)?([0-9a-f]{12,64})(?:\.scope)?")
_CLASSES = {"burstable": QOSClass.BURSTABLE, "besteffort": QOSClass.BEST_EFFORT}


_OTHER = Identity("")


def identify(paths: Iterable[str]) -> Mapping[str, Identity]:
    """Tell what each cgroup is, for either driver and any cgroupRoot.

    Args:
        paths: absolute within the mount, parents before children.
    """
    found: dict[str, Identity] = {}
    for path in paths:
        found[path] = _identify(path, found.get(parent_of(path), _OTHER))
    return found


def _identify(path: str, parent: Identity) -> Identity:
    name = path.rpartition("/")[2]
    base = parent.role.removeprefix(PARTITION)
    if base in (KUBEPODS, BURSTABLE, BESTEFFORT):
        prefix = parent.role.removesuffix(base)
        if base == KUBEPODS and (match := _QOS.fullmatch(name)):
            return Identity(prefix + (BURSTABLE if match[1] == "burstable" else BESTEFFORT))
        if match := _POD.fullmatch(name):
            uid = match[1].replace("_", "-") if match[2] else match[1]
            qos = _CLASSES.get(base.removeprefix("qos:"), QOSClass.GUARANTEED)
            return Identity(f"pod:{uid}", uid, None, qos)
        if parent.role == KUBEPODS and _PARTITION.fullmatch(name):
            return Identity(PARTITION + KUBEPODS)
        return _OTHER
    if parent.uid is not None and parent.container_id is None:
        if match := _CONTAINER.fullmatch(name):
            role = f"container:{parent.uid}/{match[1]}"
            return Identity(role, parent.uid, match[1], parent.qos)
        return Identity("", parent.uid, None, parent.qos)
    if _KUBEPODS.fullmatch(name) and not parent.role:
        return Identity(KUBEPODS)
    return _OTHER


def find_pod(
    identities: Mapping[str, Identity], names: PodNames, pod: str, container: str | None = None
) -> tuple[str, ...]:
    """Return the paths of a pod, or of its containers of a name.

    Args:
        identities: of every path.
        names: of pods and containers, as far as they are known.
        pod: ``namespace/name``, or a UID.
        container: its name, or the beginning of its id.

    Raises:
        InputError: there is no such pod or container.
    """
    uids = {uid for uid, name in names.pods.items() if name == pod} or {pod}
    found = {path: item for path, item in identities.items() if item.uid in uids and item.role}
    if not found:
        hint = (
            "; names are known from --pods or /var/log/pods only, so give its UID"
            if "/" in pod and not names.pods
            else ""
        )
        raise InputError(f"no such pod in the tree{hint}", source=pod)
    if container is None:
        return tuple(path for path, item in found.items() if item.container_id is None)
    inner = tuple(
        path
        for path, item in found.items()
        if item.container_id is not None
        and (
            names.containers.get(item.container_id) == container
            or (len(container) >= 6 and item.container_id.startswith(container))
        )
    )
    if not inner:
        raise InputError("no such container in the pod", source=f"{pod}: {container}")
    return inner


def desired_after_rollback(
    identities: Mapping[str, Identity],
    actual: Mapping[str, Mapping[str, str]],
    reserved: Iterable[str] = (),
) -> Mapping[str, Mapping[str, str]]:
    """Return what a node without Memory QoS has, whatever its pods are.

    Limits are none of Memory QoS' business, so they are desired as they are.

    Args:
        identities: of every path.
        actual: path to files.
        reserved: the paths of reserved cgroups; their memory.high is not kubelet's.
    """
    found: dict[str, Mapping[str, str]] = {}
    for path, identity in identities.items():
        if identity.role:
            found[path] = _limits(actual.get(path, {})) | _DEFAULTS
    for path in reserved:
        if path in actual:
            files = actual[path]
            found[path] = (
                _limits(files)
                | _DEFAULTS
                | {
                    name: files[name].strip()
                    for name in ("memory.low", "memory.high")
                    if name in files
                }
            )
    return found


_DEFAULTS = {"memory.min": "0", "memory.low": "0", "memory.high": "max"}


def _limits(files: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text.strip()
        for name, text in files.items()
        if name in ("memory.max", "memory.swap.max")
    }


def pods_of_node(
    pods: Sequence[Pod], identities: Mapping[str, Identity], node: str | None = None
) -> tuple[Pod, ...]:
    """Choose the pods of the node that a tree is of: those in it, and those that should be.

    Those of other nodes have no cgroup in it, and neither have pods that are not scheduled. Where
    no pod says its node, all are taken to be on it.

    Args:
        pods: of one node or of many.
        identities: of every path.
        node: its name; by default the one that most pods in the tree say, or the only one that
            pods say at all.
    """
    present = {item.uid for item in identities.values()}
    named = [pod for pod in pods if pod.node]
    if not named:
        return tuple(pods)
    if node is None:
        inside = [pod for pod in named if pod.uid in present]
        names = Counter(pod.node for pod in inside or named)
        node = names.most_common(1)[0][0] if inside or len(names) == 1 else None
    return tuple(pod for pod in pods if pod.uid in present or (node and pod.node == node))


class Matched(NamedTuple):
    """A plan laid over a tree.

    Attributes:
        roles: path to the plan's role, for what is kubelet's.
        desired: path to the planned files, for what a plan names.
        missing: role to path of what is planned and not there.
    """

    roles: Mapping[str, str]
    desired: Mapping[str, Mapping[str, str]]
    missing: Mapping[str, str]


def match_plan(
    identities: Mapping[str, Identity],
    plan: CgroupPlan,
    pods: Iterable[Pod],
    container_ids: Mapping[str, str],
) -> Matched:
    """Find the planned cgroups in a tree.

    Args:
        identities: of every path.
        plan: for the same pods.
        pods: with their UIDs.
        container_ids: container id to role, as far as the pods' status tells; other containers
            of a pod, its sandbox among them, are left alone.
    """
    names = {pod.uid: pod.path for pod in pods if pod.uid is not None}
    planned = {cgroup.role: cgroup for cgroup in plan.cgroups}
    roles: dict[str, str] = {}
    for path, identity in identities.items():
        role = identity.role
        if identity.container_id is not None:
            role = container_ids.get(identity.container_id, "")
        elif identity.uid is not None and role:
            role = f"pod:{names[identity.uid]}" if identity.uid in names else role
        roles[path] = role
    for role in (SYSTEM_RESERVED, KUBE_RESERVED):
        if role in planned and f"/{planned[role].path}" in identities:
            roles[f"/{planned[role].path}"] = role
    present = set(roles.values())
    known = set(container_ids.values())
    missing = {
        role: f"/{cgroup.path}"
        for role, cgroup in planned.items()
        if role not in present and (cgroup.container is None or role in known)
    }
    desired = {path: planned[role].files for path, role in roles.items() if role in planned}
    return Matched(roles, desired, missing)
