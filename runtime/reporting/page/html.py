"""The contents of a page -> one HTML file with its style, scripts, tables, figures and pictures inside."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ....engines.errors import MissingExtraError
from ....engines.extras import missing_package
from ..gallery.model import gallery_payload
from ..tables.metric_names import METRICS
from ..tables.table import Cell, Table, cell_of
from .viewing.assets import content_policy, one_script, page_environment, shared_asset

if TYPE_CHECKING:
    from ..figures.figure import Figure
    from ..gallery.model import Gallery
    from ..studied_errors import Example

_ASSETS = Path(__file__).parent
_SHARED = ("elements", "theme", "saliency", "drawing")
_SCRIPTS = ("contents", "tables", "columns", "painter", "enlarged", "gallery", "start")
_SENTENCE = re.compile(r"(?<=[a-z)%]\.) (?=[A-Z0-9])")
_ENLARGED, _LARGE = 2, 500_000  # pixels of the page for a point of a drawing; bytes of an SVG
_HASH = re.compile(r"[0-9a-f]{16,}")


@dataclass(frozen=True)
class PageContent:
    """stamps: warnings about the numbers, shown first. facts: one line of them under the title. provenance:
    name -> text, number, list, nested mapping, or list of mappings with the same keys (a small table).

    links: words and address of each trust card. examples: pictures of the study of errors, below the figures.
    gallery_reason: why there is no gallery, one sentence.
    coverage: tables that follow the gallery. models: their rows are sorted; the rows above the first of them (n,
    chance) describe the data and stay on top.
    """

    title: str
    stamps: Sequence[str]
    provenance: Mapping[str, Any]
    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    gallery: Gallery | None = None
    gallery_reason: str = ""
    facts: Sequence[str] = ()
    coverage: Sequence[Table] = ()
    models: Sequence[str] = field(default=())
    examples: Sequence[Example] = ()
    links: Sequence[tuple[str, str]] = ()


def page_text(content: PageContent) -> str:
    """The page as HTML. Raises MissingExtraError when Jinja2 is not installed."""
    try:
        environment = page_environment(_ASSETS)
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError(missing_package("Jinja2", "report", user="The page")) from error
    environment.tests["hash_like"] = lambda text: _HASH.fullmatch(text) is not None
    scripts = ((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    script = one_script([*(shared_asset(f"{name}.js") for name in _SHARED), *scripts])
    style = shared_asset("base.css") + (_ASSETS / "page.css").read_text(encoding="utf-8")
    every = [*content.tables, *content.coverage]
    views = [table_view(table, number, content.models) for number, table in enumerate(every, 1)]
    tables, coverage = views[: len(content.tables)], views[len(content.tables) :]
    figures = tuple(_drawings(content))
    # JSON that can neither close the element that contains it nor open another.
    gallery = gallery_payload(content.gallery) if content.gallery else None
    payload = json.dumps(gallery, separators=(",", ":"), allow_nan=False) if gallery else ""
    template = environment.get_template("page.html.j2")
    text: str = template.render(
        content=content,
        policy=content_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        payload=Markup(payload.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")),
        tables=tables,
        coverage=coverage,
        figures=figures,
        examples=[(each.caption, jpeg_uri(each.png)) for each in content.examples],
    )
    # A file name may hold bytes that are not valid text; the report must not fail on them.
    return text.encode("utf-8", "replace").decode()


def _drawings(content: PageContent) -> Iterator[SimpleNamespace]:
    """Figures as images: their contents can neither run nor use names of the page.

    source: a data URI, as JPEG if the drawing holds large pictures; width: in pixels of the page; lead, rest: the first
    sentences of the caption and the others, which can be long: they give the numbers in words.
    """
    for number, figure in enumerate(content.figures, 1):
        sentences = _SENTENCE.split(figure.caption)
        points = re.match(r'<svg [^>]*?width="([\d.]+)pt"', figure.svg)
        data = figure.svg.encode("utf-8", "replace")
        drawing = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
        yield SimpleNamespace(
            id=f"figure-{number}",
            title=figure.title,
            lead=" ".join(sentences[:2]),
            rest=" ".join(sentences[2:]),
            source=jpeg_uri(figure.png) if len(data) > _LARGE else drawing,
            width=round(_ENLARGED * float(points[1])) if points else 640,
        )


def jpeg_uri(png: bytes) -> str:
    """A data URI of a picture as JPEG."""
    from PIL import Image

    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").save(stream, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


WIDEST = 12
"""Maximum columns of a table on paper; wider tables are split into parts."""

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(\.\d+)?(?=$|[\s%†*(\[])")


def table_view(table: Table, number: int, models: Sequence[str]) -> SimpleNamespace:
    """A table as the template draws it, the `number`-th of the page.

    whole: its `_grid`; parts: the same on paper, empty where the whole fits. models: as in `PageContent`.
    """
    paper = table if table.groups else replace(table, lead=1)
    return SimpleNamespace(
        id=f"table-{number}",
        title=table.title,
        stamps=table.stamps,
        notes=table.notes,
        legend=table.legend,
        legend_title=table.legend_title,
        whole=_grid(table, models),
        parts=tuple(_grid(part, models) for part in paper.parts(len, WIDEST)) if len(table.columns) > WIDEST else (),
    )


def sort_key(cell: Cell, scale: float = 100.0) -> float | None:
    """The value of a cell times `scale`, or the number that its text begins with, as in rows of the paper; None for
    another text."""
    if cell.number is not None and cell.number.value is not None:
        return scale * cell.number.value
    match = _NUMBER.match(cell.text.strip())
    return float(match[0].replace("−", "-").replace(",", "")) if match else None


def _grid(table: Table, models: Sequence[str]) -> SimpleNamespace:
    """A table, or some of its columns.

    heads: the headings of the last row of headings, with their place in a row and their name with its group; kinds:
    "number" or "text" for each column; groups: the headings above `span` columns, or with title None the heading of one
    column, two rows high; rows: the cells with their `sort_key`, None in a column of texts; a pinned row stays on top
    when the table is sorted.
    """
    cells = [list(map(cell_of, row)) for row in table.rows]
    kinds, heads, keys = [], [], []
    for place, column in enumerate(table.columns):
        scale = METRICS[column.key].scale if column.key in METRICS else 100.0
        of_column = [sort_key(row[place], scale) for row in cells]
        filled = sum(row[place].text.strip() not in ("", "-", "–") for row in cells)
        kinds.append("number" if 2 * sum(key is not None for key in of_column) >= filled else "text")
        keys.append(of_column if kinds[-1] == "number" else [None] * len(cells))
        name = f"{column.group} {column.title}".strip()
        heads.append(SimpleNamespace(index=place, title=column.title, name=name, kind=kinds[-1] if place else "text"))
    groups = []
    for title, members in groupby(range(len(heads)), key=lambda place: table.columns[place].group):
        places = list(members)
        for first in places[:1] if title else places:
            span = len(places) if title else 1
            groups.append(SimpleNamespace(title=title or None, span=span, head=heads[first]))
    # The leading rows, which do not belong to a model.
    own = [any(f"{row[0].text} ".startswith(f"{name} ") for name in models) for row in cells]
    pinned = own.index(True) if True in own else 0
    return SimpleNamespace(
        title=table.title,
        groups=groups if table.groups else [],
        heads=[head for head in heads if not table.groups or table.columns[head.index].group],
        kinds=kinds,
        rows=[
            SimpleNamespace(cells=list(zip(row, row_keys, strict=True)), pinned=number < pinned)
            for number, (row, row_keys) in enumerate(zip(cells, zip(*keys, strict=True), strict=True))
        ],
    )
