"""The timeline of a replay: pressure of the classes, memory left, fires and victims."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from memqos.oom.classes import OOMClass
from memqos.oom.handler import Outcome
from memqos.oom.replay import Step
from memqos_cli.output.plot import BLUE, GREY, INK, ORANGE, VERMILION, save_plot
from memqos_cli.output.terminal import printable


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["draw"]

_COLOURS = {
    OOMClass.SYSTEM: VERMILION,
    OOMClass.PODRUNTIME: ORANGE,
    OOMClass.GUARANTEED: "#009e73",
    OOMClass.BURSTABLE: "#56b4e9",
    OOMClass.BESTEFFORT: BLUE,
}
_MIB = 1024**2
_GIB = 1024**3
_MOST_LISTED = 8
_LONGEST_CLAUSE = 110


def draw(steps: list[Step], path: str) -> None:
    """Draw a replay to an SVG or HTML file.

    Raises:
        MachineError: it cannot be written.
    """
    fires = [step for step in steps if step.cycle.outcome is Outcome.FIRE]
    title = (
        f"OOM trigger over {steps[-1].seconds - steps[0].seconds:.0f} s: "
        f"{len(fires)} fire{'' if len(fires) == 1 else 's'} in {len(steps)} samples"
    )
    save_plot(path, title, lambda figure: _figure(figure, steps, fires, title))


def _figure(figure: Figure, steps: list[Step], fires: list[Step], title: str) -> None:
    whole = [step for step in steps if step.cycle.values]
    clauses = whole[0].cycle.clauses if whole else ()
    known = [step for step in steps if step.available_bytes is not None]
    heights = [2.0, 2.0, *([1.4] if known else []), 0.4 + 0.38 * len(clauses)]
    listed = fires[:_MOST_LISTED]
    figure.set_size_inches(9.375, sum(heights) + 1.8 + 0.19 * len(listed))
    rows = list(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights).flat)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    _series(rows[0], whole, "qos_memory_full_avg10", 1.0)
    rows[0].set_ylabel("full avg10 (%)")
    rows[0].legend(loc="lower left", bbox_to_anchor=(0, 1.06), ncols=5, fontsize=9)
    _series(rows[1], whole, "d_qos_memory_full_total", 1e4)
    rows[1].set_ylabel("stalled (% of time)")
    if known:
        times = [step.seconds for step in known]
        available = [(step.available_bytes or 0) / _GIB for step in known]
        rows[2].plot(times, available, color=INK, linewidth=1.6)
        rows[2].set_ylim(bottom=0)
        rows[2].set_ylabel("available (GiB)")
    _clauses(rows[-1], whole)
    for axes in rows:
        for step in steps:
            if step.cycle.error is not None:
                axes.axvspan(step.seconds - 0.25, step.seconds + 0.25, color=GREY, alpha=0.3)
        for step in fires:
            axes.axvline(step.seconds, color=INK, linestyle="--", linewidth=1.2)
    for number, step in enumerate(listed, 1):
        rows[0].annotate(
            str(number),
            (step.seconds, 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=9,
            fontweight="bold",
        )
    lines = [f"{number}  {_fire(step)}" for number, step in enumerate(listed, 1)]
    if len(fires) > len(listed):
        lines.append(f"and {len(fires) - len(listed)} more fires")
    rows[-1].set_xlabel("\n".join(["seconds", *lines]), loc="left", fontsize=9)


def _series(axes: Axes, steps: list[Step], name: str, divisor: float) -> None:
    times = [step.seconds for step in steps]
    for oom_class in reversed(OOMClass):
        values = [step.cycle.values[name][int(oom_class)] / divisor for step in steps]
        quiet = not any(values)
        axes.plot(
            times,
            values,
            label=oom_class.label,
            color=_COLOURS[oom_class],
            linewidth=1.0 if quiet else 1.8,
            alpha=0.4 if quiet else 1.0,
        )
    axes.set_ylim(bottom=0)


def _clauses(axes: Axes, steps: list[Step]) -> None:
    """Draw a bar for each clause of the trigger while it holds: that is where thresholds are."""
    clauses = steps[0].cycle.clauses if steps else ()
    for row, clause in enumerate(clauses):
        holds = [step.cycle.clauses[row].value is True for step in steps]
        spans = [
            (step.seconds, after.seconds - step.seconds)
            for (step, after), held in zip(pairwise(steps), holds, strict=False)
            if held
        ]
        axes.broken_barh(spans, (row - 0.1, 0.3), color=VERMILION, linewidth=0)
        text = printable(" ".join(clause.text.split()))
        text = text if len(text) <= _LONGEST_CLAUSE else f"{text[: _LONGEST_CLAUSE - 1]}…"
        axes.annotate(
            text,
            (0.0, row - 0.15),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="bottom",
            fontsize=8,
        )
    axes.set_ylim(len(clauses) - 0.5, -0.75)
    axes.set_yticks([])
    axes.set_ylabel("holds")


def _fire(step: Step) -> str:
    victim = step.cycle.selection.victim if step.cycle.selection else None
    if victim is None:
        return f"at {step.seconds:.1f} s nobody is eligible"
    candidate = victim.candidate
    name = printable(candidate.path.rpartition("/")[2])
    name = name if len(name) <= 60 else f"{name[:40]}…{name[-19:]}"
    use = "" if candidate.current is None else f", uses {candidate.current / _MIB:,.0f} MiB"
    return f"at {step.seconds:.1f} s kills {name} ({candidate.oom_class.label}{use})"
