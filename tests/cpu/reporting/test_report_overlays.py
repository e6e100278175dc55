"""The overlays in headless Chromium: what the viewer draws and prints is what was counted.

About half a minute: most of it is Chromium drawing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from report_world import MODELS, Made, drawn, make_page, row_of, to_gallery, visits
from xbench_fast.metrics_gpu.grounding.protocols import protocol
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import MODES
from xbench_fast.runtime.reporting.page import PageContent, page_text
from xbench_fast.runtime.reporting.page.viewing.assets import shared_asset


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_page(tmp_path_factory.mktemp("page"))


@pytest.fixture
def visit(browser: Any, made: Made) -> Iterator[Callable[..., Any]]:
    with visits(browser, made.url) as start:
        yield start


@pytest.fixture
def blank(browser: Any) -> Iterator[Any]:
    """An empty page with the arithmetic's script alone."""
    page = browser.new_page()
    page.add_script_tag(content=shared_asset("saliency.js"))
    yield page
    page.close()


def random_maps(seed: int, count: int) -> list[tuple[np.ndarray, tuple[float, float, float, float]]]:
    """Maps of many grids and scales, with ties, constant or broken ones, and frames inside and outside the image."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        h, w = (int(n) for n in rng.integers(1, 33, 2))
        grid = (rng.normal(size=(h, w)) * 10.0 ** rng.integers(-30, 30)).astype(np.float32)
        if number % 5 == 1:
            grid = rng.integers(0, 3, (h, w)).astype(np.float32)
        if number % 11 == 2:
            grid[rng.integers(h), rng.integers(w)] = rng.choice([np.nan, np.inf, -np.inf])
        y0, x0 = rng.uniform(-0.3, 0.4, 2)
        y1, x1 = rng.uniform(0.5, 1.4, 2)
        found.append((grid, (0.0, 0.0, 1.0, 1.0) if number % 3 == 0 else (float(y0), float(x0), float(y1), float(x1))))
    return found


def value_for_json(value: np.float32) -> float | str:
    """A number as it is, others by the names that JavaScript gives them."""
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return float(value) if np.isfinite(value) else names[str(value)]


@pytest.mark.parametrize("name", ["default", "chexlocalize", "medklip", "mavl"])
def test_the_arithmetic_is_that_of_the_sweep(blank: Any, name: str) -> None:
    """Every count at every threshold, in every upsampling, for maps that the page itself will hardly meet."""
    how = protocol(name).sweeping
    thresholds = how.thresholds
    code = """([maps, how]) => {
        const f32s = (list) => Float32Array.from(list.map((v) => (typeof v === "string" ? Number(v) : v)));
        how.thresholds = f32s(how.thresholds);
        return maps.map(([map, grid, frame]) => {
            const swept = sweepMap(f32s(map), grid, frame, how, 224);
            const area = new Array(101).fill(0);
            for (const level of swept.levels) for (let k = 0; k < level; k++) area[k]++;
            return [area, swept.flat];
        });
    }"""
    cases = random_maps(7, 33)
    sent = [[[value_for_json(v) for v in grid.ravel()], list(grid.shape), list(frame)] for grid, frame in cases]
    for mode in MODES if name == "default" else (how.upsample,):
        options = {"upsample": mode, "normalise": how.normalise, "thresholds": thresholds.tolist()}
        answers = blank.evaluate(code, [sent, options])
        for (grid, frame), (area, flat) in zip(cases, answers, strict=True):
            mask = pack_masks(np.ones((1, 224, 224), np.bool_))
            counts = sweep(grid[None], mask, frames=np.array([frame]), sweeping=replace(how, upsample=mode))
            assert area == counts.area[0].tolist()
            assert flat == bool(counts.degenerate[0])


def test_the_contour_is_the_set_that_was_counted(visit: Callable[..., Any], made: Made) -> None:
    page = visit()
    to_gallery(page)
    slider = page.locator("#tau")
    for key, presses, level in (
        ("", 0, 50),
        ("ArrowRight", 3, 53),
        ("Home", 1, 0),
        ("PageUp", 1, 10),
        ("End", 1, 100),
    ):
        for _ in range(presses):
            slider.press(key)
        figures = [figure for figure in drawn(page) if figure.get("drawn") == "all" and int(figure["level"]) == level]
        assert len(figures) >= 6 and len({made.gallery.overlays[int(f["index"])].model for f in figures}) == 3
        for figure in figures:
            assert int(figure["area"]) == row_of(made, figure)["area"][level]
    assert page.locator(".differs").count() == 0
    assert page.locator(".tau-value").inner_text() == "1.00"
    assert slider.get_attribute("aria-valuetext") == "tau 1.00"


def test_printed_scores_are_those_of_the_stored_counts(visit: Callable[..., Any], made: Made) -> None:
    page = visit()
    to_gallery(page)
    drawn(page)
    page.locator(".best-tau").click()
    figures = drawn(page)
    texts = page.locator(".overlay .values").all_inner_texts()
    levels = set()
    for figure, text in zip(figures, texts, strict=True):
        if "level" not in figure:
            continue
        row, k = row_of(made, figure), int(figure["level"])
        assert k == made.gallery.overlays[int(figure["index"])].best
        area, overlap, region = row["area"][k], row["overlap"][k], row["region_area"]
        words = text.split()
        assert float(words[1]) == pytest.approx(2 * overlap / (area + region), abs=5.01e-4)
        assert float(words[3]) == pytest.approx(overlap / (area + region - overlap), abs=5.01e-4)
        assert float(words[5]) == pytest.approx(100 * area / 224**2, abs=0.0501)
        assert float(words[-1]) == k / 100
        levels.add(k)
    assert len(levels) > 1
    page.locator(".fixed-tau").click()
    assert {figure["level"] for figure in drawn(page) if "level" in figure} == {"50"}


def pixels(page: Any) -> str:
    found: str = page.evaluate("document.querySelector('.overlay canvas').toDataURL()")
    return found


def test_the_slider_and_the_layers_change_the_picture(visit: Callable[..., Any]) -> None:
    page = visit()
    to_gallery(page)
    drawn(page)
    before = pixels(page)
    assert before == pixels(page)
    page.locator("#tau").press("ArrowLeft")
    page.locator("#tau").press("ArrowLeft")
    drawn(page)
    moved = pixels(page)
    assert moved != before
    for name in ("contour", "truth", "heat", "maximum"):
        page.locator(f'[name="{name}"]').uncheck()
        drawn(page)
        after = pixels(page)
        assert after != moved, name
        moved = after
    # Nothing is left but the radiograph: grey, and not one grey.
    colours = page.evaluate("""() => {
        const canvas = document.querySelector(".overlay canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const greys = new Set();
        for (let i = 0; i < data.length; i += 4) {
            if (data[i] !== data[i + 1] || data[i] !== data[i + 2]) return -1;
            greys.add(data[i]);
        }
        return greys.size;
    }""")
    assert colours > 20


def test_the_filters(visit: Callable[..., Any], made: Made) -> None:
    page = visit()
    to_gallery(page)
    overlays, cases = made.gallery.overlays, made.gallery.cases

    def count() -> tuple[int, int, int, int]:
        text = page.locator("#overlays .count").inner_text()
        words = text.replace(",", "").split()
        return int(words[0]), int(words[4]), int(words[6]), int(words[8])

    def expected(keep: Callable[[Any], bool]) -> tuple[int, int, int, int]:
        kept = [overlay for overlay in overlays if keep(overlay)]
        hits = sum(overlay.hit for overlay in kept)
        return len({overlay.case for overlay in kept}), len(kept), hits, len(kept) - hits

    assert count() == expected(lambda overlay: True)
    page.select_option('[name="outcome"]', "hit")
    assert count() == expected(lambda overlay: overlay.hit) and count()[3] == 0
    assert {figure["hit"] for figure in drawn(page)} == {"true"}
    page.select_option('[name="outcome"]', "miss")
    assert count() == expected(lambda overlay: not overlay.hit)
    page.select_option('[name="finding"]', "Mass")
    assert count() == expected(lambda overlay: not overlay.hit and cases[overlay.case].finding == "Mass")
    assert set(page.locator(".case h3 span").all_inner_texts()) == {"Mass"}
    page.locator(".models input").nth(2).uncheck()
    wanted = expected(lambda o: not o.hit and cases[o.case].finding == "Mass" and o.model != "padded-32")
    assert count() == wanted and "padded-32" not in page.locator(".cases").inner_text()
    page.select_option('[name="outcome"]', "split")
    both = {o.case for o in overlays if o.hit and o.model != "padded-32"} & {
        o.case for o in overlays if not o.hit and o.model != "padded-32"
    }
    assert both and count()[0] == len({case for case in both if cases[case].finding == "Mass"})
    for name in MODELS[:2]:
        page.get_by_label(name, exact=True).uncheck()
    assert "No case" in page.locator("#overlays .count").inner_text() and page.locator(".case").count() == 0


def test_pages_and_order(visit: Callable[..., Any], made: Made) -> None:
    page = visit()
    to_gallery(page)
    first = page.locator(".case h3").all_inner_texts()
    assert len(first) == 8 and "Page 1 of" in page.locator(".pager span").first.inner_text()
    following = page.locator(".pager").first.get_by_role("button", name="Next")
    following.click()
    assert not set(first) & set(page.locator(".case h3").all_inner_texts())
    seen = page.locator(".case").count() + 8
    while following.is_enabled():
        following.click()
        seen += page.locator(".case").count()
    assert seen == len(made.gallery.cases)
    for order, sign in (("best", -1), ("worst", 1)):
        page.select_option('[name="order"]', order)
        names = [tuple(text.split()) for text in page.locator(".case h3").all_inner_texts()]
        means = [mean_dice(made, *name) for name in names]
        assert means == sorted(means, key=lambda mean: sign * mean)


def mean_dice(made: Made, finding: str, case_id: str) -> float:
    found = []
    for overlay in made.gallery.overlays:
        case = made.gallery.cases[overlay.case]
        if (case.finding, case.case_id) == (finding, case_id):
            row = made.rows[overlay.model, case_id, finding]
            found.append(2 * row["overlap"][overlay.best] / (row["area"][overlay.best] + row["region_area"]))
    return sum(found) / len(found)


def test_a_large_view_by_keyboard(visit: Callable[..., Any], made: Made) -> None:
    page = visit()
    to_gallery(page)
    drawn(page)
    button = page.locator(".enlarge").nth(1)
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog").is_visible()
    page.locator('dialog [name="own-tau"]').press("ArrowLeft")
    page.locator('dialog[data-level="49"]').wait_for()
    index = page.evaluate("document.querySelectorAll('.overlay')[1].dataset.index")
    area = page.evaluate("Number(document.querySelector('dialog').dataset.area)")
    assert area == row_of(made, {"index": index})["area"][49]
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    assert page.evaluate("document.activeElement.className") == "enlarge"


def test_the_large_view_has_the_native_size_window_level_and_opacity(visit: Callable[..., Any], made: Made) -> None:
    page = visit()
    to_gallery(page)
    drawn(page)
    page.locator(".enlarge").first.click()
    page.locator('dialog[data-drawn="all"]').wait_for()
    overlay = made.gallery.overlays[int(page.evaluate("document.querySelector('.overlay').dataset.index"))]
    number = made.gallery.cases[overlay.case].image
    assert number is not None and made.gallery.native[number]
    with Image.open(io.BytesIO(made.gallery.images[number])) as native:
        width, height = native.size
    canvas = page.locator("dialog canvas")
    assert (int(canvas.get_attribute("width")), int(canvas.get_attribute("height"))) == (width, height)
    assert f"{width} × {height}" in page.locator("dialog .source").inner_text()

    def shown() -> str:
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found: str = page.evaluate("document.querySelector('dialog canvas').toDataURL()")
        return found

    plain = shown()
    for name, key in (("window", "Home"), ("level", "ArrowLeft"), ("own-opacity", "End"), ("own-tau", "ArrowLeft")):
        before = shown()
        page.locator(f'dialog [name="{name}"]').press(key)
        assert shown() != before, name
    page.get_by_role("button", name="Reset").click()
    page.locator('dialog [name="own-tau"]').press("ArrowRight")
    assert shown() == plain
    # With a window of 2 around the level every grey value is black or white.
    for name in ("heat", "truth", "contour", "maximum"):
        page.evaluate(f"document.querySelector('.layers [name={name}]').checked = false")
    page.locator('dialog [name="window"]').press("Home")
    shown()
    greys = page.evaluate("""() => {
        const canvas = document.querySelector("dialog canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return [...new Set(data.filter((_, i) => i % 4 === 0))];
    }""")
    assert {0, 255} <= set(greys) and len(greys) <= 4
    page.get_by_label("one pixel to one").check()
    assert canvas.bounding_box()["width"] == width


def test_many_overlays_stay_quick_to_open(browser: Any, made: Made, tmp_path: Path) -> None:
    """Of 7 x 600 overlays only those in view are drawn."""
    cases = tuple(replace(made.gallery.cases[0], case_id=f"c{n}") for n in range(600))
    models = tuple(f"m{n}" for n in range(7))
    base = made.gallery.overlays[0]
    overlays = tuple(replace(base, case=n, model=model) for n in range(600) for model in models)
    gallery = replace(made.gallery, cases=cases, overlays=overlays, models=models)
    (tmp_path / "index.html").write_text(page_text(PageContent("Large", (), {}, (), gallery=gallery)), "utf-8")
    assert (tmp_path / "index.html").stat().st_size < 12_000_000
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((tmp_path / "index.html").as_uri())
    to_gallery(page)
    found = drawn(page)
    assert len(found) == 56 and "600 of 600 cases, 4200 overlays" in page.locator("#overlays .count").inner_text()
    assert 0 < sum("drawn" in figure for figure in found) < 56
    page.close()
