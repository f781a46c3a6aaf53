"""Recordings from real kernels; the fires are those that were found when they were made."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from memqos.errors import InputError
from memqos.oom.config import OOMConfig, check_documents
from memqos.oom.guards import Guards
from memqos.oom.handler import Outcome
from memqos.oom.layout import LAYOUTS, detect_layout, summed_children
from memqos.oom.replay import Sample, Step, parse_sample, replay, summarize


RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"


@cache
def samples(name: str) -> tuple[Sample, ...]:
    """Read a recording."""
    text = gzip.decompress((RECORDINGS / f"{name}.jsonl.gz").read_bytes()).decode()
    return tuple(parse_sample(json.loads(line)) for line in text.splitlines())


def run(name: str, *, summed: bool = False, trigger: str | None = None, **more: Any) -> list[Step]:
    """Replay a recording with the defaults."""
    config = check_documents([], trigger=trigger)
    assert isinstance(config, OOMConfig)
    layout = LAYOUTS["talos"]
    return list(
        replay(samples(name), config, summed_children(layout) if summed else layout, **more)
    )


def fires(steps: list[Step]) -> list[int]:
    """Return the numbers of the samples in which the trigger fires."""
    return [k for k, step in enumerate(steps) if step.cycle.outcome is Outcome.FIRE]


@pytest.mark.parametrize(
    ("name", "expected", "summed"),
    [
        ("quiet", [], []),
        ("starve-classic", [33], [33, 47]),
        ("starve-mglru", [42], [30, 42]),
        ("mglru-silent", [], []),
        ("limited", [], []),
    ],
)
def test_fires(name: str, expected: list[int], summed: list[int]) -> None:
    """With the class cgroup as Talos reads it, and with its pods added up."""
    assert fires(run(name)) == expected
    assert fires(run(name, summed=True)) == summed


def test_every_clause_is_told() -> None:
    """At a fire all clauses of the default hold."""
    steps = run("starve-classic")
    assert [clause.value for clause in steps[33].cycle.clauses] == [True, True, True]
    assert all(False in [c.value for c in steps[k].cycle.clauses] for k in range(33))


def test_the_victim_is_the_hog() -> None:
    """The best-effort pod that uses most and has no limit."""
    step = run("starve-classic")[33]
    selection = step.cycle.selection
    assert selection is not None
    assert selection.victim is not None
    assert selection.victim.candidate.path.startswith("/sys/fs/cgroup/kubepods/besteffort/")
    others = [item.score or 0.0 for item in selection.scored]
    assert selection.victim.score == max(others)


def test_a_second_fire_is_doubted() -> None:
    """Caches refill after a kill, and stall like starvation."""
    summary = summarize(run("starve-classic", summed=True))
    assert summary.outcomes["fire"] == 2
    assert "would be gone" in "".join(summary.notes)
    followed = summarize(run("starve-classic", summed=True, follow_kills=True))
    first, second = followed.victims
    assert first != second
    assert f"{second} may be innocent" in "".join(followed.notes)
    assert summarize(run("starve-classic")).notes == ()


def test_a_node_that_thrashes_in_silence() -> None:
    """Nothing is available, and the trigger never fires."""
    (note,) = summarize(run("mglru-silent")).notes
    assert "never fires" in note
    assert summarize(run("quiet")).notes == ()


def test_cycles_that_fail_are_not_silence() -> None:
    """A trigger that could not be evaluated says nothing about the kernel."""
    failing = "1 / int(memory_full_avg300 * 0.0) > 0"
    assert summarize(run("mglru-silent", trigger=failing)).notes == ()


def test_follow_kills() -> None:
    """A victim is not there any more."""
    always = "memory_full_avg10 >= 0.0"
    again = summarize(run("quiet", trigger=always)).victims
    followed = summarize(run("quiet", trigger=always, follow_kills=True)).victims
    assert len(set(again)) < len(again)
    assert len(set(followed)) == len(followed) > 1


def test_time_since_trigger() -> None:
    """As of the first sample; it grows with the samples' own time."""
    steps = run("quiet", since_trigger_ns=3 * 10**9, trigger='time_since_trigger > duration("5s")')
    start = samples("quiet")[0].seconds
    first = fires(steps)[0]
    assert samples("quiet")[first].seconds - start > 2
    assert samples("quiet")[first - 1].seconds - start <= 2


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([], "$"),
        ({"tree": {}}, "$.t"),
        ({"t": 1}, "$.tree"),
        ({"t": "1", "tree": {}}, "$.t"),
        ({"t": True, "tree": {}}, "$.t"),
        ({"t": 1, "tree": {"a": {"f": 1}}}, "$.tree.a.f"),
        ({"t": 1, "tree": {"a": []}}, "$.tree.a"),
        ({"t": 1, "tree": {}, "proc": []}, "$.proc"),
        ({"t": float("nan"), "tree": {}}, "$.t"),
        ({"t": float("inf"), "tree": {}}, "$.t"),
        ({"t": 10**400, "tree": {}}, "$.t"),
        ({"t": 1e308, "tree": {}}, "$.t"),
        ({"t": -1e300, "tree": {}}, "$.t"),
        ({"t": 1.01e12, "tree": {}}, "$.t"),
    ],
)
def test_malformed_samples(document: object, path: str) -> None:
    """The place is told."""
    with pytest.raises(InputError) as raised:
        parse_sample(document)
    assert raised.value.path == path


def test_another_watcher_began() -> None:
    """Where time goes back nothing is known of what was before, a trigger neither."""
    found = [parse_sample({"t": t, "tree": {}}) for t in (900, 0, 3, 6)]
    config = check_documents([], trigger='time_since_trigger > duration("5s")')
    assert isinstance(config, OOMConfig)
    steps = list(replay(found, config, LAYOUTS["talos"]))
    assert fires(steps) == [0, 1, 3]
    assert summarize(steps).notes == ()  # nobody was killed


def test_the_widest_times() -> None:
    """What is within the bounds can be replayed, also with a trigger in between."""
    found = [parse_sample({"t": t, "tree": {}}) for t in (-1e12, 1e12)]
    config = check_documents([], trigger='time_since_trigger > duration("1s")')
    assert isinstance(config, OOMConfig)
    steps = list(replay(found, config, LAYOUTS["talos"], since_trigger_ns=0))
    assert [step.cycle.error for step in steps] == [None, None]
    assert fires(steps) == [1]


def test_swap() -> None:
    """The node's swap is in the recorded meminfo, a cgroup's in its files."""
    swapped = {"kubepods/besteffort/pod1": 3, "kubepods/besteffort/pod2": 5}
    found = [
        Sample(
            float(seconds),
            {pod: {"memory.swap.current": f"{size}\n"} for pod, size in swapped.items()},
            {"proc/meminfo": f"SwapTotal: 10 kB\nSwapFree: {free} kB\n"},
        )
        for seconds, free in enumerate((10, 1))
    ]
    config = check_documents(
        [],
        trigger="swap_total == 10u * KiB && swap_free <= KiB",
        ranking="double(memory_swap_current.value())",
        swap=True,
    )
    assert isinstance(config, OOMConfig)
    steps = list(replay(found, config, LAYOUTS["talos"]))
    assert fires(steps) == [1]
    assert summarize(steps).victims == ("/sys/fs/cgroup/kubepods/besteffort/pod2",)


def test_the_layout_is_followed() -> None:
    """Its cgroups may come after the first sample; when in doubt, nothing changes."""
    files = {"memory.current": "1\n", "memory.max": "max\n"}
    slices = {"system.slice": files, "init.scope": files}
    pod = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podx.slice"
    trees = (slices, {**slices, "kubepods.slice": files, pod: files}, {pod: files, "kubepods": {}})
    found = [Sample(float(t), tree, {}) for t, tree in enumerate(trees)]
    config = check_documents([], trigger="true")
    assert isinstance(config, OOMConfig)
    steps = list(replay(found, config, LAYOUTS["cgroupfs"], follow_layout=detect_layout))
    assert [step.layout for step in steps] == ["cgroupfs", "systemd", "systemd"]
    assert summarize(steps).victims == (f"/sys/fs/cgroup/{pod}",) * 2
    still = list(replay(found, config, LAYOUTS["cgroupfs"]))
    assert [step.layout for step in still] == ["cgroupfs"] * 3


def test_guards() -> None:
    """Who is never to be chosen is not chosen here, either."""
    files = {"memory.current": "1\n", "memory.max": "max\n"}
    pods = [f"kubepods/besteffort/pod{uid}" for uid in ("1234abcd", "5678abcd")]
    found = [Sample(0.0, dict.fromkeys(pods, files), {})]
    config = check_documents([], trigger="true")
    assert isinstance(config, OOMConfig)
    for pod, other in (pods, pods[::-1]):
        guards = Guards(protected=(pod[-8:],))
        steps = list(replay(found, config, LAYOUTS["talos"], guards=guards))
        assert summarize(steps).victims == (f"/sys/fs/cgroup/{other}",)
