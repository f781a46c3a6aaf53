"""What a cgroup is, and what its pod and container are called as far as it is known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:  # adapters that only read need none of them at run time
    from memqos.pods import Pod, QOSClass


__all__ = ["NO_NAMES", "Identity", "PodNames", "names_of_logs", "names_of_pods"]

_LOG = re.compile(r"[^_]+_[^_]+_([^_]+)-([0-9a-f]{12,64})\.log")


class Identity(NamedTuple):
    """What a cgroup is.

    Attributes:
        role: as plans name it; ``pod:<uid>`` and ``container:<uid>/<id>`` before a plan is
            matched; empty for what is not kubelet's.
        uid: the pod's, None outside pods.
        container_id: None outside containers.
        qos: the class, None outside pods.
    """

    role: str
    uid: str | None = None
    container_id: str | None = None
    qos: QOSClass | None = None


class PodNames(NamedTuple):
    """What pods and containers are called.

    Attributes:
        pods: UID to ``namespace/name``.
        containers: id to the container's name.
    """

    pods: Mapping[str, str]
    containers: Mapping[str, str]

    def label(self, identity: Identity) -> str:
        """Call a pod or container by name; empty where the name is not known."""
        if identity.uid is None or not identity.role:
            return ""
        pod = self.pods.get(identity.uid, "")
        if identity.container_id is None:
            return pod
        container = self.containers.get(identity.container_id, "")
        return f"{pod} {container}".strip()


NO_NAMES = PodNames({}, {})


def names_of_pods(pods: Iterable[Pod]) -> PodNames:
    """Take names from pods with their UIDs."""
    known = [pod for pod in pods if pod.uid is not None]
    return PodNames(
        {pod.uid or "": f"{pod.namespace}/{pod.name}" for pod in known},
        {identifier: name for pod in known for name, identifier in pod.container_ids},
    )


def names_of_logs(pods: Iterable[str], containers: Iterable[str]) -> PodNames:
    """Take names from those of kubelet's log directories and links; others are left out.

    Args:
        pods: such as ``kube-system_coredns-x_5f0c9a1e-…``.
        containers: such as ``coredns-x_kube-system_coredns-0201….log``.
    """
    uids = {}
    for name in pods:
        parts = name.split("_")
        if len(parts) == 3 and all(parts):
            uids[parts[2]] = f"{parts[0]}/{parts[1]}"
    ids = {}
    for name in containers:
        match = _LOG.fullmatch(name)
        if match is not None:
            ids[match[2]] = match[1]
    return PodNames(uids, ids)
