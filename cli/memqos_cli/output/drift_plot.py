"""The picture of a drift report: how far NUMA nodes drifted, against the bound and the grace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from memqos.memory_manager.fleet import BUCKET_BYTES, OVERFLOW_BYTES, DriftSummary
from memqos.memory_manager.iomem import GRACE_BYTES
from memqos.memory_manager.reasons import Verdict
from memqos_cli.output.plot import BLUE, GREY, INK, VERMILION


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["draw_drift", "drift_title"]

_MIB = 1024 * 1024
_MOST_BARS = 64
_LOG_FROM = 30  # a bar this many times lower than the highest could hardly be seen


def drift_title(summary: DriftSummary) -> str:
    """Say what is shown."""
    return (
        f"Memory drift of {_count(summary.numa_nodes, 'NUMA node')} "
        f"in {_count(summary.results, 'snapshot')}"
    )


def draw_drift(figure: Figure, summary: DriftSummary) -> None:
    """Draw the histogram of absolute drift."""
    axes = figure.add_subplot()
    axes.set_title(drift_title(summary), loc="left", fontsize=13, fontweight="bold", pad=34)
    axes.text(0, 1.045, _subtitle(summary), transform=axes.transAxes, fontsize=10.5, va="bottom")
    axes.set_xlabel("absolute drift of a NUMA node (MiB)")
    axes.set_ylabel("NUMA nodes")
    limit, step = _scale(summary)
    top = _draw_bars(axes, summary, limit, step)
    _draw_limits(axes, summary, limit, top)
    axes.set_xlim(-1.6 * _margin(limit), limit + 1.6 * _margin(limit))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _subtitle(summary: DriftSummary) -> str:
    parts = [f"{summary.verdicts.get(verdict, 0):,} {verdict}" for verdict in Verdict]
    if summary.failures:
        parts.append(f"{summary.failures:,} unreadable")
    return "kubelet's verdict: " + ", ".join(parts)


def _scale(summary: DriftSummary) -> tuple[int, int]:
    """Choose where the axis ends and how wide a bar is, in MiB."""
    bound = max(GRACE_BYTES, *(summary.bound_range or (0,)))
    bound_mib = -(-min(bound, OVERFLOW_BYTES) // _MIB)
    last = max(summary.histogram, default=0) * BUCKET_BYTES // _MIB + 1
    wanted = min(max(min(last, 2 * bound_mib), bound_mib * 9 // 8), OVERFLOW_BYTES // _MIB)
    step = 1
    while wanted > step * _MOST_BARS:
        step *= 2
    edge = _tick(wanted)
    return -(-wanted // edge) * edge, step


def _margin(limit: int) -> float:
    """Place the bars beside the axis: far enough away for their labels."""
    return limit / 25


def _bars(histogram: Mapping[int, int], limit: int, step: int) -> Counter[float]:
    """Put buckets together into bars, at their middle; the last one is beyond the limit."""
    bars: Counter[float] = Counter()
    for bucket, count in histogram.items():
        start = bucket * BUCKET_BYTES // _MIB
        place = limit + _margin(limit) if start >= limit else start // step * step + step / 2
        bars[place] += count
    return bars


def _draw_bars(axes: Axes, summary: DriftSummary, limit: int, step: int) -> float:
    from matplotlib.ticker import MaxNLocator

    every = _bars(summary.histogram, limit, step)
    beyond = _bars(summary.histogram_over_bound, limit, step)
    within = every - beyond
    tallest = max([*every.values(), summary.unchanged, 1])
    lowest = min([count for count in (*every.values(), *beyond.values()) if count], default=1)
    logarithmic = tallest > _LOG_FROM * lowest
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylabel("NUMA nodes (logarithmic)")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    width = step * 0.9
    unit = f"{step} MiB a bar"
    unknown = f", {summary.bound_unknown:,} of unknown bound" if summary.bound_unknown else ""
    if summary.unchanged:
        axes.bar(
            -_margin(limit),
            summary.unchanged,
            width,
            color=GREY,
            label=f"no drift: {summary.unchanged:,}",
        )
    inside = sum(within.values())
    if inside:
        label = f"within the node's own bound: {inside:,}{unknown} ({unit})"
        axes.bar(list(within), list(within.values()), width, color=BLUE, label=label)
    if beyond:
        axes.bar(
            list(beyond),
            list(beyond.values()),
            width,
            [within[place] for place in beyond],
            color=VERMILION,
            edgecolor="white",
            linewidth=0,
            hatch="////",
            label=f"beyond the node's own bound: {sum(beyond.values()):,}",
        )
    top = tallest * (4.0 if logarithmic else 1.22)
    axes.set_ylim(0.6 if logarithmic else 0, top)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value % 1 == 0 else "")
    ticks: list[float] = list(range(0, limit + 1, _tick(limit)))
    labels = [f"{place:g}" for place in ticks]
    if summary.unchanged:
        ticks, labels = [-_margin(limit), *ticks], ["none", *labels]
    if any(place > limit for place in every):
        ticks[-1], labels[-1] = limit + _margin(limit), f"≥ {limit}"
    axes.set_xticks(ticks, labels)
    if summary.numa_nodes:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.13), ncols=1)
    else:
        axes.text(0.02, 0.5, "no drift is known", transform=axes.transAxes)
    return top


def _tick(limit: int) -> int:
    return next((step for step in (8, 16, 32, 64, 128) if limit <= 10 * step), 256)


def _draw_limits(axes: Axes, summary: DriftSummary, limit: int, top: float) -> None:
    grace = GRACE_BYTES / _MIB
    axes.axvline(grace, color=INK, linewidth=1.2, linestyle=(0, (2, 2)))
    _label(axes, f"grace {grace:g} MiB", (grace, top), left=True)
    if summary.bound_range is None:
        return
    low, high = (value / _MIB for value in summary.bound_range)
    text = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
    if low != high:
        axes.axvspan(low, high, color=INK, alpha=0.1, linewidth=0, zorder=0)
    for place in sorted({low, high}):
        axes.axvline(place, color=INK, linewidth=1.4)
    if high <= limit:
        _label(axes, f"auto bound {text} MiB", (high, top), left=False)
    else:
        _label(axes, f"auto bound {text} MiB →", (limit, top), left=True)


def _label(axes: Axes, text: str, place: tuple[float, float], *, left: bool) -> None:
    axes.annotate(
        text,
        place,
        (-5 if left else 5, -2),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
        fontsize=9.5,
    )
