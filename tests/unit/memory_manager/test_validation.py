"""kubelet's start as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from memqos.memory_manager.checkpoint import LoadedCheckpoint, LoadFailure, load
from memqos.memory_manager.describe import message, where
from memqos.memory_manager.encoding import encode_v3, machine_state_document
from memqos.memory_manager.iomem import find_image
from memqos.memory_manager.machine import Hugepages, Machine, NUMANode, default_state
from memqos.memory_manager.metrics import DRIFT_METRIC, TOLERANCE_METRIC, drift_metrics
from memqos.memory_manager.options import DRIFT_TOLERANCE
from memqos.memory_manager.reasons import Reason, Refusal, Verdict
from memqos.memory_manager.state import (
    Block,
    CheckpointContent,
    MachineState,
    MemoryTable,
    NUMANodeState,
)
from memqos.memory_manager.validation import (
    Advice,
    Settings,
    StartDecision,
    advise,
    validate_start,
)
from tests.support import vectors as of
from tests.support.vectors import Case, named, vectors


GI = 2**30
RESERVED = {0: {"memory": GI}, 1: {"memory": GI}}
MACHINE = Machine((NUMANode(0, 8 * GI), NUMANode(1, 8 * GI)), 16 * GI)
SETTINGS = Settings(
    policy_name="Static",
    policy_options={},
    drift_tolerance_gate=False,
    pod_level_gate=False,
    system_reserved=RESERVED,
)
IMAGE = find_image("1000000-3bfffff : Kernel code")


def checkpoint(
    state: MachineState | None, entries: Any = None, pods: Any = None, policy: str = "Static"
) -> LoadedCheckpoint:
    """Write a v3 file and load it as 1.38 does."""
    content = CheckpointContent(
        policy_name=policy, machine_state=state, entries=entries or {}, pod_entries=pods or {}
    )
    loaded = load(encode_v3(content).encode(), kubelet_minor=38)
    assert isinstance(loaded, LoadedCheckpoint)
    return loaded


def node(
    number: int, cells: tuple[int, ...], reserved: int = 0, count: int = 0, total: int = 8 * GI
) -> NUMANodeState:
    """Make a node without hugepages and with 1 GiB for the system."""
    del number
    allocatable = total - GI
    table = MemoryTable(total, GI, allocatable, reserved, allocatable - reserved)
    return NUMANodeState(count, {"memory": table}, cells)


IDLE: MachineState = {0: node(0, (0,)), 1: node(1, (1,))}


def start(
    loaded: LoadedCheckpoint | LoadFailure | None,
    *,
    tolerance: str | None = None,
    machine: Machine = MACHINE,
    **changes: Any,
) -> StartDecision:
    """Validate on two nodes of 8 GiB."""
    settings = evolve(SETTINGS, **changes)
    if tolerance is not None:
        settings = evolve(
            settings, policy_options={DRIFT_TOLERANCE: tolerance}, drift_tolerance_gate=True
        )
    return validate_start(settings, machine, loaded, IMAGE)


@pytest.mark.parametrize("case", named("validate"))
def test_vectors(case: Case) -> None:
    """Each case decides as kubelet does, in every field that is expected of it."""
    expected = case["expect"]

    decision = validate_start(
        of.settings(case), of.machine(case), of.checkpoint(case), of.image(case)
    )

    assert (str(decision.verdict), str(decision.reason)) == (
        expected["verdict"],
        expected["reason_kind"],
    )
    assert {str(drift.node): drift.drift_bytes for drift in decision.drifts} == expected[
        "drift_per_node"
    ]
    assert decision.file_rewritten == expected["file_rewritten"]
    assert decision.kubelet_starts == (expected["verdict"] in ("exact", "tolerated"))
    if "tolerance_bytes" in expected:
        assert decision.tolerance is not None
        assert decision.tolerance.bytes == expected["tolerance_bytes"]
    if "where" in expected:
        assert where(decision) == expected["where"]
    if "state_after" in expected:
        assert machine_state_document(decision.state_after) == expected["state_after"]
    if "metrics" in expected:
        metrics = drift_metrics(decision)
        assert {
            TOLERANCE_METRIC: metrics.tolerance_bytes,
            DRIFT_METRIC: {str(number): value for number, value in metrics.drift_bytes},
        } == expected["metrics"]
    if "error_text" in expected:
        assert expected["error_text"] in message(decision)
    other = decision.other_order
    assert (other is not None) == expected.get("order_dependent", False)
    if other is not None:
        assert {"verdict": str(other[0]), "reason_kind": str(other[1])} == expected["other_order"]


def test_vector_fields_are_all_looked_at() -> None:
    """No expected field goes unchecked; the two left out speak of the file and of old code."""
    fields = {field for case in vectors("validate") for field in case["expect"]}

    assert fields - {"format", "stored_pr_code"} == {
        "drift_per_node",
        "error_text",
        "file_rewritten",
        "metrics",
        "order_dependent",
        "other_order",
        "reason_kind",
        "state_after",
        "tolerance_bytes",
        "verdict",
        "where",
    }


FILES: dict[str, str | None] = {
    "corrupt": '{"checksum":5}',
    "not json": "{",
    "null table": of.v3_text(
        {"policyName": "Static", "machineState": {"0": {"memoryMap": {"memory": None}}}}
    ),
    "null node": of.v3_text(
        {"policyName": "Static", "machineState": {"0": None, "1": {"cells": [1]}}}
    ),
    "none": None,
    "empty": of.v3_text({"policyName": "Static"}),
    "empty with pod": of.v3_text({"policyName": "Static", "entries": {"p": None}}),
    "other policy": of.v3_text({"policyName": "None"}),
}


def loaded_file(name: str) -> LoadedCheckpoint | LoadFailure | None:
    """Load one of FILES."""
    text = FILES[name]
    return None if text is None else load(text.encode(), kubelet_minor=38)


REFUSAL = Refusal(Reason.RESERVED_MEMORY_MISMATCH, "sums differ")


@pytest.mark.parametrize(
    ("name", "changes", "verdict", "reason"),
    [
        ("none", {}, "exact", "initialized"),
        ("empty", {}, "exact", "initialized"),
        ("empty with pod", {}, "rejected", "machine_state_empty_with_assignments"),
        ("corrupt", {}, "error", "checkpoint_corrupt"),
        ("not json", {}, "error", "checkpoint_invalid_json"),
        ("other policy", {}, "error", "policy_mismatch"),
        ("null table", {}, "error", "kubelet_would_panic"),
        ("null node", {}, "error", "kubelet_would_panic"),
        ("none", {"policy_name": "static"}, "error", "unknown_policy"),
        ("none", {"policy_name": ""}, "error", "unknown_policy"),
        ("none", {"policy_name": "BestEffort"}, "error", "policy_unavailable"),
        ("none", {"policy_name": "None"}, "exact", "policy_none_not_validated"),
        ("other policy", {"policy_name": "None"}, "exact", "policy_none_not_validated"),
        ("empty", {"policy_name": "None"}, "error", "policy_mismatch"),
        ("corrupt", {"policy_name": "None"}, "error", "checkpoint_corrupt"),
        ("not json", {"policy_name": "None"}, "error", "checkpoint_invalid_json"),
        (
            "not json",
            {"policy_name": "None", "policy_options": {"x": "y"}},
            "error",
            "option_unsupported_for_policy",
        ),
        (
            "none",
            {"policy_name": "BestEffort", "policy_options": {DRIFT_TOLERANCE: "off"}},
            "error",
            "option_unsupported_for_policy",
        ),
        # The order at start: policy, reserved memory, options and gate, file.
        ("not json", {"policy_name": "x", "system_reserved": REFUSAL}, "error", "unknown_policy"),
        (
            "not json",
            {"system_reserved": REFUSAL, "policy_options": {"x": "y"}},
            "error",
            "reserved_memory_mismatch",
        ),
        ("not json", {"policy_options": {"x": "y"}}, "error", "option_unknown"),
        (
            "not json",
            {"policy_options": {DRIFT_TOLERANCE: "off"}},
            "error",
            "option_requires_gate",
        ),
        (
            "none",
            {"config_refusal": Refusal(Reason.CONFIG_INVALID, "no"), "policy_name": "x"},
            "error",
            "config_invalid",
        ),
        (
            "none",
            {"policy_name": "None", "system_reserved": REFUSAL},
            "exact",
            "policy_none_not_validated",
        ),
    ],
)
def test_what_is_looked_at_first(
    name: str, changes: dict[str, Any], verdict: str, reason: str
) -> None:
    """Policy, reservations, options, file and its policy are checked in kubelet's order."""
    decision = start(loaded_file(name), **changes)

    assert (str(decision.verdict), str(decision.reason)) == (verdict, reason)
    assert message(decision)


def test_every_reason_can_be_reached() -> None:
    """The tests of this module and the vectors reach every reason code."""
    decided = {case["expect"]["reason_kind"] for case in vectors("validate")}
    decided |= {
        str(start(loaded_file(name), **changes).reason)
        for name, changes in (
            ("empty with pod", {}),
            ("null node", {}),
            ("none", {"policy_name": "BestEffort"}),
            ("none", {"policy_name": "None"}),
            ("none", {"system_reserved": REFUSAL}),
            ("none", {"config_refusal": Refusal(Reason.CONFIG_INVALID, "no")}),
        )
    }
    gone = checkpoint(IDLE, {"p": {"c": (Block((7,), "memory", 1),)}})
    decided.add(str(start(gone).reason))
    tables = {0: node(0, (0,)), 1: node(1, (1,))}
    for field in ("allocatable", "reserved"):
        table = (node(0, (0,)).memory_map or {})["memory"]
        assert table is not None
        broken = table._replace(**{field: 1})
        decided.add(
            str(
                start(checkpoint({**tables, 0: NUMANodeState(0, {"memory": broken}, (0,))})).reason
            )
        )

    assert decided == {str(reason) for reason in Reason}


def test_policy_none_initialises_without_a_file() -> None:
    """Without a file policy None writes an empty state; with one it keeps what is there."""
    fresh = start(None, policy_name="None")
    kept = start(checkpoint(IDLE, policy="None"), policy_name="None")

    assert (fresh.file_rewritten, fresh.state_after) == (True, {})
    assert (kept.file_rewritten, kept.state_after) == (False, IDLE)
    assert drift_metrics(kept).drift_bytes == ()


def test_first_start_reports_no_drift() -> None:
    """A start without a state initialises it and sets no drift."""
    decision = start(None, tolerance="auto")

    assert decision.state_after == default_state(MACHINE, RESERVED)
    assert decision.file_rewritten
    assert (decision.drifts, drift_metrics(decision).drift_bytes) == ((), ())
    assert drift_metrics(decision).tolerance_bytes == 0x2C00000 + 64 * 2**20


def test_a_null_node_with_other_node_counts_does_not_panic() -> None:
    """The number of nodes is compared first."""
    decision = start(checkpoint({0: None}))

    assert (decision.verdict, decision.reason) == (Verdict.REJECTED, Reason.NODE_SET_DIFFERS)


def test_group_with_different_resources_panics() -> None:
    """A group whose nodes do not have the same resources crashes kubelet, in both states."""
    machine = Machine((NUMANode(0, 8 * GI, (Hugepages(1048576, 1),)), NUMANode(1, 8 * GI)), 0)
    reserved = {0: {"memory": GI}, 1: {"memory": GI}}
    idle = default_state(machine, reserved)
    grouped = {
        number: state._replace(cells=(0, 1), number_of_assignments=1)
        for number, state in idle.items()
        if state is not None
    }
    pods = {"p": {"c": (Block((0, 1), "memory", 0),)}}

    for tolerance in (None, "1Gi"):
        decision = start(checkpoint(grouped, pods), machine=machine, tolerance=tolerance)
        assert (decision.verdict, decision.reason) == (Verdict.ERROR, Reason.KUBELET_WOULD_PANIC)


def test_errors_stand_before_the_comparison() -> None:
    """An assignment that no longer fits fails inside the bound, even by one byte."""
    size = 7 * GI
    loaded = checkpoint(
        {0: node(0, (0,), size, 1), 1: node(1, (1,))},
        {"p": {"c": (Block((0,), "memory", size),)}},
    )
    shrunk = Machine((NUMANode(0, 8 * GI - 1), NUMANode(1, 8 * GI)), 0)

    assert start(loaded).reason is Reason.EQUAL
    decision = start(loaded, machine=shrunk, tolerance="1Gi")
    assert decision.reason is Reason.ASSIGNMENT_DOES_NOT_FIT
    assert {drift.node: drift.drift_bytes for drift in decision.drifts} == {0: -1, 1: 0}
    assert "1 bytes short" in message(decision)


def pod_level() -> LoadedCheckpoint:
    """Make a state in which a pod holds one block as a whole, and its containers two."""
    blocks = {"p": {"a": (Block((0,), "memory", GI),), "b": (Block((0,), "memory", GI),)}}
    pods = {"p": (Block((0,), "memory", 3 * GI),), "q": (Block((1,), "memory", GI),)}
    return checkpoint({0: node(0, (0,), 3 * GI, 1), 1: node(1, (1,))}, blocks, pods)


def test_pod_entries_with_the_gate() -> None:
    """With the gate the pod's blocks are applied, its containers' are not, other pods' never."""
    assert start(pod_level(), pod_level_gate=True).reason is Reason.EQUAL


def test_pod_entries_without_the_gate() -> None:
    """Without the gate the container blocks are applied, so the count differs."""
    decision = start(pod_level())

    assert decision.reason is Reason.ASSIGNMENT_COUNT_DIFFERS
    assert where(decision) == {"node": 0}


def test_pod_level_block_that_does_not_fit() -> None:
    """A pod-level block has no container name in the message."""
    loaded = checkpoint(IDLE, {"p": {"c": ()}}, {"p": (Block((0,), "memory", 8 * GI),)})

    decision = start(loaded, pod_level_gate=True)

    assert "(pod: p, container: )" in message(decision)
    assert where(decision) == {"pod": "p", "container": "", "resource": "memory"}


def split() -> LoadedCheckpoint:
    """Make a state whose group is split otherwise than it is re-derived."""
    pods = {"p": {"c": (Block((0, 1), "memory", 8 * GI),)}}
    return checkpoint({0: node(0, (0, 1), GI, 1), 1: node(1, (0, 1), 7 * GI, 1)}, pods)


@pytest.mark.parametrize(
    ("minor", "reason"), [(38, "equal"), (32, "equal"), (31, "group_free_differs")]
)
def test_split_of_a_group_by_release(minor: int, reason: str) -> None:
    """A re-split group passes since 1.32, and failed field by field before."""
    assert str(start(split(), kubelet_minor=minor).reason) == reason


def test_rebaselined_state() -> None:
    """A tolerated start writes the expected state, with its cells sorted, and then is exact."""
    pods = {"p": {"c": (Block((1, 0), "memory", 8 * GI),)}}
    loaded = checkpoint({0: node(0, (1, 0), GI, 1), 1: node(1, (1, 0), 7 * GI, 1)}, pods)
    machine = Machine((NUMANode(0, 8 * GI + 4096), NUMANode(1, 8 * GI - 4096)), 16 * GI)

    decision = start(loaded, machine=machine, tolerance="4Ki")

    assert decision.verdict is Verdict.TOLERATED
    assert decision.state_after == {
        0: node(0, (0, 1), GI + 4096, 1, 8 * GI + 4096),
        1: node(1, (0, 1), 7 * GI - 4096, 1, 8 * GI - 4096),
    }
    assert drift_metrics(decision).drift_bytes == ((0, 4096), (1, 4096))
    again = start(checkpoint(decision.state_after, pods), machine=machine)
    assert (again.reason, again.file_rewritten) == (Reason.EQUAL, False)
    assert drift_metrics(again).drift_bytes == ((0, 0), (1, 0))


def test_joint_groups_depend_on_the_order() -> None:
    """With joint groups another order of the pods may decide otherwise, and is named."""
    entries = {
        "a": {"c": (Block((0,), "memory", GI),)},
        "b": {"c": (Block((0, 1), "memory", GI),)},
    }
    # In sorted order b is last, so both nodes get the cells (0, 1).
    sorted_order = {0: node(0, (0, 1), 2 * GI, 2), 1: node(1, (0, 1), 0, 1)}

    exact = start(checkpoint(sorted_order, entries))
    other = start(checkpoint({**sorted_order, 0: node(0, (0,), 2 * GI, 2)}, entries))

    assert (exact.verdict, exact.other_order) == (
        Verdict.EXACT,
        (Verdict.REJECTED, Reason.CELLS_DIFFER),
    )
    assert (other.reason, other.other_order) == (
        Reason.CELLS_DIFFER,
        (Verdict.EXACT, Reason.EQUAL),
    )


def test_failed_metrics() -> None:
    """A start that fails sets the bound but no drift; one that stops earlier sets nothing."""
    machine = Machine((NUMANode(0, 9 * GI), NUMANode(1, 8 * GI)), 0)
    refused = drift_metrics(start(checkpoint(IDLE), machine=machine, tolerance="4Ki"))
    early = drift_metrics(start(checkpoint(IDLE), policy_name="x"))

    assert (refused.tolerance_bytes, refused.drift_bytes) == (4096, ())
    assert (early.tolerance_bytes, early.drift_bytes) == (None, ())


def test_advice() -> None:
    """`off`, `auto` and the smallest sufficient quantity are tried, whatever is configured."""
    machine = Machine((NUMANode(0, 8 * GI - 4096), NUMANode(1, 8 * GI)), 0)

    advice = advise(SETTINGS, machine, checkpoint(IDLE), IMAGE)

    assert advice == (
        Advice("off", Verdict.REJECTED, Reason.TOTAL_DIFFERS),
        Advice("auto", Verdict.TOLERATED, Reason.DRIFT_WITHIN_BOUND),
        Advice("4096", Verdict.TOLERATED, Reason.DRIFT_WITHIN_BOUND),
    )
    assert advise(evolve(SETTINGS, policy_name="None"), machine, None, None) == ()


def test_advice_covers_allocatable() -> None:
    """The smallest quantity also covers a drift of allocatable alone."""
    table = MemoryTable(8 * GI, GI, 7 * GI - 100, 0, 7 * GI - 100)
    loaded = checkpoint({**IDLE, 0: NUMANodeState(0, {"memory": table}, (0,))})

    options = [item.option for item in advise(SETTINGS, MACHINE, loaded, None)]

    assert options == ["off", "100"]  # without an image nobody knows what auto would give
    seen = find_image("1000-1fff : Kernel code")
    assert [item.option for item in advise(SETTINGS, MACHINE, loaded, seen)] == [
        "off",
        "auto",
        "100",
    ]


def test_unknown_text_in_a_state_is_harmless() -> None:
    """A file may hold any names; the decision is a value, and its words have one line."""
    text = json.dumps({"policyName": "Static\n\u2028", "machineState": {"-1": None}})

    decision = start(load(of.v3_text(json.loads(text)).encode(), kubelet_minor=38))

    assert decision.reason is Reason.POLICY_MISMATCH
