"""What a figure is, and how a drawing becomes one: an SVG and a PNG that are the same bytes every time."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....engines.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["Figure", "drawing_style", "finish", "settle"]

_DPI = 200
_STYLE = {
    "font.family": ["DejaVu Sans"],  # the one that comes with matplotlib, so that every machine draws the same
    "figure.dpi": _DPI,  # laid out as it is drawn: hinted text has another width at another resolution
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "svg.fonttype": "path",
    "path.simplify": False,
    "text.parse_math": False,  # names are names, also with a dollar in them
}


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    name: the stem of its files. title: a line; caption: what is drawn and all numbers a reader needs, in words, which
    is also its text alternative. svg: an <svg> element, without references to anything outside and with ids of its own,
    so that it can stand in a page as it is; it is a whole file too. png: the same picture, 200 dots per inch.
    """

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


@contextmanager
def drawing_style(name: str) -> Iterator[None]:
    """Within it matplotlib draws as this project does, whatever the user's matplotlibrc says.

    Raises MissingExtraError without matplotlib.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError(f"Figures need matplotlib ({error}); install xbench-fast[report].") from error
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": name})
        yield


def finish(drawing: Drawing, name: str, title: str, caption: str) -> Figure:
    """The drawing as a figure; to be called within `drawing_style(name)`."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    settle(drawing)
    text, pixels = io.StringIO(), io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawing.savefig(pixels, format="png", dpi=_DPI, metadata={"Software": None})
    FigureCanvasSVG(drawing).print_svg(text, metadata=nothing)
    return Figure(name, title, caption, _self_contained(text.getvalue(), name, title, caption), pixels.getvalue())


def settle(drawing: Drawing) -> None:
    """Lays the drawing out once and for all; what is asked for positions on the page afterwards gets the last word."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(drawing)
    if drawing.get_layout_engine() is not None:
        drawing.draw_without_rendering()
        drawing.set_layout_engine("none")


def _self_contained(svg: str, name: str, title: str, caption: str) -> str:
    """The <svg> element alone: its prolog names a DTD on the network, its style would be every other drawing's of a
    page, and ids need the figure's name in front to be the only ones there."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    head, body = svg.split(">", 1)
    described = (
        f'{head} style="stroke-linejoin: round; stroke-linecap: butt" role="img" '
        f'aria-labelledby="{name}-title {name}-caption">\n'
        f' <title id="{name}-title">{html.escape(title)}</title>\n'
        f' <desc id="{name}-caption">{html.escape(caption)}</desc>'
    )
    return described + body
