"""What every picture shares, and the histogram of drift."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import click
import pytest

from memqos.memory_manager.fleet import (
    DriftSummary,
    NodeFailure,
    NodeResult,
    NUMADrift,
    Outcome,
    summarise,
)
from memqos.memory_manager.reasons import Reason, Verdict
from memqos_cli.output.drift_plot import draw_drift, drift_title
from memqos_cli.output.plot import PlotFile, render_plot, save_plot


if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
MIB = 1 << 20


def draw(figure: Figure) -> None:
    """Draw something small."""
    axes = figure.add_subplot()
    axes.bar([1, 2], [3, 4])
    axes.set_title("bars & <brackets> $x$")


def results(*drifts_mib: float, bound_mib: int | None = 108) -> list[NodeResult]:
    """Make results of one NUMA node each."""
    return [
        NodeResult(
            name=str(number),
            verdict=Verdict.TOLERATED,
            reason=Reason.DRIFT_WITHIN_BOUND,
            message="",
            drifts=(NUMADrift(0, int(drift * MIB)),),
            auto_bound_bytes=None if bound_mib is None else bound_mib * MIB,
        )
        for number, drift in enumerate(drifts_mib)
    ]


def picture(summary: DriftSummary) -> str:
    """Draw the histogram."""
    return render_plot(drift_title(summary), lambda figure: draw_drift(figure, summary))


def words(svg: str) -> list[str]:
    """List the texts of a picture."""
    return ["".join(text.itertext()).strip() for text in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


# --- files ---------------------------------------------------------------------------------------


def test_svg_is_xml_with_text() -> None:
    """The SVG is well-formed, titled, 900 pixels wide, and its text is text."""
    svg = render_plot("a & b", draw)
    root = ET.fromstring(svg)  # noqa: S314

    assert root.tag == f"{SVG}svg"
    assert (root.get("width"), root.get("role")) == ("675pt", "img")  # 675 / 72 * 96 = 900
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "a & b"
    assert "bars & <brackets> $x$" in words(svg)


def test_html_is_self_contained(tmp_path: Path) -> None:
    """The page holds the picture and refers to nothing outside."""
    file = tmp_path / "p.html"
    save_plot(str(file), "a & b", draw)
    page = file.read_text("utf-8")

    assert page.startswith("<!DOCTYPE html>\n")
    assert "<title>a &amp; b</title>" in page
    assert page.count("<svg ") == page.count("</svg>") == 1
    references = re.findall(r"(?:href|src|url|action|data)\s*[=(]\s*[\"']?([^\"')\s>]*)", page)
    assert [name for name in references if not name.startswith("#")] == []
    assert not re.search(r"<(?:script|link|img|iframe|object)|@import", page)
    namespaces = re.findall(r"xmlns(?::\w+)?=\"([^\"]*)\"", page)
    assert re.findall(r"https?://[^\"\s<]*", page) == namespaces


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_same_bytes(ending: str, tmp_path: Path) -> None:
    """The same data gives the same bytes, in another process too."""
    program = (
        "import sys; from memqos_cli.output.plot import save_plot; "
        "save_plot(sys.argv[1], 't', lambda figure: figure.add_subplot().bar([1, 2], [3, 4]))"
    )
    files = [tmp_path / f"{name}.{ending}" for name in ("a", "b")]
    for file in files:
        subprocess.run([sys.executable, "-c", program, file], check=True, timeout=60)

    assert files[0].read_bytes() == files[1].read_bytes()


def test_no_dates() -> None:
    """Neither a date nor the drawing library is named in the file."""
    svg = render_plot("t", draw)

    assert "<dc:date>" not in svg
    assert "Matplotlib v" not in svg


@pytest.mark.parametrize("name", ["p.png", "p", "p.svg.gz", ".SVG", "-", ""])
def test_other_endings(name: str) -> None:
    """Only .svg and .html are written."""
    with pytest.raises(click.UsageError, match="ends neither in"):
        PlotFile().convert(name, None, None)


@pytest.mark.parametrize("name", ["p.svg", "a/b.html"])
def test_endings(name: str) -> None:
    """The two endings are taken as they are."""
    assert PlotFile().convert(name, None, None) == name


# --- the histogram -------------------------------------------------------------------------------


def test_drift_picture() -> None:
    """Title, verdicts, limits, and the counts of all three groups are written out."""
    outcomes: list[Outcome] = [*results(0, 0, 0.5, -36.8, 36.8, 120), NodeFailure("x", "")]
    texts = words(picture(summarise(outcomes, attention=0)))

    for text in (
        "Memory drift of 6 NUMA nodes in 6 snapshots",
        "kubelet's verdict: 0 exact, 6 tolerated, 0 rejected, 0 error, 1 unreadable",
        "grace 64 MiB",
        "auto bound 108.0 MiB",
        "no drift: 2",
        "within the node's own bound: 3 (2 MiB a bar)",
        "beyond the node's own bound: 1",
        "absolute drift of a NUMA node (MiB)",
        "NUMA nodes",
        "none",
    ):
        assert text in texts
    assert not any(text.startswith("≥") for text in texts)


def test_one() -> None:
    """One is singular."""
    assert drift_title(summarise(results(1), attention=0)) == (
        "Memory drift of 1 NUMA node in 1 snapshot"
    )


def test_far_away() -> None:
    """Drift beyond twice the bound is gathered at the end of the axis."""
    # Twice 108 MiB is 216, and the axis ends at the next labelled 32 MiB.
    texts = words(picture(summarise(results(1, 500, 5000), attention=0)))

    assert "≥ 224" in texts
    assert "beyond the node's own bound: 2" in texts


def test_range_of_bounds() -> None:
    """Several bounds are a range."""
    outcomes = [*results(1), *results(1, bound_mib=116), *results(1, bound_mib=None)]
    texts = words(picture(summarise(outcomes, attention=0)))

    assert "auto bound 108.0 to 116.0 MiB" in texts
    assert "within the node's own bound: 3, 1 of unknown bound (4 MiB a bar)" in texts


def test_implausible_bound() -> None:
    """A bound off the scale is written at the edge."""
    texts = words(picture(summarise(results(2000, bound_mib=4096), attention=0)))

    assert "auto bound 4096.0 MiB →" in texts
    assert "≥ 1024" in texts


def test_no_bound() -> None:
    """Without a bound only the grace is shown."""
    texts = words(picture(summarise(results(1, bound_mib=None), attention=0)))

    assert "grace 64 MiB" in texts
    assert not any("auto bound" in text for text in texts)


def test_logarithmic() -> None:
    """A single outlier among many is drawn large enough to be seen."""
    texts = words(picture(summarise(results(*[1] * 1000, 120), attention=0)))

    assert "NUMA nodes (logarithmic)" in texts
    assert "1,000" in texts


def test_nothing_to_draw() -> None:
    """Without any drift the picture says so."""
    texts = words(picture(summarise((), attention=0)))

    assert "no drift is known" in texts
