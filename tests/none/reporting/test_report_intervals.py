"""Intervals and differences of a report: replicates equal reports of really resampled patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.recognition.delong import auc_difference, auc_estimate, auc_parts
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.intervals import effective_number, wilson_interval
from xbench_fast.metrics_gpu.statistics.measured_numbers import MeasuredRows
from xbench_fast.metrics_gpu.statistics.multiple_tests import corrected, holm
from xbench_fast.metrics_gpu.statistics.sign_flips import sign_patterns
from xbench_fast.runtime.reporting.comparison.comparison import compare_runs
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.comparing.cell_variants import Variant, side_by_side
from xbench_fast.runtime.results.comparing.difference import subtract
from xbench_fast.runtime.results.comparing.model_differences import find_differences
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.fields import FIELDS
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling

FEW = Choices(replicates=60, seed=5)


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
    cell = results.cells["clip", "one"]
    rows = cell.rows
    patients = results.patients["one"]
    assert patients.draws is not None and patients.draws.replicates == 60
    of_image = patients.of_images(rows)
    of_pair = of_image[rows.image_of]
    for b in range(6):
        drawn = patients.draws.counts[b]
        pairs, images = np.repeat(np.arange(len(of_pair)), drawn[of_pair]), np.repeat(np.arange(28), drawn[of_image])
        counts, class_of = rows.counts.take(pairs), rows.class_of[pairs]
        found = grounding(Pairs(counts, class_of, rows.findings))
        fitted = grounding(
            Pairs(counts, class_of, rows.findings, fold_of=of_pair[pairs][None]),
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
                expected = world.value(key, name or ("micro" if key == "accuracy" else "macro"))
                assert replicates[b] == pytest.approx(np.nan if expected is None else expected, abs=1e-12, nan_ok=True)


def test_intervals_are_percentiles_of_the_replicates(results: Results) -> None:
    cell = results.cells["kad", "one"]
    for field in ("pointing", "dice_best", "dice_cross_fitted", "auc", "f1", "accuracy", "delta_dice"):
        for name in ("", "Mass"):
            if (field, name) == ("pointing", "Mass"):
                continue  # Wilson's, of fewer than 30 pairs
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
    other = make_results(load_run(run), Choices(replicates=60, seed=6)).patients["one"].draws
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
    found = results.number("mavl", "", "pointing")
    assert found.interval is not None and found.value is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(np.percentile((one + two) / 2, [2.5, 97.5]))
    values = [results.number("mavl", name, "pointing").value for name in ("one", "two")]
    assert found.value == pytest.approx(np.mean([value for value in values if value is not None]))
    assert results.number("clip", "", "pointing").value is None
    assert results.lacking("clip", "pointing") == "1 of 2 datasets" and not results.lacking("mavl", "pointing")


def test_few_pairs_have_wilsons_interval(results: Results) -> None:
    cell = results.cells["kad", "one"]
    sample, hits, count = cell.sample, cell.grounding.value("pointing", "Mass"), cell.count("pointing", "Mass")
    assert hits is not None and 10 < count < 30 and sample is not None
    found, own = cell.number("pointing", "Mass").interval, sample.pairs_of("Mass")
    n = effective_number(cell.grounding.each["pointing"][own], sample.pair_patient[own])
    assert found == wilson_interval(hits * n, n)
    whole, dice = cell.number("pointing").interval, cell.number("dice_best", "Mass").interval
    assert whole is not None and dice is not None and whole.method == dice.method == "bootstrap"


def one_class(scores: MeasuredRows, name: str) -> Any:
    """The numbers without their other classes; the means are kept."""
    place = scores.names.index(name)
    return replace(
        scores,
        names=(name,),
        counts={key: value[[place]] for key, value in scores.counts.items()},
        rows={key: value[[place, -2, -1]] for key, value in scores.rows.items()},
    )


def test_a_mean_over_some_classes_is_none_and_one_class_gives_the_mean_its_interval(results: Results) -> None:
    cell = results.cells["kad", "one"]
    whole = replace(cell, pair=cell.recognition)
    part = replace(
        cell,
        grounding=one_class(cell.grounding, "Mass"),
        pair=one_class(cell.recognition, cell.recognition.names[0]),
    )
    assert whole.number("pair_f1").value is not None and part.number("pair_f1").value is None
    assert part.number("pair_f1", cell.recognition.names[0]).value is not None
    intervals = [numbers.number("pointing", name).interval for numbers in (whole, part) for name in ("", "Mass")]
    assert [interval and interval.method for interval in intervals] == ["bootstrap", "wilson", "wilson", "wilson"]
    assert intervals[2] == intervals[1]


def by_patterns(added: NDArray[np.float64], names: Sequence[str], seed: int) -> float:
    """Sign flips in one matrix, all patterns of up to 15 patients."""
    used = np.flatnonzero(added)
    if len(used) <= 15:
        signs = np.array(list(product((1.0, -1.0), repeat=len(used))))
        return float((abs(signs @ added[used]) >= abs(added.sum()) - 1e-12).mean())
    bits = sign_patterns(names, 19_999, seed)
    signs = 1 - 2.0 * np.unpackbits(bits, axis=1, count=19_999, bitorder="little")
    return float(1 + (abs(added @ signs) >= abs(added.sum()) - 1e-12).sum()) / 20_000


def test_differences_are_tested_by_patient_and_corrected(results: Results) -> None:
    """Each pair's difference, divided by the pairs of its class and the classes, flipped with its patient."""
    found = find_differences(results)
    models = ("kad", "mavl", "clip")  # no baseline
    people = results.patients["one"]
    for field in ("pointing", "dice_best", "dice_cross_fitted"):
        expected = []
        for a, b in combinations(models, 2):
            one, two = (results.cells[model, "one"] for model in (a, b))
            source, key = FIELDS[field]
            gap = getattr(one, source).each[key] - getattr(two, source).each[key]
            rows, added = results.cells[a, "one"].rows, np.zeros(len(people.number))
            of_pair = people.of_images(rows)[rows.image_of]
            classes = set(rows.class_of.tolist())
            for value, c, patient in zip(gap, rows.class_of, of_pair, strict=True):
                added[patient] += value / (rows.class_of == c).sum() / len(classes)
            values = [cell.number(field).value or 0.0 for cell in (one, two)]
            assert added.sum() == pytest.approx(values[0] - values[1])
            expected.append(by_patterns(added, [f"one/{name}" for name in people.number], FEW.seed))
        got = [item for item in found.numbers if (item.dataset, item.field) == ("one", field)]
        assert [(item.first, item.second) for item in got] == list(combinations(models, 2))
        for item in got:
            drawn = [results.cells[model, "one"].number(field).drawn for model in (item.first, item.second)]
            assert drawn[0] is not None and drawn[1] is not None and item.interval is not None
            ends = np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
            assert (item.interval.low, item.interval.high) == pytest.approx(ends)
        if field == "dice_best":
            assert all(item.p is item.p_holm is None and item.family == 0 for item in got), "chosen on the same pairs"
            continue
        assert [item.p for item in got] == pytest.approx(expected, abs=1e-12)
        assert [item.p_holm for item in got] == holm([item.p for item in got]) and {i.family for i in got} == {3}
    over = [item for item in found.numbers if not item.dataset and item.field == "auc"]
    assert [(item.first, item.second, item.datasets) for item in over] == [("kad", "mavl", ("one", "two"))]
    values = [results.number(model, name, "auc").value or 0 for model in ("kad", "mavl") for name in ("one", "two")]
    assert over[0].value == pytest.approx((values[0] + values[1] - values[2] - values[3]) / 2)


def test_a_mean_over_datasets_is_tested_over_the_patients_of_all(results: Results) -> None:
    found = find_differences(results)
    for field in ("pointing", "dice_cross_fitted"):
        (over,) = [item for item in found.numbers if not item.dataset and item.field == field]
        parts = [subtract(results.cells["kad", name], results.cells["mavl", name], field) for name in ("one", "two")]
        each = [item.parts for item in parts if item is not None and item.parts is not None]
        added = np.concatenate([item.added for item in each]) / 2
        assert over.p == pytest.approx(by_patterns(added, [n for item in each for n in item.names], FEW.seed))
        assert over.interval is not None and over.interval.method == "bootstrap"
    (auc,) = [item for item in found.numbers if not item.dataset and item.field == "auc"]
    cells = [[results.cells[model, name].auc_parts() for name in ("one", "two")] for model in ("kad", "mavl")]
    variance = sum(((a - b) ** 2).sum() / 4 for a, b in zip(*cells, strict=True))  # type: ignore[operator]
    assert auc.p == pytest.approx(2 * stats.norm.sf(abs(auc.value) / np.sqrt(variance)))
    assert auc.interval is not None and auc.interval.method == "delong"


def test_delong_compares_the_labels_that_two_models_have(tmp_path: Path) -> None:
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
    assert [item.p_holm for item in found.classes] == holm([item.p for item in found.classes]), "one family"
    assert {item.family for item in found.classes} == {6}
    for item in found.classes:
        kept = [
            i
            for i, row in enumerate(rows[item.second])  # that of c has an image less
            if row.finding == item.name and row.status == "ok" and row.label is not None
        ]
        label = np.array([rows["a"][i].label for i in kept])
        patient = np.array([int(str(rows["a"][i].patient_id)[1:]) for i in kept])
        score = [np.array([rows[model][i].logit for i in kept], float) for model in (item.first, item.second)]
        parts = [auc_parts(each, label, patient, 15) for each in score]
        gap = auc_estimate(score[0], label).auc - auc_estimate(score[1], label).auc
        expected = auc_difference(gap, parts[0] - parts[1])
        assert item.n == len(kept) and item.value == pytest.approx(gap) and item.p == pytest.approx(expected.p)
    assert all(item.interval is None for item in found.numbers if item.field != "auc"), "no replicates were asked for"


def test_one_question_has_one_answer_in_report_and_compare(run: Path) -> None:
    """The same two models, field by field: difference, interval, and p; a third model beside them changes nothing."""
    stored = load_run(run)
    sampling = Resampling(replicates=60, seed=5)
    compared = compare_runs(stored, stored, ("mavl", "kad"), ("one",), sampling).cells[0]
    reported = find_differences(make_results(stored, FEW))
    both = [item for item in reported.numbers if (item.dataset, item.first, item.second) == ("one", "kad", "mavl")]
    changes = {change.field: change for change in compared.whole}
    assert {item.field for item in both} <= set(changes)
    for item in both:
        change = changes[item.field]
        assert (item.value, item.interval, item.p) == (change.value, change.interval, change.p), item.field
    of_classes = {(item.name, item.p, item.interval) for item in reported.classes
                  if (item.dataset, item.first, item.second) == ("one", "kad", "mavl")}  # fmt: skip
    tested = {(c.name, c.p, c.interval) for c in compared.classes if c.field == "auc" and c.p is not None}
    assert of_classes == tested and of_classes


def test_a_study_of_variants_has_the_patients_and_p_of_the_report(results: Results) -> None:
    """Two models as variants of each other; draws and signs depend on the dataset's name, not on its title."""
    cells = {model: results.cells[model, "one"] for model in ("mavl", "kad")}
    variants = [Variant(model, cell.rows, cell.scored) for model, cell in cells.items()]
    group = side_by_side("kad", "A title", variants, Resampling(60, 5))
    people = results.patients["one"]
    assert group is not None and group.patients.draws is not None and people.draws is not None
    assert (group.patients.draws.counts == people.draws.counts).all()
    (found,) = [item for item in corrected(list(group.differences(group.by_class(), ("pointing",), "class")))
                if not item.name]  # fmt: skip
    wanted = ("one", "pointing", "kad", "mavl")
    every = find_differences(results).numbers
    (told,) = [item for item in every if (item.dataset, item.field, item.first, item.second) == wanted]
    assert (found.value, found.interval, found.p) == (told.value, told.interval, told.p)
    names = [results.cells["mavl", dataset].sample for dataset in ("one", "two")]
    assert names[0] is not None and names[1] is not None
    assert names[0].names[0].startswith("one/") and not set(names[0].names) & set(names[1].names)
