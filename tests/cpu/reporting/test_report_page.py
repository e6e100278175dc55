"""The page in headless Chromium: it can be used, printed and read offline, in light and dark, by keyboard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_world import Made, drawn, make_page, to_gallery, visits


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_page(tmp_path_factory.mktemp("page"))


@pytest.fixture
def visit(browser: Any, made: Made) -> Iterator[Callable[..., Any]]:
    with visits(browser, made.url) as start:
        yield start


def test_tables_sort_by_keyboard(visit: Callable[..., Any]) -> None:
    page = visit()
    table = page.locator("table.sortable").nth(1)
    names = lambda: table.locator("tbody th").all_inner_texts()  # noqa: E731
    head = table.get_by_role("button", name="Mean")
    head.focus()
    page.keyboard.press("Enter")
    assert table.locator("thead th").nth(1).get_attribute("aria-sort") == "descending"
    assert names() == [
        "n",
        "crop-32",
        "whole-32",
        "padded-32",
    ]  # 10.25 is more than 9.50, and the row without goes last
    assert "Mean" in page.locator("#status").inner_text()
    page.keyboard.press("Space")
    assert names() == ["n", "whole-32", "crop-32", "padded-32"]
    page.keyboard.press("Enter")
    assert table.locator("thead th[aria-sort]").count() == 0 and names()[1] == "whole-32"
    table.get_by_role("button", name="model").click()
    assert names() == ["n", "crop-32", "padded-32", "whole-32"]


def test_parts_of_cells_can_be_hidden(visit: Callable[..., Any]) -> None:
    page = visit()
    cell = page.locator("table.sortable").nth(1).locator("tbody td")
    assert "[8.0, 11.0]" in cell.nth(1).inner_text() and "paper 9.00 (+0.50)" in cell.nth(1).inner_text()
    page.get_by_label("intervals").uncheck()
    page.get_by_label("the paper's values").uncheck()
    page.get_by_label("remarks").uncheck()
    assert cell.nth(1).inner_text().strip() == "9.50" and "Wilson" not in cell.nth(2).inner_text()
    assert "(best)" in cell.nth(2).text_content()  # for those who do not see the colour


def test_the_first_key_skips_to_the_report(visit: Callable[..., Any]) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('main').contains(document.activeElement)")


def brightness(page: Any) -> float:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3


def test_light_and_dark(visit: Callable[..., Any]) -> None:
    page = visit(color_scheme="light")
    assert brightness(page) > 200
    page.locator("#theme").click()
    assert brightness(page) < 60
    page.reload()
    assert brightness(page) < 60  # kept where the browser keeps anything for files
    page.locator("#theme").click()
    assert brightness(page) > 200
    assert brightness(visit(color_scheme="dark")) < 60


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_wider_than_the_window(visit: Callable[..., Any], width: int) -> None:
    page = visit(viewport={"width": width, "height": 800})
    to_gallery(page)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(
        "document.querySelector('.scroll').scrollWidth > document.querySelector('.scroll').clientWidth"
    )


def test_it_prints(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Wide tables break into parts that fit, controls go, and overlays out of view are drawn."""
    page = visit(viewport={"width": 1030, "height": 700}, color_scheme="dark")
    assert "drawn" not in page.locator(".overlay").last.evaluate("(figure) => ({...figure.dataset})")
    printed = page.pdf(path=str(tmp_path / "page.pdf"), prefer_css_page_size=True)
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page /") > 2
    assert all("area" in figure for figure in drawn(page))
    page.emulate_media(media="print")
    assert brightness(page) == 255
    assert not page.locator(".filters").is_visible() and not page.locator("#theme").is_visible()
    assert not page.locator(".scroll[data-parts]").is_visible() and page.locator(".parts").is_visible()
    assert all(box["width"] <= 1030 for box in (part.bounding_box() for part in page.locator(".parts table").all()))


def test_the_gallery_data_is_plain_json(made: Made) -> None:
    text = Path(made.url.removeprefix("file://")).read_text(encoding="utf-8")
    data = json.loads(text.split('id="gallery-data">')[1].split("</script>")[0])
    assert len(data["overlays"]) == len(made.gallery.overlays) and len(data["images"]) == len(made.gallery.images)
