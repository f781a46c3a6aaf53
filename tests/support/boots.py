"""Captured boots in tests/data/boots, laid out as host roots, and figures read from them.

The figures are read here by hand, not with the library, so that they can judge it.
"""

import re
from functools import cache
from pathlib import Path
from typing import TypeAlias

from attrs import frozen


FOLDER = Path(__file__).parents[1] / "data" / "boots"
GRACE_BYTES = 64 << 20

_SIZES = {64: "64Ki", 2048: "2Mi", 32768: "32Mi", 1048576: "1Gi"}

Table: TypeAlias = dict[str, int]


@frozen
class Boot:
    """One boot of a machine.

    Attributes:
        root: the folder that stands for the host's root.
        memory: NUMA node to MemTotal in bytes.
        hugepages: NUMA node to page size in KiB to number of pages.
        bound: kernel image span plus grace, None when there are no kernel lines.
    """

    root: Path
    memory: dict[int, int]
    hugepages: dict[int, dict[int, int]]
    bound: int | None

    @property
    def name(self) -> str:
        """Config and number."""
        return f"{self.root.parent.name}/{self.root.name}"

    @property
    def sizes(self) -> dict[int, frozenset[int]]:
        """The hugepage directories per node."""
        return {node: frozenset(pages) for node, pages in self.hugepages.items()}

    def tables(self, node: int, reserved: int) -> dict[str, Table]:
        """Lay out the memory map of an idle node with `reserved` bytes for the system."""
        result = {}
        taken = 0
        for kib, pages in self.hugepages[node].items():
            size = kib * 1024 * pages
            taken += size
            result[f"hugepages-{_SIZES[kib]}"] = _table(size, 0, size)
        total = self.memory[node]
        result["memory"] = _table(total, reserved, (total - reserved - taken) % 2**64)
        return result

    def document(self, reserved: dict[int, int]) -> dict[str, object]:
        """Lay out the content of the checkpoint that an idle kubelet writes on this boot."""
        return {
            "policyName": "Static",
            "machineState": {
                str(node): {
                    "numberOfAssignments": 0,
                    "memoryMap": self.tables(node, reserved.get(node, 0)),
                    "cells": [node],
                }
                for node in self.memory
            },
        }


def _table(total: int, reserved: int, allocatable: int) -> Table:
    return {
        "total": total,
        "systemReserved": reserved,
        "allocatable": allocatable,
        "reserved": 0,
        "free": allocatable,
    }


@cache
def configs() -> tuple[str, ...]:
    """List the captured machines."""
    return tuple(sorted(path.name for path in FOLDER.iterdir()))


@cache
def boots(config: str) -> tuple[Boot, ...]:
    """Read all boots of one machine."""
    return tuple(_boot(root) for root in sorted((FOLDER / config).iterdir()))


def _boot(root: Path) -> Boot:
    memory, hugepages = {}, {}
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        node = int(folder.name.removeprefix("node"))
        found = re.search(r"MemTotal: +(\d+) kB", (folder / "meminfo").read_text())
        assert found
        memory[node] = int(found[1]) * 1024
        hugepages[node] = {
            int(size.name.removeprefix("hugepages-").removesuffix("kB")): int(
                (size / "nr_hugepages").read_text()
            )
            for size in sorted(folder.glob("hugepages/*"))
        }
    lines = re.findall(
        r"^ *([0-9a-f]+)-([0-9a-f]+) : Kernel (?:code|data|bss)$",
        (root / "proc/iomem").read_text(),
        re.MULTILINE,
    )
    ends = [int(end, 16) for _, end in lines]
    starts = [int(start, 16) for start, _ in lines]
    bound = max(ends) - min(starts) + 1 + GRACE_BYTES if lines else None
    return Boot(root, memory, hugepages, bound)
