"""The action log: spec section 7."""

import json

from memqos.oom.action import ActionRecord, append_record, record_line, trigger_context
from memqos.oom.classes import OOMClass
from memqos.oom.metrics import NEVER_NS


def test_context_is_finite_json() -> None:
    """Class maps have keys "0" to "4"; time is nanoseconds; what is not finite is 0."""
    text = trigger_context(
        {"a": {0: 1.5, 4: float("nan")}, "b": float("inf"), "time_since_trigger": NEVER_NS}
    )
    assert text == '{"a":{"0":1.5,"4":0.0},"b":0.0,"time_since_trigger":9223372036854775807}'


def test_only_the_last_fifty_are_kept() -> None:
    """Older ones go."""
    records: tuple[ActionRecord, ...] = ()
    for number in range(53):
        record = ActionRecord(id=number, time=0.0, outcome="none", trigger_context="{}")
        records = append_record(records, record)
    assert [record.id for record in records] == list(range(3, 53))


def test_line() -> None:
    """Talos' fields, and what they lack: path, class, time, outcome."""
    record = ActionRecord(
        id=7,
        time=1.5,
        outcome="killed",
        trigger_context="{}",
        score=2.0,
        path="/sys/fs/cgroup/x",
        oom_class=OOMClass.BURSTABLE,
        processes=("sleep 60",),
    )
    assert json.loads(record_line(record)) == {
        "id": "7",
        "time": 1.5,
        "outcome": "killed",
        "path": "/sys/fs/cgroup/x",
        "class": "Burstable",
        "score": 2.0,
        "processes": ["sleep 60"],
        "error": None,
        "triggerContext": "{}",
    }
    assert "\n" not in record_line(record)
