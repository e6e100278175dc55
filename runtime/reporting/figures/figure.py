"""What a figure is, the numbers that it draws, and how it is written with reproducible bytes."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....engines.visible_text import visible_text
from ...host.protocols import PROTOCOLS
from ...results.numbers.cell_values import CellValues
from ...results.numbers.fields import GROUNDING
from ...results.numbers.run_numbers import Results
from ..tables.metric_names import METRICS
from ..tables.stamps import cell_stamps
from .style import drawing_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    name: the stem of its files. title: a line; caption: what is drawn and all numbers a reader needs, in words, which
    is also its text alternative and stands in the metadata of every file; warnings are there, not in the picture.
    svg: an <svg> element, without external references and with unique ids, so that a page can contain it unchanged; it
    is also a complete file. pdf, png: the same picture, with fonts embedded, and with 300 dots per inch.
    """

    name: str
    title: str
    caption: str
    svg: str
    pdf: bytes
    png: bytes

    @property
    def files(self) -> Mapping[str, bytes]:
        """File name -> content."""
        return {f"{self.name}.pdf": self.pdf, f"{self.name}.svg": self.svg.encode(), f"{self.name}.png": self.png}


def finish(drawing: Drawing, name: str, title: str, caption: str) -> Figure:
    """The drawing as a figure; call it within `drawing_style(name)`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    settle(drawing)
    text, document, pixels = io.StringIO(), io.BytesIO(), io.BytesIO()
    title, caption = map(visible_text, (title, caption))
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    metadata = {"Title": title, "Description": caption, "Software": None}
    # Not by savefig, which lays a drawing out again first.
    FigureCanvasAgg(drawing).print_png(pixels, metadata=metadata, pil_kwargs={"compress_level": 4})
    FigureCanvasSVG(drawing).print_svg(text, metadata=nothing)
    anonymous = dict.fromkeys(("Creator", "Producer", "CreationDate"))
    FigureCanvasPdf(drawing).print_pdf(document, metadata={"Title": title, "Subject": caption, **anonymous})
    svg = _self_contained(text.getvalue(), name, title, caption)
    return Figure(name, title, caption, svg, document.getvalue(), pixels.getvalue())


Plan = tuple[str, str, Callable[[Results], Any], Callable[[Results], Any], Callable[[Results, Any], str]]
"""A figure of numbers: its name and title; what it shows, empty where there is nothing; the drawing; and the caption,
from the results and what is shown."""


def planned(results: Results, plan: Plan) -> Figure | None:
    """The figure of a block of results; None where there is nothing to show. Raises as `drawing_style`."""
    name, title, rows, draw, caption = plan
    shown = rows(results)
    if not shown:
        return None
    with drawing_style(results.named(name)):
        return finish(draw(results), results.named(name), results.titled(title), caption(results, shown))


def settle(drawing: Drawing) -> None:
    """Fixes the layout of the drawing, whose texts have no hidden signs then; positions on the page that are read
    afterwards are final."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    for label in drawing.findobj(Text):
        label.set_text(visible_text(label.get_text()))
    for axis in (axis for axes in drawing.axes for axis in (axes.xaxis, axes.yaxis)):
        names = axis.get_major_formatter()  # sets the labels of ticks again when they are drawn
        if isinstance(names, FixedFormatter | FuncFormatter):
            axis.set_major_formatter(
                FuncFormatter(lambda place, number, names=names: visible_text(names(place, number)))
            )
    FigureCanvasAgg(drawing)
    if (engine := drawing.get_layout_engine()) is not None:
        engine.execute(drawing)
        drawing.set_layout_engine("none")


def _pictures_once(svg: str) -> str:
    """Pictures that are drawn several times stand in the file once."""
    numbers: dict[str, str] = {}
    head, body = svg.split(">", 1)
    for tag in dict.fromkeys(re.findall(r"<image [^>]*/>", body)):
        turned = re.search(r' transform="[^"]*"', tag)
        if turned is not None:
            plain = re.sub(r' id="[^"]*"', "", tag.replace(turned[0], ""))
            number = numbers.setdefault(plain, f"picture-{len(numbers)}")
            body = body.replace(tag, f'<use xlink:href="#{number}"{turned[0]}/>')
    pictures = "".join(plain.replace("<image ", f'<image id="{number}" ', 1) for plain, number in numbers.items())
    return f"{head}>\n <defs>{pictures}</defs>{body}" if pictures else svg


def _self_contained(svg: str, name: str, title: str, caption: str) -> str:
    """The <svg> element alone. The prolog is removed, as it names a DTD on the network. The style is removed, as it
    would apply to every drawing of a page. Ids get the figure's name as a prefix, so that they are unique in a page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = _pictures_once(svg)
    ids = re.compile(r'(\bid="|xlink:href="#|url\(#)')
    svg = re.sub(r"<[^>]*>", lambda tag: ids.sub(rf"\g<1>{name}-", tag[0]), svg)
    # Verdana is as wide, for viewers without DejaVu Sans.
    svg = svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    head, body = svg.split(">", 1)
    described = (
        f'{head} style="stroke-linejoin: round; stroke-linecap: butt" role="img" '
        f'aria-labelledby="{name}-title {name}-caption">\n'
        f' <title id="{name}-title">{html.escape(title)}</title>\n'
        f' <desc id="{name}-caption">{html.escape(caption)}</desc>'
    )
    return described + body


@dataclass(frozen=True)
class Point:
    """A value in percent (points for differences), None with a `reason` if there is none; its interval if known.

    datasets: how many it is a mean over.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    datasets: int = 1

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of its interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def text(self) -> str:
        """The value as a caption prints it."""
        if self.value is None:
            return self.reason
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})" if self.ends else f"{self.value:.2f}"


def conditions(results: Results, cells: Iterable[CellValues]) -> tuple[str, ...]:
    """The end of a caption: protocols and choices that are not the defaults, and warnings about the numbers."""
    cells = list(cells)
    protocols = sorted({cell.protocol for cell in cells if cell.protocol != "default"})
    lines = [*(results.apart or map(PROTOCOLS.fact, protocols)), *results.choices.told]
    return tuple(f"Note: {line}." for line in (*lines, *cell_stamps(cells)))


def not_drawn(results: Results, drawn: Collection[str], field: str, without: str = "") -> list[str]:
    """Sentences on models that are not drawn: those that lack a dataset, and those `without` a value, unless that is
    empty."""
    lacks = {model: results.lacking(model, field) for model in results.models if model not in drawn}
    partial = [f"{model} ({reason})" for model, reason in lacks.items() if reason]
    empty = [model for model, reason in lacks.items() if not reason and without]
    sentences = [f"Not drawn, because they lack a dataset: {', '.join(partial)}."] if partial else []
    return sentences + ([f"Without {without} and not drawn: {', '.join(empty)}."] if empty else [])


def point_of(results: Results, model: str, field: str, dataset: str = "") -> Point:
    """A number of a cell, or (no dataset) of a model: its mean over the datasets that have one."""
    if dataset and (model, dataset) not in results.cells:
        return Point(None, reason="no result", datasets=0)
    number, datasets = results.number(model, dataset, field), 1
    if not dataset:
        datasets = sum(cell.number(field).value is not None for cell in results.row(model))
    if not dataset and (lacks := results.lacking(model, field)):
        return Point(None, reason=lacks, datasets=0)
    if number.value is None:
        return Point(None, reason="no region" if field in GROUNDING else f"no {METRICS[field].title}", datasets=0)
    limits = number.limits(METRICS[field].scale)
    return Point(limits["value"], limits["low"], limits["high"], datasets=datasets)
