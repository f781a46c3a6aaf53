"""The alerts on the metrics of watch-oom."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from memqos_cli.output.oom_metrics import Counters
from tests.support.examples import KUBERNETES, documents
from tests.support.tools import run_tool


NAME = "prometheus-oom-rules.yaml"
TESTS = "prometheus-oom-rules-test.yaml"


def test_prometheus_accepts_the_rules() -> None:
    """`promtool check rules` finds the five rules and nothing to complain about."""
    done = run_tool("promtool", "check", "rules", NAME, cwd=str(KUBERNETES))

    assert "5 rules found" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_rules_fire_when_they_should() -> None:
    """The rules' own unit tests pass in `promtool test rules`."""
    done = run_tool("promtool", "test", "rules", TESTS, cwd=str(KUBERNETES))

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[10m]", "[5m]"),
        ("|dry-run", ""),
        ("|partly-killed", ""),
        ("|dry-run", "|dry-run|held-back"),
        ("none|empty", "empty"),
        ("|empty", ""),
        ("|refused", ""),
        ("|failed", ""),
        ("none|empty", "none|dry-run|empty"),
        ("none|empty", "none|held-back|empty"),
        ("          unless\n", "          or\n"),
        (" and on (job, instance) last_over_time(memqos_oom_missed_ticks_total[1d])", ""),
        ("memqos_oom_missed_ticks_total[1d]", "memqos_oom_missed_ticks_total[1h]"),
        ("or sum without (outcome) (rate(memqos_oom_cycles_total[5m]))", "or up"),
        ("sum without (outcome) (rate(memqos_oom_cycles_total[5m]))", "memqos_oom_cycles_total"),
        ("for: 5m", "for: 4m"),
        ("> 0.1", "> 0.09"),
        ("> 0.1", "> 0.12"),
        ("> 0.5", "> 0.4"),
        ("> 0.5", "> 0.6"),
        (".+-error", "eval-error"),
        (".+-error", "collect-error"),
    ],
)
def test_rule_tests_notice_a_changed_rule(tmp_path: Path, old: str, new: str) -> None:
    """Each figure and operator of the rules is held by a unit test."""
    text = (KUBERNETES / NAME).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / NAME).write_text(text.replace(old, new), encoding="utf-8")
    shutil.copy(KUBERNETES / TESTS, tmp_path)

    assert run_tool("promtool", "check", "rules", NAME, cwd=str(tmp_path)).returncode == 0
    assert run_tool("promtool", "test", "rules", TESTS, cwd=str(tmp_path)).returncode == 1


@pytest.fixture
def exported() -> str:
    """Return the metrics as they are before the first cycle."""
    return Counters().render()


def rules() -> list[dict[str, Any]]:
    """Read the rules on watch-oom."""
    (document,) = documents(KUBERNETES / NAME)
    (group,) = document["groups"]
    return list(group["rules"])


def test_rules_use_metrics_and_outcomes_that_exist(exported: str) -> None:
    """Every metric and outcome in the rules is one that watch-oom exports from the start."""
    text = " ".join(rule["expr"] for rule in rules())
    outcomes = {
        name
        for pattern in re.findall(r'outcome=~"([^"]+)"', text)
        for name in pattern.split("|")
        if name != ".+-error"
    }

    assert outcomes
    assert all(f'outcome="{name}"' in exported for name in outcomes)
    assert re.search(r'outcome="[a-z]+-error"', exported)
    used = set(re.findall(r"\bmemqos_\w+", text))
    assert {f"# TYPE {name} counter" for name in used} <= set(exported.splitlines())


def test_every_outcome_of_an_action_has_an_alert_or_was_asked_for(exported: str) -> None:
    """Only held-back raises no alert."""
    alerts = " ".join(rule["expr"] for rule in rules() if "alert" in rule)
    patterns = "|".join(re.findall(r'outcome=~"([^"]+)"', alerts)).split("|")
    outcomes = set(re.findall(r'memqos_oom_actions_total{outcome="([^"]+)"}', exported))

    assert outcomes - set(patterns) == {"held-back"}
