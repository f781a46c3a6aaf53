"""One cycle of the OOM handler, as a function from state to state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from attrs import Factory, evolve, frozen

from memqos.oom.classes import OOMClass
from memqos.oom.config import OOMConfig
from memqos.oom.expression import EvaluationError
from memqos.oom.layout import Layout, Tree
from memqos.oom.metrics import NEVER_NS, CollectError, Figures, collect
from memqos.oom.victim import Candidate, Selection, find_candidates, score_all, select_victim


__all__ = [
    "ClauseValue",
    "Cycle",
    "HandlerState",
    "Outcome",
    "run_cycle",
]


class Outcome(StrEnum):
    """What a cycle comes to."""

    FIRE = "fire"
    NO_FIRE = "no-fire"
    EVAL_ERROR = "eval-error"
    COLLECT_ERROR = "collect-error"


@frozen(kw_only=True)
class HandlerState:
    """What is kept between cycles.

    Attributes:
        previous: what the derivatives start from.
        last_trigger_ns: time of the last trigger, None before the first.
        rested: classes in which nobody waited for memory, while cycles were left out.
    """

    previous: Mapping[str, Figures] = Factory(dict)
    last_trigger_ns: int | None = None
    rested: frozenset[OOMClass] = frozenset()


@frozen
class ClauseValue:
    """One clause of the trigger: its text and value, None where it failed."""

    text: str
    value: bool | None


@frozen(kw_only=True)
class Cycle:
    """One cycle.

    Attributes:
        outcome: what it came to.
        values: the trigger's variables, empty after a collect error.
        clauses: the trigger's clauses with their values.
        selection: who is killed, None unless it fired.
        error: in words, None without one.
        state: for the next cycle.
    """

    outcome: Outcome
    values: Mapping[str, Any]
    clauses: tuple[ClauseValue, ...]
    selection: Selection | None
    error: str | None
    state: HandlerState


def run_cycle(
    config: OOMConfig,
    layout: Layout,
    state: HandlerState,
    tree: Tree,
    now_ns: int,
    *,
    meminfo: str = "",
    candidates: Callable[[], Iterable[Candidate]] | None = None,
) -> Cycle:
    """Collect, evaluate, and choose a victim if the trigger fires.

    Args:
        config: expressions, order, interval.
        layout: which cgroups make up which class.
        state: of the cycle before.
        tree: the cgroups' files.
        now_ns: monotonic time.
        meminfo: text of /proc/meminfo, for the variables of swap.
        candidates: called when the trigger fires; the default finds them in `tree`.

    The timer restarts whenever the trigger fires, even when nothing is eligible.
    """
    try:
        collected = collect(
            tree,
            layout,
            state.previous,
            config.interval_ns,
            swap=config.swap,
            meminfo=meminfo,
            rested=state.rested,
        )
    except CollectError as error:
        failed = evolve(state, previous=error.previous)
        return _cycle(Outcome.COLLECT_ERROR, failed, error=error.message)
    since = NEVER_NS if state.last_trigger_ns is None else now_ns - state.last_trigger_ns
    values = {**collected.values, "time_since_trigger": since}
    kept = HandlerState(previous=collected.previous, last_trigger_ns=state.last_trigger_ns)
    clauses = tuple(
        ClauseValue(clause.text, _value(clause, values)) for clause in config.trigger.clauses
    )
    try:
        fires = bool(config.trigger.evaluate(values))
    except EvaluationError as error:
        text = f"cannot evaluate OOM trigger expression: {error}"
        return _cycle(Outcome.EVAL_ERROR, kept, values, clauses, error=text)
    if not fires:
        return _cycle(Outcome.NO_FIRE, kept, values, clauses)
    found = find_candidates(tree, layout) if candidates is None else candidates()
    selection = select_victim(score_all(found, config.ranking), strict=config.strict)
    fired = HandlerState(previous=collected.previous, last_trigger_ns=now_ns)
    return _cycle(Outcome.FIRE, fired, values, clauses, selection)


def _value(clause: Any, values: Mapping[str, Any]) -> bool | None:
    try:
        return bool(clause.evaluate(values))
    except EvaluationError:
        return None


def _cycle(
    outcome: Outcome,
    state: HandlerState,
    values: Mapping[str, Any] | None = None,
    clauses: tuple[ClauseValue, ...] = (),
    selection: Selection | None = None,
    error: str | None = None,
) -> Cycle:
    return Cycle(
        outcome=outcome,
        values=values or {},
        clauses=clauses,
        selection=selection,
        error=error,
        state=state,
    )
