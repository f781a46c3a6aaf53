"""What every plot shares: the option, the style, and the two kinds of file.

matplotlib is the optional dependency ``memqos[plot]``, and is only imported to draw.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

import click

from memqos.adapters.files import write_atomically


if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["BLUE", "GREY", "INK", "ORANGE", "VERMILION", "PlotFile", "render_plot", "save_plot"]

# From the palette of Okabe and Ito, which colour-blind readers can tell apart.
BLUE = "#0072b2"
ORANGE = "#e69f00"
VERMILION = "#d55e00"
GREY = "#8c8c8c"
INK = "#222222"

_ENDINGS = (".svg", ".html")
_INCHES = (9.375, 5.0)  # 900 CSS pixels wide
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.12,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 10.5,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be searched and copied
    "svg.hashsalt": "memqos",  # the same data gives the same bytes
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ margin: 1em auto; max-width: 900px; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
{svg}</body>
</html>
"""


class PlotFile(click.ParamType[str]):
    """A file to draw to; refused where the drawing library is missing."""

    name = "FILE.svg|FILE.html"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Take a name that ends in .svg or .html, or fail as a usage error."""
        text = str(value)
        if not text.endswith(_ENDINGS):
            self.fail(f"{text!r} ends neither in .svg nor in .html", param, ctx)
        if find_spec("matplotlib") is None:
            raise click.UsageError("--plot needs matplotlib: install memqos[plot]", ctx)
        return text


def save_plot(path: str, title: str, draw: Callable[[Figure], None]) -> None:
    """Draw a figure and write it, as .svg or as .html by the ending.

    Raises:
        MachineError: it cannot be written.
    """
    svg = render_plot(title, draw)
    if path.endswith(".html"):
        page = _PAGE.format(title=html.escape(title), svg=svg[svg.index("<svg") :])
        write_atomically(path, page.encode())
    else:
        write_atomically(path, svg.encode())


def render_plot(title: str, draw: Callable[[Figure], None]) -> str:
    """Draw a figure and return it as SVG; `title` is for screen readers and tooltips."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = BytesIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        FigureCanvasSVG(figure)  # the figure keeps it
        draw(figure)
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    before, tag, after = buffer.getvalue().decode().partition("<svg ")
    attributes, close, rest = after.partition(">")
    return (
        f'{before}{tag}role="img" {attributes}{close}\n <title>{html.escape(title)}</title>{rest}'
    )
