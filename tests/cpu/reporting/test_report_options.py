"""Options of a report: each does what docs/metrics.md §14 says of it, from stored counts or stored maps."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
import numpy as np
import pytest
from click.testing import CliRunner
from exact_units import in_units
from result_rows import ResultRow
from scipy.ndimage import distance_transform_edt
from stored_counts import CLASSES, PIXELS, add_cell, random_rows
from written_report import rows_of
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.metrics_gpu.grounding.protocols import PROTOCOLS, protocol
from xbench_fast.metrics_gpu.grounding.tolerance import tolerant_share
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.cli.report_command import report as command
from xbench_fast.runtime.host.protocols import SCORERS
from xbench_fast.runtime.reporting.figures.figure import planned
from xbench_fast.runtime.reporting.figures.figure_4_thresholds import DELTA, dice_curve
from xbench_fast.runtime.reporting.gallery.choice import model_pairs
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results import choices as kinds
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.numbers.run_numbers import Results
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run, store_run

pytestmark = pytest.mark.usefixtures("empty_drawings")


def swept_rows(name: str = "default", seed: int = 3) -> list[ResultRow]:
    """Random 4 x 4 maps of few levels, one of them constant, in rows as an evaluation by the protocol writes them."""
    rng, told = np.random.default_rng(seed), protocol(name)
    rows = []
    for index in range(24):
        for finding in CLASSES[:2]:
            row = ResultRow(f"c{index}", f"p{index // 2}", finding, "ok", None, int(rng.random() < 0.8))
            row.logit, row.region_area, row.sub_pixel = np.float32(rng.normal()), 0, False
            low = (rng.integers(0, 5, (1, 4, 4)) / 50).astype(np.float32)
            if index == 5:
                low[:] = 0.02
            top, left, height, width = rng.integers(20, 100, 4)
            mask = np.zeros((1, 224, 224), bool)
            mask[0, top : top + height, left : left + width] = True
            if row.label:
                counts = sweep(low, mask, sweeping=told.sweeping)
                row.take(counts, 0)
                if told.pointing_from_default:
                    plain = sweep(low, mask, sweeping=Sweeping(upsample=told.sweeping.upsample))
                    row.hit = bool(plain.overlap[0, -1] > 0 and not plain.degenerate[0])  # the rule is `any`
                row.keep(pack_masks(mask)[0], (0.0, 0.0, 1.0, 1.0), low[0])
            rows.append(row)
    return rows


def make_run(path: Path, rows: list[ResultRow], findings: tuple[str, ...] = CLASSES, **details: object) -> Path:
    with RunDirectory(path) as run:
        run.begin({})
        add_cell(run, "kad", "one", rows, findings=list(findings), **details)
    return path


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", swept_rows(), CLASSES[:2])


def results(path: Path, **asked: object) -> Results:
    return make_report(path, Choices(replicates=0, **asked)).results  # type: ignore[arg-type]


def curves(rows: list[ResultRow], finding: str) -> tuple[np.ndarray, np.ndarray]:
    """Dice and IoU of each pair of a class at each threshold, by the definition."""
    pairs = [row for row in rows if row.finding == finding and row.area is not None]
    dice, iou = [], []
    for row in pairs:
        assert row.region_area and row.area is not None and row.overlap is not None
        area, overlap = row.area.astype(float), row.overlap.astype(float)
        dice.append(2 * overlap / (area + row.region_area))
        iou.append(overlap / (area + row.region_area - overlap))
    return in_units(dice), in_units(iou)


def only_the_full_mask_meets(row: ResultRow) -> None:
    """Above threshold 0 the map has no pixel of the region."""
    if row.area is not None and row.overlap is not None and row.region_area is not None:
        row.overlap[1:] = 0
        row.area = np.minimum(row.area, row.overlap + PIXELS - row.region_area)


def test_tau_from_leaves_out_the_full_mask(tmp_path: Path) -> None:
    rows = random_rows(1)
    for row in rows:
        only_the_full_mask_meets(row)
    path = make_run(tmp_path / "run", rows)
    full, cut = results(path), results(path, tau_from=0.01)
    assert full.number("kad", "one", "dice_best", "Mass").value == full.number("kad", "one", "floor_dice", "Mass").value
    assert cut.number("kad", "one", "dice_best", "Mass").value == 0
    assert cut.cells["kad", "one"].grounding.value("best_tau", "Mass") == 0.01


def test_searches_for_a_best_threshold(tmp_path: Path) -> None:
    rows = random_rows(1)
    path = make_run(tmp_path / "run", rows)
    with RunDirectory(path) as run:
        add_cell(run, "kad", "two", random_rows(2))
    dice = {
        name: [curves(random_rows(seed), finding)[0] for finding in CLASSES[:2]]
        for name, seed in (("one", 1), ("two", 2))
    }
    means = {name: np.array([curve.mean(axis=0) for curve in both]) for name, both in dice.items()}
    one = {
        "per_class": means["one"].max(axis=1).mean(),
        "per_dataset": means["one"].mean(axis=0).max(),
        "per_model": means["one"].mean(axis=0)[np.argmax(means["one"].mean(axis=0) + means["two"].mean(axis=0))],
        "per_image": np.mean([curve.max(axis=1).mean() for curve in dice["one"]]),
    }
    for best, expected in one.items():
        found = results(path, best=best).cells["kad", "one"]
        assert found.number("dice_best").value == pytest.approx(expected, abs=1e-12), best
        assert found.grounding.options.label == "in_sample"
    fitted = results(path, best="cross_fit")
    assert fitted.number("kad", "one", "dice_best") == results(path).number("kad", "one", "dice_cross_fitted")
    assert one["per_model"] <= one["per_dataset"] <= one["per_class"] <= one["per_image"]
    tables = {table.title: table for table in make_report(path, Choices(replicates=0, best="cross_fit")).tables}
    table = tables["Table 1: grounding"]
    assert [column.title for column in table.columns][1:4] == ["Point", "Dice", "IoU"]
    assert not any("in_sample" in note for note in table.notes) and any(
        "chosen on other patients" in note for note in table.notes
    )
    assert all("made with --best cross_fit" in t.notes for t in tables.values() if t.groups)


def test_cross_fit_by_hand(tmp_path: Path) -> None:
    """The threshold of each pair is that of the other patients' pairs."""
    rows = random_rows(1)
    found = results(make_run(tmp_path / "run", rows))
    patient = np.array([row.patient_id for row in rows if row.finding == "Mass" and row.area is not None])
    dice, _ = curves(rows, "Mass")
    assert 1 < len(set(patient)) < len(patient)
    total = sum(own[np.argmax(dice[patient != name].mean(axis=0))] for own, name in zip(dice, patient, strict=True))
    assert found.number("kad", "one", "dice_cross_fitted", "Mass").value == pytest.approx(total / len(dice))


def test_iou_at_its_own_threshold(tmp_path: Path) -> None:
    rows = random_rows(1)
    path = make_run(tmp_path / "run", rows)
    dice, iou = curves(rows, "Mass")
    joint, own = (
        results(path, iou_at=where).number("kad", "one", "iou_best", "Mass").value for where in get_args(kinds.IouAt)
    )
    assert joint == pytest.approx(iou.mean(axis=0)[np.argmax(dice.mean(axis=0))])
    assert own == pytest.approx(iou.mean(axis=0).max())


def test_ties_of_the_maximum(tmp_path: Path) -> None:
    rows = random_rows(1)
    pairs = [row for row in rows if row.finding == "Mass" and row.area is not None]
    for row in pairs:
        if row.degenerate:  # as the sweep counts them: every pixel at 0, none above
            row.hit = False
            row.area[1:] = row.overlap[1:] = 0  # type: ignore[index]
    assert any(row.degenerate for row in pairs)
    path = make_run(tmp_path / "run", rows)
    share = [row.overlap[-1] / max(row.area[-1], 1) for row in pairs]  # type: ignore[index]
    wanted = {"first": [bool(row.hit) for row in pairs], "any": [value > 0 for value in share], "expected": share}
    for ties, hits in wanted.items():
        assert results(path, ties=ties).number("kad", "one", "pointing", "Mass").value == pytest.approx(
            np.mean(hits)
        ), ties


def test_constant_maps_can_be_left_out(tmp_path: Path) -> None:
    rows = random_rows(1)
    found = results(make_run(tmp_path / "run", rows), constant="skip").cells["kad", "one"]
    constant = [row for row in rows if row.degenerate]
    assert found.skipped == len(constant) > 0 and found.grounding.count("degenerate") == 0
    assert found.n == sum(row.area is not None for row in rows) - len(constant)


def test_true_positives_only(tmp_path: Path) -> None:
    rows = random_rows(1)
    found = results(make_run(tmp_path / "run", rows), pairs="true_positives").cells["kad", "one"]
    kept = [row for row in rows if row.area is not None and row.logit is not None and row.logit >= 0]
    assert 0 < len(kept) == found.n < sum(row.area is not None for row in rows)
    mass = [bool(row.hit) for row in kept if row.finding == "Mass"]
    assert found.number("pointing", "Mass").value == pytest.approx(np.mean(mass))


def test_recognition_can_be_shown_otherwise(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", random_rows(1))
    made = make_report(path, Choices(replicates=40, auprc="trapezoid", f1="best"))
    cell = made.results.cells["kad", "one"]
    scores = cell.recognition
    best = scores.value("f1_best", "Mass")
    assert (
        cell.number("auprc", "Mass").value == scores.value("auprc_trapezoid", "Mass") != scores.value("auprc", "Mass")
    )
    assert best is not None and cell.number("f1", "Mass").value == best != scores.value("f1", "Mass")
    of_classes = [value for name in scores.names if (value := scores.value("f1_best", name)) is not None]
    assert cell.number("f1").value == pytest.approx(np.mean(of_classes))
    interval = cell.number("f1", "Mass").interval
    assert interval is not None and interval.high >= best
    table = next(table for table in made.tables if table.title == "Recognition")
    assert {"AUPRC (trapezoid)", "best F1*"} <= {column.title for column in table.columns}
    assert any("in-sample: the threshold is the best for these very images" in note for note in table.notes)


def test_means_can_be_weighted(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", random_rows(1))
    with RunDirectory(path) as run:
        add_cell(run, "kad", "two", random_rows(2))
    made = make_report(path, Choices(replicates=40, mean="micro", mean_datasets="micro")).results
    hits, pairs = [], []
    for seed in (1, 2):
        rows = [row for row in random_rows(seed) if row.area is not None]
        hits.append(sum(bool(row.hit) for row in rows))
        pairs.append(len(rows))
    assert made.number("kad", "two", "pointing").value == pytest.approx(hits[1] / pairs[1])
    assert made.number("kad", "", "pointing").value == pytest.approx(sum(hits) / sum(pairs))
    one, two = (made.cells["kad", name].number("pointing").drawn for name in ("one", "two"))
    assert one is not None and two is not None
    drawn = made.number("kad", "", "pointing").drawn
    assert drawn == pytest.approx((one * pairs[0] + two * pairs[1]) / sum(pairs))


def test_a_tolerance_is_measured_on_the_stored_regions(swept: Path) -> None:
    rows = [row for row in swept_rows() if row.area is not None]
    plain = results(swept).number("kad", "one", "pointing").value
    near = results(swept, tolerance_px=15.0)
    hits = {name: [] for name in CLASSES[:2]}  # type: ignore[var-annotated]
    for row in rows:
        mask = np.unpackbits(np.frombuffer(row.region or b"", np.uint8).reshape(224, 28), axis=1, bitorder="little")
        y, x = np.nonzero(mask)
        distance = np.hypot(y - row.argmax // 224, x - row.argmax % 224).min()  # type: ignore[operator]
        hits[row.finding].append(not row.degenerate and distance <= 15)
    for name in CLASSES[:2]:
        assert near.number("kad", "one", "pointing", name).value == pytest.approx(np.mean(hits[name]))
    assert plain is not None and plain < (near.number("kad", "one", "pointing").value or 0)


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "default"])
def test_another_protocol_is_what_an_evaluation_by_it_gives(swept: Path, tmp_path: Path, name: str) -> None:
    evaluated = make_run(tmp_path / name, swept_rows(name), CLASSES[:2], protocol=name)
    asked, found = results(swept, protocol=name).cells["kad", "one"], results(evaluated).cells["kad", "one"]
    for group in (*CLASSES[:2], "macro", "micro"):
        assert asked.grounding.record(group) == found.grounding.record(group)
        assert asked.cross_fitted.record(group) == found.cross_fitted.record(group)
    assert (asked.grounding.options, asked.cross_fitted.options) == (
        found.grounding.options,
        found.cross_fitted.options,
    )
    assert asked.protocol == found.protocol == name and asked.tau_scale == protocol(name).sweeping.tau_scale
    back = results(evaluated, protocol="default").cells["kad", "one"]
    default = results(swept).cells["kad", "one"].grounding
    assert all(back.grounding.record(group) == default.record(group) for group in (*CLASSES[:2], "macro", "micro"))
    if protocol(name).fixed_tau is None:
        assert asked.number("dice_fixed").value is None and asked.number("delta_dice").value is None
    table = next(t for t in make_report(evaluated, Choices(replicates=0)).tables if t.title == "Table 1: grounding")
    assert f"protocol {name}" in table.notes and rows_of(table)["kad"]


@pytest.mark.parametrize("name", ["medklip", "mavl"])
def test_pointing_of_a_protocol_is_one_whatever_the_evaluation_was(tmp_path: Path, name: str) -> None:
    """By the maximum of the map as the protocol upsamples it."""
    runs = [make_run(tmp_path / own, swept_rows(own), CLASSES[:2], protocol=own) for own in PROTOCOLS]
    for ties in (None, "first", "any", "expected"):
        found = [results(run, protocol=name, ties=ties).number("kad", "one", "pointing").value for run in runs]
        assert None not in found and set(found) == {found[0]}, (ties, dict(zip(PROTOCOLS, found, strict=True)))


def test_maps_that_were_not_kept_are_missed(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", random_rows(1), grid=None)
    data = read_run(path)
    del data["cells"]["kad--one"]["grid"]
    store_run(path, data)
    assert results(path).number("kad", "one", "pointing").value is not None
    with pytest.raises(RunError, match="kept no maps"):
        results(path, tolerance_px=7.0)


def test_another_protocol_needs_maps_that_were_kept(tmp_path: Path) -> None:
    """As of maps of more than 64 x 64 cells. What sweeps no map anew is still there."""
    path = make_run(tmp_path / "run", swept_rows(), CLASSES[:2], grid=None)
    for name in ("medklip", "mavl", "chexlocalize"):
        with pytest.raises(RunError, match=rf"maps of kad on one,.*evaluate again with --protocol {name}\.$"):
            results(path, protocol=name)
    assert results(path, protocol="paper").number("kad", "one", "dice_best").value is not None
    assert results(path, tolerance_px=7.0).number("kad", "one", "pointing").value is not None
    raw = make_run(tmp_path / "raw", swept_rows("medklip"), CLASSES[:2], grid=None, protocol="medklip")
    with pytest.raises(RunError, match=r"evaluate again with --protocol default\.$"):
        results(raw, protocol="default")
    with pytest.raises(RunError, match=r"maps of kad on one,.*leave out --ties first\.$"):
        results(raw, ties="first")
    assert results(raw).number("kad", "one", "pointing").value is not None


def baseline_rows(name: str) -> list[ResultRow]:
    """The pairs of `swept_rows` of a baseline, without logits; of `ones` the counts of the whole image."""
    rows = swept_rows()
    for row in rows:
        row.logit = None
        if row.area is not None and row.overlap is not None and name == "ones":
            row.area, row.overlap = np.full(101, PIXELS, np.int32), np.full(101, row.region_area, np.int32)
            row.argmax, row.hit, row.degenerate = 0, False, False
    return rows


def with_baselines(path: Path) -> Path:
    make_run(path, swept_rows(), CLASSES[:2])
    with RunDirectory(path) as run:
        for name, details in BASELINES.items():
            details = {"model_family": "", "findings": list(CLASSES[:2]), **details}
            add_cell(run, f"baseline:{name}", "one", baseline_rows(name), "baseline", **details)
    return path


BASELINES = {
    "ones": {"grid": None, "ties": "expected"},
    "center": {"grid": None, "ties": "first"},
    "chance": {"grid": [4, 4], "ties": "first"},
}


@pytest.mark.parametrize("name", ["medklip", "mavl"])
def test_baselines_without_a_scale_are_left_out_as_an_evaluation_skips_them(tmp_path: Path, name: str) -> None:
    path = with_baselines(tmp_path / "run")
    made = make_report(path, Choices(replicates=0, protocol=name))
    assert set(made.results.cells) == {("kad", "one"), ("baseline:ones", "one")}
    reason = f"left out: the protocol {name} cuts maps as they are, and this one has no scale of its own"
    tables = {table.title: table for table in made.tables}
    assert f"baseline:center, baseline:chance: {reason}" in tables["Table 1: grounding"].notes
    assert rows_of(tables["Table 1: grounding"])["baseline:center"][:5] == ("-",) * 5
    assert {row[0]: row[-1] for row in tables["Coverage"].rows}["baseline:chance"] == reason
    ones = made.results.cells["baseline:ones", "one"]
    shares = [[row.region_area / PIXELS for row in swept_rows() if row.area is not None and row.finding == finding]
              for finding in CLASSES[:2]]  # fmt: skip
    assert ones.number("pointing").value == pytest.approx(np.mean([np.mean(each) for each in shares]))
    assert ones.number("iou_best").value == pytest.approx(ones.number("floor_iou").value)
    assert set(results(path).cells) == {("kad", "one"), *((f"baseline:{name}", "one") for name in BASELINES)}


@pytest.mark.parametrize("tolerance", [0.5, 7.0, 15.5, 224.0])
def test_a_tolerance_gives_the_full_mask_its_expected_hit(tmp_path: Path, tolerance: float) -> None:
    path = with_baselines(tmp_path / "run")
    found = results(path, tolerance_px=tolerance)
    expected = {name: [] for name in CLASSES[:2]}  # type: ignore[var-annotated]
    for row in swept_rows():
        if row.area is not None:
            mask = np.unpackbits(np.frombuffer(row.region or b"", np.uint8).reshape(224, 28), axis=1, bitorder="little")
            expected[row.finding].append((distance_transform_edt(mask == 0) <= tolerance).mean())
    for name, shares in expected.items():
        value = found.number("baseline:ones", "one", "pointing", name).value
        assert value == pytest.approx(np.mean(in_units(shares)), abs=1e-12)
    wrong = found.number("baseline:ones", "one", "chance").value
    assert wrong is not None and (found.number("baseline:ones", "one", "pointing").value or 0) >= wrong


def test_a_tolerance_takes_back_what_is_said_of_chance(tmp_path: Path) -> None:
    path = with_baselines(tmp_path / "run")
    for tolerance in (0.0, 9.0):
        tables = {t.title: t for t in make_report(path, Choices(replicates=0, tolerance_px=tolerance)).tables}
        first, classes = tables["Table 1: grounding"], rows_of(tables["The one: pointing per class"])
        assert any("chance level of Point" in note for note in (*first.notes, *first.legend)) == (tolerance == 0)
        assert (rows_of(first)["all-ones"][0] == "") == (tolerance > 0) == ("chance" not in classes)
        assert rows_of(first)["all-ones"][1] != "" and ("region" in classes) == (tolerance > 0)


def test_shares_within_a_tolerance_by_looking_at_every_pixel() -> None:
    masks = np.zeros((4, 11, 13), bool)
    masks[0, 4, 5] = masks[0, 9, 12] = masks[2, 0, 0] = True
    masks[1, 2:6, 3:9] = True
    for tolerance in (0, 1, 1.5, 2, 5, 40):
        shares = []
        for mask in masks:
            near = [(np.hypot(*(np.argwhere(mask) - pixel).T) <= tolerance).any() for pixel in np.ndindex(11, 13)]
            shares.append(np.mean(near))
        assert tolerant_share(masks, 13, tolerance) == pytest.approx(shares, abs=1e-12)
        assert tolerant_share(pack_masks(masks), 13, tolerance) == pytest.approx(shares, abs=1e-12)
    tall = np.zeros((1, 40, 3), bool)
    tall[0, 5, 1] = True
    assert tolerant_share(tall, 3, 9.0) == pytest.approx(
        [(3 * 6 + 3 * 8 + 1) / 120]
    )  # rows 0 to 13, and 14 in column 1
    for wrong, words in [((masks, 13, -1.0), "finite"), ((masks, 12, 1.0), "does not fit")]:
        with pytest.raises(ValueError, match=words):
            tolerant_share(*wrong)
    with pytest.raises(ValueError, match="do not fit"):
        tolerant_share(pack_masks(masks), 17, 1.0)


NEVER, FLOOR_HOLDS = "never below 0", "Dice* cannot fall below it"
ANEW, KEPT = "thresholds are chosen anew in each", "the threshold of a model is kept in each"


@pytest.mark.parametrize(
    ("asked", "never", "floor"),
    [
        ({}, True, True),
        ({"tau_from": 0.01}, True, False),
        ({"best": "per_image"}, True, True),
        ({"best": "per_dataset"}, True, False),
        ({"best": "per_dataset", "mean": "micro"}, True, False),
        ({"best": "per_model"}, False, False),
        ({"best": "cross_fit"}, False, False),
        ({"protocol": "chexlocalize"}, True, False),
    ],
)
def test_notes_claim_no_more_than_the_options_allow(
    swept: Path, asked: dict[str, str | float], never: bool, floor: bool
) -> None:
    made = make_report(swept, Choices(replicates=40, **asked))  # type: ignore[arg-type]
    notes = {table.title: " ".join((*table.notes, *table.legend)) for table in made.tables}
    assert (NEVER in notes["Threshold sensitivity"]) == never
    dice = [notes["Table 1: grounding"], notes["The one: Dice per class at the best threshold"]]
    assert [FLOOR_HOLDS in note for note in dice] == [floor, floor]
    kept = asked.get("best") == "per_model"
    assert all((KEPT in note, ANEW in note) == (kept, not kept) for note in dice)
    assert ("is biased upwards" in dice[0]) == (asked.get("best") not in ("per_model", "cross_fit"))
    drawn = planned(made.results, DELTA)
    assert drawn is None or (NEVER in drawn.caption) == never
    cell = made.results.cells["kad", "one"]
    scores = cell.grounding
    for name in scores.names:
        best, lowest = scores.value("dice_best", name) or 0.0, (scores.value("floor_dice", name) or 0.0) - 1e-12
        assert not floor or best >= lowest
    delta = cell.number("delta_dice").value
    assert not never or delta is None or delta >= 0


def test_what_was_claimed_too_broadly_does_happen(tmp_path: Path) -> None:
    """IoU at the threshold of Dice falls below that of the full mask, and so does a cross-fitted Dice."""
    large, small = np.zeros((1, 224, 224), bool), np.zeros((1, 224, 224), bool)
    large[0, :, :200] = True
    small[0, 100:124, 100:124] = True
    rows = []
    for index in range(16):
        mask, low = small if index % 2 else large, np.zeros((1, 14, 14), np.float32)
        low[0, 5:9, 5:9] = 1.0
        if not index % 2:
            low[0, :, :6] = 1.0
        row = ResultRow(f"c{index}", f"p{index}", "Mass", "ok", None, 1, logit=np.float32(0), sub_pixel=False)
        row.take(sweep(low, mask), 0)
        row.keep(pack_masks(mask)[0], (0.0, 0.0, 1.0, 1.0), low[0])
        rows.append(row)
    found = results(make_run(tmp_path / "run", rows, CLASSES[:1], grid=[14, 14])).cells["kad", "one"]
    dice, iou = found.number("dice_best").value, found.number("iou_best").value
    assert dice is not None and iou is not None
    assert dice >= (found.number("floor_dice").value or 0) and iou < (found.number("floor_iou").value or 0)


def test_one_threshold_of_a_model_needs_one_way_to_seek_it(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", random_rows(1))
    with RunDirectory(path) as run:
        add_cell(run, "kad", "two", random_rows(2), protocol="paper")
    with pytest.raises(ConfigError, match=r"of kad, but.*protocols default and paper; name one with --protocol"):
        results(path, best="per_model")
    assert results(path, best="per_model", protocol="paper").number("kad", "two", "dice_best").value is not None
    assert results(path, best="per_model", tau_from=0.01).number("kad", "two", "dice_best").value is not None


def test_drawn_thresholds_begin_where_the_search_does(tmp_path: Path) -> None:
    """Without one threshold of a class a picture takes the best mean, of the thresholds that were tried."""
    rows = random_rows(1)
    for row in rows:
        only_the_full_mask_meets(row)
    path = make_run(tmp_path / "run", rows)
    for first, tau in ((0, 0.0), (1, 0.01)):
        found = results(path, best="per_image", tau_from=tau)
        assert set(model_pairs(found.cells["kad", "one"]).best.values()) == {first}
        curve = dice_curve(found, "kad")
        assert curve is not None and curve.top == first


def test_wrong_choices() -> None:
    for asked, words in [
        ({"best": "per_pixel"}, "--best cannot be 'per_pixel': did you mean 'per_model'"),
        ({"protocol": "mavil"}, "Unknown protocol 'mavil': did you mean 'mavl'"),
        ({"tau_from": 0.5}, "--tau-from is 0 or 0.01"),
        ({"tolerance_px": -1.0}, "--tolerance-px lies between"),
        ({"tolerance_px": 7.0, "ties": "any"}, "does not go with --ties any"),
        ({"replicates": -1}, "not negative"),
        ({"mean_datasets": "all"}, "--mean-datasets cannot be 'all': known are macro, micro"),
    ]:
        with pytest.raises(ConfigError, match=words):
            Choices(**asked)  # type: ignore[arg-type]
    assert Choices().told == () and Choices(seed=1).told == ()
    assert Choices(tau_from=0.01, ties="any").told == ("made with --tau-from 0.01, --ties any",)


def test_the_command_offers_what_can_be_chosen() -> None:
    offered = {
        option.name: tuple(option.type.choices) for option in command.params if isinstance(option.type, click.Choice)
    }
    assert offered.pop("protocols") == (*PROTOCOLS, *SCORERS) and offered.pop("intervals") == (
        "none",
        "below",
        "inline",
    )
    names = {"best": "Unit", "iou_at": "IouAt", "ties": "Ties", "auprc": "Auprc", "f1": "F1", "mean": "Mean"}
    names |= {"mean_datasets": "Mean", "constant": "Constant", "pairs": "Pairs"}
    assert offered == {name: get_args(getattr(kinds, kind)) for name, kind in names.items()}


def test_the_command_passes_options_on(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["report", str(swept), "--no-page", "--replicates", "40", "--best", "cross_fit", "--tau-from", "0.01"])
    shown = capsys.readouterr()
    assert left.value.code == 0 and "made with --tau-from 0.01, --best cross_fit" in shown.out
    assert "Provenance" not in shown.out
    assert "40 resamples of the patients" in (swept / "report" / "tables.md").read_text()
    assert not (swept / "report" / "index.html").exists()
    with pytest.raises(SystemExit) as left:
        main(["report", str(swept), "--quiet", "--no-page", "--tau-from", "0.3"])
    shown = capsys.readouterr()
    assert left.value.code == 2 and shown.err == "Error: --tau-from is 0 or 0.01, not 0.3.\n" and shown.out == ""
    assert CliRunner().invoke(command, ["--help"]).exit_code == 0
