"""``memqos report-drift``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing

import click

from memqos.adapters.fleet import (
    FleetOptions,
    Input,
    available_cores,
    find_inputs,
    read_fleet,
)
from memqos.memory_manager.fleet import DriftSummary, merge_summaries, summarise
from memqos_cli.exit_codes import NO, NO_ANSWER, YES
from memqos_cli.options import KubeletVersion, debug_option, output_option
from memqos_cli.output.drift_report import CSVRows, StreamedDocument, report_text
from memqos_cli.output.plot import PlotFile
from memqos_cli.output.terminal import note, write


__all__ = ["command"]

_PROGRESS_SECONDS = 0.2


@click.command()
@click.argument(
    "snapshots",
    metavar="SNAPSHOT...",
    nargs=-1,
    required=True,
    type=click.Path(readable=False, allow_dash=True),
)
@click.option(
    "--drift-tolerance",
    metavar="auto|off|QUANTITY",
    help="Set memory-drift-tolerance, and its gate: what if?",
)
@click.option(
    "--kubelet-version",
    type=KubeletVersion(),
    default="1.38",
    show_default=True,
    help="The release whose rules apply.",
)
@output_option("csv")
@click.option(
    "--plot",
    type=PlotFile(),
    metavar="FILE.svg|FILE.html",
    help="Also draw the distribution against bound and grace; needs memqos[plot].",
)
@click.option(
    "--attention",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many snapshots to name as worth a look.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Worker processes.  [default: the cores this process may use]",
)
@debug_option
def command(
    *,
    snapshots: tuple[str, ...],
    drift_tolerance: str | None,
    kubelet_version: int,
    output: str,
    plot: str | None,
    attention: int,
    jobs: int | None,
) -> None:
    """Report on the Memory Managers of many nodes: verdicts, and drift against the bound.

    SNAPSHOT is a snapshot (a directory or tar archive, as "memqos snapshot" saves it), a directory
    of snapshots, a .json or .jsonl file of results of "validate-checkpoint -o json", or "-" for
    such results on standard input; a result may have a "name" of its own added. Snapshots are
    decided as validate-checkpoint decides them, results are taken as they are. CSV has one row per
    snapshot and NUMA node; an unreadable input has only its name there, and a name that a
    spreadsheet would take for a formula has a ' in front.

    Exits 1 when any kubelet would refuse to start, else 3 when any input could not be read.

    \b
    Examples:
      memqos report-drift snapshots/ --plot drift.svg
      memqos report-drift snapshots/*.tar --drift-tolerance auto -o csv > drift.csv
      memqos report-drift results.jsonl -o json
    """
    if snapshots.count("-") > 1:
        raise click.UsageError("only one SNAPSHOT can be '-', standard input")
    options = FleetOptions(
        kubelet_version=kubelet_version,
        drift_tolerance=drift_tolerance,
        attention=attention,
        keep_outcomes=output != "text",
    )
    stream: CSVRows | StreamedDocument | None = None
    if output != "text":
        stream = CSVRows() if output == "csv" else StreamedDocument(output)
    summary = summarise((), attention=attention)
    progress = _Progress(streams=stream is not None)
    empty: list[str] = []
    chunks = read_fleet(_find(snapshots, empty), options, jobs=jobs or available_cores())
    begun = False
    with closing(chunks), progress:
        for chunk in chunks:
            summary = merge_summaries(summary, chunk.summary)
            progress.show(summary)
            if stream is not None:
                write(("" if begun else stream.begin()) + stream.more(chunk.outcomes))
                begun = True
    if not summary.results and not summary.failures:
        raise click.UsageError(f"there are no snapshots in {', '.join(empty)}")
    if plot is not None:
        from memqos_cli.output.drift_plot import draw_drift, drift_title
        from memqos_cli.output.plot import save_plot

        save_plot(plot, drift_title(summary), lambda figure: draw_drift(figure, summary))
    write(report_text(summary) if stream is None else stream.end(summary))
    code = NO if summary.refused else NO_ANSWER if summary.failures else YES
    if code != NO_ANSWER:  # which is one line
        for name in empty:
            note(f"{name}: no snapshots in it")
        if drift_tolerance is not None and any(map(_is_result, snapshots)):
            note("--drift-tolerance changes nothing for results, which are decided already")
        if summary.assumed:
            note(
                f"{summary.assumed} of {summary.results} without a kubelet configuration: policy "
                "and reservations are taken from the checkpoint, or assumed"
            )
    if summary.failures:
        more = summary.failures - 1
        first = summary.first_failures[0].message
        note(f"{first}{f' (and {more} more that could not be read)' if more else ''}")
    click.get_current_context().exit(code)


def _is_result(name: str) -> bool:
    return name == "-" or name.endswith((".json", ".jsonl"))


def _find(names: tuple[str, ...], empty: list[str]) -> Iterator[Input]:
    """Find all inputs; names without any are added to `empty`."""
    for name in names:
        found = False
        for item in find_inputs(name):
            found = True
            yield item
        if not found:
            empty.append(name)


class _Progress:
    """A counter on standard error while it is a terminal."""

    def __init__(self, *, streams: bool) -> None:
        # What streams to the same terminal shows the progress itself.
        self._on = sys.stderr.isatty() and not (streams and sys.stdout.isatty())
        self._next = 0.0

    def __enter__(self) -> None:
        pass

    def show(self, summary: DriftSummary) -> None:
        """Show how far it is, now and then."""
        if self._on and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            done = summary.results + summary.failures
            sys.stderr.write(f"\r\x1b[K{done} read, {summary.refused} refused")
            sys.stderr.flush()

    def __exit__(self, *_error: object) -> None:
        if self._on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
