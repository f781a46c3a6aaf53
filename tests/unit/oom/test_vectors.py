"""Every case of oom-trigger.json and oom-victim.json, through the public functions."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memqos.oom.classes import OOMClass
from memqos.oom.config import DEFAULT_RANKING, DEFAULT_TRIGGER, OOMConfig
from memqos.oom.expression import (
    Checked,
    EvaluationError,
    Problems,
    check_ranking,
    check_trigger,
)
from memqos.oom.handler import HandlerState, Outcome, run_cycle
from memqos.oom.layout import LAYOUTS
from memqos.oom.metrics import NEVER_NS, metric_names
from memqos.oom.victim import find_candidates, score_all, select_victim


VECTORS = Path(__file__).parents[2] / "data" / "vectors"
TRIGGER = json.loads((VECTORS / "oom-trigger.json").read_text(encoding="utf-8"))
VICTIM = json.loads((VECTORS / "oom-victim.json").read_text(encoding="utf-8"))
TALOS = LAYOUTS["talos"]
CLASSES = {oom_class.label: oom_class for oom_class in OOMClass}
FOLDERS = {
    "Besteffort": "kubepods/besteffort",
    "Burstable": "kubepods/burstable",
    "Guaranteed": "kubepods",
    "Podruntime": "podruntime",
    "System": "system",
}


def parameters(document: Mapping[str, Any], section: str) -> list[Any]:
    """Return one section's cases as pytest parameters."""
    return [pytest.param(case, id=case["id"]) for case in document[section]]


def nanoseconds(seconds: float | None) -> int:
    """Convert seconds, None being never."""
    return NEVER_NS if seconds is None else round(seconds * 1e9)


def checked_trigger(case: Mapping[str, Any]) -> Checked:
    """Check a trigger that must be valid."""
    checked = check_trigger(case["expression"])
    assert isinstance(checked, Checked), checked
    return checked


def config(case: Mapping[str, Any]) -> OOMConfig:
    """Put a trigger that must be valid into a configuration."""
    ranking = check_ranking(DEFAULT_RANKING)
    assert isinstance(ranking, Checked)
    return OOMConfig(
        trigger=checked_trigger(case),
        ranking=ranking,
        interval_ns=round(case["sample_interval_s"] * 1e9),
    )


def test_default_expressions() -> None:
    """The defaults are Talos' to the letter."""
    assert TRIGGER["default_expression"] == DEFAULT_TRIGGER
    assert VICTIM["default_expression"] == DEFAULT_RANKING


@pytest.mark.parametrize("case", parameters(TRIGGER, "cases"))
def test_trigger(case: Mapping[str, Any]) -> None:
    """A trigger, over samples or over given variables."""
    expected = case["expect"]
    if expected["outcome"] == "invalid-expression":
        assert isinstance(check_trigger(case["expression"]), Problems)
        return
    if "samples" in case:
        assert sampled(case) == expected["outcome"]
        return
    values: dict[str, Any] = {
        name: {int(oom_class): 0.0 for oom_class in OOMClass} if "qos_" in name else 0.0
        for name in metric_names()
    }
    values["time_since_trigger"] = nanoseconds(case["time_since_trigger_s"])
    for name, value in case["context_overrides"].items():
        if isinstance(value, Mapping):
            values[name] |= {int(CLASSES[label]): item for label, item in value.items()}
        else:
            values[name] = value
    try:
        outcome = "fire" if checked_trigger(case).evaluate(values) else "no-fire"
    except EvaluationError:
        outcome = "eval-error"
    assert outcome == expected["outcome"]


def figures(values: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    """Turn values by ``directory/memory_metric`` into what the state keeps."""
    found: dict[str, tuple[float, ...]] = {}
    for key in values:
        path = key.rpartition("/")[0]
        wanted = [f"{path}/{name}" for name in metric_names() if name.startswith("memory_")]
        wanted += [f"{path}/memory_{name}" for name in ("current", "peak", "max")]
        found[path] = tuple(values.get(name, math.nan) for name in wanted)
    return found


def sampled(case: Mapping[str, Any]) -> Outcome:
    """Run the handler over a case's samples; compare the last one's metrics."""
    now, since = 10**12, case["time_since_trigger_s"]
    last = None if since is None else now - nanoseconds(since)
    previous: Mapping[str, tuple[float, ...]] = figures(case.get("previous_values", {}))
    for sample in case["samples"]:
        state = HandlerState(previous=previous, last_trigger_ns=last)
        cycle = run_cycle(config(case), TALOS, state, sample, now)
        previous = cycle.state.previous
    for name, value in case["expect"].get("metrics", {}).items():
        found = cycle.values[name]
        if isinstance(value, Mapping):
            found = {OOMClass(key).label: item for key, item in found.items()}
        assert found == pytest.approx(value, rel=1e-12), name
    return cycle.outcome


@pytest.mark.parametrize("case", parameters(TRIGGER, "sequences"))
def test_sequence(case: Mapping[str, Any]) -> None:
    """Cycle after cycle, with the state kept between."""
    state = HandlerState()
    outcomes = []
    for step in case["steps"]:
        cycle = run_cycle(config(case), TALOS, state, step["tree"], round(step["t"] * 1e9))
        state = cycle.state
        outcomes.append({"t": step["t"], "outcome": cycle.outcome})
    assert outcomes == case["expect"]


def tree_of(candidates: list[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Write candidates as cgroup files."""
    return {
        candidate["path"]: {
            name.replace("_", ".", 1): f"{candidate[name]}\n"
            for name in ("memory_current", "memory_peak", "memory_max")
            if candidate.get(name, "absent") != "absent"
        }
        for candidate in candidates
    }


@pytest.mark.parametrize("case", parameters(VICTIM, "cases"))
def test_victim(case: Mapping[str, Any]) -> None:
    """Scores, eligibility and the choice."""
    expected = case["expect"]
    ranking = check_ranking(case["expression"])
    if expected["outcome"] == "invalid-expression":
        assert isinstance(ranking, Problems)
        return
    assert isinstance(ranking, Checked), ranking
    found = []
    for candidate in case["candidates"]:
        # The reading of the files is the subject too: place each where its class is found.
        place = f"{FOLDERS[candidate['class']]}/x"
        (read,) = find_candidates({place: tree_of([candidate])[candidate["path"]]}, TALOS)
        assert read.oom_class is CLASSES[candidate["class"]]
        found.append(read._replace(path=candidate["path"]))
    selection = select_victim(score_all(found, ranking), strict=case["strict"])
    victim = selection.victim
    assert (victim.candidate.path if victim else None) == expected["victim"]
    assert (spelled(victim.score) if victim else None) == expected["score"]
    scores = {item.candidate.path: spelled(item.score) for item in selection.scored}
    assert scores == expected["scores"]
    eligible = [item.candidate.path for item in selection.scored if item.eligible]
    assert sorted(eligible) == sorted(expected["eligible"])


def spelled(score: float | None) -> float | str:
    """Write a score as the vectors do."""
    if score is None:
        return "error"
    if math.isfinite(score):
        return score
    return "NaN" if math.isnan(score) else "Infinity" if score > 0 else "-Infinity"


@pytest.mark.parametrize("case", parameters(VICTIM, "enumeration"))
def test_enumeration(case: Mapping[str, Any]) -> None:
    """Candidates are found in Talos' order."""
    found = find_candidates(case["tree"], LAYOUTS[case["layout"]])
    assert [
        [candidate.path.removeprefix("/sys/fs/cgroup/"), candidate.oom_class.label]
        for candidate in found
    ] == case["expect_candidates"]
