"""The picture of a protection tree: what each cgroup uses, claims and really has."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from memqos.cgroup import MAX
from memqos.memory_qos.protection import Protected, parent_of
from memqos_cli.output.plot import BLUE, INK, ORANGE, VERMILION, save_plot
from memqos_cli.output.protection_names import short_name, short_size
from memqos_cli.output.protection_tree import Loss, deaths, losses


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["Row", "draw", "draw_tree", "plot_title", "rows_of"]

_MOST_ROWS = 48
_WIDTH = 9.375  # inches; 900 CSS pixels
_ROW = 0.235
_ABOVE, _BELOW = 0.95, 0.85
_LEFT, _RIGHT = 0.3, 0.27  # of the width: the names, what is lost
_LOG_FROM = 30  # a claim this many times smaller than the largest bar could hardly be seen
_USAGE = "#d9d9d9"
_BAND = "#f5f5f5"


class Row(NamedTuple):
    """One line of the picture; bytes.

    Attributes:
        label: the cgroup's name, or what is summed up.
        depth: how far to indent.
        usage: memory.current.
        claims: memory.min and memory.low, at most what the tree's usage makes meaningful.
        effective: the same as the kernel has them.
        lost: what a claim loses and to whom, or what dies here; empty for neither.
        is_void: whether something claimed is worth nothing.
    """

    label: str
    depth: int
    usage: int
    claims: tuple[int, int]
    effective: tuple[int, int]
    lost: str
    is_void: bool


def draw(found: tuple[Protected, ...], file: str) -> None:
    """Draw a tree to a file.

    Raises:
        MachineError: it cannot be written.
    """
    save_plot(file, plot_title(found), lambda figure: draw_tree(figure, found))


def plot_title(found: tuple[Protected, ...]) -> str:
    """Say what is shown."""
    count = len(found)
    return f"Memory protection of {count:,} cgroup{'' if count == 1 else 's'}"


# --- what is drawn -----------------------------------------------------------------------------


def rows_of(found: tuple[Protected, ...], most: int = _MOST_ROWS) -> list[Row]:
    """Choose what to draw: parents before children, the largest first, the rest summed up."""
    known = {item.cgroup.path: item for item in found}
    children: dict[str, list[Protected]] = {}
    for item in found:
        parent = parent_of(item.cgroup.path)
        children.setdefault(parent if parent in known else "", []).append(item)
    chosen = _choose(children, most)
    dead = deaths(found)
    rows: list[Row] = []
    # Depth first without recursion; a tuple stands for siblings that are summed up.
    todo: list[tuple[int, Protected | tuple[Protected, ...]]] = []

    def push(depth: int, path: str) -> None:
        inner = sorted(children.get(path, ()), key=_size, reverse=True)
        rest = tuple(item for item in inner if item.cgroup.path not in chosen)
        if rest:
            todo.append((depth, rest))
        todo.extend((depth, item) for item in reversed(inner) if item.cgroup.path in chosen)

    push(0, "")
    while todo:
        depth, entry = todo.pop()
        if isinstance(entry, Protected):
            rows.append(_row(entry, depth, dead.get(entry.cgroup.path, "")))
            push(depth + 1, entry.cgroup.path)
        else:
            rows.append(_summed(entry, children, depth))
    return rows


def _size(item: Protected) -> int:
    """Rank a cgroup: what it uses, or claims."""
    cgroup = item.cgroup
    return max(cgroup.usage or 0, *(value for value in (cgroup.min, cgroup.low) if value < MAX), 0)


def _choose(children: Mapping[str, list[Protected]], most: int) -> set[str]:
    """Take the largest cgroups whose parents are taken."""
    chosen: set[str] = set()
    heap = [(-_size(item), item.cgroup.path) for item in children.get("", ())]
    heapq.heapify(heap)
    while heap and len(chosen) < most:
        _, path = heapq.heappop(heap)
        chosen.add(path)
        for item in children.get(path, ()):
            heapq.heappush(heap, (-_size(item), item.cgroup.path))
    return chosen


def _row(item: Protected, depth: int, dead: str) -> Row:
    found = losses(item)
    cgroup = item.cgroup
    return Row(
        short_name(cgroup.path).removesuffix(".slice").removesuffix(".scope"),
        depth,
        cgroup.usage or 0,
        (cgroup.min, cgroup.low),
        (item.effective_min or 0, item.effective_low or 0),
        "; ".join((*map(_say, found), *filter(None, (dead,)))),
        any(loss.effective == 0 for loss in found),
    )


def _say(loss: Loss) -> str:
    worth = "void" if loss.effective == 0 else f"cut to {short_size(loss.effective)}"
    return f"{loss.knob} {worth}" + (f": {short_name(loss.limiter)}" if loss.limiter else "")


def _summed(
    rest: tuple[Protected, ...], children: Mapping[str, list[Protected]], depth: int
) -> Row:
    every = list(_with_inner(rest, children))
    void = sum(any(loss.effective == 0 for loss in losses(item)) for item in every)

    def total(values: Iterable[int]) -> int:
        return min(sum(values), MAX)

    return Row(
        f"{len(every):,} more",
        depth,
        total(item.cgroup.usage or 0 for item in rest),
        (total(item.cgroup.min for item in rest), total(item.cgroup.low for item in rest)),
        (
            total(item.effective_min or 0 for item in rest),
            total(item.effective_low or 0 for item in rest),
        ),
        f"{void:,} with void protection" if void else "",
        bool(void),
    )


def _with_inner(
    items: Iterable[Protected], children: Mapping[str, list[Protected]]
) -> Iterator[Protected]:
    todo = list(items)
    while todo:
        item = todo.pop()
        yield item
        todo += children.get(item.cgroup.path, ())


# --- drawing -----------------------------------------------------------------------------------


def draw_tree(figure: Figure, found: tuple[Protected, ...]) -> None:
    """Draw the rows: usage in grey, claims as outlines, what they are worth filled in."""
    rows = rows_of(found)
    height = _ABOVE + _BELOW + _ROW * max(len(rows), 2)
    figure.set_layout_engine("none")
    figure.set_size_inches(_WIDTH, height)
    axes = figure.add_axes(
        (_LEFT, _BELOW / height, 1 - _LEFT - _RIGHT, 1 - (_ABOVE + _BELOW) / height)
    )
    figure.text(
        0.012, 1 - 0.28 / height, plot_title(found), fontsize=13, fontweight="bold", va="center"
    )
    figure.text(0.012, 1 - 0.52 / height, _subtitle(found), fontsize=10.5, va="center")
    last = _scale(axes, rows)
    axes.set_ylim(max(len(rows), 2) - 0.5, -0.5)
    axes.set_yticks([])
    axes.grid(visible=True, axis="x", color="#dddddd")
    axes.grid(visible=False, axis="y")
    for place, row in enumerate(rows):
        if place % 2:
            _band(axes, place)
        _draw_row(axes, place, row, last)
    if not rows:
        axes.text(0.02, 0.5, "there are no cgroups", transform=axes.transAxes)
    _legend(axes)


def _subtitle(found: tuple[Protected, ...]) -> str:
    every = [loss for item in found for loss in losses(item)]
    void = sum(loss.effective == 0 for loss in every)
    if not every:
        return "all that is claimed is held"
    return f"{void:,} claims are void (a cross), {len(every) - void:,} are cut short"


def _scale(axes: Axes, rows: list[Row]) -> float:
    """Set the axis; return where it ends, in bytes."""
    sizes = [
        value
        for row in rows
        for value in (row.usage, *row.claims, *row.effective)
        if 0 < value < MAX
    ]
    claims = [value for row in rows for value in row.claims if 0 < value < MAX]
    largest = max(sizes, default=1 << 20)
    smallest = min(claims, default=largest)
    logarithmic = largest > _LOG_FROM * smallest
    first = 0.0
    last = largest * 1.04
    if logarithmic:
        first = float(1 << max(smallest.bit_length() - 5, 12))
        last = largest * 1.5
        axes.set_xscale("log", base=2)
    axes.set_xlim(first, last)
    ticks = list(_ticks(int(first), largest, logarithmic=logarithmic))
    axes.set_xticks(ticks, [short_size(tick) for tick in ticks])
    axes.minorticks_off()
    axes.tick_params(length=3, labelsize=9.5)
    if logarithmic:
        axes.set_xlabel("logarithmic", fontsize=9.5, labelpad=1)
    return last


def _ticks(first: int, largest: int, *, logarithmic: bool) -> Iterator[int]:
    """Yield round binary sizes, five or so."""
    if not logarithmic:
        step = 1
        while largest > step * 5:
            step *= 2
        yield from range(0, largest + 1, step)
        return
    tick = 1 << max(first - 1, 1).bit_length()
    step = max(1, (max(largest // tick, 1).bit_length() + 5) // 6)
    while tick <= largest:
        yield tick
        tick <<= step


def _band(axes: Axes, place: int) -> None:
    """Lead the eye from the name to what is lost."""
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle(
            (-_LEFT / (1 - _LEFT - _RIGHT), place - 0.5),
            1 / (1 - _LEFT - _RIGHT),
            1,
            transform=axes.get_yaxis_transform(),
            color=_BAND,
            linewidth=0,
            clip_on=False,
            zorder=-1,
        )
    )


def _draw_row(axes: Axes, place: int, row: Row, last: float) -> None:
    across = axes.get_yaxis_transform()  # x in parts of the axes, y in rows
    indent = min(row.depth, 12) * 0.022
    start = -_LEFT / (1 - _LEFT - _RIGHT) + 0.022 + indent
    room = int((-start - 0.01) / 0.0148)
    label = row.label if len(row.label) <= room else f"{row.label[: room - 6]}…{row.label[-5:]}"
    colour = VERMILION if row.is_void else INK
    axes.text(start, place, label, transform=across, fontsize=9, va="center", color=colour)
    axes.barh(place, min(row.usage, last), 0.78, color=_USAGE, zorder=1)
    for offset, shade, claim, worth in (
        (-0.17, BLUE, row.claims[0], row.effective[0]),
        (0.17, ORANGE, row.claims[1], row.effective[1]),
    ):
        axes.barh(place + offset, min(worth, last), 0.24, color=shade, zorder=2)
        if claim:
            axes.barh(
                place + offset,
                min(claim, last),
                0.24,
                fill=False,
                edgecolor=shade,
                linewidth=1.1,
                zorder=3,
            )
        if claim and row.is_void and not worth and row.usage:
            axes.plot(
                [min(claim, last * 0.99)],
                [place + offset],
                marker="x",
                markersize=6,
                markeredgewidth=2,
                color=VERMILION,
                zorder=4,
                clip_on=False,
            )
    if row.lost:
        longest = 38
        text = row.lost if len(row.lost) <= longest else f"{row.lost[: longest - 1]}…"
        axes.text(1.025, place, text, transform=across, fontsize=9, va="center", color=colour)


def _legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=_USAGE, label="in use"),
        Patch(facecolor="none", edgecolor=BLUE, label="memory.min"),
        Patch(color=BLUE, label="what it is worth"),
        Patch(facecolor="none", edgecolor=ORANGE, label="memory.low"),
        Patch(color=ORANGE, label="what it is worth"),
        Line2D([], [], linestyle="", marker="x", markeredgewidth=2, color=VERMILION, label="void"),
    ]
    figure = axes.get_figure()
    if figure is not None:
        figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.0, 0.0),
            ncols=len(handles),
            fontsize=9.5,
            handlelength=1.4,
            columnspacing=1.4,
        )
