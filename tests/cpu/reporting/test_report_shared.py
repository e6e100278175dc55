"""Differences and marks of models that met different images or classes: only what both have is compared."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from exact_units import in_units
from result_rows import ResultRow
from sklearn.metrics import roc_auc_score
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from written_report import report, rows_of
from xbench_fast.runtime.reporting.tables.table import Cell, cell_of
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.comparing.model_differences import ModelDifference, Overlaps, find_differences
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import Results, make_results
from xbench_fast.runtime.results.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("empty_drawings")

FEW, NONE = Choices(replicates=60, seed=3), Choices(replicates=0)
FIRST, SECOND = random_rows(1), random_rows(21)


def part(rows: list[ResultRow], findings: Iterable[str] = CLASSES, skipped: Iterable[int] = ()) -> list[ResultRow]:
    """Rows of some classes, without some cases."""
    without, kept = {f"c{index}" for index in skipped}, set(findings)
    return [row for row in rows if row.finding in kept and row.case_id not in without]


def write(path: Path, cells: dict[tuple[str, str], list[ResultRow]], weights: str = "published") -> Path:
    with RunDirectory(path) as run:
        run.begin({})
        for (model, dataset), rows in cells.items():
            findings = [name for name in CLASSES if any(row.finding == name for row in rows)]
            add_cell(run, model, dataset, rows, weights, findings=findings)
    return path


def results(path: Path, choices: Choices = NONE) -> Results:
    return make_results(load_run(path), choices)


class Naive:
    """Two models' rows that both have, and the numbers of each by loops."""

    def __init__(self, one: list[ResultRow], two: list[ResultRow]) -> None:
        sides = [{(row.case_id, row.finding): row for row in rows if row.status == "ok"} for rows in (one, two)]
        self.rows = [{key: side[key] for key in sides[0] if key in sides[1]} for side in sides]
        self.pairs = [key for key, row in self.rows[0].items() if row.area is not None]
        pairs = [{key for key, row in side.items() if row.area is not None} for side in sides]
        self.left_out = len(pairs[0] ^ pairs[1])

    def value(self, side: int, field: str, times: dict[str, int] | None = None) -> float:
        """The mean over classes; times: how often each patient counts."""
        means = []
        for name in CLASSES:
            keys = [key for key in (self.rows[0] if field == "auc" else self.pairs) if key[1] == name]
            rows = [self.rows[side][key] for key in keys]
            drawn = [row for row in rows for _ in range(1 if times is None else times[str(row.patient_id)])]
            value = {"pointing": pointing, "dice_best": dice_best, "auc": auc}[field](drawn)
            means += [] if value is None else [value]
        return sum(means) / len(means) if means else float("nan")

    def p_of_hits(self) -> float:
        """All sign patterns of the patients, of the difference of the means over classes of hits."""
        added: dict[str, float] = {}
        sizes = {name: sum(key[1] == name for key in self.pairs) for name in CLASSES}
        classes = sum(size > 0 for size in sizes.values())
        for key in self.pairs:
            gap = float(bool(self.rows[0][key].hit)) - float(bool(self.rows[1][key].hit))
            patient = str(self.rows[0][key].patient_id)
            added[patient] = added.get(patient, 0.0) + gap / sizes[key[1]] / classes
        parts = [value for value in added.values() if abs(value) > 1e-15]
        sums = [sum(sign * part for sign, part in zip(signs, parts, strict=True))
                for signs in product((1, -1), repeat=len(parts))]  # fmt: skip
        return sum(abs(value) >= abs(sum(parts)) - 1e-12 for value in sums) / len(sums)


def pointing(rows: list[ResultRow]) -> float | None:
    return sum(bool(row.hit) for row in rows) / len(rows) if rows else None


def dice_best(rows: list[ResultRow]) -> float | None:
    def at(row: ResultRow, k: int) -> float:
        assert row.area is not None and row.overlap is not None and row.region_area is not None
        return float(in_units(2 * row.overlap[k] / (row.area[k] + row.region_area)))

    return max(sum(at(row, k) for row in rows) / len(rows) for k in range(101)) if rows else None


def auc(rows: list[ResultRow]) -> float | None:
    known = [(row.label, float(row.logit)) for row in rows if row.label is not None and row.logit is not None]
    labels, scores = [label for label, _ in known], [score for _, score in known]
    return float(roc_auc_score(labels, scores)) if len(set(labels)) == 2 else None


def one_of(found: Iterable[ModelDifference], dataset: str, field: str) -> ModelDifference:
    (item,) = [item for item in found if (item.dataset, item.field) == (dataset, field)]
    return item


def test_a_difference_is_taken_on_what_both_models_have(tmp_path: Path) -> None:
    """The second model lacks a class, and four cases as after --limit 26."""
    second = part(other_answers(FIRST, 8), CLASSES[1:], range(26, 30))
    whole = results(write(tmp_path / "run", {("a", "one"): FIRST, ("b", "one"): second}), FEW)
    found, naive = find_differences(whole).numbers, Naive(FIRST, second)
    drawn = whole.patients["one"].draws
    assert drawn is not None and naive.pairs and naive.left_out > 10
    for field in ("pointing", "dice_best", "auc"):
        item = one_of(found, "one", field)
        assert item.value == pytest.approx(naive.value(0, field) - naive.value(1, field), abs=1e-12)
        gaps = []
        for counts in drawn.counts:
            times = {name: int(counts[place]) for name, place in whole.patients["one"].number.items()}
            gaps.append(naive.value(0, field, times) - naive.value(1, field, times))
        known = [gap for gap in gaps if not np.isnan(gap)]
        assert item.interval is not None and item.drawn is not None
        assert item.drawn == pytest.approx(gaps, abs=1e-12, nan_ok=True)
        if field == "auc":
            assert item.interval.method == "delong" and item.p is not None
            continue
        assert (item.interval.low, item.interval.high) == pytest.approx(np.percentile(known, [2.5, 97.5]), abs=1e-9)
        assert item.p == pytest.approx(naive.p_of_hits()) if field == "pointing" else item.p is None
    item = one_of(found, "one", "pointing")
    assert (item.n, item.left_out) == (len(naive.pairs), naive.left_out)
    values = [whole.number(model, "one", "pointing").value or 0.0 for model in "ab"]
    assert item.value != pytest.approx(values[0] - values[1]), "the whole cells differ by something else"


def test_the_same_maps_do_not_differ_however_few_of_them_one_model_has(tmp_path: Path) -> None:
    few = part(FIRST, CLASSES[:1], range(0, 30, 3))
    path = write(tmp_path / "run", {("full", "one"): FIRST, ("part", "one"): few}, "maps")
    whole = results(path, FEW)
    a, b = (whole.number(model, "one", "pointing").value for model in ("full", "part"))
    assert a != b
    for item in find_differences(whole).numbers:
        assert (item.value, item.p) == (0, None if item.field == "dice_best" else 1), item.field
    _, tables, _ = report(path, FEW)
    pairs = [sum(row.area is not None for row in rows) for rows in (FIRST, few)]
    table = tables["Differences between models: The one"]
    wanted = f"pairs left out, as only one of the two models has them: {pairs[0] - pairs[1]} of full and part"
    assert wanted in table.notes
    line = next(iter(csv.DictReader(io.StringIO((path / "report" / "differences.csv").read_text()))))
    assert (line["shared"], line["left_out"]) == (str(pairs[1]), str(pairs[0] - pairs[1]))


def test_models_that_share_nothing_have_no_difference(tmp_path: Path) -> None:
    cells = {("a", "one"): part(FIRST, skipped=range(15)), ("b", "one"): part(FIRST, skipped=range(15, 30))}
    path = write(tmp_path / "run", cells)
    assert find_differences(results(path, FEW)).numbers == ()
    _, tables, _ = report(path, FEW)
    table = tables["Differences between models: The one"]
    assert set(rows_of(table)["a"][1:]) == {"-"}
    for what in ("pairs", "labels"):
        assert f"a and b share no {what} on The one: no difference can be given" in table.notes
    assert not any("no corrected p" in note for note in table.notes)


def test_a_mean_over_datasets_takes_the_shared_pairs_of_each(tmp_path: Path) -> None:
    few = {"one": part(FIRST, CLASSES[:1]), "two": part(SECOND, skipped=range(0, 30, 2))}
    cells = {("a", "one"): other_answers(FIRST, 5), ("a", "two"): other_answers(SECOND, 6)}
    path = write(tmp_path / "run", cells | {("b", name): rows for name, rows in few.items()})
    found = find_differences(results(path)).numbers
    naive = [Naive(cells["a", name], few[name]) for name in ("one", "two")]
    for field in ("pointing", "dice_best", "auc"):
        gaps = [there.value(0, field) - there.value(1, field) for there in naive]
        assert one_of(found, "", field).value == pytest.approx(sum(gaps) / 2, abs=1e-12)
    item = one_of(found, "", "pointing")
    assert (item.n, item.left_out) == (sum(len(n.pairs) for n in naive), sum(n.left_out for n in naive))


def test_models_with_the_same_pairs_are_compared_without_computing_again(tmp_path: Path) -> None:
    """But for one that lists the same cases in another order, in which sums round otherwise."""
    order = [row for case in reversed(range(30)) for row in FIRST if row.case_id == f"c{case}"]
    cells = {("a", "one"): FIRST, ("b", "one"): other_answers(FIRST, 2), ("c", "one"): order}
    whole = results(write(tmp_path / "run", cells))
    overlaps = Overlaps(whole)
    for first, second in combinations("abc", 2):
        met = overlaps.of("one", first, second)
        assert met is not None
        assert [cell is whole.cells[cell.model, "one"] for cell in met[1]] == [second != "c"] * 2
        assert (met[0].pairs.left_out, met[0].labels.left_out) == (0, 0)
        assert met[0].pairs.shared == sum(row.area is not None for row in FIRST)


def test_a_label_that_two_models_were_told_differently_is_left_out(tmp_path: Path) -> None:
    other = other_answers(FIRST, 4)
    changed = next(row for row in other if row.finding == "Effusion" and row.label == 0 and row.status == "ok")
    changed.label = 1
    whole = results(write(tmp_path / "run", {("a", "one"): FIRST, ("b", "one"): other}))
    item = one_of(find_differences(whole).numbers, "one", "auc")
    known = [row for row in FIRST if row.status == "ok" and row.label is not None]
    assert (item.n, item.left_out) == (len(known) - 1, 2)
    left = (changed.case_id, "Effusion")
    naive = Naive(*([row for row in rows if (row.case_id, row.finding) != left] for rows in (FIRST, other)))
    assert item.value == pytest.approx(naive.value(0, "auc") - naive.value(1, "auc"), abs=1e-12)


def test_only_models_with_the_same_pairs_are_ranked(tmp_path: Path) -> None:
    """The model with one class has by far the best numbers, of other pairs."""
    easy = [row if row.area is None else _perfect(row) for row in part(FIRST, CLASSES[:1])]
    cells = {(name, "one"): other_answers(FIRST, seed) for seed, name in enumerate("abc")}
    path = write(tmp_path / "run", {**cells, ("d", "one"): easy})
    _, tables, _ = report(path)
    wanted = (
        "best and second best are marked among the most models that have the same pairs; not ranked, where they have"
    )
    for name in ("Table 1: grounding", "The one: pointing per class", "Threshold sensitivity"):
        table = tables[name]
        assert f"{wanted} others: d" in table.notes, name
        rows = {row[0]: [cell_of(item).mark for item in row[1:]] for row in table.rows}
        mean = [rows[model][0] for model in "abcd"]
        assert sorted(mean) == ["", "", "best", "second"] and mean[3] == "", name
    recognition = tables["Recognition"]
    assert any(note.endswith("not ranked, where they have others: d on The one") for note in recognition.notes)
    # Of the one class, pairs and labels are the same for all four.
    mass = [row[2] for row in tables["The one: pointing per class"].rows if row[0] in ("a", "b", "c", "d")]
    assert [item.mark for item in mass if isinstance(item, Cell)][3] == "best"
    same = write(tmp_path / "same", cells)
    assert not any("not ranked" in note for table in report(same)[1].values() for note in table.notes)


def test_means_over_other_datasets_are_not_ranked_together(tmp_path: Path) -> None:
    cells = {(name, "one"): other_answers(FIRST, seed) for seed, name in enumerate("abc")}
    cells |= {(name, "two"): other_answers(SECOND, seed) for seed, name in enumerate("ab")}
    _, tables, _ = report(write(tmp_path / "run", cells))
    table = tables["Table 1: grounding"]
    marks = {cell_of(row[0]).text: [cell_of(item).mark for item in row[11:]] for row in table.rows}
    assert set(marks["c"]) == {""} and [sorted(pair) for pair in zip(marks["a"], marks["b"], strict=True)] == [
        ["", "best"]
    ] * 5 + [["", ""]]
    assert "no mean over datasets for models that lack one: c (1 of 2 datasets)" in table.notes
    assert {cell_of(row[-2]).text for row in table.rows if cell_of(row[0]).text == "c"} == {"-"}


def test_the_size_of_its_family_is_said_of_each_column(tmp_path: Path) -> None:
    """Three models with maps, of which two give scores: families of three and of one."""
    cells = {(name, "one"): other_answers(FIRST, seed) for seed, name in enumerate(("kad", "clip"))}
    path = write(tmp_path / "run", cells)
    with RunDirectory(path) as run:
        add_cell(run, "maps:own", "one", other_answers(FIRST, 9), "maps")
    _, tables, _ = report(path, FEW)
    table = tables["Differences between models: The one"]
    for text in ("Holm: m = 3 (Point, Dice cross-fitted)", "Holm: m = 1 (AUC)"):
        assert text in table.notes
    best = [place for place, column in enumerate(table.columns) if column.group == "Dice*"]
    assert [cell_of(table.rows[0][place]).text for place in best[1:]] == ["-", "-"], "chosen on the same pairs"


def test_eight_models_can_differ(tmp_path: Path) -> None:
    """p is not bounded by the number of replicates: with 60 of them, 28 comparisons and Holm it falls below 0.05."""
    rows = random_rows(1)
    cells = {(f"m{seed}", "one"): other_answers(rows, seed) for seed in range(7)}
    cells["best", "one"] = [replace(row) if row.area is None else _perfect(row) for row in rows]
    found = find_differences(results(write(tmp_path / "run", cells), FEW)).numbers
    mine = [item for item in found if item.field == "dice_cross_fitted" and "best" in (item.first, item.second)]
    assert {item.family for item in mine} == {28}
    assert all(item.p_holm is not None and item.p_holm < 0.05 for item in mine)


def _perfect(row: ResultRow) -> ResultRow:
    assert row.area is not None and row.overlap is not None and row.region_area is not None
    area, overlap = row.area.copy(), row.overlap.copy()
    area[1:], overlap[1:] = row.region_area, row.region_area
    return replace(row, hit=True, degenerate=False, area=area, overlap=overlap)
