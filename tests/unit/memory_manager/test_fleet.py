"""The summary of many starts."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from memqos.errors import InputError
from memqos.memory_manager.checkpoint import LoadFailure, LoadFailureKind
from memqos.memory_manager.fleet import (
    DriftSummary,
    NodeFailure,
    NodeResult,
    NUMADrift,
    Outcome,
    merge_summaries,
    node_result,
    parse_validation,
    summarise,
)
from memqos.memory_manager.iomem import find_image
from memqos.memory_manager.reasons import Reason, Verdict
from memqos.memory_manager.validation import StartDecision, validate_start
from tests.support import vectors as of


MIB = 1 << 20
GRACE = 64 * MIB
BOUND = 108 * MIB


def result(name: str, *drifts: int, **changes: Any) -> NodeResult:
    """Make a tolerated result whose NUMA nodes 0, 1, … drifted so."""
    made = NodeResult(
        name=name,
        verdict=Verdict.TOLERATED,
        reason=Reason.DRIFT_WITHIN_BOUND,
        message="",
        drifts=tuple(NUMADrift(node, drift) for node, drift in enumerate(drifts)),
        tolerance_bytes=BOUND,
        auto_bound_bytes=BOUND,
    )
    return evolve(made, **changes)


def refused(name: str, *drifts: int, **changes: Any) -> NodeResult:
    """Make a rejected result."""
    reason = Reason.DRIFT_EXCEEDS_BOUND
    return result(name, *drifts, verdict=Verdict.REJECTED, reason=reason, **changes)


def names(summary: DriftSummary) -> list[str]:
    """List the results that a summary names."""
    return [named.name for named in summary.attention]


def test_nothing() -> None:
    """Nothing comes to nothing."""
    summary = summarise((), attention=3)

    assert (summary.results, summary.failures, summary.refused, summary.numa_nodes) == (0, 0, 0, 0)
    assert (summary.drift_range, summary.bound_range, summary.attention) == (None, None, ())


def test_counts() -> None:
    """Verdicts, reasons, failures and oddities are counted."""
    summary = summarise(
        [
            result("a"),
            result("b", assumed=True),
            result("c", verdict=Verdict.EXACT, reason=Reason.EQUAL, order_dependent=True),
            refused("d"),
            result("e", verdict=Verdict.ERROR, reason=Reason.CHECKPOINT_CORRUPT),
            NodeFailure("f", "no such file"),
        ],
        attention=0,
    )

    assert summary.verdicts == {
        Verdict.TOLERATED: 2,
        Verdict.EXACT: 1,
        Verdict.REJECTED: 1,
        Verdict.ERROR: 1,
    }
    assert summary.reasons[Reason.DRIFT_WITHIN_BOUND] == 2
    assert (summary.results, summary.refused, summary.failures) == (5, 2, 1)
    assert (summary.assumed, summary.order_dependent) == (1, 1)
    assert summary.first_failures == (NodeFailure("f", "no such file"),)
    assert summary.attention == ()


@pytest.mark.parametrize(
    ("drift", "bucket"),
    [
        (1, 0),
        (-1, 0),
        (MIB - 1, 0),
        (MIB, 1),
        (-38559744, 36),  # 36.77 MiB
        (GRACE, 64),
        (1024 * MIB - 1, 1023),
        (1024 * MIB, 1024),
        (-(1 << 40), 1024),
    ],
)
def test_buckets(drift: int, bucket: int) -> None:
    """A bucket is one MiB, of the absolute drift; from 1 GiB on there is one bucket."""
    assert summarise([result("a", drift)], attention=0).histogram == {bucket: 1}


def test_no_drift_is_in_no_bucket() -> None:
    """NUMA nodes without drift are counted on their own."""
    summary = summarise([result("a", 0, 4096, 0)], attention=0)

    assert (summary.unchanged, summary.histogram, summary.numa_nodes) == (2, {0: 1}, 3)


@pytest.mark.parametrize(
    ("drift", "over_grace", "over_bound"),
    [(-GRACE, 0, 0), (GRACE + 1, 1, 0), (BOUND, 1, 0), (-BOUND - 1, 1, 1)],
)
def test_limits(drift: int, over_grace: int, over_bound: int) -> None:
    """Equality with the grace or the bound is inside, in both directions."""
    summary = summarise([result("a", drift)], attention=0)

    assert (summary.over_grace, summary.over_bound) == (over_grace, over_bound)


def test_each_node_has_its_own_bound() -> None:
    """The same drift is beyond one bound, within another, and neither where none is known."""
    drift = 110 * MIB
    summary = summarise(
        [
            result("a", drift),
            result("b", drift, auto_bound_bytes=116 * MIB),
            result("c", drift, auto_bound_bytes=None),
        ],
        attention=0,
    )

    assert (summary.histogram, summary.histogram_over_bound) == ({110: 3}, {110: 1})
    assert summary.bound_unknown == 1
    assert summary.bound_range == (BOUND, 116 * MIB)


def test_range_is_signed() -> None:
    """The range of drift goes from the largest loss to the largest gain."""
    summary = summarise([result("a", -5, 3), result("b", 0)], attention=0)

    assert summary.drift_range == (-5, 3)


def test_attention() -> None:
    """Refused comes first, then order-dependent, then nearness to the bound, then the name."""
    summary = summarise(
        [
            result("near", 54 * MIB),
            result("nearer", -81 * MIB),
            result("same-b", 9 * MIB),
            result("same-a", -9 * MIB),
            result("wide", 54 * MIB, auto_bound_bytes=540 * MIB),  # a tenth of its bound
            result("random", 0, order_dependent=True),
            result("quiet", 0),
            refused("far", 216 * MIB),
            refused("hugepages", 0),
        ],
        attention=20,
    )

    assert names(summary) == [
        "far",
        "hugepages",
        "random",
        "nearer",
        "near",
        "wide",
        "same-a",
        "same-b",
    ]


def test_attention_without_a_bound() -> None:
    """Where no bound is known the grace stands in: 48 of 64 MiB is nearer than 75 of 108."""
    unknown = result("unknown", 48 * MIB, auto_bound_bytes=None)

    assert names(summarise([result("known", 75 * MIB), unknown], attention=1)) == ["unknown"]


def test_attention_is_cut() -> None:
    """Only so many are named, and they are the worst of all."""
    everything = [result(f"{size:03}", size * MIB) for size in range(1, 101)]

    assert names(summarise(everything, attention=2)) == ["100", "099"]


def test_failures_are_cut() -> None:
    """All failures are counted, the first twenty by name are kept."""
    failures = [NodeFailure(f"{number:03}", "") for number in reversed(range(100))]
    summary = summarise(failures, attention=2)

    assert summary.failures == 100
    assert [failure.name for failure in summary.first_failures] == [
        f"{number:03}" for number in range(20)
    ]


# --- merging -------------------------------------------------------------------------------------

RESULTS = st.builds(
    NodeResult,
    name=st.sampled_from("abc"),
    verdict=st.sampled_from(Verdict),
    reason=st.sampled_from([Reason.EQUAL, Reason.DRIFT_WITHIN_BOUND]),
    message=st.sampled_from(["", "x"]),
    drifts=st.lists(
        st.builds(
            NUMADrift,
            st.integers(0, 1),
            st.sampled_from([0, 1, -1, GRACE, GRACE + 1, BOUND, -BOUND - 1, 1 << 31]),
        ),
        max_size=2,
    ).map(tuple),
    auto_bound_bytes=st.sampled_from([None, BOUND, BOUND + MIB]),
    order_dependent=st.booleans(),
    assumed=st.booleans(),
)
FAILURES = st.builds(NodeFailure, st.sampled_from("abcdef"), st.sampled_from(["", "x"]))
OUTCOMES: st.SearchStrategy[list[Outcome]] = st.lists(RESULTS | FAILURES, max_size=12)


@given(OUTCOMES, OUTCOMES, OUTCOMES, st.integers(0, 4))
@settings(max_examples=200)
def test_merging(
    first: list[Outcome], second: list[Outcome], third: list[Outcome], limit: int
) -> None:
    """Merging is associative and commutative, and gives the summary of the whole."""
    a, b, c = (summarise(part, attention=limit) for part in (first, second, third))
    whole = summarise(first + second + third, attention=limit)

    assert merge_summaries(merge_summaries(a, b), c) == whole
    assert merge_summaries(a, merge_summaries(b, c)) == whole
    assert merge_summaries(merge_summaries(c, b), a) == whole


@given(OUTCOMES, st.randoms(use_true_random=False), st.integers(0, 4))
def test_order_does_not_matter(outcomes: list[Outcome], chance: Any, limit: int) -> None:
    """Outcomes in another order give the same summary."""
    shuffled = list(outcomes)
    chance.shuffle(shuffled)

    assert summarise(shuffled, attention=limit) == summarise(outcomes, attention=limit)


def test_merging_keeps_the_size() -> None:
    """However many summaries merge, no more is kept than in one of them."""
    parts = [
        summarise([result(f"{n}", n), NodeFailure(f"{n}", "")], attention=3) for n in range(1, 90)
    ]
    merged = reduce(merge_summaries, parts)

    assert (len(merged.attention), len(merged.first_failures)) == (3, 20)
    assert (merged.results, merged.failures) == (89, 89)


# --- from a decision, and from a document --------------------------------------------------------


@pytest.mark.parametrize("case", of.named("validate"))
def test_node_result(case: of.Case) -> None:
    """What a report keeps of a decision is what the vectors expect of it."""
    image = of.image(case)
    decision = validate_start(of.settings(case), of.machine(case), of.checkpoint(case), image)
    made = node_result("n", decision, image, assumed=False)
    expected = case["expect"]

    assert (made.name, made.verdict, made.reason) == (
        "n",
        decision.verdict,
        decision.reason,
    )
    assert {str(drift.node): drift.drift_bytes for drift in made.drifts} == expected[
        "drift_per_node"
    ]
    assert made.kubelet_starts == (expected["verdict"] in ("exact", "tolerated"))


def test_node_result_knows_the_bound() -> None:
    """The auto bound is known even where kubelet stops before it needs one."""
    # 0x3e1fffff - 0x3b600000 + 1 = 46137344 = 44 MiB; with 64 MiB of grace 113246208
    image = find_image("3b600000-3c5fffff : Kernel code\n3dcd6000-3e1fffff : Kernel bss\n")
    decision = StartDecision(
        verdict=Verdict.ERROR,
        reason=Reason.CHECKPOINT_INVALID_JSON,
        cause=LoadFailure(kind=LoadFailureKind.JSON_SYNTAX, message="what"),
    )
    made = node_result("n", decision, image, assumed=True)

    assert (made.tolerance_bytes, made.auto_bound_bytes, made.assumed) == (None, 113246208, True)
    assert "what" in made.message


def document(**changes: Any) -> dict[str, Any]:
    """Write a CheckpointValidation document, as far as it is read."""
    return {
        "apiVersion": "memqos/v1",
        "kind": "CheckpointValidation",
        "verdict": "tolerated",
        "reason": "drift_within_bound",
        "message": "kubelet starts",
        "toleranceBytes": 0,
        "kernelImageBytes": 46137344,
        "driftPerNode": {"10": 4096, "9": -8192},
        "orderDependent": False,
        "assumptions": [],
    } | changes


def test_parse_validation() -> None:
    """A result document says the same as a decision, but for the recorded totals."""
    assert parse_validation(document(), "results.jsonl:7") == NodeResult(
        name="results.jsonl:7",
        verdict=Verdict.TOLERATED,
        reason=Reason.DRIFT_WITHIN_BOUND,
        message="kubelet starts",
        drifts=(NUMADrift(9, -8192), NUMADrift(10, 4096)),
        tolerance_bytes=0,
        auto_bound_bytes=113246208,
    )


def test_parse_validation_with_unknowns() -> None:
    """Unknown stays unknown, and a document may bring its own name."""
    made = parse_validation(
        document(
            name="node-7",
            toleranceBytes=None,
            kernelImageBytes=None,
            driftPerNode={},
            orderDependent=True,
            assumptions=["no kubelet configuration found"],
        ),
        "results.jsonl:7",
    )

    assert (made.name, made.tolerance_bytes, made.auto_bound_bytes) == ("node-7", None, None)
    assert (made.drifts, made.order_dependent, made.assumed) == ((), True, True)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (None, "$: "),
        ([], "$: "),
        ({}, "$: "),
        (document(kind="DriftTolerance"), "$: "),
        (document(apiVersion="memqos/v2"), "$: "),
        (document(verdict="maybe"), "$.verdict"),
        (document(verdict=None), "$.verdict"),
        (document(reason="because"), "$.reason"),
        (document(message=None), "$.message"),
        (document(name=7), "$.name"),
        (document(toleranceBytes=-1), "$.toleranceBytes"),
        (document(toleranceBytes="0"), "$.toleranceBytes"),
        (document(kernelImageBytes=1.5), "$.kernelImageBytes"),
        (document(driftPerNode={"0": "1"}), "$.driftPerNode"),
        (document(driftPerNode={"0": 2**64}), "$.driftPerNode"),
        (document(driftPerNode={"a": 1}), "$.driftPerNode"),
        (document(driftPerNode={"\u0663": 1}), "$.driftPerNode"),
        (document(driftPerNode={"9" * 5000: 1}), "$.driftPerNode"),
        (document(driftPerNode=[]), "$.driftPerNode"),
        (document(orderDependent=1), "$.orderDependent"),
        (document(assumptions="no"), "$.assumptions"),
    ],
)
def test_parse_validation_refuses(wrong: object, place: str) -> None:
    """What is no result of memqos is refused, with the place."""
    with pytest.raises(InputError) as caught:
        parse_validation(wrong, "n")

    assert place in str(caught.value)
