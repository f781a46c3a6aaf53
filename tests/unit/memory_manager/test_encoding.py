"""The file as kubelet writes it."""

import json

import pytest

from memqos.memory_manager.checkpoint import LoadedCheckpoint, load
from memqos.memory_manager.encoding import (
    encode_v1,
    encode_v2,
    encode_v3,
    machine_state_document,
)
from memqos.memory_manager.state import Block, CheckpointContent, MemoryTable, NUMANodeState
from tests.support.vectors import Case, checksum_bytes, named


def loaded(case: Case) -> LoadedCheckpoint:
    """Load the file of a case as 1.38 does."""
    result = load(checksum_bytes(case), kubelet_minor=38)
    assert isinstance(result, LoadedCheckpoint)
    return result


V3_TEXTS = [p for p in named("checksum") if str(p.id).endswith("-v3")]
REWRITTEN = [
    p
    for p in named("checksum")
    if "kubelet_file_text" in p.values[0]
    and p.values[0]["loaders"]["1.37+"]["format"] == p.values[0]["format"]
]


@pytest.mark.parametrize("case", V3_TEXTS)
def test_v3_vectors(case: Case) -> None:
    """A v3 file that kubelet wrote is written again byte for byte."""
    assert encode_v3(loaded(case).content) == case["checkpoint_json_text"]


@pytest.mark.parametrize("case", REWRITTEN)
def test_v1_and_v2_vectors(case: Case) -> None:
    """The content of each file is written as kubelet writes it, with the right checksum."""
    encode = encode_v2 if case["format"] == "v2" else encode_v1

    assert encode(loaded(case).content) == case["kubelet_file_text"]


def test_there_are_vectors() -> None:
    """The selections above are not empty."""
    assert len(V3_TEXTS) > 5
    assert len(REWRITTEN) > 40


def test_order_omission_and_escapes() -> None:
    """Node ids sort as strings, empty maps are omitted, HTML and line separators are escaped."""
    content = CheckpointContent(
        policy_name='<&>"\\\u2028\u2029\b\f\n\r\t\x01\x7fé',
        machine_state=dict.fromkeys([2, 10, 1]),
        entries={},
        pod_entries={},
    )
    name = '"\\u003c\\u0026\\u003e\\"\\\\\\u2028\\u2029\\b\\f\\n\\r\\t\\u0001\x7fé"'

    text = encode_v1(content)

    expected = f'{{"policyName":{name},"machineState":{{"1":null,"10":null,"2":null}},"checksum":'
    assert text.startswith(expected)
    assert json.loads(text)["policyName"] == content.policy_name


def test_pod_entries_stand_before_the_checksum() -> None:
    """v2 has its pod entries before the checksum, and omits an empty block list."""
    content = CheckpointContent(
        policy_name="S",
        machine_state=None,
        entries={"p": {"c": None}},
        pod_entries={"b": (Block((0,), "memory", 1),), "a": None, "c": ()},
    )

    assert encode_v2(content).startswith(
        '{"policyName":"S","machineState":null,"entries":{"p":{"c":null}},"podEntries":{"a":{},'
        '"b":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":1}]},"c":{}},"checksum":'
    )


def test_machine_state_document() -> None:
    """As plain data a state keeps the checkpoint's spelling, in numeric order, nil as None."""
    table = MemoryTable(1, 2, 3, 4, 5)
    state = {10: None, 2: NUMANodeState(1, {"m": table, "a": None}, None), 3: NUMANodeState()}

    document = machine_state_document(state)

    assert document == {
        "2": {
            "numberOfAssignments": 1,
            "memoryMap": {
                "a": None,
                "m": {"total": 1, "systemReserved": 2, "allocatable": 3, "reserved": 4, "free": 5},
            },
            "cells": None,
        },
        "3": {"numberOfAssignments": 0, "memoryMap": None, "cells": None},
        "10": None,
    }
    assert list(document) == ["2", "3", "10"]
    assert machine_state_document(None) is None
