"""Figures: what is drawn are the numbers given, and the files stand on their own."""

from __future__ import annotations

import html
import io
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from result_rows import ResultRow
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from xbench_fast.engines.errors import MissingExtraError
from xbench_fast.runtime.reporting.figures import Figure, all_figures
from xbench_fast.runtime.reporting.figures.figure import planned, settle
from xbench_fast.runtime.reporting.figures.figure_3_correlation import correlation_figure, draw_correlation, spots
from xbench_fast.runtime.reporting.figures.figure_4_dice import DICE, draw_dice
from xbench_fast.runtime.reporting.figures.figure_4_thresholds import DELTA, draw_curves, draw_delta
from xbench_fast.runtime.reporting.figures.recognition_figure import draw_recognition
from xbench_fast.runtime.reporting.figures.style import drawing_style, looks
from xbench_fast.runtime.reporting.grounding_tables import table_1
from xbench_fast.runtime.reporting.paper import paper, paper_numbers
from xbench_fast.runtime.reporting.studies.correlation_study import study_correlation
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.reporting.tables.table import Cell
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.selected_pairs import Resampling

mpl = pytest.importorskip("matplotlib")

NAMES = [
    "figure-recognition",
    "figure-3-correlation",
    "figure-3-correlation-cells",
    "figure-4-dice",
    "figure-4-delta-dice",
    "figure-4-threshold-curves",
]


def make(
    path: Path,
    models: dict[str, str],
    datasets: Sequence[str] = ("one", "two"),
    without: Sequence[tuple[str, str]] = (),
    choices: Choices | None = None,
) -> Results:
    """models: name -> kind of weights. The family is the name without what follows a hyphen."""
    with RunDirectory(path) as run:
        run.begin({})
        for i, (model, weights) in enumerate(models.items()):
            for j, dataset in enumerate(datasets):
                if (model, dataset) not in without:
                    add_cell(run, model, dataset, cell_rows(i, j, weights), weights)
    data = read_run(path)
    for cell in data["cells"].values():
        cell |= {"model_family": cell["model"].split("-")[0], "reader": cell["dataset"]}
    store_run(path, data)
    return make_results(load_run(path), choices or Choices(replicates=0))


def cell_rows(model: int, dataset: int, weights: str = "published") -> list[ResultRow]:
    rows = random_rows(dataset) if not model else other_answers(random_rows(dataset), 10 * model + dataset)
    if weights == "baseline":
        for row in rows:
            row.logit = None
    return rows


FIVE = {
    "kad": "published",
    "mavl": "published",
    "medklip": "published",  # on one of two datasets
    "clip-b32": "stand-in",
    "baseline:ones": "baseline",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return make(tmp_path_factory.mktemp("figures") / "run", FIVE, without=[("medklip", "two")])


@pytest.fixture(scope="module")
def figures(results: Results) -> list[Figure]:
    return all_figures(results)


def percent(value: float | None) -> float:
    assert value is not None
    return 100 * value


def test_recognition_draws_every_auc(results: Results) -> None:
    with drawing_style("test"):
        panels = {axes.get_title(loc="left"): axes for axes in draw_recognition(results).axes if axes.get_visible()}
    assert list(panels) == ["The one", "The two", "mean of datasets"]
    means = {model: results.number(model, "", "auc").value for model in FIVE}
    assert means["medklip"] is None and results.number("medklip", "one", "auc").value is not None
    order = sorted((m for m in FIVE if m != "baseline:ones"), key=lambda m: -percent(means[m] or 0.0))
    for title, axes in panels.items():
        drawn = {
            line.get_label(): line.get_xydata()[0] for line in axes.lines if line.get_marker() not in ("None", None)
        }
        for row, model in enumerate(order):
            dataset = {"The one": "one", "The two": "two"}.get(title)
            value = results.number(model, dataset, "auc").value if dataset else means[model]
            if value is None:
                reason = "no result" if dataset else "1 of 2 datasets"
                assert model not in drawn and reason in [text.get_text() for text in axes.texts]
            else:
                assert drawn[model] == pytest.approx([100 * value, row])
                assert f"{100 * value:.1f}" in [text.get_text() for text in axes.texts]
    assert [label.get_text() for label in panels["The one"].get_yticklabels()] == order


def test_correlation_draws_models_and_their_line(results: Results, figures: list[Figure]) -> None:
    models = ["kad", "mavl", "clip-b32"]
    x = [percent(results.number(model, "", "auc").value) for model in models]
    y = [percent(results.number(model, "", "pointing").value) for model in models]
    with drawing_style("test"):
        (axes,) = draw_correlation(results).axes
    points = [spots for spots in axes.collections if spots.get_label() != "_band"]
    assert [spots.get_label() for spots in points] == models
    assert len(points) == len(axes.collections), "three models give no interval of the line"
    assert np.array([spots.get_offsets()[0] for spots in points]) == pytest.approx(np.column_stack([x, y]))
    line = next(line for line in axes.lines if line.get_label() == "_line").get_xydata()
    slope, intercept = np.polyfit(x, y, 1)
    assert line[[0, -1], 0] == pytest.approx([min(x), max(x)])
    assert line[:, 1] == pytest.approx(intercept + slope * line[:, 0])
    r2 = np.corrcoef(x, y)[0, 1] ** 2
    assert f"R² = {r2:.2f}, n = 3" in axes.get_title(loc="left")
    assert {text.get_text() for text in axes.texts} == set(models)
    caption = figures[1].caption
    assert (
        f"R² = {r2:.2f}" in caption
        and "baseline:ones" in caption
        and "lack a dataset: medklip (1 of 2 datasets)" in caption
    )
    assert all(f"AUC {a:.2f}, pointing {p:.2f}" in caption for a, p in zip(x, y, strict=True))


def test_correlation_per_dataset(results: Results) -> None:
    with drawing_style("test"):
        axes = draw_correlation(results, "cell").axes[0]
    drawn = {spot.get_label(): spot.get_offsets() for spot in axes.collections if spot.get_label() != "_band"}
    assert {model: len(points) for model, points in drawn.items()} == {"kad": 2, "mavl": 2, "medklip": 1, "clip-b32": 2}
    wanted = [[percent(results.number("kad", d, field).value) for field in ("auc", "pointing")] for d in ("one", "two")]
    assert np.asarray(drawn["kad"]) == pytest.approx(np.array(wanted))
    assert "n = 7" in axes.get_title(loc="left")


def test_a_model_with_other_cases_is_no_point(tmp_path: Path) -> None:
    """c lacks the last three cases of its dataset: neither the report nor the study correlates across."""
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        for place, model in enumerate("cab"):
            rows = cell_rows(place, 0)
            add_cell(run, model, "one", rows[: -3 * len(CLASSES)] if model == "c" else rows, "published")
    results = make_results(load_run(tmp_path / "run"), Choices(replicates=0))
    for per in ("model", "cell"):
        assert [spot.model for spot in spots(results, per)] == ["a", "b"]
        figure = correlation_figure(results, per)
        other = "c" if per == "model" else "c on The one"
        assert figure and f"because other images, pairs or labels are behind their numbers: {other}." in figure.caption
    told = study_correlation(load_material(tmp_path / "run", sampling=Resampling(replicates=40)))
    assert [(row["points"], row["model"]) for row in told.data["points"]] == [
        (kind, model) for kind in ("models", "cells") for model in "ab"
    ]
    assert any("c on one is left out: it rests on other images, pairs or labels" in remark for remark in told.remarks)


def test_bars_are_delta_dice(results: Results) -> None:
    with drawing_style("test"):
        (axes,) = draw_delta(results).axes
    order = [label.get_text() for label in axes.get_yticklabels()]
    assert sorted(order) == sorted(set(FIVE) - {"medklip"})
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == sorted(widths, reverse=True)
    assert widths == pytest.approx([results.number(model, "", "delta_dice").value for model in order])
    caption = planned(results, DELTA).caption  # type: ignore[union-attr]
    assert "lack a dataset: medklip (1 of 2 datasets)" in caption and "stand-in weights" in caption
    assert "paper" not in caption, "these are no datasets of the paper"


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """KAD on the paper's datasets and another one."""
    return make(tmp_path_factory.mktemp("seven") / "run", {"kad-224": "published"}, (*paper().datasets, "coco"))


OTHER = "over datasets that the paper's mean does not have"


@pytest.mark.parametrize(
    ("without", "apart", "micro", "reasons"),
    [
        (["coco"], "", False, []),
        ([], "", False, [OTHER]),
        (["coco", "rsna"], "", False, ["over 6 of the paper's 7 datasets"]),
        (["rsna"], "", False, ["over 6 of the paper's 7 datasets", OTHER]),
        (["coco"], "vindr", False, ["as the weights are own"]),
        (["coco"], "", True, ["as datasets are weighted by their pairs"]),
    ],
)
def test_a_diamond_stands_where_table_1_has_a_difference(
    seven: Results, monkeypatch: pytest.MonkeyPatch, without: list[str], apart: str, micro: bool, reasons: list[str]
) -> None:
    """Conditions of a cell (tests/none/reporting/test_report_paper.py) stand for one reason here."""
    monkeypatch.setattr(paper_numbers, "why_apart", lambda cell: ("as the weights are own",) * (cell.dataset == apart))
    choices = replace(seven.choices, mean_datasets="micro" if micro else "macro")
    cells = {key: replace(cell, choices=choices) for key, cell in seven.cells.items() if key[1] not in without}
    names = tuple(name for name in seven.datasets if name not in without)
    found = replace(seven, cells=cells, datasets=names, choices=choices)
    with drawing_style("test"):
        (axes,) = draw_delta(found).axes
    value = found.number("kad-224", "", "delta_dice").value
    table = table_1(found)
    last = table.rows[-1][-1]
    assert isinstance(last, Cell) and last.paper.startswith("9.7") and value is not None
    diamonds = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    caption = planned(found, DELTA).caption  # type: ignore[union-attr]
    if reasons:
        assert diamonds == [] and last.difference == ""
        assert f"Not drawn, the paper's 9.7 for kad-224: {'; '.join(reasons)}." in caption
    else:
        assert diamonds == [9.7] and float(last.difference) == pytest.approx(value - 9.7, abs=0.0051)
        assert "paper 9.7." in caption and "Not drawn" not in caption
    told = "".join(note for note in table.notes if note.startswith("no difference to the paper: "))
    own = [reason for reason in reasons if reason != "as the weights are own"]
    assert told.partition("delta Dice of kad-224")[2].removeprefix(", ") == ", ".join(own)


def naive_curve(rows: list[ResultRow]) -> list[float]:
    """Mean Dice over findings by loops over pairs and thresholds."""
    means = []
    for finding in CLASSES[:2]:
        pairs = [row for row in rows if row.finding == finding and row.area is not None]
        sums = [0.0] * 101
        for row in pairs:
            for k in range(101):
                sums[k] += 2 * int(row.overlap[k]) / (int(row.area[k]) + (row.region_area or 0))  # type: ignore[index]
        means.append([value / len(pairs) for value in sums])
    return [100 * sum(column) / 2 for column in zip(*means, strict=True)]


def test_curves_are_mean_dice_at_every_threshold(results: Results) -> None:
    with drawing_style("test"):
        panels = {axes.get_title(loc="left"): axes for axes in draw_curves(results).axes if axes.get_title(loc="left")}
    assert list(panels) == [model for model in FIVE if model != "medklip"]
    wanted = np.mean([naive_curve(cell_rows(0, dataset)) for dataset in (0, 1)], axis=0)
    lines = {line.get_label(): line for line in panels["kad"].lines}
    assert lines["kad"].get_xdata() == pytest.approx(np.arange(101) / 100)
    assert lines["kad"].get_ydata() == pytest.approx(wanted)
    assert (lines["fixed"].get_xdata()[0], lines["fixed"].get_ydata()[0]) == pytest.approx((0.5, wanted[50]))
    assert wanted[50] == pytest.approx(percent(results.number("kad", "", "dice_fixed").value))
    top = int(np.argmax(wanted))
    assert (lines["top"].get_xdata()[0], lines["top"].get_ydata()[0]) == pytest.approx((top / 100, wanted[top]))
    best = percent(results.number("kad", "", "dice_best").value)
    assert any(
        line.get_ydata() == pytest.approx([best, best]) for line in panels["kad"].lines if len(line.get_ydata()) == 2
    )
    assert best >= wanted[top]


def test_an_svg_refers_to_nothing_outside(figures: list[Figure]) -> None:
    assert [figure.name for figure in figures] == NAMES
    seen: set[str] = set()
    for figure in figures:
        assert figure.svg.startswith("<svg ") and "<!DOCTYPE" not in figure.svg and "<style" not in figure.svg
        root = ET.fromstring(figure.svg)
        ids = [item.get("id") for item in root.iter() if item.get("id")]
        assert len(set(ids)) == len(ids) and all(str(name).startswith(f"{figure.name}-") for name in ids)
        assert not seen & set(ids), "two figures of a page share ids"
        seen |= {str(name) for name in ids}
        for item in root.iter():
            assert item.tag.split("}")[1] in {
                "svg",
                "title",
                "desc",
                "g",
                "path",
                "defs",
                "use",
                "clipPath",
                "rect",
                "text",
                "pattern",
            }
            for name, value in item.attrib.items():
                assert not name.startswith("on") and "http" not in value
                if name.endswith("href"):
                    assert value[0] == "#" and value[1:] in ids
                assert all(target in ids for target in re.findall(r"url\(#([^)]*)\)", value))
                assert len(re.findall(r"url\((?!#)", value)) == 0
        space = "{http://www.w3.org/2000/svg}"
        assert root.get("role") == "img"
        assert (root.findtext(f"{space}title"), root.findtext(f"{space}desc")) == (figure.title, figure.caption)


def test_a_png_holds_a_picture(figures: list[Figure]) -> None:
    for figure in figures:
        with Image.open(io.BytesIO(figure.png)) as image:
            pixels = np.asarray(image.convert("L"))
            assert not image.info.get("Software") and pixels.shape[1] in (990, 2100)
            assert image.info["dpi"] == pytest.approx((300, 300), abs=0.01)
        assert (pixels == 255).mean() > 0.5 and (pixels < 100).sum() > 1000


def test_figures_are_the_same_bytes_whatever_the_users_settings(results: Results, figures: list[Figure]) -> None:
    with mpl.rc_context({"font.size": 30, "savefig.facecolor": "red", "svg.fonttype": "none", "axes.grid": True}):
        again = all_figures(results)
        assert mpl.rcParams["font.size"] == 30
    assert again == figures


def test_stamps_are_in_the_words_and_the_files_but_not_in_the_picture(results: Results, figures: list[Figure]) -> None:
    line = "clip-b32: stand-in weights: the numbers say nothing about the model"
    for figure in figures:
        assert line in figure.caption and line in html.unescape(figure.svg.split("</desc>")[0])
        plain = figure.pdf.replace(b"\\", b"")
        assert line.encode() in plain or line.encode("utf-16-be") in plain
        with Image.open(io.BytesIO(figure.png)) as image:
            assert image.info["Description"] == figure.caption and image.info["Title"] == figure.title
    for drawing in drawings(results):
        words = " ".join(text.get_text() for text in drawing.findobj(mpl.text.Text))
        assert "stand-in" not in words.replace("\n", " ")


def drawings(results: Results) -> list[Any]:
    with drawing_style("test"):
        return [
            *(draw(results) for draw in (draw_recognition, draw_correlation, draw_dice, draw_delta, draw_curves)),
            draw_correlation(results, "cell"),
        ]


def test_drawings_fit_a_paper(results: Results) -> None:
    """A column or a page wide, no text below 7 points, none cut off."""
    for drawing in drawings(results):
        with drawing_style("test"):
            settle(drawing)
            assert drawing.get_figwidth() in (3.3, 7.0)
            for text in drawing.findobj(mpl.text.Text):
                if text.get_text() and text.get_visible():
                    assert text.get_fontsize() >= 7, text
                    box = text.get_window_extent()
                    inside = box.x0 >= -2 and box.x1 <= drawing.bbox.x1 + 2 and box.y1 <= drawing.bbox.y1 + 2
                    assert inside or not text.axes or not text.axes.get_visible(), text


def test_fonts_are_embedded_and_text_stays_text(figures: list[Figure]) -> None:
    for figure in figures:
        assert figure.pdf.startswith(b"%PDF") and b"/FontFile2" in figure.pdf and b"/Type3" not in figure.pdf
        words = [item.text for item in ET.fromstring(figure.svg).iter("{http://www.w3.org/2000/svg}text")]
        assert "kad" in words


def lightness(colour: str, matrix: Sequence[Sequence[float]] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))) -> np.ndarray:
    """CIE L*, a*, b* of a colour as eyes with this matrix (Machado et al. 2009) see it."""
    share = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrix) @ linear, 0, 1)
    xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175],
                    [0.0193339, 0.119192, 0.9503041]]) @ seen / [0.95047, 1, 1.08883]  # fmt: skip
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))


def test_colours_survive_grey_print_and_colour_blindness() -> None:
    own = looks([f"model {number}" for number in range(7)])
    for one, two in combinations(own.values(), 2):
        assert one.mark != two.mark
        assert abs(lightness(one.colour)[0] - lightness(two.colour)[0]) > 10, (one, two)
        for eyes in (DEUTERANOPIA, PROTANOPIA):
            apart = float(np.linalg.norm(lightness(one.colour, eyes) - lightness(two.colour, eyes)))
            assert apart > 25, (one, two)
    assert len(set(looks([str(number) for number in range(77)]).values())) == 77


def test_dice_at_both_thresholds_side_by_side(results: Results) -> None:
    with drawing_style("test"):
        (axes,) = draw_dice(results).axes
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == [model for model in FIVE if model != "medklip"]
    heights = [bar.get_height() for bar in axes.patches]
    for side, field in enumerate(("dice_fixed", "dice_best")):
        wanted = [percent(results.number(model, "", field).value) for model in names]
        assert heights[side * len(names) : (side + 1) * len(names)] == pytest.approx(wanted)
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}) == 2
    assert "medklip (1 of 2 datasets)" in planned(results, DICE).caption  # type: ignore[union-attr]


def test_the_line_has_an_interval_from_four_models_on(tmp_path: Path) -> None:
    found = make(tmp_path / "run", dict.fromkeys(("a", "b", "c", "d"), "published"))
    for per in ("model", "cell"):
        with drawing_style("test"):
            axes = draw_correlation(found, per).axes[0]
        (band,) = [item for item in axes.collections if item.get_label() == "_band"]
        x = [100 * (found.number(m, "", "auc").value or 0) for m in "abcd"]
        if per == "model":
            assert band.get_paths()[0].get_extents().intervalx == pytest.approx([min(x), max(x)])
        assert "95 % interval at each AUC" in correlation_figure(found, per).caption  # type: ignore[union-attr]


def test_intervals_are_drawn_where_there_are_replicates(tmp_path: Path) -> None:
    found = make(tmp_path / "run", {"kad": "published", "mavl": "published"}, choices=Choices(replicates=40))
    with drawing_style("test"):
        (axes,) = draw_delta(found).axes
        panel = draw_recognition(found).axes[0]
    order = [label.get_text() for label in axes.get_yticklabels()]
    whiskers = {
        int(line.get_ydata()[0]): line.get_xdata() for line in axes.lines if list(line.get_ydata()) in ([0, 0], [1, 1])
    }
    for place, model in enumerate(order):
        interval = found.number(model, "", "delta_dice").interval
        assert interval is not None and list(whiskers[place]) == pytest.approx([interval.low, interval.high])
    auc = found.number("kad", "one", "auc").interval
    assert auc is not None
    assert any(list(line.get_xdata()) == pytest.approx([100 * auc.low, 100 * auc.high]) for line in panel.lines)
    words = correlation_figure(found)
    assert words is not None and "2 points give no R²" in words.caption and "95 % bootstrap intervals" in words.caption


def test_one_model_on_one_dataset(tmp_path: Path) -> None:
    found = make(tmp_path / "run", {"kad-demo": "demo"}, ("phantoms",))
    figures = all_figures(found)
    assert [figure.name for figure in figures] == [NAMES[0], *NAMES[3:]]
    assert all("it never saw a radiograph" in figure.caption for figure in figures)
    assert "paper 9.7" not in figures[2].caption


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert all_figures(Results((), (), {}, {})) == []
    assert all_figures(Results(("kad",), ("one",), {}, {("kad", "one"): "failed"})) == []
    names = [figure.name for figure in all_figures(make(tmp_path / "run", {"baseline:ones": "baseline"}))]
    assert names == NAMES[3:]


def test_a_protocol_without_a_fixed_threshold_has_no_delta(tmp_path: Path) -> None:
    found = make(tmp_path / "run", {"mavl": "published"}, ("one",))
    data = read_run(tmp_path / "run")
    data["cells"]["mavl--one"]["protocol"] = "chexlocalize"
    store_run(tmp_path / "run", data)
    found = make_results(load_run(tmp_path / "run"), Choices(replicates=0))
    figures = {figure.name: figure for figure in all_figures(found)}
    assert "figure-4-delta-dice" not in figures
    with drawing_style("test"):
        panel = draw_curves(found).axes[0]
    assert "fixed" not in [line.get_label() for line in panel.lines]
    assert "protocol chexlocalize" in figures["figure-4-threshold-curves"].caption


def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    odd = {"a$b$<c>&--d": "published", "x" * 60: "published", "$": "published"}
    found = make(tmp_path / "run", odd, ("one",))
    for figure in all_figures(found):
        ET.fromstring(figure.svg)
        assert all(model in figure.caption for model in odd)


def test_many_models_and_datasets(tmp_path: Path) -> None:
    models = {f"model-{index}": "published" for index in range(8)}
    found = make(tmp_path / "run", models, [f"set {index}" for index in range(4)], [("model-3", "set 1")])
    cells = correlation_figure(found, "cell")
    assert cells is not None and "n = 31" in cells.caption and "by bootstrap over the models" in cells.caption
    with drawing_style("test"):
        shown = [axes for axes in draw_curves(found).axes if axes.get_title(loc="left")]
        panels = draw_recognition(found).axes
    assert len(shown) == 7 and len([axes for axes in panels if axes.get_visible()]) == 5


def test_without_matplotlib_it_is_said_what_to_install(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"install xbench-fast\[report\]"):
        all_figures(results)


def test_names_with_hidden_signs_are_shown(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """In labels, ticks, titles and captions of every figure, whose SVG would be no XML with a control character."""
    name = "kad\x1b[2J\u202e\x7f"
    for figure in all_figures(
        make(tmp_path / "run", {name: "published", "clip": "published"}, ("one\x1b\u202e", "two"))
    ):
        ET.fromstring(figure.svg)
        for text in (figure.svg, figure.caption, figure.title, figure.pdf.decode("latin-1")):
            assert not re.search("[\x1b\u202e\x7f]", text) or text.startswith("%PDF"), figure.name
        assert "\\x1b[2J\\u202e" in html.unescape(figure.svg), figure.name
    assert [(w.filename, w.lineno, str(w.message)) for w in recwarn if "missing from font" in str(w.message)] == []
