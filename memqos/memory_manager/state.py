"""Memory Manager's records, under kubelet's own names.

Maps and sequences that Go can leave nil are None then: the checksum tells nil from empty.
Mappings are never changed after they were made. The three records that a checkpoint holds by the
hundred are tuples, which are made in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from attrs import frozen


__all__ = [
    "MEMORY",
    "UINT64",
    "Block",
    "CheckpointContent",
    "ContainerAssignments",
    "MachineState",
    "MemoryTable",
    "NUMANodeState",
    "PodAssignments",
    "is_hugepages",
]

MEMORY = "memory"

# All of kubelet's arithmetic on sizes is modulo 2^64, unchecked.
UINT64 = 2**64 - 1


class MemoryTable(NamedTuple):
    """One resource of one NUMA node; bytes, unsigned 64 bit."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class NUMANodeState(NamedTuple):
    """One NUMA node.

    Attributes:
        number_of_assignments: blocks that touch this node.
        memory_map: resource name (``memory``, ``hugepages-2Mi``) to table; a None table is Go's
            nil pointer, on which kubelet crashes.
        cells: NUMA node ids of this node's group.
    """

    number_of_assignments: int = 0
    memory_map: Mapping[str, MemoryTable | None] | None = None
    cells: tuple[int, ...] | None = None


class Block(NamedTuple):
    """Memory pinned for one container: `size` bytes of `type` on the nodes of `numa_affinity`."""

    numa_affinity: tuple[int, ...] | None = None
    type: str = ""
    size: int = 0


MachineState: TypeAlias = "Mapping[int, NUMANodeState | None]"
#: pod UID to container name to blocks
ContainerAssignments: TypeAlias = "Mapping[str, Mapping[str, tuple[Block, ...] | None] | None]"
#: pod UID to pod-level blocks
PodAssignments: TypeAlias = "Mapping[str, tuple[Block, ...] | None]"


@frozen(kw_only=True)
class CheckpointContent:
    """What a checkpoint says, apart from its format and checksum."""

    policy_name: str = ""
    machine_state: MachineState | None = None
    entries: ContainerAssignments | None = None
    pod_entries: PodAssignments | None = None

    @property
    def block_count(self) -> int:
        """Blocks assigned to containers and pods."""
        lists = [
            blocks
            for containers in (self.entries or {}).values()
            for blocks in (containers or {}).values()
        ]
        lists += (self.pod_entries or {}).values()
        return sum(len(blocks or ()) for blocks in lists)


def is_hugepages(resource: str) -> bool:
    """Tell whether a resource name is a hugepage size."""
    return resource.startswith("hugepages-")
