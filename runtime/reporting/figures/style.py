"""The style of figures: colours, marks of models, sizes and fonts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ....engines.errors import MissingExtraError
from ....engines.extras import missing_package

DARK, GREY, PALE = "#222222", "#6b6b6b", "#d4d4d4"
COLUMN, PAGE = 3.3, 7.0
"""The widths that drawings have, in inches: a column and a page of a paper."""

# Any two differ in grey, by 11 of 100 steps of lightness, and to readers without red or green receptors; tested.
_COLOURS = ("#0068af", "#d75e00", "#000000", "#4ab1a6", "#871c53", "#f4b477", "#1a0c7f")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")

DPI = 300
_STYLE = {
    "font.family": ["DejaVu Sans"],  # included in matplotlib, so that every machine draws the same
    "figure.dpi": DPI,  # layout at the resolution of the drawing: the width of hinted text depends on it
    "font.size": 7.5,  # nothing is smaller than 7 points, as journals ask
    "axes.titlesize": 8.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "axes.edgecolor": "#555555",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "image.composite_image": False,  # each picture keeps its own resolution
    "legend.fontsize": 7.0,
    "pdf.fonttype": 42,  # embedded as TrueType: text can be searched and edited
    "svg.fonttype": "none",  # text stays text
    "path.simplify": False,
    "text.parse_math": False,  # a dollar sign in a name does not begin a formula
}


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


def width_for(names: Iterable[str], most: int) -> float:
    """A column for up to `most` short names beside or below a drawing, else a page."""
    names = list(names)
    return COLUMN if len(names) <= most and max(map(len, names), default=0) <= 16 else PAGE


@contextmanager
def drawing_style(name: str) -> Iterator[None]:
    """A context in which matplotlib uses this project's style and ignores the user's matplotlibrc.

    Raises MissingExtraError without matplotlib.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError(missing_package("matplotlib", "report", user="A figure")) from error
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": name})
        yield
