"""Figure 2: the grid of overlays, at the native size and shape of the radiographs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from report_world import MODELS, Made, make_page
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.figures.figure_2_overlays import draw_overlays, grid_rows, overlays_figure
from xbench_fast.runtime.reporting.figures.style import drawing_style
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results

mpl = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grid")


@pytest.fixture(scope="module")
def made(folder: Path) -> Made:
    return make_page(folder)


@pytest.fixture(scope="module")
def results(made: Made, folder: Path) -> Results:
    return make_results(load_run(folder / "run"), Choices(replicates=0))


def test_findings_down_and_models_across_in_the_shape_of_the_radiographs(
    results: Results, made: Made, folder: Path
) -> None:
    rows = grid_rows(results, made.gallery, MODELS)
    assert {row.case.finding for row in rows} == {"Mass", "Effusion"}
    assert {row.case.why for row in rows} == {"median Dice"}
    with drawing_style("test"):
        drawing = draw_overlays(rows, MODELS, made.gallery)
        assert drawing.get_figwidth() == 3.3
        for text in drawing.findobj(mpl.text.Text):
            assert text.get_fontsize() >= 7 or not text.get_text()
    assert drawing.get_figheight() <= 9
    pictures, scale = drawing.axes[:-1], drawing.axes[-1]
    assert [axes.get_title() for axes in pictures[:3]] == list(MODELS)
    assert [axes.get_ylabel() for axes in pictures[::3]] == [row.case.finding for row in rows]
    assert scale.get_xlim() == (0, 1)
    for number, axes in enumerate(pictures):
        row = rows[number // 3]
        with Image.open(folder / "data" / "images" / f"{row.case.case_id}.png") as native:
            assert np.array_equal(row.pixels, np.asarray(native.convert("L")))
        height, width = row.pixels.shape
        box = axes.get_window_extent()
        assert box.height / box.width == pytest.approx(height / width)
        assert axes.images[0].get_array().shape == (height, width)  # not resampled
        assert axes.images[0].get_interpolation() == "none" and axes.images[1].get_array().shape == (224, 224, 4)
        region = np.repeat(np.arange(len(row.case.truth)) % 2, row.case.truth).reshape(224, 224)
        down, across = np.nonzero(region)
        outline = axes.collections[1].get_paths()[0].get_extents()
        assert outline.intervalx == pytest.approx([across.min() * width / 224, (across.max() + 1) * width / 224])
        assert outline.intervaly == pytest.approx([down.min() * height / 224, (down.max() + 1) * height / 224])
        overlay = row.overlays[number % 3]
        assert overlay.model == MODELS[number % 3]
        if not overlay.degenerate:
            assert {line.get_marker() for line in axes.lines} == {"o" if overlay.hit else "x"}


def test_one_model_or_tall_radiographs_still_fit_a_page(results: Results, made: Made, monkeypatch: Any) -> None:
    tall = np.zeros((2000, 300), np.uint8)
    monkeypatch.setattr(type(made.gallery.originals), "pixels", lambda *_: tall)
    rows = grid_rows(results, made.gallery, MODELS[:1])
    assert len(rows) == 1
    monkeypatch.setattr(type(made.gallery.originals), "pixels", lambda *_: tall[:400])
    rows = grid_rows(results, made.gallery, MODELS[:1])
    with drawing_style("test"):
        drawing = draw_overlays(rows, MODELS[:1], made.gallery)
    assert len(rows) == 2 and drawing.get_figheight() <= 9 and drawing.axes[0].get_window_extent().width < 450


def test_the_files_hold_each_radiograph_once_in_its_native_size(results: Results, made: Made) -> None:
    figure = overlays_figure(results, made.gallery)
    rows = grid_rows(results, made.gallery, MODELS)
    assert figure is not None and "blocks" not in figure.svg
    sizes = [(row.pixels.shape[1], row.pixels.shape[0]) for row in rows]
    for size in set(sizes):
        assert len(re.findall(rb"/Subtype /Image /Width %d /Height %d\b" % size, figure.pdf)) == sizes.count(size)
        drawn = re.findall(r'<image [^>]*width="([0-9.]+)"[^>]*height="([0-9.]+)"', figure.svg)
        drawn += [(w, h) for h, w in re.findall(r'<image [^>]*height="([0-9.]+)"[^>]*width="([0-9.]+)"', figure.svg)]
        assert [(float(w), float(h)) for w, h in drawn].count(size) == sizes.count(size)
    ids = set(re.findall(r' id="([^"]*)"', figure.svg))
    assert set(re.findall(r'xlink:href="#([^"]*)"', figure.svg)) <= ids
    assert not re.findall(r'href="(?!#|data:image/png)', figure.svg)
    assert all(row.case.case_id in figure.caption for row in rows)
    again = overlays_figure(results, made.gallery)
    assert again == figure


def test_a_report_has_it_and_one_without_radiographs_has_not(made: Made, folder: Path, tmp_path: Path) -> None:
    data = {"coco": DatasetConfig("coco", folder / "data", "coco")}

    def written(datasets: Any) -> set[str]:
        paths = write_report(
            make_report(folder / "run", Choices(replicates=0)), out=tmp_path / "report", datasets=datasets
        )
        return {path.name for path in paths if "overlays" in path.name}

    assert written(data) == {f"figure-2-overlays.{kind}" for kind in ("pdf", "svg", "png")}
    assert "Figure 2: maps" in (tmp_path / "report" / "index.html").read_text()
    moved = shutil.copytree(folder / "data", tmp_path / "data")
    shutil.rmtree(moved / "images")
    assert written({"coco": DatasetConfig("coco", moved, "coco")}) == set()
    assert not list((tmp_path / "report" / "figures").glob("figure-2-*"))
