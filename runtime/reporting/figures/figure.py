"""What a figure is, how models look in it, and how a drawing becomes one: an SVG and a PNG with reproducible bytes."""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....engines.errors import MissingExtraError
from ...results.numbers.cell_values import CellValues
from ...results.numbers.run_numbers import Results
from ...tables.stamps import limit_stamps, stamps

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = [
    "DARK",
    "GREY",
    "PALE",
    "WARN",
    "Figure",
    "Look",
    "drawing_style",
    "finish",
    "lines_above",
    "looks",
    "settle",
    "worth",
    "write_stamps",
]

DARK, GREY, PALE, WARN = "#222222", "#6b6b6b", "#d4d4d4", "#a11212"

# Okabe and Ito's colours without yellow, which is hard to see on white, ordered so that neighbours differ in grey too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#56b4e9", "#e69f00")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")

_DPI = 200
_STYLE = {
    "font.family": ["DejaVu Sans"],  # included in matplotlib, so that every machine draws the same
    "figure.dpi": _DPI,  # layout at the resolution of the drawing: the width of hinted text depends on it
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
    "text.parse_math": False,  # a dollar sign in a name does not begin a formula
}


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    name: the stem of its files. title: a line; caption: what is drawn and all numbers a reader needs, in words, which
    is also its text alternative. svg: an <svg> element, without external references and with unique ids, so that a page
    can contain it unchanged; it is also a complete file. png: the same picture, 200 dots per inch.
    """

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class Look:
    """How a model is drawn."""

    colour: str
    mark: str


def looks(models: Sequence[str]) -> dict[str, Look]:
    """The look of each model, by its place in the report, so that it is the same in all figures."""
    return {
        model: Look(_COLOURS[index % len(_COLOURS)], _MARKS[index % len(_MARKS)]) for index, model in enumerate(models)
    }


def worth(cells: Iterable[CellValues]) -> tuple[str, ...]:
    """Warnings to show with the numbers everywhere: weights without meaning, cases left out by a limit."""
    cells = list(cells)
    return stamps((cell.model, cell.weights) for cell in cells) + limit_stamps(cells)


def lines_above(results: Results, cells: Iterable[CellValues]) -> tuple[str, ...]:
    """`worth` of the cells that are drawn; before it the protocol, where a run has several."""
    return (*([f"protocol {results.protocol}"] if results.protocol else []), *worth(cells))


def write_stamps(drawing: Drawing, lines: Sequence[str]) -> None:
    """Writes these lines above the drawing and makes it higher: a figure is often copied without its caption."""
    if not lines:
        return
    wrapped = [part for line in lines for part in textwrap.wrap(line, int(drawing.get_figwidth() * 16))]
    drawing.set_figheight(drawing.get_figheight() + 0.14 * len(wrapped) + 0.05)
    drawing.suptitle("\n".join(wrapped), x=0.01, ha="left", fontsize=7, color=WARN, fontweight="bold")


@contextmanager
def drawing_style(name: str) -> Iterator[None]:
    """A context in which matplotlib uses this project's style and ignores the user's matplotlibrc.

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
    """The drawing as a figure; call it within `drawing_style(name)`."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    settle(drawing)
    text, pixels = io.StringIO(), io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawing.savefig(pixels, format="png", dpi=_DPI, metadata={"Software": None})
    FigureCanvasSVG(drawing).print_svg(text, metadata=nothing)
    return Figure(name, title, caption, _self_contained(text.getvalue(), name, title, caption), pixels.getvalue())


def settle(drawing: Drawing) -> None:
    """Fixes the layout of the drawing; positions on the page that are read afterwards are final."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(drawing)
    if drawing.get_layout_engine() is not None:
        drawing.draw_without_rendering()
        drawing.set_layout_engine("none")


def _self_contained(svg: str, name: str, title: str, caption: str) -> str:
    """The <svg> element alone. The prolog is removed, as it names a DTD on the network. The style is removed, as it
    would apply to every drawing of a page. Ids get the figure's name as a prefix, so that they are unique in a page."""
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
