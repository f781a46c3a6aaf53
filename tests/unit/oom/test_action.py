"""The action log: spec section 7."""

import json

import pytest

from memqos.errors import InputError
from memqos.oom.action import (
    ActionRecord,
    append_record,
    parse_log,
    record_line,
    trigger_context,
)
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
    lines: tuple[str, ...] = ()
    for number in range(53):
        record = ActionRecord(id=number, time=0.0, outcome="none", trigger_context="{}")
        lines = append_record(lines, record)
    assert [json.loads(line)["id"] for line in lines] == [str(id_) for id_ in range(3, 53)]


def test_a_log_is_read_again() -> None:
    """Line by line, as it was; an empty file is a log without actions."""
    record = ActionRecord(
        id=0, time=0.0, outcome="none", trigger_context="{}", processes=("a\n\u2028\x85b",)
    )
    lines = append_record(append_record((), record), record)
    assert parse_log("".join(f"{line}\n" for line in lines)) == lines
    assert parse_log("") == ()


@pytest.mark.parametrize("line", ["", "x", "1", "[]", "{}", '{"id": "0"}', "[" * 100_000])
def test_what_is_no_log(line: str) -> None:
    """It is refused: the first action would replace it."""
    record = ActionRecord(id=0, time=0.0, outcome="none", trigger_context="{}")
    with pytest.raises(InputError) as caught:
        parse_log(f"{record_line(record)}\n{line}\n")
    assert caught.value.line == 2


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


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_scores_that_json_lacks(score: float, expected: str) -> None:
    """They are strings, as in the other documents."""
    record = ActionRecord(id=0, time=0.0, outcome="killed", trigger_context="{}", score=score)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(record_line(record), parse_constant=refuse)["score"] == expected


def test_thousands_of_processes() -> None:
    """A pod cannot make the log so large that it cannot be read again."""
    names = tuple(f"\x01 {number} {'x' * 4000}" for number in range(3000))
    record = ActionRecord(id=0, time=0.0, outcome="killed", trigger_context="{}", processes=names)
    line = record_line(record)
    assert len(line) < 70_000
    processes = json.loads(line)["processes"]
    assert processes[:-1] == list(names[: len(processes) - 1])
    assert processes[-1] == f"and {3000 - len(processes) + 1} more"


def test_names_that_are_not_utf8() -> None:
    """A line can be encoded and read back, whatever a process calls itself."""
    name = b"caf\xe9 \xc3\xa9".decode("utf-8", "surrogateescape")
    record = ActionRecord(
        id=0, time=0.0, outcome="killed", trigger_context="{}", path=name, processes=(name,)
    )
    line = record_line(record).encode()
    assert b"caf\\udce9 \xc3\xa9" in line
    assert json.loads(line)["processes"] == [name]
