"""The page in headless Chromium: it can be used, printed and read offline, in light and dark, by keyboard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_findings import serious
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
    for _ in range(20):  # the browser stores the choice in a process of its own, after the click
        page.reload()
        if brightness(page) < 60:
            break
        page.wait_for_timeout(100)
    assert brightness(page) < 60
    page.locator("#theme").click()
    assert brightness(page) > 200
    assert brightness(visit(color_scheme="dark")) < 60


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_wider_than_the_window(visit: Callable[..., Any], width: int) -> None:
    page = visit(viewport={"width": width, "height": 800})
    to_gallery(page)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide, room = page.evaluate(
        "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('.scroll'))"
    )
    assert wide <= room if width > 500 else wide > room


def test_columns_are_chosen(visit: Callable[..., Any]) -> None:
    """As many numbers as fit, until the reader chooses; headings span what is shown."""
    page = visit(viewport={"width": 1400, "height": 900})
    table, chooser = page.locator("table.sortable").first, page.locator(".columns")
    assert chooser.count() == 1  # the other table has one number
    heads = table.locator("thead th:visible").all_inner_texts
    assert heads() == ["model", *(f"Set {n}" for n in range(6)), *["Point", "Dice*"] * 6]
    assert "2 of 3 numbers, 6 of 6 groups" in chooser.inner_text()
    page.set_viewport_size({"width": 1900, "height": 900})
    page.locator(".columns summary", has_text="3 of 3").wait_for()  # its policy forbids eval
    assert heads()[7:] == ["Point", "Dice*", "all-ones"] * 6
    chooser.locator("summary").focus()
    page.keyboard.press("Enter")
    chooser.get_by_label("Point", exact=True).focus()
    page.keyboard.press("Space")
    for number in range(5):
        chooser.get_by_label(f"Set {number}").uncheck()
    assert heads() == ["model", "Set 5", "Dice*", "all-ones"]
    assert table.locator("thead th[colspan]:visible").get_attribute("colspan") == "2"
    assert table.locator("tbody tr").first.locator("td:visible").count() == 2
    page.set_viewport_size({"width": 1400, "height": 900})
    assert heads()[1:] == ["Set 5", "Dice*", "all-ones"]  # the reader's choice stays
    table.get_by_role("button", name="all-ones").click()
    assert table.locator("tbody th").first.inner_text() == "padded-32"


def test_names_stay_in_sight_on_a_phone(visit: Callable[..., Any]) -> None:
    """Of the row and of the group, whatever is scrolled to."""
    page = visit(viewport={"width": 400, "height": 800})
    page.locator(".columns summary").click()
    for box in page.locator('.columns [name="title"]').all():
        box.check()
    scroll = page.locator(".scroll").first
    for left in (0, 170, 400, 700):
        scroll.evaluate("(area, left) => (area.scrollLeft = left)", left)
        frame, first = scroll.bounding_box(), page.locator("table.sortable tbody th").first.bounding_box()
        assert first["x"] == pytest.approx(frame["x"], abs=1)
        spans = [span.bounding_box() for span in page.locator("table.sortable").first.locator("th[colspan] span").all()]
        seen = [s for s in spans if s["x"] >= first["x"] + first["width"] - 1 and s["x"] + s["width"] <= 401]
        assert seen, f"no name of a group in sight at {left}"


@pytest.mark.parametrize("width", [400, 800, 1280, 1920])
def test_pictures_of_seven_models_are_equally_large(visit: Callable[..., Any], width: int) -> None:
    page = visit(viewport={"width": width, "height": 900})
    to_gallery(page)
    page.evaluate("""() => {
        const cases = document.querySelector(".cases");
        cases.style.setProperty("--models", 7);
        for (const row of cases.querySelectorAll(".overlays")) {
            while (row.childElementCount < 7) row.append(row.firstElementChild.cloneNode(true));
        }
    }""")
    sizes = {round(box.bounding_box()["width"], 1) for box in page.locator(".overlay .enlarge").all()}
    lines = {round(box.bounding_box()["y"]) for box in page.locator(".case").first.locator(".overlay").all()}
    assert len(sizes) == 1 and min(sizes) >= 100
    assert len(lines) == 1 or width < 1200


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_axe_finds_nothing_serious(visit: Callable[..., Any], scheme: str, width: int) -> None:
    page = visit(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    for details in page.locator("summary:visible").all():
        details.click()
    to_gallery(page)
    drawn(page)
    assert serious(page) == []
    page.locator(".enlarge").first.click()
    assert serious(page) == []


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
