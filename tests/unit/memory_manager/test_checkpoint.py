"""Which files a kubelet loads, and what it reads in them."""

import json
from typing import Any

import pytest

from memqos.memory_manager.checkpoint import (
    ChecksumStatus,
    Format,
    LoadedCheckpoint,
    LoadFailure,
    LoadFailureKind,
    load,
)
from memqos.memory_manager.encoding import encode_v1, encode_v2, encode_v3
from memqos.memory_manager.state import Block, CheckpointContent, MemoryTable, NUMANodeState
from tests.support.vectors import Case, checksum_bytes, fnv1a, named


MINORS = {"1.37+": (37, 38, 99), "1.36": (36,), "<=1.35": (21, 35)}

IDLE = CheckpointContent(
    policy_name="Static",
    machine_state={0: NUMANodeState(0, {"memory": MemoryTable(10, 2, 8, 0, 8)}, (0,))},
    entries={},
    pod_entries={},
)
WITH_POD = CheckpointContent(
    policy_name="Static",
    machine_state=IDLE.machine_state,
    entries={"p": {"c": (Block((0,), "memory", 1),)}},
    pod_entries={"p": (Block((0,), "memory", 1),)},
)


def accepted(text: str, minor: int = 38) -> LoadedCheckpoint:
    """Load a text that is expected to load."""
    result = load(text.encode(), kubelet_minor=minor)
    assert isinstance(result, LoadedCheckpoint), result
    return result


def refused(text: str | bytes, minor: int = 38) -> LoadFailure:
    """Load a text that is expected to be refused."""
    data = text.encode() if isinstance(text, str) else text
    result = load(data, kubelet_minor=minor)
    assert isinstance(result, LoadFailure), result
    return result


def v3(data: str, **more: Any) -> str:
    """Write a v3 file around `data`."""
    checksum = fnv1a(b"(string)" + data.encode())
    return json.dumps({"data": data, "dataChecksum": checksum} | more)


@pytest.mark.parametrize("release", MINORS)
@pytest.mark.parametrize("case", named("checksum"))
def test_vectors(case: Case, release: str) -> None:
    """Each release loads or refuses each file, in the format and for the reason expected."""
    expected = case["loaders"][release]
    for minor in MINORS[release]:
        result = load(checksum_bytes(case), kubelet_minor=minor)
        if isinstance(result, LoadedCheckpoint):
            found: tuple[object, ...] = (
                True,
                str(result.format),
                result.content.policy_name,
                None,
            )
        else:
            found = (False, None, None, str(result.kind))

        assert found == (
            expected["ok"],
            expected["format"],
            expected["policy_name"],
            expected["error_kind"],
        )


@pytest.mark.parametrize(
    ("text", "readers"),
    [
        (encode_v1(WITH_POD), {35: Format.V1, 36: Format.V1, 37: Format.V1}),
        (encode_v2(WITH_POD), {35: None, 36: Format.V2, 37: Format.V2}),
        (encode_v3(WITH_POD), {35: Format.V1, 36: Format.V1, 37: Format.V3}),
    ],
)
def test_who_reads_which_format(text: str, readers: dict[int, Format | None]) -> None:
    """All releases read v1 and v3, only 1.36 and later read v2."""
    for minor, expected in readers.items():
        result = load(text.encode(), kubelet_minor=minor)
        assert (result.format if isinstance(result, LoadedCheckpoint) else None) == expected


def test_pod_entries_are_kept_by_v2_and_v3_only() -> None:
    """1.36 reads a v3 file through its v1 copy and loses the pod entries."""
    assert accepted(encode_v3(WITH_POD)).content.pod_entries == WITH_POD.pod_entries
    assert accepted(encode_v2(WITH_POD), 36).content.pod_entries == WITH_POD.pod_entries
    assert not accepted(encode_v3(WITH_POD), 36).content.pod_entries


def test_dropped_pod_entries_are_reported() -> None:
    """A file that loads as v1 although it has pod entries says so."""
    document = json.loads(encode_v2(WITH_POD))
    document["checksum"] = 0

    result = accepted(json.dumps(document))

    assert (result.format, result.dropped_pod_entries) == (Format.V1, True)
    assert not result.content.pod_entries


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"checksum": 0}, ChecksumStatus.ZERO),
        ({"checksum": None}, ChecksumStatus.ABSENT),
    ],
)
def test_zero_checksum(change: dict[str, Any], status: ChecksumStatus) -> None:
    """From 1.36 on a checksum of 0 or none passes unchecked; before, it is compared."""
    text = json.dumps(json.loads(encode_v1(IDLE)) | change)

    assert accepted(text, 36).checksum_status is status
    assert accepted(text, 37).checksum_status is status
    assert refused(text, 35).kind is LoadFailureKind.CORRUPTED


def test_checksum_hashed_under_the_v1_name_is_explained() -> None:
    """The file of a 1.36-era revision stays corrupt, with a hint."""
    text = (
        '{"policyName":"static","machineState":{},"entries":{},"checksum":%d}'  # v1-entries-empty
    )

    assert "1.36" in (refused(text % 366612212).hint or "")
    assert refused(text % 366612213).hint is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", LoadFailureKind.JSON_SYNTAX),
        (b"{", LoadFailureKind.JSON_SYNTAX),
        (b"\0" * 4096, LoadFailureKind.JSON_SYNTAX),
        (b"\xef\xbb\xbf{}", LoadFailureKind.JSON_SYNTAX),
        ("{}".encode("utf-16"), LoadFailureKind.JSON_SYNTAX),
        (b"{} {}", LoadFailureKind.JSON_SYNTAX),
        (b"{}\0", LoadFailureKind.JSON_SYNTAX),
        (b"[]", LoadFailureKind.JSON_TYPE),
        (b'"text"', LoadFailureKind.JSON_TYPE),
        (b"7", LoadFailureKind.JSON_TYPE),
        (b'{"checksum":1}', LoadFailureKind.CORRUPTED),
        (b'{"checksum":1.0}', LoadFailureKind.JSON_TYPE),
        (b'{"checksum":1e3}', LoadFailureKind.JSON_TYPE),
        (b'{"checksum":-1}', LoadFailureKind.JSON_TYPE),
        (b'{"checksum":-0}', LoadFailureKind.JSON_TYPE),
        (b'{"checksum":18446744073709551615}', LoadFailureKind.CORRUPTED),
        (b'{"checksum":18446744073709551616}', LoadFailureKind.JSON_TYPE),
        (b'{"checksum":true}', LoadFailureKind.JSON_TYPE),
        (b'{"policyName":{}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":[]}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"node0":null}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{" 1":null}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"1_0":null}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"":null}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"0":7}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"0":{"cells":{}}}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"0":{"cells":"0"}}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"0":{"memoryMap":[]}}}', LoadFailureKind.JSON_TYPE),
        (b'{"machineState":{"0":{"memoryMap":{"memory":1}}}}', LoadFailureKind.JSON_TYPE),
        (b'{"entries":[]}', LoadFailureKind.JSON_TYPE),
        (b'{"entries":{"p":[]}}', LoadFailureKind.JSON_TYPE),
        (b'{"entries":{"p":{"c":{}}}}', LoadFailureKind.JSON_TYPE),
        (b'{"entries":{"p":{"c":[7]}}}', LoadFailureKind.JSON_TYPE),
        (b'{"entries":{"p":{"c":[{"numaAffinity":{}}]}}}', LoadFailureKind.JSON_TYPE),
        # v3: a type error does not stop Go, so `data` was seen and there is no way back.
        (b'{"policyName":7,"data":"x"}', LoadFailureKind.V3_BAD_OUTER),
        (b'{"dataChecksum":7,"machineState":[]}', LoadFailureKind.V3_BAD_OUTER),
        (b'{"data":7,"dataChecksum":7}', LoadFailureKind.V3_BAD_OUTER),
        (b'{"data":"x","dataChecksum":7}', LoadFailureKind.V3_BAD_DATA),
        (b'{"dataChecksum":7}', LoadFailureKind.V3_BAD_DATA),
        (b'{"data":"{}","dataChecksum":7}', LoadFailureKind.V3_CORRUPTED),
        (b'{"data":"{}"}', LoadFailureKind.V3_CORRUPTED),
        (v3('{"policyName":7}').encode(), LoadFailureKind.V3_BAD_DATA),
        (v3("[]").encode(), LoadFailureKind.V3_BAD_DATA),
        (v3('{"podEntries":{"p":7}}').encode(), LoadFailureKind.V3_BAD_DATA),
        (v3('{"podEntries":[]}').encode(), LoadFailureKind.V3_BAD_DATA),
    ],
)
def test_refused(text: bytes, kind: LoadFailureKind) -> None:
    """Each way to break a file fails with its own kind, and a message of one line."""
    failure = refused(text)

    assert failure.kind is kind
    assert failure.message
    assert "\n" not in failure.message


@pytest.mark.parametrize("text", ["{}", "null", " null\n", '{"checksum":null}'])
def test_nothing_is_a_v1_file(text: str) -> None:
    """`{}` and `null` decode as v1 with an empty policy name, from 1.36 on."""
    result = accepted(text)

    assert (result.format, result.content.policy_name) == (Format.V1, "")
    assert refused(text, 35).kind is LoadFailureKind.CORRUPTED


@pytest.mark.parametrize("text", ['{"data":"","dataChecksum":0}', '{"data":null}'])
def test_empty_data_is_not_v3(text: str) -> None:
    """`data` "" with `dataChecksum` 0 falls back to v1."""
    assert accepted(text).format is Format.V1


def test_v3_data_is_hashed_as_it_stands() -> None:
    """White space, key order and unknown keys in `data` count; only the outer escapes do not."""
    data = ' {"machineState" : {}, "policyName":"\\u0053tatic", "extra": [1.5]}\n'

    assert accepted(v3(data)).content.policy_name == "Static"
    assert accepted(v3(data, policyName="other", checksum=9)).content.policy_name == "Static"
    escaped = v3(data).replace("machineState", "\\u006dachineState")
    assert accepted(escaped).content.policy_name == "Static"


def test_v2_with_empty_memory_blocks_does_not_pass_its_own_check() -> None:
    """Kubelet omits an empty block list from a v2 file but hashes it."""
    content = CheckpointContent(
        policy_name="Static", machine_state={}, entries={}, pod_entries={"p": ()}
    )

    assert refused(encode_v2(content)).kind is LoadFailureKind.CORRUPTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"machineState":{"0":null,"+1":null,"-0":null,"007":null}}',
            {0: None, 1: None, 7: None},
        ),
        ('{"machineState":{"0":null},"MACHINESTATE":{"1":null}}', {0: None, 1: None}),
        ('{"machineState":{"0":null},"machineState":null}', None),
        ('{"machineState":null,"machineState":{"1":null}}', {1: None}),
        (
            '{"machineState":{"0":{"cells":[1],"numberOfAssignments":2},"0":{"cells":[3]}}}',
            {0: NUMANodeState(0, None, (3,))},
        ),
        (
            '{"machineState":{"0":{"cells":[1,2],"cells":[null,5]}}}',
            {0: NUMANodeState(0, None, (1, 5))},
        ),
        ('{"machineState":{"0":{"cells":[1,2],"cells":[]}}}', {0: NUMANodeState(0, None, ())}),
        ('{"machineState":{"0":{"cells":[1,2],"cells":null}}}', {0: NUMANodeState(0, None, None)}),
        ('{"machineState":{"0":{"cells":[null,-0]}}}', {0: NUMANodeState(0, None, (0, 0))}),
        ('{"machineState":{"0":{"numberOfAssignments":-3}}}', {0: NUMANodeState(-3, None, None)}),
        (
            '{"machineState":{"0":{"numberOfAssignments":3,"numberOfAssignments":null}}}',
            {0: NUMANodeState(3, None, None)},
        ),
        (
            '{"machineState":{"0":{"memoryMap":{"a":null},"memoryMap":{"b":{"total":1}}}}}',
            {0: NUMANodeState(0, {"a": None, "b": MemoryTable(1)}, None)},
        ),
        (
            '{"machineState":{"0":{"memoryMap":{"a":{"total":1,"free":2},"a":{"free":3}}}}}',
            {0: NUMANodeState(0, {"a": MemoryTable(free=3)}, None)},
        ),
        (
            '{"machineState":{"0":{"memoryMap":{"a":{"TOTAL":1,"\u017fystemre\u017ferved":2,"nodes":3}}}}}',
            {0: NUMANodeState(0, {"a": MemoryTable(1, 2)}, None)},
        ),
        # Old releases called cells `nodes`.
        ('{"machineState":{"0":{"nodes":[0]}}}', {0: NUMANodeState(0, None, None)}),
    ],
)
def test_machine_state_decodes_as_in_go(
    text: str, expected: dict[int, NUMANodeState | None] | None
) -> None:
    """Keys fold, repeated fields merge or decode over what is there, repeated map keys replace."""
    assert accepted(text).content.machine_state == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ('{"entries":null}', None),
        ('{"entries":{"p":null}}', {"p": None}),
        ('{"entries":{"p":{}}}', {"p": {}}),
        ('{"entries":{"p":{"c":null}}}', {"p": {"c": None}}),
        ('{"entries":{"p":{"c":[null,{}]}}}', {"p": {"c": (Block(), Block())}}),
        ('{"entries":{"p":{"c":[]}},"entries":{"q":null}}', {"p": {"c": ()}, "q": None}),
        ('{"entries":{"p":{"c":[]},"p":{"d":[]}}}', {"p": {"d": ()}}),
        (
            '{"entries":{"p":{"c":[{"numaAffinity":[1,2],"numaAffinity":[null]}]}}}',
            {"p": {"c": (Block((1,)),)}},
        ),
        (
            '{"entries":{"p":{"c":[{"type":"a","type":null,"size":1,"size":18446744073709551615}]}}}',
            {"p": {"c": (Block(None, "a", 2**64 - 1),)}},
        ),
        ('{"entries":{"P":null,"p":null}}', {"P": None, "p": None}),
    ],
)
def test_entries_decode_as_in_go(text: str, expected: object) -> None:
    """Absent entries are empty, null is nil; map keys are exact."""
    assert accepted(text).content.entries == expected


def test_repeated_memory_blocks_decode_over_the_elements() -> None:
    """A repeated array field keeps what the later text leaves out."""
    data = (
        '{"podEntries":{"p":{"memoryBlocks":[{"type":"memory","size":5},{}],'
        '"memoryBlocks":[{"size":7}]},"q":{},"r":null}}'
    )

    assert accepted(v3(data)).content.pod_entries == {
        "p": (Block(None, "memory", 7),),
        "q": None,
        "r": None,
    }


def test_block_count() -> None:
    """Blocks of containers and of pods are counted, whatever is nil."""
    content = CheckpointContent(
        entries={"p": {"c": (Block(), Block()), "d": None}, "q": None},
        pod_entries={"p": (Block(),), "q": None},
    )

    assert content.block_count == 3
    assert CheckpointContent().block_count == 0
