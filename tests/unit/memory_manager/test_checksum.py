"""The dump and its hash."""

import pytest

from memqos.gojson import Object, parse
from memqos.memory_manager.checkpoint import _V2_FIELDS, LoadedCheckpoint, _decode, load
from memqos.memory_manager.checksum import (
    STRUCT_NAME_V1,
    content_checksum,
    data_checksum,
    dump,
    fnv1a_32,
)
from memqos.memory_manager.state import CheckpointContent, MemoryTable, NUMANodeState
from tests.support.vectors import Case, checksum_bytes, named


@pytest.mark.parametrize(
    ("data", "expected"),
    # The reference values of the FNV authors.
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
)
def test_fnv1a(data: bytes, expected: int) -> None:
    """The hash is FNV-1a with 32 bits."""
    assert fnv1a_32(data) == expected


def test_hash_of_empty_data() -> None:
    """A v3 `data` is hashed behind the text `(string)`."""
    assert data_checksum("") == 441364273


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, "MachineState:(state.NUMANodeMap)map[] Entries:(state."),
        (None, "MachineState:(state.NUMANodeMap)<nil> Entries:(state."),
        ({0: None}, "MachineState:(state.NUMANodeMap)map[0:<nil>] Entries:map[] Checksum:(ch"),
        ({0: None, 1: None}, "map[0:<nil> 1:<nil>] Entries:map[] Checksum:(ch"),
        (
            {0: None, 1: NUMANodeState()},
            (
                "map[0:<nil> 1:<*>{NumberOfAssignments:(int)0 "
                "MemoryMap:(map[v1.ResourceName]*state.MemoryTable)<nil> Cells:([]int)<nil>}] "
                "Entries:(state."
            ),
        ),
        (
            {0: NUMANodeState(0, {"memory": None}, (0,))},
            "map[memory:<nil>] Cells:[0]}] Entries:(state.",
        ),
        (
            {0: NUMANodeState(-1, {"a": None, "b": MemoryTable()}, ())},
            (
                "NumberOfAssignments:(int)-1 MemoryMap:(map[v1.ResourceName]*state.MemoryTable)"
                "map[a:<nil> b:<*>{TotalMemSize:(uint64)0 SystemReserved:(uint64)0 "
                "Allocatable:(uint64)0 Reserved:(uint64)0 Free:(uint64)0}] Cells:([]int)[]}]"
            ),
        ),
    ],
)
def test_nil_empty_and_the_type_that_gets_lost(
    state: dict[int, NUMANodeState | None] | None, expected: str
) -> None:
    """Nil differs from empty, and a nil pointer at the end of a map hides the next type."""
    content = CheckpointContent(policy_name="x", machine_state=state, entries={})

    assert expected in dump(content, pod_entries=False)


def test_keys_sort_by_number_and_by_utf8() -> None:
    """Node ids sort as numbers; names by UTF-8 bytes, so upper case before lower case."""
    names = ["c2", "c10", "C3", "\U0001f600", "\uffee", "z"]
    content = CheckpointContent(
        machine_state=dict.fromkeys([10, 9, 0, 11, 1]), entries=dict.fromkeys(names)
    )

    text = dump(content, pod_entries=False)

    assert "map[0:<nil> 1:<nil> 9:<nil> 10:<nil> 11:<nil>]" in text
    assert (
        "map[C3:<nil> c10:<nil> c2:<nil> z:<nil> \uffee:<nil> \U0001f600:<nil>] Checksum" in text
    )


@pytest.mark.parametrize("case", [p for p in named("checksum") if "dump" in p.values[0]])
def test_vectors(case: Case) -> None:
    """Every file's dump and checksum are those of kubelet's own Go code."""
    pod_entries = case["format"] == "v2"
    # Without a stored checksum a file loads as v1 or v2 whatever it holds.
    content = decoded_content(case)

    assert dump(content, pod_entries=pod_entries) == case["dump"]
    assert content_checksum(content, pod_entries=pod_entries) == case["checksum"]
    assert fnv1a_32(case["dump"].encode()) == case["checksum"]
    if "checksum_if_hashed_under_name_V1" in case:
        assert (
            content_checksum(content, pod_entries=False, struct_name=STRUCT_NAME_V1)
            == case["checksum_if_hashed_under_name_V1"]
        )


def decoded_content(case: Case) -> CheckpointContent:
    """Decode the file of a case, whatever its checksum."""
    decoded = _decode(parse(checksum_bytes(case)), _V2_FIELDS)
    assert decoded.type_error is None
    return decoded.content


@pytest.mark.parametrize("case", [p for p in named("checksum") if p.values[0]["format"] == "v3"])
def test_v3_vectors(case: Case) -> None:
    """`dataChecksum` hashes the decoded string; the compatibility copy carries v1's checksum."""
    if case["checksum"] is None:
        assert not isinstance(load(checksum_bytes(case), kubelet_minor=38), LoadedCheckpoint)
        return
    document = parse(checksum_bytes(case))
    assert isinstance(document, Object)
    members = dict(document)
    data = members.get("data", "")
    data = data if isinstance(data, str) else ""

    assert data_checksum(data) == case["checksum"]
    if case.get("embedded_v1_checksum") is not None:
        content = decoded_content(case)
        assert content_checksum(content, pod_entries=False) == case["embedded_v1_checksum"]
