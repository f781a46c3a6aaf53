"""``memqos replay-oom``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

import click
from attrs import asdict, evolve

from memqos.adapters.oom_files import read_recording
from memqos.errors import InputError
from memqos.oom.classes import OOMClass
from memqos.oom.config import OOMConfig
from memqos.oom.guards import Guards
from memqos.oom.handler import HandlerState, Outcome
from memqos.oom.layout import Layout, Tree, summed_children
from memqos.oom.replay import ReplaySummary, Step, replay, summarize
from memqos_cli.exit_codes import YES
from memqos_cli.oom_options import (
    choose_layout,
    config_option,
    duration_option,
    guard_options,
    layout_option,
    load_config,
    ranking_option,
    read_guards,
    require_valid,
    strict_option,
    swap_option,
    trigger_option,
)
from memqos_cli.options import debug_option, output_option, require_one_stdin
from memqos_cli.output import document
from memqos_cli.output.plot import PlotFile
from memqos_cli.output.terminal import printable, wrap, write


__all__ = ["command"]


@click.command()
@click.argument("recording", type=click.Path(readable=False, allow_dash=True))
@config_option
@click.option(
    "--compare",
    type=click.Path(readable=False, allow_dash=True),
    metavar="FILE",
    help="A second OOMConfig, replayed beside the first.",
)
@trigger_option
@ranking_option
@strict_option
@swap_option
@duration_option("--interval", "In place of sampleInterval; derivatives are divided by it.")
@duration_option("--time-since-trigger", "As of the first sample.  [default: never triggered]")
@layout_option
@click.option(
    "--sum-children",
    is_flag=True,
    help="Add up a class' pods in place of reading the class' own cgroup, as Talos does.",
)
@click.option("--follow-kills", is_flag=True, help="Drop a victim from later samples.")
@guard_options
@click.option("--metrics", is_flag=True, help="Give the trigger's variables with every step.")
@click.option("--plot", type=PlotFile(), metavar="FILE.svg|FILE.html", help="Draw the timeline.")
@output_option()
@debug_option
def command(
    recording: str,
    config: str | None,
    compare: str | None,
    trigger: str | None,
    ranking: str | None,
    strict: bool | None,
    swap: bool,
    interval: int | None,
    time_since_trigger: int | None,
    layout: str,
    sum_children: bool,
    follow_kills: bool,
    preferences: str | None,
    metrics: bool,
    plot: str | None,
    output: str,
    **guarding: Any,
) -> None:
    """Replay a RECORDING: when the trigger fires, which clause holds, and whom it kills.

    A recording is JSON Lines, gzipped or not, as `memqos watch-oom --record` writes it. The node
    need not be there any more, and nothing is killed.

    \b
    Examples:
      memqos replay-oom storm.jsonl.gz
      memqos replay-oom storm.jsonl.gz --trigger 'memory_full_avg10 > 12.0' --plot storm.svg
      memqos replay-oom storm.jsonl.gz --config now.yaml --compare next.yaml
      memqos replay-oom swap.jsonl --swap-variables --trigger 'swap_total > 0u && swap_free < MiB'
    """
    require_one_stdin(recording, config, compare, preferences)
    if compare is not None and recording == "-":
        raise click.UsageError("--compare needs a recording in a file")
    configs = [
        load_config(
            config,
            trigger=trigger,
            ranking=ranking,
            strict=strict,
            interval_ns=interval,
            swap=swap,
        )
    ]
    if compare is not None:
        configs.append(load_config(compare, interval_ns=interval, swap=swap))
    guards = read_guards(preferences=preferences, **guarding)
    replays = [
        _replay(
            recording,
            require_valid(checked),
            layout,
            sum_children=sum_children,
            since_trigger_ns=time_since_trigger,
            follow_kills=follow_kills,
            guards=guards,
            keep_values=metrics or plot is not None,
        )
        for checked in configs
    ]
    if plot is not None:
        from memqos_cli.output.timeline_plot import draw

        draw(replays[0].steps, plot)
    if output == "text":
        write(_text(replays))
    else:
        fields = {
            "layout": replays[0].steps[-1].layout,
            "sumChildren": sum_children,
            **_fields(replays[0], metrics=metrics),
        }
        if compare is not None:
            fields["compared"] = _fields(replays[1], metrics=metrics)
        write(document.render("OOMReplay", fields, output))
    click.get_current_context().exit(YES)


class _Replay(NamedTuple):
    steps: list[Step]
    summary: ReplaySummary


def _replay(
    recording: str,
    config: OOMConfig,
    layout: str,
    *,
    sum_children: bool,
    since_trigger_ns: int | None,
    follow_kills: bool,
    guards: Guards,
    keep_values: bool,
) -> _Replay:
    def choose(tree: Tree) -> Layout:
        found = choose_layout(layout, tree)
        return summed_children(found) if sum_children else found

    samples = read_recording(recording)
    head = next(samples, None)
    if head is None:
        raise InputError("the recording has no samples", source=recording)
    try:
        chosen = choose(head.tree)
    except InputError as error:
        raise error.locate(source=recording) from None
    steps = [
        step if keep_values else _lighter(step)
        for step in replay(
            chain((head,), samples),
            config,
            chosen,
            follow_layout=choose if layout == "auto" else None,
            guards=guards,
            since_trigger_ns=since_trigger_ns,
            follow_kills=follow_kills,
        )
    ]
    return _Replay(steps, summarize(steps))


def _lighter(step: Step) -> Step:
    """Leave out what only metrics and plots need: a day's recording has 170,000 samples."""
    return step._replace(cycle=evolve(step.cycle, values={}, state=HandlerState()))


def _fields(replayed: _Replay, *, metrics: bool) -> dict[str, Any]:
    return {
        "steps": [_step_fields(step, metrics=metrics) for step in replayed.steps],
        "summary": asdict(replayed.summary),
    }


def _step_fields(step: Step, *, metrics: bool) -> dict[str, Any]:
    cycle = step.cycle
    victim = cycle.selection.victim if cycle.selection else None
    fields: dict[str, Any] = {
        "t": step.seconds,
        "outcome": cycle.outcome,
        "victim": None if victim is None else victim.candidate.path,
        "score": None if victim is None else document.number(victim.score),
        "error": cycle.error,
        "clauses": [{"text": clause.text, "value": clause.value} for clause in cycle.clauses],
    }
    if metrics:
        fields["metrics"] = _metrics(cycle.values)
    return fields


def _metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {OOMClass(key).label: document.number(item) for key, item in value.items()}
        if isinstance(value, Mapping)
        else document.number(value)
        for name, value in values.items()
    }


def _text(replays: list[_Replay]) -> str:
    parts = []
    for name, replayed in zip(("first", "second"), replays, strict=False):
        if len(replays) > 1:
            parts.append(f"{name} configuration\n")
        parts += [
            _line(step) for step in replayed.steps if step.cycle.outcome is not Outcome.NO_FIRE
        ]
        summary = replayed.summary
        counts = ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())
        parts.append(f"{summary.steps} samples: {counts}\n")
        parts += [wrap(f"note: {text}") + "\n" for text in summary.notes]
    return "".join(parts)


def _line(step: Step) -> str:
    cycle = step.cycle
    head = f"{step.seconds:10.2f}s  {cycle.outcome}"
    if cycle.error is not None:
        return f"{head}: {printable(cycle.error)}\n"
    victim = cycle.selection.victim if cycle.selection else None
    whom = "nobody is eligible"
    if victim is not None:
        whom = f"{printable(victim.candidate.path)} (score {victim.score:g})"
    clauses = "".join(
        f"{'':13}{'?' if clause.value is None else str(clause.value).lower():<6} "
        f"{printable(' '.join(clause.text.split()))}\n"
        for clause in cycle.clauses
    )
    return f"{head}: {whom}\n{clauses}"
