"""Intervals and differences of a report: replicates equal reports of really resampled patients."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from test_report import report, rows_of
from xbench_fast.metrics_gpu.grounding.folds import patient_folds
from xbench_fast.metrics_gpu.grounding.grounding_options import GroundingOptions
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.recognition.delong import auc_differences
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.paired import holm, paired_difference
from xbench_fast.metrics_gpu.statistics.proportions import wilson_interval
from xbench_fast.runtime.comparing.model_differences import find_differences
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load import load_run
from xbench_fast.runtime.results.numbers.fields import FIELDS, find_numbers
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.tables.table import Cell

FEW = Choices(replicates=40, seed=5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intervals") / "run"
    with RunDirectory(path) as made:
        made.begin({})
        for model, seed in (("kad", 1), ("mavl", 3), ("clip", 4)):
            one, two = random_rows(1), random_rows(11)
            if model != "kad":  # another model on the same images
                one, two = (other_answers(rows, seed, negative=model == "clip") for rows in (one, two))
            add_cell(made, model, "one", one)
            if model != "clip":
                add_cell(made, model, "two", two)
        add_cell(made, "baseline:center", "one", random_rows(7), "baseline", model_family="")
    return path


@pytest.fixture(scope="module")
def results(run: Path) -> Results:
    return make_results(load_run(run), FEW)


def test_replicates_equal_resampled_patients(results: Results) -> None:
    """Every number of a cell, in the first replicates, from the drawn images and pairs themselves."""
    cell, rows = results.cells["clip", "one"], results.rows["clip", "one"]
    patients = results.patients["one"]
    assert patients.draws is not None and patients.draws.replicates == 40
    of_image = patients.of_images(rows)
    of_pair = of_image[rows.image_of]
    for b in range(6):
        drawn = patients.draws.counts[b]
        pairs, images = np.repeat(np.arange(len(of_pair)), drawn[of_pair]), np.repeat(np.arange(28), drawn[of_image])
        counts, class_of = rows.counts.take(pairs), rows.class_of[pairs]
        found = grounding(Pairs(counts, class_of, rows.findings))
        fitted = grounding(
            Pairs(counts, class_of, rows.findings, fold_of=patient_folds(class_of, of_pair[pairs])),
            GroundingOptions(unit="cross_fit"),
        )
        seen = recognition(rows.logits[images], rows.labels[images], rows.findings)
        pair = recognition((rows.logits.astype(float) - rows.negatives)[images], rows.labels[images], rows.findings)
        for field, (source, key) in FIELDS.items():
            world = {"grounding": found, "cross_fitted": fitted, "recognition": seen, "pair": pair}[source]
            for name in ("", *CLASSES):
                replicates = cell.number(field, name).drawn
                if replicates is None:
                    assert cell.number(field, name).value is None
                    continue
                if name:
                    expected = getattr(next(item for item in world.classes if item.name == name), key)
                elif source in ("grounding", "cross_fitted"):
                    expected = getattr(world.macro, key)  # type: ignore[union-attr]
                else:
                    expected = getattr(world, "hamming" if key == "accuracy" else key)
                assert replicates[b] == pytest.approx(np.nan if expected is None else expected, abs=1e-12, nan_ok=True)


def test_intervals_are_percentiles_of_the_replicates(results: Results) -> None:
    cell = results.cells["kad", "one"]
    for field in ("pointing", "dice_best", "dice_cross_fitted", "auc", "f1", "accuracy", "delta_dice"):
        for name in ("", "Mass"):
            number = cell.number(field, name)
            interval, drawn = number.interval, number.drawn
            assert interval is not None and drawn is not None and interval.method == "bootstrap"
            assert (interval.low, interval.high) == pytest.approx(np.nanpercentile(drawn, [2.5, 97.5]))
    assert cell.number("auc", "Edema").value is None and cell.number("auc", "Edema").interval is None


def test_models_of_a_dataset_meet_the_same_draws_and_datasets_do_not(results: Results, run: Path) -> None:
    one, two = (results.patients[name].draws for name in ("one", "two"))
    assert one is not None and two is not None
    assert one.counts.shape == two.counts.shape and (one.counts != two.counts).any()
    assert (make_results(load_run(run), FEW).patients["one"].draws.counts == one.counts).all()  # type: ignore[union-attr]
    other = make_results(load_run(run), Choices(replicates=40, seed=6)).patients["one"].draws
    assert other is not None and (other.counts != one.counts).any()


def test_a_model_alone_has_the_same_intervals(results: Results, run: Path, tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "alone") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1))
    alone = make_results(load_run(tmp_path / "alone"), FEW).number("kad", "one", "dice_cross_fitted")
    assert alone == results.number("kad", "one", "dice_cross_fitted")


def test_the_mean_over_datasets_combines_their_replicates(results: Results) -> None:
    one, two = (results.cells["mavl", name].number("pointing").drawn for name in ("one", "two"))
    assert one is not None and two is not None
    found = results.mean_number("mavl", "pointing")
    assert found.interval is not None and found.value is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(np.percentile((one + two) / 2, [2.5, 97.5]))
    values = [results.number("mavl", name, "pointing").value for name in ("one", "two")]
    assert found.value == pytest.approx(np.mean([value for value in values if value is not None]))
    single = results.mean_number("clip", "pointing")
    assert single.interval == results.number("clip", "one", "pointing").interval


def test_few_pairs_have_wilsons_interval_beside(results: Results) -> None:
    cell = results.cells["kad", "one"]
    scores = cell.scores("Mass")
    assert scores is not None and scores.pointing is not None and scores.n < 30
    beside = cell.number("pointing", "Mass").beside
    assert beside == wilson_interval(round(scores.pointing * scores.n), scores.n)
    assert cell.number("pointing").beside is None and cell.number("dice_best", "Mass").beside is None


def test_a_mean_over_some_classes_is_none_and_one_class_gives_the_mean_its_interval(results: Results) -> None:
    cell = results.cells["kad", "one"]
    every = {"grounding": cell.grounding, "cross_fitted": cell.cross_fitted}
    every |= {"recognition": cell.recognition, "pair": cell.recognition}
    mass = tuple(item for item in cell.grounding.classes if item.name == "Mass")
    some = {
        **every,
        "grounding": replace(cell.grounding, classes=mass),
        "pair": replace(cell.recognition, classes=cell.recognition.classes[:1]),
    }
    whole, part = find_numbers(every, cell.choices), find_numbers(some, cell.choices)
    assert ("pair_f1", "") in whole and ("pair_f1", "") not in part
    assert ("pair_f1", cell.recognition.classes[0].name) in part
    assert whole["pointing", ""].beside is None and whole["pointing", "Mass"].beside is not None
    assert part["pointing", ""].beside == whole["pointing", "Mass"].beside


def test_differences_are_paired_and_corrected(results: Results) -> None:
    found = find_differences(results)
    models = ("kad", "mavl", "clip")  # no baseline
    for field in ("pointing", "dice_best", "dice_cross_fitted", "auc"):
        plain = []
        for a, b in combinations(models, 2):
            values = [results.number(model, "one", field).value or 0.0 for model in (a, b)]
            drawn = [results.cells[model, "one"].number(field).drawn for model in (a, b)]
            plain.append(paired_difference(*values, *drawn))  # type: ignore[arg-type]
        got = [item for item in found.numbers if (item.dataset, item.field) == ("one", field)]
        assert [(item.first, item.second) for item in got] == list(combinations(models, 2))
        assert [item.difference for item in got] == pytest.approx([item.difference for item in plain])
        assert [item.interval for item in got] == [item.interval for item in plain]
        assert [item.p_holm for item in got] == holm([item.p for item in plain])
    over = [item for item in found.numbers if not item.dataset and item.field == "auc"]
    assert [(item.first, item.second, item.datasets) for item in over] == [("kad", "mavl", ("one", "two"))]
    values = [results.number(model, name, "auc").value or 0 for model in ("kad", "mavl") for name in ("one", "two")]
    assert over[0].difference == pytest.approx((values[0] + values[1] - values[2] - values[3]) / 2)


def test_delong_compares_the_images_that_all_models_read(tmp_path: Path) -> None:
    rows = {model: random_rows(1) for model in ("a", "b", "c")}
    for number, row in enumerate(rows["b"]):
        row.logit = None if row.logit is None else np.float32(row.logit + number % 3 - 1)
    for row in rows["c"]:
        if row.case_id == "c3":
            row.status, row.logit, row.area = "unreadable", None, None
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for model, its in rows.items():
            add_cell(made, model, "one", its)
    found = find_differences(make_results(load_run(tmp_path / "run"), Choices(replicates=0)))
    assert {item.name for item in found.classes} == {"Mass", "Effusion"}  # Edema has one label value
    for name in ("Mass", "Effusion"):
        got = [item for item in found.classes if item.name == name]
        kept = [
            i for i, row in enumerate(rows["c"]) if row.finding == name and row.status == "ok" and row.label is not None
        ]
        label = np.array([rows["a"][i].label for i in kept])
        score = {model: np.array([its[i].logit for i in kept], float) for model, its in rows.items()}
        expected = [auc_differences([score[a], score[b]], label)[0, 1] for a, b in combinations("abc", 2)]
        assert [item.n for item in got] == [len(kept)] * 3
        assert [item.difference for item in got] == pytest.approx([item.difference for item in expected])
        assert [item.p_holm for item in got] == holm([item.p for item in expected])
    assert all(item.p is None and item.interval is None for item in found.numbers), "no replicates were asked for"


def test_every_cell_of_every_table_has_its_interval(run: Path) -> None:
    data, tables, markdown = report(run, FEW)
    for title, table in tables.items():
        if title.startswith(("Coverage", "Provenance")):
            continue
        for row in table.rows:
            for column, item in zip(table.columns, row, strict=True):
                number = isinstance(item, Cell) and item.text.lstrip("+-").replace(".", "").isdigit()
                if number and column.title not in ("p", "tau", "prevalence"):
                    assert item.interval.startswith("["), (title, column, row[0])  # type: ignore[union-attr]
    low, high = data["cells"][0]["intervals"]["Mass"]["pointing"]
    mass = next(row for row in tables["The one: pointing per class"].rows if row[0] == "kad")[2]
    assert isinstance(mass, Cell) and mass.interval == f"[{100 * low:.1f}, {100 * high:.1f}]"
    assert mass.note.startswith("Wilson [")
    assert f"\\[{100 * low:.1f}, {100 * high:.1f}\\]" in markdown
    assert any("40 resamples of the patients (seed 5)" in note for note in tables["Recognition"].notes)
    assert data["choices"]["replicates"] == 40
    # the smallest p of 40 resamples is 2 of 41, three times that for three pairs of models
    assert (
        "40 resamples and 3 comparisons: no corrected p of the bootstrap is below 0.146"
        in tables["Differences between models: The one"].notes
    )


def test_no_replicates_no_intervals(run: Path) -> None:
    data, tables, _ = report(run, Choices(replicates=0))
    assert all(cell["intervals"] == {} and cell["wilson"] == {} for cell in data["cells"])
    assert not any(isinstance(item, Cell) and item.interval for t in tables.values() for row in t.rows for item in row)
    differences = rows_of(tables["Differences between models: The one"]).values()
    assert all(row[2::2] == ("-",) * 4 and "-" not in row[1::2] for row in differences)
    assert json.dumps(data).count("NaN") == 0
