"""Studies that compare: calibration with what it came from, prompt sets and resolutions with each other."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from scipy import stats
from study_world import PIXELS, answer, dice, make_runs, mean, pairs_of, stored, study
from synthetic import _axis, make_bundle, make_dataset
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.studies.resolution_study import _answer
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_json import read_run, store_run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("studies"))


def test_calibration(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    said = study(capsys, "calibration", run, "--replicates", 50)
    assert "No quantile normalisation of baseline:ones" in said
    data = answer(run, "calibration")
    cell = next(c for c in load_run(run).cells() if (c.model, c.dataset) == ("b", "coco"))
    patient = dict(zip(cell.case_ids, cell.patients, strict=True))
    expected: dict[str, list[float]] = defaultdict(list)
    for own in pairs_of(stored(run, "b", "coco")).values():
        values: dict[str, list[float]] = defaultdict(list)
        ranked = {row["case_id"]: ranks(row) for row in own}
        for row in own:
            other = [r for r in own if patient[r["case_id"]] != patient[row["case_id"]]]
            held = max(range(101), key=lambda k: (mean(dice(r, k) for r in other), -k))
            values["none"].append(dice(row, 50))
            values["held_out"].append(dice(row, held))
            values["quantile"].append(ranked[row["case_id"]][50])
            best = max(range(101), key=lambda k: (mean(ranked[r["case_id"]][k] for r in other), -k))
            values["quantile_held_out"].append(ranked[row["case_id"]][best])
        for method, found in values.items():
            expected[method].append(mean(found))
        expected["best"].append(max(mean(dice(row, k) for row in own) for k in range(101)))
    rows = {r["method"]: r for r in data["cells"] if (r["model"], r["dataset"]) == ("b", "coco")}
    for method, found in expected.items():
        assert rows[method]["dice"] == pytest.approx(mean(found)), method
    gain = {method: rows[method]["dice"] - rows["none"]["dice"] for method in rows}
    for method in ("held_out", "quantile", "isotonic", "beta_half_dice"):
        assert rows[method]["recovered"] == pytest.approx(gain[method] / gain["best"])
    assert {rows["best"]["label"], rows["held_out"]["label"], rows["quantile"]["label"]} == {
        "in_sample", "cross_fitted", "untuned",
    }  # fmt: skip
    (model,) = [r for r in data["models"] if (r["model"], r["method"]) == ("b", "beta")]
    assert model["dice"] == pytest.approx(
        mean(r["dice"] for r in data["cells"] if (r["model"], r["method"]) == ("b", "beta"))
    )
    study(capsys, "calibration", run, "--replicates", 50, "--no-maps")
    assert not any(row["method"].startswith("quantile") for row in answer(run, "calibration")["cells"])


def ranks(row: dict[str, Any]) -> list[float]:
    """Dice of a map at each threshold of the quantile within its image, by whole maps."""
    grid = np.array(row["saliency"], np.float32).reshape(4, 4)
    (y_lo, y_hi, y_w, y_seen), (x_lo, x_hi, x_w, x_seen) = (
        _axis(4, 224, row["frame"][i], row["frame"][i + 2]) for i in (0, 1)
    )
    one = np.float32(1)
    rows = grid[:, x_lo] * (one - x_w) + grid[:, x_hi] * x_w
    value = rows[y_lo] * (one - y_w)[:, None] + rows[y_hi] * y_w[:, None]
    seen = y_seen[:, None] & x_seen[None, :]
    value = np.where(seen, value, value[seen].min())
    value = (value - value.min()) / (value.max() - value.min())
    place = stats.rankdata(value.ravel(), "min").reshape(224, 224) - 1
    share = (place / place.max()).astype(np.float32)
    truth = np.unpackbits(np.frombuffer(row["region"], np.uint8).reshape(224, 28), axis=1, bitorder="little") > 0
    cuts = [share >= np.float32(k / 100) for k in range(101)]
    return [2 * (marked & truth).sum() / (marked.sum() + truth.sum()) for marked in cuts]


def test_prompts(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = world / "run" / "run", world / "other" / "run"
    study(capsys, "prompts", run, other, "--model", "a", "--dataset", "coco", "--replicates", 50)
    data = answer(run, "prompts")
    first, second = (pairs_of(stored(path, "a", "coco")) for path in (run, other))
    for name in ("Mass", "Effusion"):
        values = [mean(row["hit"] for row in pairs[name]) for pairs in (first, second)]
        found = [r for r in data["values"] if (r["class"], r["measure"]) == (name, "pointing")]
        assert [row["value"] for row in found] == pytest.approx(values) and len({r["variant"] for r in found}) == 2
        assert found[0]["spread"] == pytest.approx(abs(values[0] - values[1])) and found[0]["n"] == len(first[name])
        gaps = [dice(b, 50) - dice(a, 50) for a, b in zip(first[name], second[name], strict=True)]
        (row,) = [r for r in data["differences"] if (r["class"], r["measure"]) == (name, "dice_fixed")]
        assert row["difference"] == pytest.approx(mean(gaps)) and 0 < row["p"] <= row["p_holm"] <= 1
    assert any(row["measure"] == "auc" and row["n"] == 30 for row in data["differences"])
    check_wordings(data, first, second)
    assert "no second variant to compare with" in study(capsys, "prompts", run, code=1)
    # One dataset under two names in one run is one dataset.
    assert "some variants have the same prompts" in study(capsys, "prompts", other, "--replicates", 50)
    data = answer(other, "prompts")
    assert {row["variant"] for row in data["values"]} == {"coco", "again"}
    assert all(row["spread"] == 0 for row in data["values"]) and {r["difference"] for r in data["differences"]} == {0}


def beyond(values: list[float], pairs: list[dict[str, Any]]) -> float:
    """One-sided p of a mean above 0, of pairs that come in patients."""
    m, sums = mean(values), defaultdict(float)
    for value, pair in zip(values, pairs, strict=True):
        sums[pair["patient_id"]] += (value - m) / len(values)
    error = np.sqrt(len(sums) / (len(sums) - 1) * sum(part**2 for part in sums.values()))
    return float(stats.t.sf(m / error, len(sums) - 1))


def check_wordings(data: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> None:
    """Changes, their tests and shares by plain loops."""
    tested = []
    for name in ("Mass", "Effusion"):
        a, b = ([float(row["hit"]) for row in pairs[name]] for pairs in (first, second))
        (row,) = [r for r in data["changes"] if (r["class"], r["measure"]) == (name, "pointing")]
        assert row["change"] == pytest.approx(mean(b) - mean(a)) and row["reference_value"] == pytest.approx(mean(a))
        relative = (mean(b) - mean(a)) / mean(a) if mean(a) else None
        assert row["change_relative"] == (None if relative is None else pytest.approx(relative))
        (found,) = [r for r in data["findings"] if (r["class"], r["measure"]) == (name, "pointing")]
        assert (found["smallest"], found["largest"]) == pytest.approx(tuple(sorted((mean(a), mean(b)))))
        assert found["deviation"] == pytest.approx(np.std([mean(a), mean(b)], ddof=1))
        patients = {pair["patient_id"] for pair in first[name]}
        if len(patients) >= 10:
            tested.append(row)
            sides = [beyond([sign * (y - x) - 0.1 for x, y in zip(a, b, strict=True)], first[name]) for sign in (1, -1)]
            assert row["p_absolute"] == pytest.approx(max(min(1, 2 * min(sides)), 2.0 ** (1 - len(patients))))
        else:
            assert row["p_absolute"] is None and found["confirmed_absolute"] is None
    (share,) = [row for row in data["shares"] if row["measure"] == "pointing"]
    rows = [row for row in data["changes"] if row["measure"] == "pointing"]
    assert tested and share["family"] == len(tested) == share["tested"]
    assert share["seen_absolute"] == mean(abs(row["change"]) > 0.1 for row in rows)
    assert share["seen_relative"] == mean(abs(row["change_relative"] or 0) > 0.1 for row in rows)
    least = sorted(tested, key=lambda row: row["p_absolute"])
    assert least[0]["p_absolute_holm"] == pytest.approx(min(1, len(least) * least[0]["p_absolute"]))
    assert share["confirmed_absolute"] == mean(row["p_absolute_holm"] <= 0.05 for row in tested)
    macro = [mean(mean(float(row["hit"]) for row in own) for own in pairs.values()) for pairs in (first, second)]
    ends = {row["end"]: row for row in data["choices"] if row["measure"] == "pointing"}
    assert (ends["best"]["value"], ends["worst"]["value"]) == pytest.approx((max(macro), min(macro)))


def test_resolution(world: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(world / "run" / "run", run, ignore=shutil.ignore_patterns("studies"))
    data = read_run(run)
    for dataset in ("coco", "second"):
        data["cells"][f"a--{dataset}"]["grid"] = [8, 8]  # a is the finer one now
    store_run(run, data)
    said = study(capsys, "resolution", run, "--replicates", 50)
    assert "by stratum" in said
    found = answer(run, "resolution")
    assert {(row["reference"], row["variant"]) for row in found["differences"]} == {("b [4 x 4]", "a [8 x 8]")}
    one, two = (
        {(r["case_id"], r["finding"]): r for own in pairs_of(stored(run, model, "coco")).values() for r in own}
        for model in ("b", "a")
    )
    shared = [key for key in one if key in two and one[key]["region_area"] == two[key]["region_area"]]
    small = [key for key in shared if 0.005 <= one[key]["region_area"] / PIXELS < 0.02]
    assert small
    (row,) = [
        r
        for r in found["differences"]
        if (r["dataset"], r.get("stratum"), r["measure"]) == ("coco (coco)", "small", "dice_fixed")
    ]
    assert row["n"] == len(small)
    assert row["difference"] == pytest.approx(mean(dice(two[key], 50) - dice(one[key], 50) for key in small))
    assert {row["measure"] for row in found["answers"]} == {"pointing"} and "mean" not in {
        row["stratum"] for row in found["answers"]
    }


@pytest.mark.parametrize(
    ("low", "high", "p", "answer"),
    [
        (0.01, 0.2, 0.01, "resolution limits"),
        (0.01, 0.2, 0.06, "cannot tell"),
        (0.0, 0.2, 0.01, "cannot tell"),
        (-0.1, 0.049, 0.5, "not resolution"),
        (-0.1, 0.05, 0.5, "cannot tell"),
        (None, None, None, "cannot tell"),
    ],
)
def test_whether_resolution_limits(low: float | None, high: float | None, p: float | None, answer: str) -> None:
    assert _answer({"difference_low": low, "difference_high": high, "p_holm": p}) == answer


@pytest.mark.parametrize("protocol", ["chexlocalize", "medklip"])
def test_counts_of_another_protocol(protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their first threshold does not mark every pixel: what needs the values below it is left out, with a sentence."""
    world = World(tmp_path)
    data = make_dataset(tmp_path / "data", 16)
    bundle = make_bundle(tmp_path / "bundles" / "a")
    world.run([bundle.path], [DatasetConfig("coco", data, "coco")], protocol=protocol, sweep=sweep)
    rows = [row for own in pairs_of(stored(world.out, "a", "coco")).values() for row in own]
    if protocol == "chexlocalize":  # only findings that the model predicts too
        rows = [row for row in rows if row["logit"] >= 0]
    classes = {name: [row for row in rows if row["finding"] == name] for name in ("Mass", "Effusion")}
    classes = {name: own for name, own in classes.items() if own}
    for name in ("thresholds", "strata", "failures", "calibration"):
        said = study(capsys, name, world.out, "--replicates", 40)
        assert f"a on coco: protocol {protocol}" in said
        if name == "calibration":
            assert "No isotonic or beta map of a on coco: these counts do not mark every pixel" in said
    found = {row["method"]: row for row in answer(world.out, "calibration")["cells"]}
    assert found["none"]["n"] == len(rows)
    assert found["none"]["dice"] == pytest.approx(mean(mean(dice(row, 50) for row in own) for own in classes.values()))
    curves = [[mean(dice(row, k) for row in own) for k in range(101)] for own in classes.values()]
    assert found["best"]["dice"] == pytest.approx(mean(max(curve) for curve in curves))
    sensitivity = answer(world.out, "thresholds")
    assert not sensitivity["reliability"] and sensitivity["sensitivity"][0]["entropy"] is None
