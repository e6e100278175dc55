"""The contents of a page -> one HTML file with its style, scripts, tables, figures and pictures inside."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....engines.errors import MissingExtraError
from ...results.storage import write_bytes
from ...tables.table import Cell, Item, Table, cell_of, plain
from ...viewing.assets import content_policy, one_script, shared_asset
from ..gallery.model import gallery_payload

if TYPE_CHECKING:
    from ...tables.table import Table
    from ..figures.figure import Figure
    from ..gallery.model import Gallery

__all__ = [
    "WIDEST",
    "Grid",
    "Group",
    "Head",
    "PageContent",
    "Row",
    "TableView",
    "page_text",
    "sort_key",
    "table_view",
    "write_page",
]

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

    gallery_reason: why there is no gallery, one sentence. coverage: tables that follow the gallery.
    models: their rows are sorted; the rows above the first of them (n, chance) describe the data and stay on top.
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


@dataclass(frozen=True)
class _Drawing:
    """A figure as the template shows it. source: a data URI; lead, rest: its caption, the first sentences and the
    others, which can be long: they give the numbers in words. width: in pixels."""

    id: str
    title: str
    lead: str
    rest: str
    source: str
    width: int


def write_page(path: Path, content: PageContent) -> None:
    """Writes the page atomically. Raises RunError when it cannot be written, MissingExtraError without Jinja2."""
    # A file name may hold bytes that are not valid text; the report must not fail on them.
    write_bytes(path, page_text(content).encode("utf-8", "replace"))


def page_text(content: PageContent) -> str:
    """The page as HTML. Raises MissingExtraError when Jinja2 is not installed."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError(
            "The page needs Jinja2, which is not installed; install xbench-fast[report]."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["sort_key"] = sort_key
    environment.tests["hash_like"] = lambda text: _HASH.fullmatch(text) is not None
    script = one_script(
        [*(shared_asset(f"{name}.js") for name in _SHARED), *(_asset(f"{name}.js") for name in _SCRIPTS)]
    )
    style = shared_asset("base.css") + _asset("page.css")
    tables, coverage = _views(content)
    figures = tuple(_drawings(content))
    # JSON that can neither close the element that contains it nor open another.
    gallery = gallery_payload(content.gallery) if content.gallery else None
    payload = json.dumps(gallery, separators=(",", ":"), allow_nan=False) if gallery else ""
    template = environment.get_template("page.html.j2")
    return template.render(
        content=content,
        policy=content_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        payload=Markup(payload.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")),
        tables=tables,
        coverage=coverage,
        figures=figures,
        contents=tuple(_contents(content, tables, coverage, figures)),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _views(content: PageContent) -> tuple[list[TableView], list[TableView]]:
    views = [
        table_view(table, number, content.models)
        for number, table in enumerate([*content.tables, *content.coverage], 1)
    ]
    return views[: len(content.tables)], views[len(content.tables) :]


def _drawings(content: PageContent) -> Iterator[_Drawing]:
    """Figures as images: their contents can neither run nor use names of the page."""
    for number, figure in enumerate(content.figures, 1):
        sentences = _SENTENCE.split(figure.caption)
        lead, rest = " ".join(sentences[:2]), " ".join(sentences[2:])
        yield _Drawing(f"figure-{number}", figure.title, lead, rest, *_source(figure))


def _source(figure: Figure) -> tuple[str, int]:
    """A data URI of the drawing, as JPEG if it holds large pictures, and its width in pixels of the page."""
    points = re.match(r'<svg [^>]*?width="([\d.]+)pt"', figure.svg)
    width = round(_ENLARGED * float(points[1])) if points else 640
    kind, data = "svg+xml", figure.svg.encode("utf-8", "replace")
    if len(data) > _LARGE:
        from PIL import Image

        stream = io.BytesIO()
        with Image.open(io.BytesIO(figure.png)) as image:
            image.convert("RGB").save(stream, "JPEG", quality=85)
        kind, data = "jpeg", stream.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}", width


def _contents(
    content: PageContent, tables: Sequence[TableView], coverage: Sequence[TableView], figures: Sequence[_Drawing]
) -> Iterator[dict[str, Any]]:
    """The table of contents: the title of each part, and its entries."""
    if tables:
        yield {"title": "Results", "entries": tables}
    if figures:
        yield {"title": "Figures", "entries": figures}
    last = [{"id": "provenance", "title": "Provenance"}] if content.provenance else []
    yield {"title": "More", "entries": [{"id": "overlays", "title": "Overlays"}, *coverage, *last]}


WIDEST = 12
"""Maximum columns of a table on paper; wider tables are split into parts."""

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(\.\d+)?(?=$|[\s%†*(\[])")


@dataclass(frozen=True)
class Head:
    """A column's heading. index: its place in a row; kind: "number" or "text"; name: with its group."""

    index: int
    title: str
    name: str
    kind: str


@dataclass(frozen=True)
class Group:
    """A heading above `span` columns, or with title None the heading of one column, two rows high."""

    title: str | None
    span: int
    head: Head


@dataclass(frozen=True)
class Row:
    """A row; a pinned one stays on top when the table is sorted."""

    cells: tuple[Cell, ...]
    pinned: bool


@dataclass(frozen=True)
class Grid:
    """A drawn table; `heads` are the headings of the last row of headings, `kinds` those of all columns."""

    title: str
    groups: tuple[Group, ...]
    heads: tuple[Head, ...]
    kinds: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class TableView:
    """A table with its place in the page. parts: the same on paper, empty where the whole fits."""

    id: str
    title: str
    stamps: tuple[str, ...]
    notes: tuple[str, ...]
    whole: Grid
    parts: tuple[Grid, ...]


def table_view(table: Table, number: int, models: Sequence[str]) -> TableView:
    """The view of a table, the `number`-th of the page."""
    every = list(range(len(table.columns)))
    parts = tuple(_grid(table, columns, models) for columns in _parts(table)) if len(every) > WIDEST else ()
    return TableView(f"table-{number}", table.title, table.stamps, table.notes, _grid(table, every, models), parts)


def sort_key(text: str) -> float | None:
    """The number a text begins with, None for another text."""
    found = _NUMBER.match(text.strip())
    return float(found[0].replace("−", "-").replace(",", "")) if found else None


def _grid(table: Table, columns: Sequence[int], models: Sequence[str]) -> Grid:
    kinds = ["number" if _numeric([row[index] for row in table.rows]) else "text" for index in columns]
    heads = [_head(table, index, place, kind) for place, (index, kind) in enumerate(zip(columns, kinds, strict=True))]
    groups = tuple(_groups(table, columns, heads)) if table.groups else ()
    # The leading rows, which do not belong to a model.
    own = [any(f"{plain(row[0])} ".startswith(f"{name} ") for name in models) for row in table.rows]
    pinned = own.index(True) if True in own else 0
    rows = tuple(
        Row(tuple(cell_of(row[index]) for index in columns), number < pinned) for number, row in enumerate(table.rows)
    )
    lower = tuple(head for head, index in zip(heads, columns, strict=True) if not groups or table.columns[index].group)
    return Grid(table.title, groups, lower, tuple(kinds), rows)


def _head(table: Table, index: int, place: int, kind: str) -> Head:
    column = table.columns[index]
    return Head(place, column.title, f"{column.group} {column.title}".strip(), kind if place else "text")


def _groups(table: Table, columns: Sequence[int], heads: Sequence[Head]) -> Iterator[Group]:
    at = 0
    while at < len(columns):
        title, head = table.columns[columns[at]].group, heads[at]
        span = 1
        if title:
            while at + span < len(columns) and table.columns[columns[at + span]].group == title:
                span += 1
        yield Group(title or None, span, head)
        at += span


def _numeric(items: Sequence[Item]) -> bool:
    """Whether at least half of the texts that are not empty begin with a number."""
    texts = [text for text in map(plain, items) if text.strip() not in ("", "-", "–")]
    return not texts or 2 * sum(sort_key(text) is not None for text in texts) >= len(texts)


def _parts(table: Table) -> Iterator[list[int]]:
    """Columns of each part: the leading ones (without groups the first), then as many others as fit."""
    leading = list(range(table.leading)) if table.groups else [0]
    blocks: list[list[int]] = []
    for index in range(len(table.columns)):
        if index in leading:
            continue
        group = table.columns[index].group
        if group and blocks and table.columns[blocks[-1][0]].group == group:
            blocks[-1].append(index)
        else:
            blocks.append([index])
    taken: list[int] = []
    for block in blocks:
        if taken and len(leading) + len(taken) + len(block) > WIDEST:
            yield leading + taken
            taken = []
        taken += block
    yield leading + taken
