"""The contents of a page -> one HTML file with its style, scripts, figures and pictures inside."""

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
from ...viewing.assets import content_policy, one_script, shared_asset
from ..gallery.model import gallery_payload
from .headings import TableView, sort_key, table_view

if TYPE_CHECKING:
    from ...tables.table import Table
    from ..figures.figure import Figure
    from ..gallery.model import Gallery

__all__ = ["PageContent", "page_text", "write_page"]

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
class _Link:
    """An entry of the table of contents."""

    id: str
    title: str


@dataclass(frozen=True)
class _Links:
    """Entries of the table of contents under a title."""

    title: str
    entries: tuple[_Link, ...]


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
    template = environment.get_template("page.html.j2")
    return template.render(
        content=content,
        policy=content_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        payload=Markup(_json(gallery_payload(content.gallery))) if content.gallery else "",
        tables=tables,
        coverage=coverage,
        figures=figures,
        contents=tuple(_contents(content, tables, coverage, figures)),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _json(data: Mapping[str, Any]) -> str:
    """JSON that can neither close the element that contains it nor open another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
) -> Iterator[_Links]:
    if tables:
        yield _Links("Results", tuple(_Link(view.id, view.title) for view in tables))
    if figures:
        yield _Links("Figures", tuple(_Link(figure.id, figure.title) for figure in figures))
    last = [_Link("overlays", "Overlays")]
    last += [_Link(view.id, view.title) for view in coverage]
    if content.provenance:
        last.append(_Link("provenance", "Provenance"))
    yield _Links("More", tuple(last))
