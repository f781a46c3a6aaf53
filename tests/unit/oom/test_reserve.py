"""memory.min of the watcher's own cgroup."""

from collections.abc import Collection

import pytest

from memqos.oom.reserve import MARGIN_BYTES, reserve_bytes, void_ancestor


MIB = 1 << 20
OURS = "system.slice/memqos.service"


@pytest.mark.parametrize(
    ("resident", "memory_min", "expected"),
    [
        (30 * MIB, 0, 94 * MIB),
        (30 * MIB + 1, 0, 95 * MIB),
        (30 * MIB, 94 * MIB - 1, 94 * MIB),
        (30 * MIB, 94 * MIB, None),
        (30 * MIB, 2**63 - 1, None),
        (30 * MIB, None, None),
    ],
)
def test_size(resident: int, memory_min: int | None, expected: int | None) -> None:
    """What is resident, rounded up to MiB, and 64 MiB; never lowered."""
    assert MARGIN_BYTES == 64 * MIB
    found = reserve_bytes(
        cgroup=OURS, processes=[7], pid=7, memory_min=memory_min, resident_bytes=resident
    )
    assert found == expected


@pytest.mark.parametrize(
    ("cgroup", "processes"),
    [
        ("", [7]),
        ("/", [7]),
        ("../other", [7]),
        ("a/../../b", [7]),
        (OURS, []),
        (OURS, [7, 8]),
        (OURS, [8]),
        (OURS, [7, 0]),  # 0 is a process of another PID namespace
    ],
)
def test_left_alone(cgroup: str, processes: Collection[int]) -> None:
    """The root, what is out of sight, and what we share."""
    found = reserve_bytes(
        cgroup=cgroup, processes=processes, pid=7, memory_min=0, resident_bytes=MIB
    )
    assert found is None


@pytest.mark.parametrize(
    ("mins", "expected"),
    [
        ([], None),
        ([("a", 1), ("b", None)], None),
        ([("a/b", 5), ("a", 0)], "a"),
        ([("a/b", 0), ("a", 0)], "a/b"),
    ],
)
def test_void(mins: list[tuple[str, int | None]], expected: str | None) -> None:
    """An ancestor with nothing to give; one without the file is unknown."""
    assert void_ancestor(mins) == expected
