"""Replaying a recording: when the trigger would have fired, and whom it would have killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from attrs import frozen

from memqos import fields
from memqos.errors import InputError
from memqos.oom.config import OOMConfig
from memqos.oom.guards import Guards, guarded_candidates
from memqos.oom.handler import Cycle, HandlerState, Outcome, run_cycle
from memqos.oom.layout import Layout, Tree
from memqos.oom.meminfo import meminfo_bytes
from memqos.oom.victim import MOUNT


__all__ = ["ReplaySummary", "Sample", "Step", "parse_sample", "replay", "summarize"]

# Of MemTotal, in MemAvailable: a node that thrashes, and one that has room again.
_STARVED_SHARE = 0.02
_PLENTY_SHARE = 0.1
_CACHE_REFILL_NS = 30_000_000_000
_NO_GUARDS = Guards()
# Either way of 0: beyond any clock, and exact in nanoseconds as an integer.
_MAX_SECONDS = 1e12


class Sample(NamedTuple):
    """One line of a recording: seconds, the cgroups' files, and files of /proc."""

    seconds: float
    tree: Tree
    proc: Mapping[str, str]


class Step(NamedTuple):
    """One cycle of a replay, with the name of its layout."""

    seconds: float
    cycle: Cycle
    available_bytes: int | None
    total_bytes: int | None
    layout: str


def parse_sample(document: object) -> Sample:
    """Read one line of a recording from plain data.

    Raises:
        InputError: a field is missing, has another type or is out of range.
    """
    body = fields.mapping(document, "$")
    seconds = fields.number(body.get("t"), "$.t")
    if abs(seconds) > _MAX_SECONDS:
        raise InputError(f"{seconds:g} seconds are beyond ±{_MAX_SECONDS:g}", path="$.t")
    tree = {}
    for path, files in fields.mapping(body.get("tree"), "$.tree").items():
        place = fields.member("$.tree", path)
        tree[path.strip("/")] = fields.string_map(files, place)
    if "tree" not in body:
        raise InputError("expected the cgroups' files", path="$.tree")
    return Sample(seconds, tree, fields.string_map(body.get("proc"), "$.proc"))


def replay(
    samples: Iterable[Sample],
    config: OOMConfig,
    layout: Layout,
    *,
    follow_layout: Callable[[Tree], Layout] | None = None,
    guards: Guards = _NO_GUARDS,
    since_trigger_ns: int | None = None,
    follow_kills: bool = False,
) -> Iterator[Step]:
    """Run the handler over samples.

    Args:
        samples: in order of time; where it goes back, another watcher began.
        config: expressions, order, interval.
        layout: which cgroups make up which class.
        follow_layout: tells it of each sample, as kubelet may make its cgroups only later; where
            it raises InputError, the last one stays.
        guards: what is held back or preferred.
        since_trigger_ns: time since the last trigger at the first sample; None: never triggered.
        follow_kills: drop a victim from later samples.
    """
    state = HandlerState()
    killed: set[str] = set()
    before: int | None = None
    for sample in samples:
        now = round(sample.seconds * 1e9)
        if before is None and since_trigger_ns is not None:
            state = HandlerState(last_trigger_ns=now - since_trigger_ns)
        elif before is not None and now < before:
            state = HandlerState()
        before = now
        tree = _without(sample.tree, killed) if killed else sample.tree
        if follow_layout is not None:
            with suppress(InputError):
                layout = follow_layout(sample.tree)
        meminfo = sample.proc.get("proc/meminfo", "")
        candidates = partial(guarded_candidates, tree, layout, guards)
        cycle = run_cycle(config, layout, state, tree, now, meminfo=meminfo, candidates=candidates)
        state = cycle.state
        victim = cycle.selection.victim if cycle.selection else None
        if follow_kills and victim is not None:
            killed.add(victim.candidate.path.removeprefix(f"{MOUNT}/"))
        available, total = (
            meminfo_bytes(meminfo, f"Mem{name}") for name in ("Available", "Total")
        )
        yield Step(sample.seconds, cycle, available, total, layout.name)


def _without(tree: Tree, killed: set[str]) -> dict[str, Mapping[str, str]]:
    return {
        path: files
        for path, files in tree.items()
        if not any(path == gone or path.startswith(f"{gone}/") for gone in killed)
    }


@frozen(kw_only=True)
class ReplaySummary:
    """What a replay teaches.

    Attributes:
        steps: number of samples.
        outcomes: outcome to number of steps.
        fires: seconds of each fire.
        victims: paths, in order.
        notes: what the fires, or their absence, suggest.
    """

    steps: int
    outcomes: Mapping[str, int]
    fires: tuple[float, ...]
    victims: tuple[str, ...]
    notes: tuple[str, ...]


def summarize(steps: Sequence[Step]) -> ReplaySummary:
    """Sum up a replay."""
    fires = [step for step in steps if step.cycle.outcome is Outcome.FIRE]
    return ReplaySummary(
        steps=len(steps),
        outcomes=dict(sorted(Counter(str(step.cycle.outcome) for step in steps).items())),
        fires=tuple(step.seconds for step in fires),
        victims=tuple(path for step in fires if (path := _victim(step)) is not None),
        notes=(*_repeated_fires(fires), *_silence(steps, fires)),
    )


def _victim(step: Step) -> str | None:
    victim = step.cycle.selection.victim if step.cycle.selection else None
    return None if victim is None else victim.candidate.path


def _share_available(step: Step) -> float | None:
    if step.available_bytes is None or not step.total_bytes:
        return None
    return step.available_bytes / step.total_bytes


def _repeated_fires(fires: Sequence[Step]) -> Iterator[str]:
    for last, step in pairwise(fires):
        if not 0 <= (step.seconds - last.seconds) * 1e9 < _CACHE_REFILL_NS:
            continue
        if _victim(last) is None or _victim(step) is None:
            continue  # nobody was killed
        head = f"the fire at {step.seconds:g} s follows one at {last.seconds:g} s"
        if _victim(step) == _victim(last):
            yield f"{head}, whose victim would be gone by then: follow kills to see who is next"
            continue
        share = _share_available(step)
        free = "" if share is None or share < _PLENTY_SHARE else " although memory is free again"
        yield (
            f"{head}{free}: caches that refill after a kill stall like starvation, so "
            f"{_victim(step)} may be innocent"
        )


def _silence(steps: Sequence[Step], fires: Sequence[Step]) -> Iterator[str]:
    judged = [step for step in steps if step.cycle.outcome is Outcome.NO_FIRE]
    shares = [_share_available(step) for step in judged]
    starved = sum(share is not None and share < _STARVED_SHARE for share in shares)
    if starved and not fires:
        yield (
            f"{starved} samples have next to no available memory and the trigger never fires: "
            "under MGLRU only refaults of active pages count as stall"
        )
