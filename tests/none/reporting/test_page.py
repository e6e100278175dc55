"""The page as text: what is escaped, what it may fetch, what is sorted and how wide tables break on paper."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import re
import tomllib
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.metrics_gpu.statistics.measured_numbers import Measured
from xbench_fast.runtime.reporting import page
from xbench_fast.runtime.reporting.figures.figure import Figure
from xbench_fast.runtime.reporting.gallery.model import Gallery, GalleryCase, Overlay
from xbench_fast.runtime.reporting.page import PageContent, page_text, viewing
from xbench_fast.runtime.reporting.page.html import WIDEST, sort_key, table_view
from xbench_fast.runtime.reporting.tables.table import Cell, Column, Table

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)> \" ' & </style></script>"


class Reader(HTMLParser):
    """Elements with their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def gallery(name: str = "Mass") -> Gallery:
    case = GalleryCase("d", name, name, "best Dice", None, (0, 5, 50171), name)
    area, overlap = np.full(101, 50176, np.int32), np.full(101, 5, np.int32)
    saliency = np.array([[0.0, np.nan], [np.inf, 1.0]], np.float32)
    overlay = Overlay(name, 0, "default", saliency, (0.0, 0.0, 1.0, 1.0), area, overlap, 0, 0, False, True)
    return Gallery((), (), (case,), (overlay,), (name,), {"d": name}, (name,))


def content(name: str) -> PageContent:
    table = Table(
        name,
        (Column(name), Column(name, name), Column("x", name)),
        ((name, Cell("1.00", name, "best", name, name, name), "2"),),
        (name,),
        (name,),
    )
    figure = Figure(
        "f", name, name, f'<svg xmlns="http://www.w3.org/2000/svg"><text>{html.escape(name)}</text></svg>', b"", b""
    )
    facts = {name: name, "nested": {name: [name]}, "rows": [{name: name}]}
    return PageContent(name, (name,), facts, (table,), (figure,), gallery(name), "", (name,), (table,), (name,))


@pytest.fixture
def evil() -> str:
    pytest.importorskip("jinja2")
    return page_text(content(EVIL))


def test_no_text_of_data_becomes_markup(evil: str) -> None:
    """Every element and attribute of a page of hostile names is one of a page of harmless names."""
    plain, hostile = Reader(page_text(content("harmless, and as long as the other " * 2))), Reader(evil)
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert [sorted(a) for _, a in hostile.elements] == [sorted(a) for _, a in plain.elements]
    assert hostile.texts["h1"] == [EVIL] and hostile.texts["title"] == [EVIL]
    assert not any(name.startswith("on") for _, attributes in hostile.elements for name in attributes)


def test_the_data_of_the_gallery_cannot_leave_its_element(evil: str) -> None:
    blocks = re.findall(r'<script type="application/json" id="gallery-data">(.*?)</script>', evil, re.S)
    assert len(blocks) == 1 and "<" not in blocks[0]
    data: dict[str, Any] = json.loads(blocks[0])
    assert data["models"] == [EVIL] and data["cases"][0]["finding"] == data["cases"][0]["phrase"] == EVIL
    sent = np.frombuffer(base64.b64decode(data["overlays"][0]["map"]), "<f4")
    np.testing.assert_array_equal(sent, np.array([0, np.nan, np.inf, 1], np.float32))
    counts = np.frombuffer(base64.b64decode(data["overlays"][0]["counts"]), "<u2")
    assert counts.tolist() == [50176] * 101 + [5] * 101


def test_only_the_page_s_own_style_and_script_are_allowed(evil: str) -> None:
    read = Reader(evil)
    policy = next(meta["content"] for meta in read.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == "'none'" and rules["img-src"] == "data:"
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        inside = re.findall(rf"<{element}>(.*?)</{element}>", evil, re.S)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert not any("style" in attributes for _, attributes in read.elements)


def test_nothing_is_fetched(evil: str) -> None:
    read = Reader(evil)
    sources = [value for _, attributes in read.elements for key, value in attributes.items() if key in ("src", "href")]
    assert sources and all(value and value.startswith(("#", "data:")) for value in sources)
    style = "".join(read.texts["style"])
    assert "url(" not in style and "@import" not in style and "@font-face" not in style
    assert not {tag for tag, _ in read.elements} & {"link", "iframe", "object", "embed", "base", "video", "audio"}


def test_headings_captions_and_scopes(evil: str) -> None:
    read = Reader(evil)
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(read.all("caption")) == 2 and all("scope" in head for head in read.all("th"))
    assert all(image.get("alt") for image in read.all("img"))
    identities = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    anchors = [(link["href"] or "#")[1:] for link in read.all("a")]
    assert set(anchors) <= set(identities)


def test_everything_the_page_is_made_of_is_installed(root: Path) -> None:
    """A file that no pattern of the package data covers works in a checkout and is absent from what users install."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = (Path(page.__file__).parent, Path(viewing.__file__).parent)
    files = [path.name for one in folders for path in one.iterdir() if path.is_file() and path.suffix != ".py"]
    assert {"page.css", "page.html.j2", "saliency.js"} <= set(files)
    assert all(any(fnmatch(name, pattern) for pattern in settings["package-data"]["*"]) for name in files)


def test_a_page_without_anything_says_why() -> None:
    pytest.importorskip("jinja2")
    text = page_text(PageContent("Empty", (), {}, (), gallery_reason="No maps were kept."))
    assert "No maps were kept." in text and 'id="gallery-data"' not in text


def test_a_name_that_is_no_text_does_not_lose_the_page() -> None:
    """File names may hold bytes that are not UTF-8; Python keeps them as lone surrogates."""
    pytest.importorskip("jinja2")
    assert "caf\\udce9" in page_text(content("caf\udce9"))


NUMBERS = {"12.34": 12.34, "-0.50": -0.5, "−0.50": -0.5, "+3": 3, "1,218": 1218, "5.0 %": 5, "12.3*": 12.3}


@pytest.mark.parametrize("text", [*NUMBERS, "-", "", "kad-224", "224-kad", "done"])
def test_sort_keys(text: str) -> None:
    assert sort_key(Cell(text)) == NUMBERS.get(text)


def test_a_column_is_sorted_by_its_values_not_by_what_is_printed() -> None:
    """Values that print alike are told apart; the paper's have text alone, and delta Dice is stored in points."""
    rows = [("kad", Cell("41.23", number=Measured(0.41226)), Cell("5.00", number=Measured(5.004)))]
    rows += [("mavl", Cell("41.23", number=Measured(0.41234)), Cell("n/a (1 patient)", number=Measured()))]
    columns = (Column("model"), Column("Dice", key="dice_best"), Column("delta", key="delta_dice"))
    view = table_view(Table("t", columns, (*rows, ("paper: kad", "41.2", "-"))), 1, ())
    assert [[key for _, key in row.cells] for row in view.whole.rows] == [
        [None, pytest.approx(41.226), 5.004],
        [None, pytest.approx(41.234), None],
        [None, 41.2, None],
    ]


def test_rows_above_the_models_stay_on_top() -> None:
    rows = (("n", "", "30"), ("chance", "8.0", "9.0"), ("kad", "50.0", "-"), ("clip (1 of 2 datasets)", "60.0", "1.0"))
    view = table_view(Table("t", (Column("model"), Column("Mean"), Column("Mass")), rows), 3, ("kad", "clip"))
    assert [row.pinned for row in view.whole.rows] == [True, True, False, False]
    assert [head.kind for head in view.whole.heads] == ["text", "number", "number"] and view.id == "table-3"
    assert [row.cells[2][1] for row in view.whole.rows] == [30, 9, None, 1]
    other = table_view(Table("t", (Column("dataset"), Column("n")), (("a", "1"),)), 1, ("kad",))
    assert not other.whole.rows[0].pinned and other.parts == ()


def test_a_wide_table_breaks_at_its_groups() -> None:
    columns = [Column("model")] + [Column(f"{group}{n}", f"G{group}") for group in range(8) for n in range(5)]
    row = tuple(str(n) for n in range(len(columns)))
    view = table_view(Table("t", tuple(columns), (row,)), 1, ())
    assert len(view.whole.heads) == 40 and [group.span for group in view.whole.groups] == [1] + [5] * 8
    assert all(len(part.rows[0].cells) <= WIDEST for part in view.parts)
    assert [part.rows[0].cells[0][0].text for part in view.parts] == ["0"] * len(view.parts)
    shown = [cell.text for part in view.parts for cell, _ in part.rows[0].cells[1:]]
    assert shown == list(row[1:])
    for part in view.parts:
        assert sum(group.span for group in part.groups) == len(part.rows[0].cells)


def test_a_wide_table_without_groups_breaks_between_columns() -> None:
    columns = tuple(Column(f"c{n}") for n in range(30))
    view = table_view(Table("t", columns, (tuple(map(str, range(30))),)), 1, ())
    assert [len(part.heads) for part in view.parts] == [12, 12, 8]


def test_dark_colours_are_the_same_by_choice_and_by_the_system(root: Path) -> None:
    """They stand twice: a list of selectors cannot reach into a media query, and light-dark() is for newer browsers."""
    text = (root / "runtime/reporting/page/viewing/base.css").read_text(encoding="utf-8")
    system, chosen = (
        re.search(selector + r" \{([^}]*)\}", text)
        for selector in (r':root:not\(\[data-theme="light"\]\)', r':root\[data-theme="dark"\]')
    )
    assert system and chosen and "--paper" in chosen[1] and system[1].split() == chosen[1].split()
