"""What the scripts in the guest share: kubelet's checkpoint, made from the node's own /sys."""

from pathlib import Path

from attrs import evolve

from memqos.adapters.host import Host
from memqos.adapters.node import read_machine
from memqos.memory_manager.assignments import AssignmentFailure, apply_assignments, assignments
from memqos.memory_manager.encoding import encode_v3
from memqos.memory_manager.machine import default_state
from memqos.memory_manager.state import Block, CheckpointContent, ContainerAssignments


KUBELET = Path("/var/lib/kubelet")
CHECKPOINT = KUBELET / "memory_manager_state"
MIB = 1 << 20
# Of each NUMA node.
RESERVED_BYTES = 100 * MIB
#: A pod that is pinned to node 0.
DATABASE: ContainerAssignments = {
    "5b0c2f0e-0d0f-4f3f-9d1c-6f6b3c1f0a01": {"database": (Block((0,), "memory", 256 * MIB),)},
}


def checkpoint(entries: ContainerAssignments, *, gained_bytes: int = 0) -> str:
    """Return what kubelet writes on this boot, or wrote before each node gained so much memory."""
    machine, _ = read_machine(Host("/"))
    nodes = tuple(
        node._replace(memory_bytes=node.memory_bytes - gained_bytes) for node in machine.nodes
    )
    reserved = {node.id: {"memory": RESERVED_BYTES} for node in nodes}
    idle = default_state(evolve(machine, nodes=nodes), reserved)
    state = apply_assignments(idle, assignments(entries, None))
    if isinstance(state, AssignmentFailure):
        raise SystemExit(state.message)
    content = CheckpointContent(policy_name="Static", machine_state=state, entries=entries)
    return encode_v3(content)
