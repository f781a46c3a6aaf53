"""Cold start of ``validate-checkpoint`` beside the imports it cannot do without.

Prints ratios of wall time, measured alternately in one run, and peak memory. The targets are 1.5
for JSON and 2 for text.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from _run import run

from memqos.adapters.host import Host
from memqos.adapters.node import CHECKPOINT, read_machine
from memqos.memory_manager.assignments import (
    AssignmentFailure,
    apply_assignments,
    assignments,
)
from memqos.memory_manager.encoding import encode_v3
from memqos.memory_manager.machine import default_state
from memqos.memory_manager.state import Block, CheckpointContent


ROUNDS = 31
NODE = Path(__file__).parents[1] / "examples" / "nodes" / "drifted"


def make_root(directory: Path, pods: int) -> None:
    """Make a host root with many pinned pods; its kubelet configuration is unknown."""
    for name in ("proc", "sys"):
        shutil.copytree(NODE / name, directory / name)
    machine, _ = read_machine(Host(str(NODE)))
    entries = {
        f"00000000-0000-0000-0000-{pod:012d}": {"app": (Block((0,), "memory", 4096),)}
        for pod in range(pods)
    }
    idle = default_state(machine, {0: {"memory": 1 << 27}})
    state = apply_assignments(idle, assignments(entries, None))
    if isinstance(state, AssignmentFailure):
        sys.exit(state.message)
    file = directory / CHECKPOINT
    file.parent.mkdir(parents=True)
    content = CheckpointContent(policy_name="Static", machine_state=state, entries=entries)
    file.write_text(encode_v3(content), encoding="utf-8")


def main() -> None:
    """Measure and print."""
    memqos = str(Path(sys.executable).with_name("memqos"))
    with tempfile.TemporaryDirectory() as name:
        few, many = Path(name, "few"), Path(name, "many")
        for root, pods in ((few, 8), (many, 250)):
            root.mkdir()
            make_root(root, pods)
        command = [memqos, "validate-checkpoint", "--root"]
        cases = {
            "imports: click, attrs, json": [sys.executable, "-c", "import click, attrs, json"],
            "-o json, 8 pods": [*command, str(few), "-o", "json"],
            "text, 8 pods": [*command, str(few)],
            "-o json, 250 pods": [*command, str(many), "-o", "json"],
            "text, YAML config (PyYAML)": [*command, str(NODE)],
            "--help": [memqos, "validate-checkpoint", "--help"],
        }
        for arguments in cases.values():
            run(arguments)
        rounds = [
            {case: run(arguments) for case, arguments in cases.items()} for _ in range(ROUNDS)
        ]
    base = next(iter(cases))
    print(f"{'command':<30} {'ratio':>6}  {'spread (10-90 %)':<17} {'ms':>6} {'peak MiB':>9}")
    for case in cases:
        ratios = sorted(result[case][0] / result[base][0] for result in rounds)
        low, high = ratios[ROUNDS // 10], ratios[-1 - ROUNDS // 10]
        milliseconds = 1000 * statistics.median(result[case][0] for result in rounds)
        peak = max(result[case][1] for result in rounds) / 1024
        print(
            f"{case:<30} {statistics.median(ratios):6.2f}  {low:5.2f} - {high:<9.2f} "
            f"{milliseconds:6.1f} {peak:9.1f}"
        )


if __name__ == "__main__":
    main()
