"""The starts of many kubelets at once: how they were decided, and how far the nodes drifted.

A summary has a fixed size however many results went into it, and summaries of parts merge into
the summary of the whole, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from heapq import nsmallest
from typing import NamedTuple, TypeAlias, TypeVar

from attrs import field, frozen

from memqos.errors import InputError
from memqos.fields import boolean, integer, items, mapping, member, string
from memqos.memory_manager.describe import message
from memqos.memory_manager.iomem import GRACE_BYTES, KernelImage
from memqos.memory_manager.reasons import Reason, Verdict
from memqos.memory_manager.validation import StartDecision


__all__ = [
    "BUCKET_BYTES",
    "FAILURES_KEPT",
    "OVERFLOW_BYTES",
    "DriftSummary",
    "NUMADrift",
    "NodeFailure",
    "NodeResult",
    "Outcome",
    "attention_key",
    "merge_summaries",
    "node_result",
    "parse_validation",
    "summarise",
]

#: The resolution of the histogram.
BUCKET_BYTES = 1024 * 1024

#: Drift from here on is counted in one bucket.
OVERFLOW_BYTES = 1024 * BUCKET_BYTES

#: How many failures a summary names; it counts all.
FAILURES_KEPT = 20

_STARTS = (Verdict.EXACT, Verdict.TOLERATED)
_UINT64 = 2**64 - 1
_MAX_NODE_ID = 2**31 - 1


class NUMADrift(NamedTuple):
    """The drift of one NUMA node: current minus recorded total of memory, in bytes.

    `recorded_bytes` is None where only the difference is known.
    """

    node: int
    drift_bytes: int
    recorded_bytes: int | None = None


@frozen(kw_only=True)
class NodeResult:
    """How the start of one kubelet was decided.

    Attributes:
        name: the snapshot or document that it came from.
        verdict: the answer.
        reason: its code.
        message: the answer in words.
        drifts: per NUMA node in both states.
        tolerance_bytes: the bound in effect, None when kubelet stops before it knows one.
        auto_bound_bytes: the bound that ``auto`` gives, None where it cannot be derived.
        order_dependent: another order of the pods gives another verdict.
        assumed: the configuration is not known, and was assumed.
    """

    name: str
    verdict: Verdict
    reason: Reason
    message: str
    drifts: tuple[NUMADrift, ...] = ()
    tolerance_bytes: int | None = None
    auto_bound_bytes: int | None = None
    order_dependent: bool = False
    assumed: bool = False

    @property
    def kubelet_starts(self) -> bool:
        """Whether kubelet gets past its Memory Manager."""
        return self.verdict in _STARTS

    @property
    def worst_bytes(self) -> int:
        """The largest absolute drift of its NUMA nodes."""
        return max((abs(drift.drift_bytes) for drift in self.drifts), default=0)

    @property
    def needs_attention(self) -> bool:
        """Whether there is anything to look at."""
        return not self.kubelet_starts or self.order_dependent or self.worst_bytes > 0


class NodeFailure(NamedTuple):
    """An input that could not be read or understood."""

    name: str
    message: str


Outcome: TypeAlias = NodeResult | NodeFailure
Word = TypeVar("Word", Verdict, Reason)


@frozen(kw_only=True)
class DriftSummary:
    """What many outcomes come to.

    Attributes:
        attention_limit: how many results `attention` holds at most.
        verdicts: results per verdict.
        reasons: results per reason.
        failures: inputs that gave no result.
        first_failures: the first of them by name.
        order_dependent: results with another verdict in another order of the pods.
        assumed: results with an assumed configuration.
        histogram: bucket number to NUMA nodes whose absolute drift is in it. Bucket n starts at
            n times `BUCKET_BYTES`, the last one at `OVERFLOW_BYTES`; nodes without any drift are
            in none.
        unchanged: NUMA nodes without any drift.
        over_grace: NUMA nodes that drifted by more than the grace.
        histogram_over_bound: the part of `histogram` that drifted by more than its own ``auto``
            bound.
        bound_unknown: NUMA nodes whose ``auto`` bound is not known.
        drift_range: the lowest and highest drift, signed; None without any NUMA node.
        bound_range: the lowest and highest ``auto`` bound of a result; None without any.
        attention: the results to look at, in the order of `attention_key`.
    """

    attention_limit: int
    verdicts: Mapping[Verdict, int] = field(factory=dict)
    reasons: Mapping[Reason, int] = field(factory=dict)
    failures: int = 0
    first_failures: tuple[NodeFailure, ...] = ()
    order_dependent: int = 0
    assumed: int = 0
    histogram: Mapping[int, int] = field(factory=dict)
    histogram_over_bound: Mapping[int, int] = field(factory=dict)
    unchanged: int = 0
    over_grace: int = 0
    bound_unknown: int = 0
    drift_range: tuple[int, int] | None = None
    bound_range: tuple[int, int] | None = None
    attention: tuple[NodeResult, ...] = ()

    @property
    def results(self) -> int:
        """Inputs that gave a result."""
        return sum(self.verdicts.values())

    @property
    def refused(self) -> int:
        """Results in which kubelet does not start."""
        return sum(count for verdict, count in self.verdicts.items() if verdict not in _STARTS)

    @property
    def numa_nodes(self) -> int:
        """NUMA nodes whose drift is known."""
        return self.unchanged + sum(self.histogram.values())

    @property
    def over_bound(self) -> int:
        """NUMA nodes that drifted by more than their own ``auto`` bound."""
        return sum(self.histogram_over_bound.values())


def node_result(
    name: str, decision: StartDecision, image: KernelImage | None, *, assumed: bool
) -> NodeResult:
    """Keep of a decision what a report needs."""
    return NodeResult(
        name=name,
        verdict=decision.verdict,
        reason=decision.reason,
        message=message(decision),
        drifts=tuple(
            NUMADrift(drift.node, drift.drift_bytes, drift.recorded.total)
            for drift in decision.drifts
        ),
        tolerance_bytes=None if decision.tolerance is None else decision.tolerance.bytes,
        auto_bound_bytes=None if image is None else image.tolerance_bytes,
        order_dependent=decision.other_order is not None,
        assumed=assumed,
    )


def parse_validation(document: object, name: str) -> NodeResult:
    """Read a ``CheckpointValidation`` document; its own ``name``, if any, goes before `name`.

    Raises:
        InputError: it is something else.
    """
    data = mapping(document, "$")
    if data.get("kind") != "CheckpointValidation" or data.get("apiVersion") != "memqos/v1":
        raise InputError("not a CheckpointValidation of memqos/v1", path="$")

    def count(key: str) -> int | None:
        if data.get(key) is None:
            return None
        return integer(data[key], member("$", key), low=0, high=_UINT64)

    drifts = mapping(data.get("driftPerNode"), "$.driftPerNode")
    image = count("kernelImageBytes")
    return NodeResult(
        name=string(data.get("name", name), "$.name"),
        verdict=_word(data, "verdict", Verdict),
        reason=_word(data, "reason", Reason),
        message=string(data.get("message"), "$.message"),
        drifts=tuple(sorted(_drift(node, value) for node, value in drifts.items())),
        tolerance_bytes=count("toleranceBytes"),
        auto_bound_bytes=None if image is None else image + GRACE_BYTES,
        order_dependent=boolean(data.get("orderDependent", False), "$.orderDependent"),
        assumed=bool(items(data.get("assumptions"), "$.assumptions")),
    )


def _word(data: Mapping[str, object], key: str, kind: type[Word]) -> Word:
    text = string(data.get(key), f"$.{key}")
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{text!r} is no {key} that memqos knows", path=f"$.{key}") from None


def _drift(node: str, value: object) -> NUMADrift:
    path = member("$.driftPerNode", node)
    if not node.isascii() or not node.isdigit() or len(node) > len(str(_MAX_NODE_ID)):
        raise InputError(f"{node!r} is not the number of a NUMA node", path=path)
    return NUMADrift(int(node), integer(value, path, low=-_UINT64, high=_UINT64))


def summarise(outcomes: Iterable[Outcome], *, attention: int) -> DriftSummary:
    """Summarise outcomes; their order does not matter.

    Args:
        outcomes: read once, and not kept but for `attention` results and some failures.
        attention: how many results to name as worth a look.
    """
    verdicts: Counter[Verdict] = Counter()
    reasons: Counter[Reason] = Counter()
    histogram: Counter[int] = Counter()
    beyond: Counter[int] = Counter()
    totals: Counter[str] = Counter()
    failures: list[NodeFailure] = []
    worth: list[NodeResult] = []
    drift_range: tuple[int, int] | None = None
    bound_range: tuple[int, int] | None = None
    for outcome in outcomes:
        if isinstance(outcome, NodeFailure):
            totals["failures"] += 1
            failures.append(outcome)
            if len(failures) > 2 * FAILURES_KEPT:
                failures = nsmallest(FAILURES_KEPT, failures)
            continue
        verdicts[outcome.verdict] += 1
        reasons[outcome.reason] += 1
        totals["order_dependent"] += outcome.order_dependent
        totals["assumed"] += outcome.assumed
        bound = outcome.auto_bound_bytes
        if bound is not None:
            bound_range = _widen(bound_range, (bound, bound))
        for drift in outcome.drifts:
            size = abs(drift.drift_bytes)
            drift_range = _widen(drift_range, (drift.drift_bytes, drift.drift_bytes))
            bucket = min(size, OVERFLOW_BYTES) // BUCKET_BYTES
            if size:
                histogram[bucket] += 1
            if bound is not None and size > bound:
                beyond[bucket] += 1
            totals["unchanged"] += not size
            totals["over_grace"] += size > GRACE_BYTES
            totals["bound_unknown"] += bound is None
        if outcome.needs_attention:
            worth.append(outcome)
            if len(worth) > 2 * attention:
                worth = _first(worth, attention)
    return DriftSummary(
        attention_limit=attention,
        verdicts=dict(verdicts),
        reasons=dict(reasons),
        histogram=dict(histogram),
        histogram_over_bound=dict(beyond),
        drift_range=drift_range,
        bound_range=bound_range,
        attention=tuple(_first(worth, attention)),
        failures=totals["failures"],
        first_failures=tuple(nsmallest(FAILURES_KEPT, failures)),
        order_dependent=totals["order_dependent"],
        assumed=totals["assumed"],
        unchanged=totals["unchanged"],
        over_grace=totals["over_grace"],
        bound_unknown=totals["bound_unknown"],
    )


def merge_summaries(left: DriftSummary, right: DriftSummary) -> DriftSummary:
    """Merge the summaries of two parts, made with the same limit of attention."""
    limit = min(left.attention_limit, right.attention_limit)
    return DriftSummary(
        attention_limit=limit,
        verdicts=dict(Counter(left.verdicts) + Counter(right.verdicts)),
        reasons=dict(Counter(left.reasons) + Counter(right.reasons)),
        failures=left.failures + right.failures,
        first_failures=tuple(nsmallest(FAILURES_KEPT, left.first_failures + right.first_failures)),
        order_dependent=left.order_dependent + right.order_dependent,
        assumed=left.assumed + right.assumed,
        histogram=dict(Counter(left.histogram) + Counter(right.histogram)),
        histogram_over_bound=dict(
            Counter(left.histogram_over_bound) + Counter(right.histogram_over_bound)
        ),
        unchanged=left.unchanged + right.unchanged,
        over_grace=left.over_grace + right.over_grace,
        bound_unknown=left.bound_unknown + right.bound_unknown,
        drift_range=_widen(left.drift_range, right.drift_range),
        bound_range=_widen(left.bound_range, right.bound_range),
        attention=tuple(_first(left.attention + right.attention, limit)),
    )


def attention_key(result: NodeResult) -> tuple[int, Fraction, str, str]:
    """Order by what to look at first: refused, order-dependent, then nearest to the bound.

    Where a node's bound is unknown, the grace stands in: no bound can be smaller. Ties go by
    name, then by whatever else differs.
    """
    nearness = Fraction(result.worst_bytes, result.auto_bound_bytes or GRACE_BYTES)
    rank = 0 if not result.kubelet_starts else 1 if result.order_dependent else 2
    return (rank, -nearness, result.name, repr(result))


def _first(results: Iterable[NodeResult], count: int) -> list[NodeResult]:
    return sorted(results, key=attention_key)[:count]


def _widen(left: tuple[int, int] | None, right: tuple[int, int] | None) -> tuple[int, int] | None:
    if left is None or right is None:
        return left or right
    return min(left[0], right[0]), max(left[1], right[1])
