"""The machine's figures and the state of an idle one."""

import pytest

from memqos.errors import InputError
from memqos.memory_manager.machine import (
    Hugepages,
    Machine,
    NUMANode,
    default_state,
    parse_hugepages_directory,
    parse_machine_info,
    parse_mem_total,
)
from memqos.memory_manager.state import MemoryTable, NUMANodeState


GI = 2**30


@pytest.mark.parametrize(
    ("kib", "resource"),
    [
        (64, "hugepages-64Ki"),
        (2048, "hugepages-2Mi"),
        (32768, "hugepages-32Mi"),
        (524288, "hugepages-512Mi"),
        (1048576, "hugepages-1Gi"),
        (16777216, "hugepages-16Gi"),
    ],
)
def test_hugepage_names(kib: int, resource: str) -> None:
    """A size is named by the largest power of 1024 that divides it."""
    assert Hugepages(kib, 0).resource == resource


def test_idle_state() -> None:
    """Memory loses the reservation and all hugepages; sizes without pages are listed too."""
    node = NUMANode(3, 8 * GI, (Hugepages(2048, 10), Hugepages(1048576, 0)))
    hugepages = 10 * 2 * 2**20
    free = 8 * GI - GI - hugepages

    state = default_state(Machine((node,), 0), {3: {"memory": GI, "hugepages-2Mi": 2**21}})

    assert state == {
        3: NUMANodeState(
            0,
            {
                "hugepages-2Mi": MemoryTable(
                    hugepages, 2**21, hugepages - 2**21, 0, hugepages - 2**21
                ),
                "hugepages-1Gi": MemoryTable(0, 0, 0, 0, 0),
                "memory": MemoryTable(8 * GI, GI, free, 0, free),
            },
            (3,),
        )
    }


def test_idle_state_wraps() -> None:
    """Reserving 1 GiB of a 512 MiB node leaves 2^64 - 512 MiB, as in Go."""
    state = default_state(Machine((NUMANode(0, GI // 2),), 0), {0: {"memory": GI}})

    node = state[0]
    assert node is not None
    assert node.memory_map == {
        "memory": MemoryTable(GI // 2, GI, 2**64 - GI // 2, 0, 2**64 - GI // 2)
    }


def test_hugepage_total_wraps() -> None:
    """Page count times page size is modulo 2^64."""
    assert Hugepages(2**40, 2**14 + 3).total_bytes == 3 * 2**50


def test_mem_total() -> None:
    """MemTotal is in KiB, of a node or of the machine, and wraps at 2^64."""
    assert (
        parse_mem_total("Node 0 MemTotal:       1030716 kB\nNode 0 MemFree: 1 kB\n") == 1055453184
    )
    assert parse_mem_total("MemTotal: 7 kB") == 7168
    assert parse_mem_total(f"MemTotal: {2**54 + 1} kB") == 1024


@pytest.mark.parametrize(
    "text", ["", "MemFree: 1 kB", "MemTotal: x kB", "MemTotal: 1 MB", "MemTotal: -1 kB"]
)
def test_no_mem_total(text: str) -> None:
    """Without a MemTotal line there is no topology."""
    with pytest.raises(InputError, match="MemTotal"):
        parse_mem_total(text)


def test_hugepages_directory() -> None:
    """A directory gives the page size, its file the number of pages."""
    assert parse_hugepages_directory("hugepages-2048kB", "16\n") == Hugepages(2048, 16)


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        ("hugepages-2048KB", "1"),
        ("hugepages-kB", "1"),
        ("hugepages-2Mi", "1"),
        ("xhugepages-2048kB", "1"),
        ("hugepages-2048kB", ""),
        ("hugepages-2048kB", "-1"),
        ("hugepages-2048kB", "1 2"),
        ("hugepages-2048kB", "1_0"),
        ("hugepages-2048kB", "\u0661"),
        ("hugepages-2048kB", "9" * 21),
    ],
)
def test_bad_hugepages_directory(name: str, pages: str) -> None:
    """Another name or another number is an error."""
    with pytest.raises(InputError):
        parse_hugepages_directory(name, pages)


def test_machine_info() -> None:
    """CAdvisor's document gives nodes by id, and the capacity, else their sum."""
    document = {
        "num_cores": 4,
        "memory_capacity": 100,
        "topology": [
            {"node_id": 1, "memory": 40, "hugepages": None, "cores": []},
            {"node_id": 0, "memory": 50, "hugepages": [{"page_size": 2048, "num_pages": 3}]},
        ],
    }
    nodes = (NUMANode(0, 50, (Hugepages(2048, 3),)), NUMANode(1, 40))

    assert parse_machine_info(document) == Machine(nodes, 100)
    del document["memory_capacity"]
    assert parse_machine_info(document) == Machine(nodes, 90)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (None, "$.topology"),
        ([], "$"),
        ({}, "$.topology"),
        ({"topology": {}}, "$.topology"),
        ({"topology": [7]}, "$.topology[0]"),
        ({"topology": [{"memory": 1}]}, "$.topology[0].node_id"),
        ({"topology": [{"node_id": 0}]}, "$.topology[0].memory"),
        ({"topology": [{"node_id": True, "memory": 1}]}, "$.topology[0].node_id"),
        ({"topology": [{"node_id": 0, "memory": 1.5}]}, "$.topology[0].memory"),
        ({"topology": [{"node_id": 0, "memory": 2**64}]}, "$.topology[0].memory"),
        ({"topology": [{"node_id": 0, "memory": -1}]}, "$.topology[0].memory"),
        (
            {"topology": [{"node_id": 0, "memory": 1}, {"node_id": 0, "memory": 1}]},
            "$.topology[1]",
        ),
        (
            {"topology": [{"node_id": 0, "memory": 1, "hugepages": [{"page_size": 4}]}]},
            "$.topology[0].hugepages[0].num_pages",
        ),
        ({"topology": [], "memory_capacity": "1"}, "$.memory_capacity"),
    ],
)
def test_bad_machine_info(document: object, path: str) -> None:
    """What is missing or mistyped is named by its JSON path."""
    with pytest.raises(InputError) as caught:
        parse_machine_info(document)

    assert caught.value.path == path
