"""Reading a Kubernetes node: its NUMA nodes, its kernel image, its kubelet's files."""

from __future__ import annotations

import errno
import os
import re

from memqos.adapters.files import read_file
from memqos.adapters.host import Host
from memqos.errors import InputError, MachineError
from memqos.memory_manager.iomem import KernelImage, find_image
from memqos.memory_manager.machine import (
    Hugepages,
    Machine,
    NUMANode,
    parse_hugepages_directory,
    parse_mem_total,
)


__all__ = [
    "CHECKPOINT",
    "CHECKPOINT_LIMIT",
    "IOMEM",
    "KUBELET_CONFIG",
    "read_capacity",
    "read_checkpoint",
    "read_image",
    "read_kernel",
    "read_machine",
]

CHECKPOINT = "var/lib/kubelet/memory_manager_state"
KUBELET_CONFIG = "var/lib/kubelet/config.yaml"
IOMEM = "proc/iomem"
_MEMINFO = "proc/meminfo"
_NODES = "sys/devices/system/node"
_NODE = re.compile(r"node(0|[1-9][0-9]{0,8})")

#: A thousand pinned containers need a tenth of this.
CHECKPOINT_LIMIT = 4 * 1024 * 1024

_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


def read_checkpoint(
    host: Host, path: str | None = None, *, directory_required: bool = True
) -> bytes | None:
    """Read a checkpoint, None when there is none.

    Args:
        host: whose kubelet it is.
        path: a file as given by the user, outside the root; kubelet's own by default.
        directory_required: a missing directory is an error: a wrong path, or a wrong mount.

    Raises:
        MachineError: it cannot be read, or its directory does not exist either.
    """
    try:
        if path is None:
            return host.read(CHECKPOINT, limit=CHECKPOINT_LIMIT)
        return read_file(path, limit=CHECKPOINT_LIMIT)
    except MachineError as error:
        if error.errno != errno.ENOENT or path == "":
            raise
        directory = os.path.dirname(CHECKPOINT if path is None else path)
        known = host.exists(directory) if path is None else os.path.isdir(directory or ".")
        if directory_required and not known:
            shown = host.display(directory) if path is None else directory
            raise MachineError(shown, "no such directory: has a kubelet run here?") from None
        return None


def read_image(host: Host) -> KernelImage:
    """Read the kernel image from ``proc/iomem``.

    Raises:
        MachineError: the file cannot be read.
    """
    return find_image(host.read_text(IOMEM))


def read_machine(host: Host) -> tuple[Machine, tuple[str, ...]]:
    """Read the NUMA nodes as cAdvisor does, and what looked odd on the way.

    A node that vanishes meanwhile is left out, a node whose meminfo cannot be read counts 0 bytes.

    Raises:
        MachineError: there are no NUMA nodes to read, or no permission to.
        InputError: a file is not in the kernel's form; `source` says which.
    """
    try:
        names = host.list(_NODES)
    except MachineError as error:
        if error.errno not in _GONE:
            raise
        raise MachineError(
            host.display(_NODES), "no such directory; give --machine-info instead", error.errno
        ) from None
    nodes = []
    warnings: list[str] = []
    for name in names:
        match = _NODE.fullmatch(name)
        if match is None:
            continue
        node = _read_node(host, int(match[1]), f"{_NODES}/{name}", warnings)
        if node is not None:
            nodes.append(node)
    if not nodes:
        raise MachineError(host.display(_NODES), "has no NUMA nodes; give --machine-info instead")
    nodes.sort(key=lambda node: node.id)
    return Machine(tuple(nodes), _read_capacity(host, nodes)), tuple(warnings)


def _read_node(host: Host, node_id: int, path: str, warnings: list[str]) -> NUMANode | None:
    meminfo = f"{path}/meminfo"
    try:
        memory_bytes = parse_mem_total(host.read_text(meminfo))
    except InputError as error:
        raise error.locate(source=host.display(meminfo)) from None
    except MachineError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise
        if not host.exists(path):
            warnings.append(f"NUMA node {node_id} vanished while it was read")
            return None
        warnings.append(f"{error}; kubelet counts NUMA node {node_id} as 0 bytes then")
        memory_bytes = 0
    return NUMANode(node_id, memory_bytes, _read_hugepages(host, f"{path}/hugepages"))


def _read_hugepages(host: Host, path: str) -> tuple[Hugepages, ...]:
    try:
        names = host.list(path)
    except MachineError as error:
        if error.errno not in _GONE:
            raise
        return ()
    hugepages = []
    for name in names:
        source = f"{path}/{name}/nr_hugepages"
        try:
            hugepages.append(parse_hugepages_directory(name, host.read_text(source)))
        except InputError as error:
            raise error.locate(source=host.display(source)) from None
    return tuple(hugepages)


def read_kernel(host: Host) -> str | None:
    """Read the running kernel's release, None where it cannot be told."""
    try:
        return host.read_text("proc/sys/kernel/osrelease").strip()
    except MachineError:
        return None


def read_capacity(host: Host) -> int | None:
    """Read the machine's MemTotal in bytes, None where it cannot be told."""
    try:
        return parse_mem_total(host.read_text(_MEMINFO))
    except (InputError, MachineError):
        return None


def _read_capacity(host: Host, nodes: list[NUMANode]) -> int:
    """Read the machine's MemTotal, which only percentages need; the nodes' sum stands in."""
    capacity = read_capacity(host)
    return sum(node.memory_bytes for node in nodes) if capacity is None else capacity
