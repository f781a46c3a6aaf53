"""Where kubelet's cgroups lie, relative to the cgroup2 mount."""

from __future__ import annotations

from enum import StrEnum

from memqos.pods import QOSClass


__all__ = [
    "Driver",
    "Runtime",
    "cgroup_name",
    "container_path",
    "kubepods_path",
    "pod_path",
    "qos_path",
    "reserved_path",
]


class Driver(StrEnum):
    """kubelet's cgroup driver."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class Runtime(StrEnum):
    """Container runtimes, by how they name a container's cgroup."""

    CONTAINERD = "containerd"
    CRI_O = "cri-o"
    CRI_DOCKERD = "cri-dockerd"


_SCOPES = {
    Runtime.CONTAINERD: "cri-containerd-",
    Runtime.CRI_O: "crio-",
    Runtime.CRI_DOCKERD: "docker-",
}


def cgroup_name(components: tuple[str, ...], driver: Driver) -> str:
    """Join kubelet's internal components.

    With systemd ``-`` becomes ``_`` inside a component, the components are joined by ``-``, and
    every prefix is a directory of its own.
    """
    if driver is Driver.CGROUPFS:
        return "/".join(components)
    escaped = [component.replace("-", "_") for component in components]
    names = ["-".join(escaped[: index + 1]) + ".slice" for index in range(len(escaped))]
    return "/".join(names)


def kubepods_path(driver: Driver, cgroup_root: str = "/") -> str:
    """Return the path of kubepods; `cgroup_root` is a cgroupfs path whatever the driver."""
    return cgroup_name(_kubepods(cgroup_root), driver)


def qos_path(qos: QOSClass, driver: Driver, cgroup_root: str = "/") -> str:
    """Return the path of a class' cgroup; Guaranteed pods are directly in kubepods."""
    return cgroup_name(_qos(qos, cgroup_root), driver)


def pod_path(qos: QOSClass, uid: str, driver: Driver, cgroup_root: str = "/") -> str:
    """Return the path of a pod's cgroup."""
    return cgroup_name((*_qos(qos, cgroup_root), f"pod{uid}"), driver)


def container_path(pod: str, container_id: str, driver: Driver, runtime: Runtime) -> str:
    """Return the path of a container's cgroup below its pod's."""
    if driver is Driver.SYSTEMD:
        return f"{pod}/{_SCOPES[runtime]}{container_id}.scope"
    prefix = "crio-" if runtime is Runtime.CRI_O else ""
    return f"{pod}/{prefix}{container_id}"


def reserved_path(cgroup: str, driver: Driver) -> str:
    """Return the path of ``systemReservedCgroup`` or ``kubeReservedCgroup``.

    With systemd only the base name counts, less ``.slice``; each ``-`` in it is a level.
    """
    if driver is Driver.CGROUPFS:
        return cgroup.strip("/")
    base = cgroup.rstrip("/").rpartition("/")[2].removesuffix(".slice")
    return cgroup_name(tuple(base.split("-")), driver)


def _kubepods(cgroup_root: str) -> tuple[str, ...]:
    return (*(part for part in cgroup_root.split("/") if part), "kubepods")


def _qos(qos: QOSClass, cgroup_root: str) -> tuple[str, ...]:
    names = {QOSClass.BURSTABLE: ("burstable",), QOSClass.BEST_EFFORT: ("besteffort",)}
    return (*_kubepods(cgroup_root), *names.get(qos, ()))
