"""Two runs compared: rows matched by name, every number against plain loops, scikit-learn and resampling by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_units import in_units
from result_rows import ResultRow
from sklearn.metrics import average_precision_score, roc_auc_score
from stored_counts import CLASSES, add_cell, random_rows
from xbench_fast.engines.errors import RunError
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.runtime.reporting.comparison.comparison import Comparison, compare_runs
from xbench_fast.runtime.reporting.comparison.comparison_record import to_record
from xbench_fast.runtime.reporting.comparison.comparison_tables import comparison_facts, comparison_tables
from xbench_fast.runtime.reporting.comparison.gate import measures
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.selected_pairs import Resampling

Key = tuple[str, str]
PLAIN = Resampling(0, 1)


def write_run(path: Path, cells: dict[Key, list[ResultRow]], weights: str = "published") -> Path:
    with RunDirectory(path) as run:
        run.begin({})
        for (model, dataset), rows in cells.items():
            add_cell(run, model, dataset, rows, weights)
    return path


def patch(path: Path, model: str, dataset: str, **fields: Any) -> None:
    data = read_run(path)
    data["cells"][f"{model}--{dataset}"].update(fields)
    store_run(path, data)


def shaken(seed: int, rows: list[ResultRow]) -> list[ResultRow]:
    """Another engine's rows: some hits, maxima, overlaps and logits differ; cases 3 and 8 are gone, 12 is unreadable,
    20 has no region any more, 21 another one; a label changed."""
    rng = np.random.default_rng(seed)
    kept = [row for row in rows if row.case_id not in ("c3", "c8")]
    for row in kept:
        if row.case_id == "c12":
            row.status, row.reason, row.logit, row.region_area = "unreadable", "broken", None, None
            row.area = row.overlap = row.hit = row.argmax = row.degenerate = row.sub_pixel = None
        if row.logit is not None:
            row.logit = np.float32(row.logit + rng.normal())
        if row.area is not None and row.case_id == "c20":
            row.area = row.overlap = row.hit = row.argmax = row.degenerate = None
            row.region_area = 0
        if row.area is not None:
            assert row.overlap is not None and row.region_area is not None and row.argmax is not None
            if row.case_id == "c21":
                row.region_area += 10
                row.overlap = row.overlap.copy()
                row.overlap[0] = row.region_area
            if rng.random() < 0.4:
                row.hit, row.argmax = not row.hit, row.argmax + 1
            low = np.maximum(0, row.region_area - (row.area[0] - row.area))
            row.overlap = np.maximum(row.overlap - int(rng.integers(0, 60)), low).astype(np.int32)
            row.overlap[0] = row.region_area
        if (row.case_id, row.finding) == ("c14", "Effusion"):
            row.label = None
    return kept


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    a = write_run(tmp_path / "a", {("kad", "one"): random_rows(1), ("kad", "two"): random_rows(2)})
    b = write_run(
        tmp_path / "b", {("kad", "one"): shaken(5, random_rows(1)), ("kad", "two"): shaken(6, random_rows(2))}
    )
    return a, b


def compared(runs: tuple[Path, Path], resampling: Resampling = PLAIN, **options: Any) -> Comparison:
    return compare_runs(load_run(runs[0]), load_run(runs[1]), resampling=resampling, **options)


class Naive:
    """Both runs' rows by (case, finding), and every number by loops over those that both have."""

    def __init__(self, one: list[ResultRow], two: list[ResultRow]) -> None:
        self.a, self.b = ({(row.case_id, row.finding): row for row in rows} for rows in (one, two))
        scored = [{key for key, row in rows.items() if row.status == "ok"} for rows in (self.a, self.b)]
        self.shared = [key for key in self.a if key in scored[0] and key in scored[1]]
        self.only = (len(scored[0] - scored[1]), len(scored[1] - scored[0]))
        both = [key for key in self.shared if self.a[key].area is not None and self.b[key].area is not None]
        self.pairs = [key for key in both if self.a[key].region_area == self.b[key].region_area]
        self.pairs_only = sum((self.a[key].area is None) != (self.b[key].area is None) for key in self.shared)

    def patients(self) -> list[str]:
        return list(dict.fromkeys(str(self.a[key].patient_id) for key in self.shared))

    def value(self, side: str, metric: str, finding: str, times: dict[str, int] | None = None) -> float | None:
        """times: how often each patient counts."""
        rows = getattr(self, side)

        def weight(key: Key) -> int:
            return 1 if times is None else times[str(self.a[key].patient_id)]

        if metric in ("auc", "auprc"):
            keys = [key for key in self.shared if key[1] == finding and self.a[key].label == self.b[key].label]
            keys = [key for key in keys if self.a[key].label is not None for _ in range(weight(key))]
            labels, scores = [self.a[key].label for key in keys], [float(rows[key].logit) for key in keys]
            if len(set(labels)) < 2:
                return None
            return float((roc_auc_score if metric == "auc" else average_precision_score)(labels, scores))
        keys = [key for key in self.pairs if key[1] == finding for _ in range(weight(key))]
        if not keys:
            return None
        if metric == "pointing":
            return sum(bool(rows[key].hit) for key in keys) / len(keys)
        curves = [self.curve(rows[key]) for key in keys]
        dice = [sum(curve[k][0] for curve in curves) / len(curves) for k in range(101)]
        if metric.endswith("cross_fitted"):
            return self.left_out(keys, curves, 0 if metric.startswith("dice") else 1)
        k = 50 if metric.endswith("fixed") else max(range(101), key=lambda k: (dice[k], -k))
        return sum(curve[k][0 if metric.startswith("dice") else 1] for curve in curves) / len(curves)

    def left_out(self, keys: list[Key], curves: list[list[tuple[float, float]]], kind: int) -> float | None:
        """Each pair at the threshold that is best for the pairs of other patients."""
        patients, found = [self.a[key].patient_id for key in keys], []
        for patient, own in zip(patients, curves, strict=True):
            others = [curve for name, curve in zip(patients, curves, strict=True) if name != patient]
            if not others:
                return None
            dice = [round(sum(curve[k][0] for curve in others), 9) for k in range(101)]
            found.append(own[dice.index(max(dice))][kind])
        return sum(found) / len(found)

    def p_of_hits(self) -> float:
        """All sign patterns of the patients, of the difference of the means over classes of hits."""
        sizes = {name: sum(key[1] == name for key in self.pairs) for name in CLASSES}
        classes, added = sum(size > 0 for size in sizes.values()), dict.fromkeys(self.patients(), 0.0)
        for key in self.pairs:
            gap = float(bool(self.b[key].hit)) - float(bool(self.a[key].hit))
            added[str(self.a[key].patient_id)] += gap / sizes[key[1]] / classes
        parts = np.array([value for value in added.values() if abs(value) > 1e-15])
        sums = np.array(list(product((1.0, -1.0), repeat=len(parts)))) @ parts
        return float((abs(sums) >= abs(parts.sum()) - 1e-12).mean())

    @staticmethod
    def curve(row: ResultRow) -> list[tuple[float, float]]:
        assert row.area is not None and row.overlap is not None and row.region_area is not None
        values = []
        for area, overlap in zip(row.area.tolist(), row.overlap.tolist(), strict=True):
            dice, iou = 2 * overlap / (area + row.region_area), overlap / (area + row.region_area - overlap)
            values.append((in_units(dice), in_units(iou)))
        return values

    def macro(self, side: str, metric: str, times: dict[str, int] | None = None) -> float:
        known = [value for name in CLASSES if (value := self.value(side, metric, name, times)) is not None]
        return sum(known) / len(known)


METRICS = ("pointing", "dice_fixed", "dice_best", "dice_cross_fitted", "iou_fixed", "iou_best", "iou_cross_fitted",
           "auc", "auprc")  # fmt: skip
UNTESTED = {"dice_best", "iou_best", "auprc"}


def test_every_number_equals_plain_loops_over_the_shared_rows(runs: tuple[Path, Path]) -> None:
    found = compared(runs)
    for cell, seeds in zip(found.cells, ((1, 5), (2, 6)), strict=True):
        naive = Naive(random_rows(seeds[0]), shaken(seeds[1], random_rows(seeds[0])))
        assert (cell.images, cell.pairs) == (len(naive.shared) // 3, len(naive.pairs))
        assert [change.field for change in cell.whole] == list(METRICS)
        for change in cell.whole:
            assert change.reference == pytest.approx(naive.macro("a", change.field), abs=1e-12)
            assert change.minuend == pytest.approx(naive.macro("b", change.field), abs=1e-12)
            assert change.value == change.minuend - change.reference
            assert (change.p is None) == (change.field in UNTESTED)
            assert change.interval is None or change.field == "auc", "no replicates were asked for"
        assert {change.name for change in cell.classes} == {"Mass", "Effusion"}
        for change in cell.classes:
            assert change.reference == pytest.approx(naive.value("a", change.field, change.name), abs=1e-12)
            assert change.minuend == pytest.approx(naive.value("b", change.field, change.name), abs=1e-12)
    mean = found.models[0].whole[0]
    assert mean.reference == pytest.approx(np.mean([cell.whole[0].reference for cell in found.cells]))


def test_the_largest_change_of_a_logit_can_be_that_of_a_negative_prompt(tmp_path: Path) -> None:
    rows = random_rows(1, negative=True)
    moved = [replace(row) for row in rows]
    place = next(i for i, row in enumerate(rows) if row.logit is not None and row.finding == "Effusion" and i > 30)
    moved[place].logit_negative = np.float32(np.float32(rows[place].logit_negative) + 7)
    moved[0].logit = np.float32(np.float32(rows[0].logit) + 3)
    a, b = (write_run(tmp_path / name, {("kad", "one"): each}) for name, each in (("a", rows), ("b", moved)))
    logits = compared((a, b)).cells[0].rows.logits
    assert logits is not None and logits.largest == pytest.approx(7, abs=1e-5)
    assert (logits.case, logits.finding) == (rows[place].case_id, "Effusion")


def test_rows_that_changed_are_found(runs: tuple[Path, Path]) -> None:
    cell = compared(runs).cells[0]
    naive = Naive(random_rows(1), shaken(5, random_rows(1)))
    flips = {
        (*key, float(bool(naive.a[key].hit)), float(bool(naive.b[key].hit)))
        for key in naive.pairs
        if naive.a[key].hit != naive.b[key].hit
    }
    assert {(flip.case, flip.finding, flip.before, flip.after) for flip in cell.rows.flips} == flips
    assert cell.rows.lost == sum(before == 1 for *_, before, _ in flips) and cell.rows.lost + cell.rows.gained == len(
        flips
    )
    assert cell.rows.moved == sum(naive.a[key].argmax != naive.b[key].argmax for key in naive.pairs)

    gaps = {key: abs(float(naive.b[key].logit) - float(naive.a[key].logit)) for key in naive.shared}
    worst = max(gaps, key=lambda key: gaps[key])
    assert cell.rows.logits is not None
    assert (cell.rows.logits.case, cell.rows.logits.finding) == worst
    assert cell.rows.logits.largest == pytest.approx(gaps[worst], rel=1e-6)
    assert cell.rows.logits.mean == pytest.approx(np.mean(list(gaps.values())), rel=1e-6)

    fixed = {key: (Naive.curve(naive.a[key])[50][0], Naive.curve(naive.b[key])[50][0]) for key in naive.pairs}
    assert cell.rows.dice_changed == len(cell.rows.dice) and cell.rows.dice
    for change in cell.rows.dice:
        assert (change.fixed_a, change.fixed_b) == pytest.approx(fixed[change.case, change.finding])
    sizes = [change.size for change in cell.rows.dice]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] >= max(abs(b - a) for a, b in fixed.values())


def test_nothing_is_dropped_in_silence(runs: tuple[Path, Path]) -> None:
    add = random_rows(3)
    with RunDirectory(runs[1]) as run:
        run.begin({})
        add_cell(run, "clip", "one", add)
        run.set_cell("clip", "two", "failed", reason="it broke")
    found = compared(runs)
    naive = Naive(random_rows(1), shaken(5, random_rows(1)))
    cell = found.cells[0]
    assert (cell.only_a.rows, cell.only_b.rows) == naive.only == (9, 0)
    assert cell.only_a.cases == (("c3", "not in the run"), ("c8", "not in the run"), ("c12", "no readable image"))
    assert len(cell.only_a.pairs) == naive.pairs_only > 0 and cell.only_b.pairs == ()
    assert {case for case, _ in cell.only_a.pairs} == {"c20"}
    assert {case for case, _ in cell.region_changes} <= {"c21"}
    assert (("c14", "Effusion") in cell.label_changes) == (naive.a["c14", "Effusion"].label is not None)
    lone = found.alone[0]
    assert (lone.run, lone.model, lone.dataset) == ("B", "clip", "one") and "not evaluated" in lone.reason
    assert lone.rows == sum(row.status == "ok" for row in add)
    assert measures(found)["missing_rows"] == lone.rows + sum(c.only_a.total + c.only_b.total for c in found.cells)
    table = next(table for table in comparison_tables(found) if table.name == "one-sided")
    texts = [" ".join(map(str, row)) for row in table.rows]
    assert any("c12 (no readable image)" in text for text in texts) and any("the whole cell" in text for text in texts)
    assert any("another region" in text for text in texts) == bool(cell.region_changes)


def test_intervals_and_p_equal_resampling_by_hand(runs: tuple[Path, Path]) -> None:
    replicates = 40
    found = compared(runs, Resampling(replicates, 7))
    naive = Naive(random_rows(1), shaken(5, random_rows(1)))
    patients = sorted({str(row.patient_id) for row in random_rows(1)})
    seed = int.from_bytes(hashlib.sha256(b"7 one").digest()[:8], "big")  # that of reports and studies
    draws = draw_patients(len(patients), replicates, seed)
    whole = {change.field: change for change in found.cells[0].whole}
    for metric in ("pointing", "dice_best", "dice_cross_fitted", "auc"):
        gaps = []
        for counts in draws.counts:
            times = dict(zip(patients, counts.tolist(), strict=True))
            gaps.append(naive.macro("b", metric, times) - naive.macro("a", metric, times))
        change = whole[metric]
        assert change.drawn == pytest.approx(np.array(gaps), abs=1e-12)
        assert change.interval is not None
        if metric != "auc":
            assert (change.interval.low, change.interval.high) == pytest.approx(np.percentile(gaps, [2.5, 97.5]))
    assert whole["pointing"].p == pytest.approx(naive.p_of_hits())
    assert whole["auc"].interval is not None and whole["auc"].interval.method == "delong"
    for metric in set(METRICS) - UNTESTED:  # two cells: the smaller p doubled, the larger at least that
        tested = [change for cell in found.cells for change in cell.whole if change.field == metric]
        small, large = sorted(change.p or 0 for change in tested)
        wanted = [min(1, 2 * small), max(min(1, 2 * small), large)]
        assert sorted(change.p_holm or 0 for change in tested) == pytest.approx(wanted)
    mean = found.models[0].whole[0]
    pointing = [cell.whole[0].drawn for cell in found.cells]
    assert mean.interval is not None
    assert mean.interval.low == pytest.approx(np.percentile(np.mean(pointing, axis=0), 2.5))


def test_auc_of_a_class_is_tested_by_delong(runs: tuple[Path, Path]) -> None:
    cell = compared(runs).cells[0]
    naive = Naive(random_rows(1), shaken(5, random_rows(1)))
    change = next(item for item in cell.classes if (item.field, item.name) == ("auc", "Mass"))
    keys = [key for key in naive.shared if key[1] == "Mass" and naive.a[key].label == naive.b[key].label]
    keys = [key for key in keys if naive.a[key].label is not None]
    positive, negative = ([key for key in keys if naive.a[key].label == label] for label in (1, 0))

    def wins(side: dict[Key, ResultRow], p: Key, n: Key) -> float:
        one, two = float(side[p].logit), float(side[n].logit)  # type: ignore[arg-type]
        return (one > two) + 0.5 * (one == two)

    gap = np.array([[wins(naive.b, p, n) - wins(naive.a, p, n) for n in negative] for p in positive])
    added: dict[str, float] = {}
    for keys, values in ((positive, gap.mean(axis=1)), (negative, gap.mean(axis=0))):
        names = [str(naive.a[key].patient_id) for key in keys]
        for name, value in zip(names, values, strict=True):
            part = (value - gap.mean()) / len(keys) * np.sqrt(len(set(names)) / (len(set(names)) - 1))
            added[name] = added.get(name, 0.0) + part
    variance = sum(value**2 for value in added.values())
    assert change.interval is not None and change.value == pytest.approx(gap.mean())
    assert (change.interval.high - change.interval.low) / 2 == pytest.approx(1.959964 * np.sqrt(variance), rel=1e-5)
    assert change.interval.method == "delong" and change.p is not None


def test_a_run_compared_with_itself_has_not_changed(runs: tuple[Path, Path]) -> None:
    found = compared((runs[0], runs[0]), Resampling(40, 1))
    assert all(value == 0 for value in measures(found).values())
    for cell in found.cells:
        for change in (*cell.whole, *cell.classes):
            assert (change.value, change.p) == (0, None if change.field in UNTESTED else 1)
    assert [table.name for table in comparison_tables(found)] == ["rows", "changes", "findings"]


def test_two_models_of_one_run(tmp_path: Path) -> None:
    cells = {("kad", "one"): random_rows(1), ("clip", "one"): shaken(5, random_rows(1)), ("kad", "two"): random_rows(2)}
    path = write_run(tmp_path / "run", cells)
    found = compare_runs(load_run(path), load_run(path), models=("kad", "clip"), resampling=PLAIN)
    assert [(cell.match.models, cell.match.dataset) for cell in found.cells] == [("kad → clip", "one")]
    naive = Naive(random_rows(1), shaken(5, random_rows(1)))
    assert found.cells[0].whole[0].minuend == pytest.approx(naive.macro("b", "pointing"))
    assert [(lone.run, lone.model, lone.dataset) for lone in found.alone] == [("A", "kad", "two")]


def test_a_finding_that_one_run_lacks(runs: tuple[Path, Path], tmp_path: Path) -> None:
    rows = [row for row in random_rows(1) if row.finding != "Effusion"]
    other = write_run(tmp_path / "c", {("kad", "one"): rows})
    patch(other, "kad", "one", findings=["Mass", "Edema"])
    cell = compared((runs[0], other), datasets=("one",)).cells[0]
    assert cell.only_a.findings == ("Effusion",) and cell.only_a.rows == 28 and cell.only_b.total == 0
    assert {change.name for change in cell.classes} == {"Mass"}


def test_rows_are_matched_by_name_not_by_place(runs: tuple[Path, Path], tmp_path: Path) -> None:
    rows = random_rows(1)
    cases = [rows[index : index + 3] for index in range(0, len(rows), 3)]
    turned = write_run(tmp_path / "c", {("kad", "one"): [row for case in reversed(cases) for row in case]})
    found = compared((runs[0], turned), Resampling(40, 1), datasets=("one",))
    assert all(value == 0 for value in measures(found).values())


def test_a_case_that_is_listed_twice_is_matched_twice(tmp_path: Path) -> None:
    rows = random_rows(1) + random_rows(1)
    path = write_run(tmp_path / "run", {("kad", "one"): rows})
    cell = compared((path, path)).cells[0]
    assert (cell.images, cell.only_a.total) == (56, 0)


def test_baselines_have_no_scores_to_compare(tmp_path: Path) -> None:
    rows = random_rows(1)
    for row in rows:
        row.logit = None
    path = write_run(tmp_path / "run", {("baseline:ones", "one"): rows}, "baseline")
    found = compared((path, path), Resampling(40, 1))
    cell = found.cells[0]
    assert {change.field for change in cell.whole} == set(METRICS) - {"auc", "auprc"}
    assert cell.rows.logits is None and measures(found)["auc_drop"] is None


def test_stamps_stand_on_every_table_of_numbers(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", {("kad", "one"): random_rows(1)}, "stand-in")
    found = compared((path, path))
    assert found.stamps == ("kad: stand-in weights: the numbers say nothing about the model",)
    assert all(found.stamps == table.stamps for table in comparison_tables(found) if table.name in ("rows", "changes"))


def test_families_are_said(runs: tuple[Path, Path]) -> None:
    tables = {table.name: table for table in comparison_tables(compared(runs, Resampling(40, 1)))}
    assert "Holm: over the cells, per number, m = 2" in tables["changes"].notes
    assert "Holm: over all findings of all cells, per number; exploratory, m = 4" in tables["findings"].notes


def test_the_record_is_complete_plain_data(runs: tuple[Path, Path]) -> None:
    found = compared(runs, Resampling(40, 1))
    data = json.loads(json.dumps(to_record(found), allow_nan=False))
    assert data["measures"] == measures(found)
    for stored, cell in zip(data["cells"], found.cells, strict=True):
        assert len(stored["rows"]["flips"]) == len(cell.rows.flips)
        assert stored["changes"][0]["interval"]["low"] == cell.whole[0].interval.low  # type: ignore[union-attr]
        assert [item["case"] for item in stored["only_a"]["cases"]] == ["c3", "c8", "c12"]
    assert any("40 paired bootstrap draws" in line for line in comparison_facts(found))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: patch(path, "kad", "one", protocol="paper"), "protocol 'default'.* protocol 'paper'|by 'paper'"),
        (lambda path: (path / "run.json").unlink(), "is no run directory"),
        (lambda path: patch(path, "kad", "one", state="failed", reason="it broke"), "no finished .* in common"),
    ],
)
def test_runs_that_cannot_be_compared(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    paths = [write_run(tmp_path / name, {("kad", "one"): random_rows(1)}) for name in "ab"]
    spoil(paths[1])
    with pytest.raises(RunError, match=words):
        compared((paths[0], paths[1]))


def test_runs_without_a_common_case_or_model(tmp_path: Path) -> None:
    rows = random_rows(1)
    for row in rows:
        row.case_id = f"other {row.case_id}"
    a = write_run(tmp_path / "a", {("kad", "one"): random_rows(1)})
    b = write_run(tmp_path / "b", {("kad", "one"): rows})
    with pytest.raises(RunError, match="no case in common"):
        compared((a, b))
    c = write_run(tmp_path / "c", {("clip", "one"): random_rows(1)})
    with pytest.raises(RunError, match=r"kad on one.*clip on one.*give --model twice"):
        compared((a, c))
    with pytest.raises(RunError, match="has no model 'mavl': known are kad"):
        compared((a, c), models=("mavl", "clip"))
    with pytest.raises(RunError, match="dataset 'rsna': known are one"):
        compared((a, c), models=("kad", "clip"), datasets=("rsna",))
