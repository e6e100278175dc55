"""Options of a report: each does what the specification says of it, from stored counts or stored maps."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
import numpy as np
import pytest
from click.testing import CliRunner
from stored_counts import CLASSES, add_cell, random_rows
from test_report import rows_of
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.metrics_gpu import PROTOCOLS, pack_masks, protocol, sweep
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.cli.report import report as command
from xbench_fast.runtime.evaluation.rundir import RunDirectory
from xbench_fast.runtime.evaluation.scoring import Row
from xbench_fast.runtime.reporting import choices as kinds
from xbench_fast.runtime.reporting.choices import Choices
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.results import Results


def swept_rows(name: str = "default", seed: int = 3) -> list[Row]:
    """Random 4 x 4 maps of few levels, one of them constant, in rows as an evaluation by the protocol writes them."""
    rng, told = np.random.default_rng(seed), protocol(name)
    rows = []
    for index in range(24):
        for finding in CLASSES[:2]:
            row = Row(f"c{index}", f"p{index // 2}", finding, "ok", None, int(rng.random() < 0.8))
            row.logit, row.region_area, row.rescued = np.float32(rng.normal()), 0, False
            low = (rng.integers(0, 5, (1, 4, 4)) / 50).astype(np.float32)
            if index == 5:
                low[:] = 0.02
            top, left, height, width = rng.integers(20, 100, 4)
            mask = np.zeros((1, 224, 224), bool)
            mask[0, top : top + height, left : left + width] = True
            if row.label:
                counts = sweep(low, mask, **told.sweeping)
                row.take(counts, 0)
                if told.pointing_from_default:
                    plain = sweep(low, mask)
                    row.hit = bool(plain.overlap[0, -1] > 0 and not plain.degenerate[0])  # the rule is `any`
                row.keep(pack_masks(mask)[0], (0.0, 0.0, 1.0, 1.0), low[0])
            rows.append(row)
    return rows


def make_run(path: Path, rows: list[Row], findings: tuple[str, ...] = CLASSES, **details: object) -> Path:
    with RunDirectory(path) as run:
        run.begin({})
        add_cell(run, "kad", "one", rows, findings=list(findings), **details)
    return path


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", swept_rows(), CLASSES[:2])


def results(path: Path, **asked: object) -> Results:
    return make_report(path, Choices(replicates=0, **asked)).results  # type: ignore[arg-type]


def curves(rows: list[Row], finding: str) -> tuple[np.ndarray, np.ndarray]:
    """Dice and IoU of each pair of a class at each threshold, by the definition."""
    pairs = [row for row in rows if row.finding == finding and row.area is not None]
    dice, iou = [], []
    for row in pairs:
        assert row.region_area and row.area is not None and row.overlap is not None
        area, overlap = row.area.astype(float), row.overlap.astype(float)
        dice.append(2 * overlap / (area + row.region_area))
        iou.append(overlap / (area + row.region_area - overlap))
    return np.array(dice), np.array(iou)


def test_tau_from_leaves_out_the_full_mask(tmp_path: Path) -> None:
    rows = random_rows(1)
    for row in rows:
        if row.area is not None and row.overlap is not None:
            row.overlap[1:] = 0  # only the full mask meets anything
    path = make_run(tmp_path / "run", rows)
    full, cut = results(path), results(path, tau_from=0.01)
    assert full.number("kad", "one", "dice_best", "Mass").value == full.number("kad", "one", "floor_dice", "Mass").value
    assert cut.number("kad", "one", "dice_best", "Mass").value == 0
    assert cut.cells["kad", "one"].scores("Mass").best_tau == 0.01  # type: ignore[union-attr]


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
        assert found.grounding.options.label == "optimistic"
    honest = results(path, best="cross_fit")
    assert honest.number("kad", "one", "dice_best") == results(path).number("kad", "one", "dice_honest")
    assert one["per_model"] <= one["per_dataset"] <= one["per_class"] <= one["per_image"]
    tables = {table.title: table for table in make_report(path, Choices(replicates=0, best="cross_fit")).tables}
    table = tables["Table 1: grounding"]
    assert [column.title for column in table.columns][1:4] == ["Point", "Dice", "IoU"]
    assert not any("optimistic" in note for note in table.notes) and any(
        "applied to the other" in note for note in table.notes
    )
    assert all("made with --best cross_fit" in t.notes for t in tables.values() if t.groups)


def test_cross_fit_by_hand(tmp_path: Path) -> None:
    """Thresholds of one half of the patients, scored on the other, both ways."""
    rows = random_rows(1)
    found = results(make_run(tmp_path / "run", rows))
    half = found.patients["one"]
    pairs = [row for row in rows if row.finding == "Mass" and row.area is not None]
    dice, _ = curves(rows, "Mass")
    side = np.array([half.half[half.number[str(row.patient_id)]] for row in pairs])
    assert 0 < side.sum() < len(side) and len(half.number) == 15
    total = sum(dice[side == here][:, np.argmax(dice[side != here].mean(axis=0))].sum() for here in (0, 1))
    assert found.number("kad", "one", "dice_honest", "Mass").value == pytest.approx(total / len(dice))


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
    path = make_run(tmp_path / "run", rows)
    pairs = [row for row in rows if row.finding == "Mass" and row.area is not None]
    share = [0.0 if row.degenerate else row.overlap[-1] / row.area[-1] for row in pairs]  # type: ignore[index]
    wanted = {"first": [bool(row.hit) for row in pairs], "any": [value > 0 for value in share], "expected": share}
    for ties, hits in wanted.items():
        assert results(path, ties=ties).number("kad", "one", "pointing", "Mass").value == pytest.approx(
            np.mean(hits)
        ), ties


def test_constant_maps_can_be_left_out(tmp_path: Path) -> None:
    rows = random_rows(1)
    found = results(make_run(tmp_path / "run", rows), constant="skip").cells["kad", "one"]
    constant = [row for row in rows if row.degenerate]
    assert found.skipped == len(constant) > 0 and found.grounding.micro.degenerate == 0
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
    made = make_report(path, Choices(replicates=30, auprc="trapezoid", f1="best"))
    cell = made.results.cells["kad", "one"]
    scores = cell.recognised("Mass")
    assert scores is not None
    assert cell.number("auprc", "Mass").value == scores.auprc_trapezoid != scores.auprc
    assert cell.number("f1", "Mass").value == scores.f1_best != scores.f1
    assert cell.number("f1").value == pytest.approx(np.mean([c.f1_best for c in cell.recognition.classes]))
    interval = cell.number("f1", "Mass").interval
    assert interval is not None and interval.high >= scores.f1_best
    table = next(table for table in made.tables if table.title == "Recognition")
    assert {"AUPRC (trapezoid)", "best F1*"} <= {column.title for column in table.columns}
    assert any("optimistic: the threshold is the best for these very images" in note for note in table.notes)


def test_means_can_be_weighted(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", random_rows(1))
    with RunDirectory(path) as run:
        add_cell(run, "kad", "two", random_rows(2))
    made = make_report(path, Choices(replicates=20, mean="micro", mean_datasets="micro")).results
    hits, pairs = [], []
    for seed in (1, 2):
        rows = [row for row in random_rows(seed) if row.area is not None]
        hits.append(sum(bool(row.hit) for row in rows))
        pairs.append(len(rows))
    assert made.number("kad", "two", "pointing").value == pytest.approx(hits[1] / pairs[1])
    assert made.mean_number("kad", "pointing").value == pytest.approx(sum(hits) / sum(pairs))
    one, two = (made.cells["kad", name].drawn("pointing") for name in ("one", "two"))
    assert one is not None and two is not None
    drawn = made.mean_drawn("kad", "pointing", ["one", "two"])
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
    assert asked.grounding == found.grounding and asked.honest == found.honest
    assert asked.protocol == found.protocol == name and asked.tau_scale == protocol(name).tau_scale
    back = results(evaluated, protocol="default").cells["kad", "one"]
    assert back.grounding == results(swept).cells["kad", "one"].grounding
    if protocol(name).fixed_tau is None:
        assert asked.number("dice_fixed").value is None and asked.number("delta_dice").value is None
    table = next(t for t in make_report(evaluated, Choices(replicates=0)).tables if t.title == "Table 1: grounding")
    assert f"protocol {name}" in table.notes and rows_of(table)["kad"]


def test_other_ties_of_a_protocol_that_points_by_the_default_maps(swept: Path, tmp_path: Path) -> None:
    evaluated = make_run(tmp_path / "other", swept_rows("medklip"), CLASSES[:2], protocol="medklip")
    for ties in ("first", "any", "expected"):
        asked = results(evaluated, ties=ties).number("kad", "one", "pointing").value
        assert asked == results(swept, ties=ties).number("kad", "one", "pointing").value, ties


def test_maps_that_were_not_kept_are_missed(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", random_rows(1), grid=None)
    file = path / "run.json"
    file.write_text(file.read_text().replace('"grid": null', '"other": null'))
    assert results(path).number("kad", "one", "pointing").value is not None
    with pytest.raises(RunError, match="kept no maps"):
        results(path, tolerance_px=7.0)


def test_wrong_choices() -> None:
    for asked, words in [
        ({"best": "per_pixel"}, "--best is one of per_class"),
        ({"protocol": "mavil"}, "--protocol is one of"),
        ({"tau_from": 0.5}, "--tau-from is 0 or 0.01"),
        ({"tolerance_px": -1.0}, "--tolerance-px lies between"),
        ({"tolerance_px": 7.0, "ties": "any"}, "does not go with --ties any"),
        ({"replicates": -1}, "not negative"),
        ({"mean_datasets": "all"}, "--mean-datasets is one of macro, micro"),
    ]:
        with pytest.raises(ConfigError, match=words):
            Choices(**asked)  # type: ignore[arg-type]
    assert Choices().told == () and Choices(seed=1).told == ()
    assert Choices(tau_from=0.01, ties="any").told == ("made with --tau-from 0.01, --ties any",)


def test_the_command_offers_what_can_be_chosen() -> None:
    offered = {
        option.name: tuple(option.type.choices) for option in command.params if isinstance(option.type, click.Choice)
    }
    assert offered.pop("protocol") == PROTOCOLS
    names = {"best": "Unit", "iou_at": "IouAt", "ties": "Ties", "auprc": "Auprc", "f1": "F1", "mean": "Mean"}
    names |= {"mean_datasets": "Mean", "constant": "Constant", "pairs": "Pairs"}
    assert offered == {name: get_args(getattr(kinds, kind)) for name, kind in names.items()}


def test_the_command_passes_options_on(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["report", str(swept), "--no-page", "--replicates", "20", "--best", "cross_fit", "--tau-from", "0.01"])
    shown = capsys.readouterr()
    assert left.value.code == 0 and "made with --tau-from 0.01, --best cross_fit" in shown.out
    assert "20 resamples of the patients" in shown.out and "Provenance" not in shown.out
    assert not (swept / "report" / "index.html").exists()
    with pytest.raises(SystemExit) as left:
        main(["report", str(swept), "--quiet", "--no-page", "--tau-from", "0.3"])
    shown = capsys.readouterr()
    assert left.value.code == 1 and shown.err == "Error: --tau-from is 0 or 0.01, not 0.3.\n" and shown.out == ""
    assert CliRunner().invoke(command, ["--help"]).exit_code == 0
