"""A page on disk with overlays of three models, and headless Chromium to look at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.gallery.assembly import make_gallery
from xbench_fast.runtime.reporting.gallery.model import Gallery
from xbench_fast.runtime.reporting.page import PageContent, page_text
from xbench_fast.runtime.reporting.tables.table import Cell, Column, Table
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results

MODELS = ("whole-32", "crop-32", "padded-32")


@dataclass
class Made:
    """A page on disk, its gallery, and the stored rows: (model, case_id, finding) -> row."""

    url: str
    gallery: Gallery
    rows: dict[tuple[str, str, str], dict[str, Any]]


def make_page(folder: Path) -> Made:
    """Three models that see the whole image, a crop, and a padded crop, so that frames lie inside and outside of it."""
    pytest.importorskip("jinja2")
    data = DatasetConfig("coco", make_dataset(folder / "data", 60), "coco")
    geometries = (None, Geometry("crop", 32, 36, "bilinear"), Geometry("pad_crop", 32, 34, "area"))
    bundles = [make_bundle(folder / name, geometry=how) for name, how in zip(MODELS, geometries, strict=True)]
    world = World(folder)
    assert world.run([bundle.path for bundle in bundles], [data], batch=16, chunk=64).computed == 3
    run = load_run(world.out)
    results = make_results(run, Choices(replicates=0))
    gallery, reason = make_gallery(run, results, datasets={"coco": data})
    assert gallery is not None and not reason
    page = folder / "index.html"
    stamps = ("blocks: stand-in weights: the numbers say nothing about the model",)
    facts = {"code": "1.0", "engine": {"name": "numpy"}, "cells": [{"model": "kad", "hash": "0123456789abcdef" * 4}]}
    made = PageContent("Test report", stamps, facts, tables(), (), gallery, "", (), (), MODELS)
    page.write_text(page_text(made), "utf-8")
    rows = {
        (name, row["case_id"], row["finding"]): row
        for name in MODELS
        for row in world.table(f"{name}--coco").to_pylist()
        if row["region"] is not None
    }
    return Made(page.as_uri(), gallery, rows)


def tables() -> tuple[Table, ...]:
    groups = [Column(name, f"Set {number}") for number in range(6) for name in ("Point", "Dice*", "all-ones")]
    wide = [(model, *(Cell(f"{7 * n + k:.2f}", "[0.0, 9.9]") for k in range(18))) for n, model in enumerate(MODELS)]
    small = (
        ("n", "30"),
        ("whole-32", Cell("9.50", "[8.0, 11.0]", paper="9.00", difference="+0.50")),
        ("crop-32", Cell("10.25", mark="best", note="Wilson")),
        ("padded-32", "-"),
    )
    first = Table("Wide", (Column("model"), *groups), tuple(wide), ("wide: a stamp",), ("a note",))
    return first, Table("Small", (Column("model"), Column("Mean")), small)


@contextmanager
def chromium() -> Iterator[Any]:
    """Headless Chromium; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def visits(browser: Any, url: str) -> Iterator[Callable[..., Any]]:
    """A function that opens the page; in the end there must have been no message, no error, and no request but one for
    the file."""
    seen: list[str] = []
    contexts = []

    def start(**options: Any) -> Any:
        context = browser.new_context(
            **{"viewport": {"width": 1400, "height": 900}, "reduced_motion": "reduce", **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("request", lambda request: seen.append(request.url) if unwanted(request.url) else None)
        page.goto(url)
        return page

    def unwanted(address: str) -> bool:
        return address.split("#")[0] != url and not address.startswith("data:")

    yield start
    for context in contexts:
        context.close()
    assert seen == []


def to_gallery(page: Any) -> None:
    page.evaluate("document.getElementById('overlays').scrollIntoView()")


def drawn(page: Any) -> list[dict[str, str]]:
    """The data of the figures on the page, once all of those in view are drawn."""
    page.locator('.overlay[data-drawn="all"]').first.wait_for()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("[...document.querySelectorAll('.overlay')].map((f) => ({...f.dataset}))")


def row_of(made: Made, figure: dict[str, str]) -> dict[str, Any]:
    overlay = made.gallery.overlays[int(figure["index"])]
    case = made.gallery.cases[overlay.case]
    return made.rows[overlay.model, case.case_id, case.finding]
