"""What is valid and still unwise in an OOM configuration; each from a public report."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from memqos.oom.classes import OOMClass
from memqos.oom.config import OOMConfig
from memqos.oom.expression import EvaluationError
from memqos.oom.metrics import NEVER_NS, zero_values
from memqos.oom.victim import Candidate, score


__all__ = ["LintCode", "LintWarning", "lint"]

_SHORTEST_NS = 100_000_000
_LONGEST_NS = 10_000_000_000
_SAMPLE = 1024 * 1024 * 1024


class LintCode(StrEnum):
    """What kind."""

    NO_COOL_DOWN = "no-cool-down"
    NO_GROWTH_TERM = "no-growth-term"
    TRUE_ON_ZERO = "true-on-zero"
    TRIGGER_CONSTANT = "trigger-constant"
    TRIGGER_FAILS = "trigger-fails"
    RANKING_CONSTANT = "ranking-constant"
    RANKING_FAILS = "ranking-fails"
    KILLS_SYSTEM = "kills-system"
    PEAK_ONLY = "peak-only"
    INTERVAL_EXTREME = "interval-extreme"


class LintWarning(NamedTuple):
    """One warning; `field` is the field of the document it is about."""

    code: LintCode
    field: str
    message: str


def lint(config: OOMConfig) -> Iterator[LintWarning]:
    """Yield what is unwise in a valid configuration."""
    yield from _lint_trigger(config)
    yield from _lint_ranking(config)
    if not _SHORTEST_NS <= config.interval_ns <= _LONGEST_NS:
        yield LintWarning(
            LintCode.INTERVAL_EXTREME,
            "sampleInterval",
            f"{config.interval_ns / 1e9:g} s is outside of 100 ms to 10 s",
        )


def _lint_trigger(config: OOMConfig) -> Iterator[LintWarning]:
    trigger, field = config.trigger, "triggerExpression"
    zero = {**zero_values(swap=config.swap), "time_since_trigger": NEVER_NS}
    if trigger.constant is not None:
        effect = "fires at every sample" if trigger.constant else "never fires"
        yield LintWarning(LintCode.TRIGGER_CONSTANT, field, f"the trigger {effect}")
        return
    try:
        if trigger.evaluate(zero):
            yield LintWarning(
                LintCode.TRUE_ON_ZERO,
                field,
                "the trigger fires on a node without any pressure, and on one without PSI"
                + (", or without swap" if {"swap_total", "swap_free"} & trigger.names else ""),
            )
    except EvaluationError as error:
        yield LintWarning(LintCode.TRIGGER_FAILS, field, f"fails on a calm node: {error}")
    if "time_since_trigger" not in trigger.names:
        yield LintWarning(
            LintCode.NO_COOL_DOWN,
            field,
            "without time_since_trigger it can kill at every sample (siderolabs/talos#13622)",
        )
    if not any(name.startswith("d_") for name in trigger.names):
        yield LintWarning(
            LintCode.NO_GROWTH_TERM,
            field,
            "without a d_… term it goes on killing while an average decays "
            "(siderolabs/talos#12077)",
        )


def _lint_ranking(config: OOMConfig) -> Iterator[LintWarning]:
    ranking, field = config.ranking, "cgroupRankingExpression"
    if ranking.constant is not None:
        yield LintWarning(
            LintCode.RANKING_CONSTANT,
            field,
            f"every cgroup scores {ranking.constant!r}"
            + ("" if ranking.constant > 0 else ", so nothing is ever killed"),
        )
        return
    unlimited = [
        score(Candidate("/sys/fs/cgroup/x", oom_class, _SAMPLE, _SAMPLE, swap=_SAMPLE), ranking)
        for oom_class in OOMClass
    ]
    absent = [score(Candidate("/sys/fs/cgroup/x", oom_class), ranking) for oom_class in OOMClass]
    for scored in (*unlimited, *absent):
        if scored.error is not None:
            yield LintWarning(
                LintCode.RANKING_FAILS,
                field,
                f"fails for class {scored.candidate.oom_class.label}: {scored.error}",
            )
            break
    for scored in unlimited:
        oom_class = scored.candidate.oom_class
        if oom_class >= OOMClass.PODRUNTIME and scored.eligible:
            yield LintWarning(
                LintCode.KILLS_SYSTEM,
                field,
                f"class {oom_class.label} scores above 0: the node's own services can be killed",
            )
    if "memory_peak" in ranking.names and "memory_current" not in ranking.names:
        yield LintWarning(
            LintCode.PEAK_ONLY,
            field,
            "memory.peak is not there before Linux 5.19, where nobody would be found; write "
            "memory_peak.or(memory_current)",
        )
