"""`study trust`: against loops over the stored rows and shared/trust, on the demo's results, and on odd runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from stored_counts import add_cell, random_rows
from study_world import answer, stored, study
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.trust.localisation import MEASURES, localise
from xbench_fast.metrics_gpu.trust.reference_maps import other_patient_pairs, prior_maps
from xbench_fast.runtime.evaluation.reference.baselines import center_map
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.trust.questions.pair_scores import pair_scores

pytestmark = pytest.mark.usefixtures("empty_drawings")

Rows = list[dict[str, Any]]


def verdict(rows: Rows, question: str, model: str, dataset: str) -> dict[str, Any]:
    (row,) = [r for r in rows if (r["question"], r["model"], r["dataset"]) == (question, model, dataset)]
    return row


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model and baseline:center: 60 phantoms and 40 radiographs."""
    run = tmp_path_factory.mktemp("demo") / "run"
    shutil.copytree(Path(__file__).parents[3] / "golden" / "run", run)
    return run


@pytest.fixture(scope="module")
def judged(demo: Path) -> dict[str, Any]:
    from xbench_fast.runtime.reporting.studies.study_outcome import write_outcome
    from xbench_fast.runtime.trust.questions.trust_study import study_trust

    write_outcome(study_trust(load_material(demo)), demo / "studies" / "trust")
    return answer(demo, "trust")


def test_the_demo_passes_on_phantoms_and_not_on_radiographs(judged: dict[str, Any]) -> None:
    """The values of shared/spec/trust.md, with the maps of present findings only."""
    rows = judged["verdicts"]
    for question, least in (("finds the region", 0.7), ("answers the image", 0.4), ("answers the prompt", 0.5)):
        row = verdict(rows, question, "kad-demo", "phantoms")
        assert row["verdict"] == "pass" and row["difference_low"] > least and row["family"] == 3
    assert verdict(rows, "finds the region", "kad-demo", "chestxdet10")["verdict"] == "pass"
    for question in ("answers the image", "answers the prompt"):
        row = verdict(rows, question, "kad-demo", "chestxdet10")
        assert row["verdict"] == "cannot tell" and row["told"] == f"cannot tell ({row['patients']} patients)"
        assert row["family"] == 9, "two models and a baseline"


def test_a_map_that_ignores_its_prompt_does_not_answer_it(judged: dict[str, Any]) -> None:
    rows = judged["verdicts"]
    prompt = verdict(rows, "answers the prompt", "baseline:center", "chestxdet10")
    assert prompt["difference"] == prompt["difference_low"] == prompt["difference_high"] == 0
    assert prompt["p"] == 1 and prompt["verdict"] == "fail"
    image = verdict(rows, "answers the image", "baseline:center", "chestxdet10")
    assert abs(image["difference"]) < 1e-4 and image["verdict"] == "fail"
    for row in judged["differences"]:
        if row["model"] == "baseline:center" and row["baseline"] in ("other_finding", "center", "other_patient"):
            assert row["difference"] == 0, row
    (alike,) = [r for r in judged["scores"] if r["model"] == "baseline:center" and r["class"] == "mean"
                and r["measure"] == "spearman_other_finding"]  # fmt: skip
    assert alike["value"] == 1


def test_what_the_files_and_the_tables_say(
    judged: dict[str, Any], demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = study(capsys, "trust", demo, "--replicates", 40, "--dataset", "chestxdet10", "--model", "kad-demo")
    assert "answers the prompt" in said and "cannot tell (" in said and "m = " in said
    assert (
        "other finding: those with a region in the same image, because a run keeps no maps of absent findings" in said
    )
    assert "14 of 52 pairs have no other finding in the image" in said
    assert judged["settings"]["others"] == "present"
    assert {row["others"] for row in judged["verdicts"] if row["baseline"] == "other_finding"} == {"present"}
    text = (demo / "studies/trust/trust.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    sizes = {
        (r["measure"], r["exploratory"], r["class"] == "mean"): r["family"]
        for r in answer(demo, "trust")["differences"]
    }
    assert all(size == 3 for (_, exploratory, _), size in sizes.items() if not exploratory)
    assert all(size == 3 for (_, exploratory, mean), size in sizes.items() if exploratory and mean)


def test_reference_values_of_54_real_pairs(shared: Path) -> None:
    """Prior and other patients by their definition, on every measure that shared/trust holds."""
    told = json.loads((shared / "trust/priors.json").read_text())["pairs"]
    file = np.load(shared / "trust/priors.npz")
    grids, masks = file["grids"], np.unpackbits(file["masks"], axis=1).reshape(-1, 224, 224).astype(bool)
    class_of, patient_of = (np.unique([p[key] for p in told], return_inverse=True)[1] for key in ("finding", "patient"))
    names = {"pointing": "pointing", "ap": "average_precision", "roc_auc": "roc_auc"}
    priors, known = prior_maps(grids, class_of, patient_of)
    pair, other = other_patient_pairs(class_of, patient_of, 0, most=100)
    own, prior = localise(grids, masks), localise(priors, masks)
    each = localise(grids, masks, pairs=(other, pair))
    assert known.tolist() == [p["prior"] is not None for p in told]
    assert np.bincount(pair, minlength=len(told)).tolist() == [p["prior_n"] for p in told]
    for place, wanted in enumerate(told):
        for key, name in names.items():
            assert getattr(own, name)[place] == pytest.approx(wanted["own"][key], abs=1e-6)
            if known[place]:
                assert getattr(prior, name)[place] == pytest.approx(wanted["prior"][key], abs=1e-6)
                mean = getattr(each, name)[pair == place].mean()
                assert mean == pytest.approx(wanted["other_patient"][key], abs=1e-6)
            for finding, scores in wanted["other_finding"].items():
                (source,) = [i for i, p in enumerate(told) if (p["case"], p["finding"]) == (wanted["case"], finding)]
                found = localise(grids[source : source + 1], masks[place : place + 1])
                assert getattr(found, name)[0] == pytest.approx(scores[key], abs=1e-6)


def test_some_of_many_other_patients_are_drawn() -> None:
    rng = np.random.default_rng(0)
    class_of, patient_of = rng.integers(0, 2, 60), rng.integers(0, 25, 60)
    pair, other = other_patient_pairs(class_of, patient_of, 1, most=5)
    assert (class_of[pair] == class_of[other]).all() and (patient_of[pair] != patient_of[other]).all()
    assert np.bincount(pair).tolist() == [5] * 60
    assert len(set(zip(pair.tolist(), other.tolist(), strict=True))) == len(pair), "without replacement"
    again, elsewhere = other_patient_pairs(class_of, patient_of, 1, most=5)
    assert (again == pair).all() and (elsewhere == other).all()
    assert (other_patient_pairs(class_of, patient_of, 2, most=5)[1] != other).any()


def test_a_degenerate_map_adds_nothing_to_the_prior() -> None:
    grids = np.random.default_rng(0).random((4, 3, 3)).astype(np.float32)
    grids[1], grids[2, 0, 0] = 0.5, np.nan
    priors, known = prior_maps(grids, np.zeros(4, np.intp), np.arange(4))
    assert known.all() and np.isfinite(priors).all()
    scaled = (grids[3] - grids[3].min()) / (grids[3].max() - grids[3].min())
    np.testing.assert_allclose(priors[0], scaled / 3, rtol=1e-6)


def test_maps_lie_where_those_of_the_pair_do(tmp_path: Path) -> None:
    """Images with two frames, by a protocol that repeats cells; every baseline takes the frame of the pair."""
    rows = random_rows(1)
    for row in rows:
        if row.saliency is not None and int(row.case_id[1:]) % 2:
            row.frame = (0.1, 0.05, 0.9, 1.0)
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4], "protocol": "medklip"}, rows))
    material = load_material(run)
    (cell,) = material.paired
    found, n = pair_scores(cell, material.run), cell.n
    kept = [row for row in stored(run, "kad", "one") if row["region"] is not None]
    grids = np.array([row["saliency"] for row in kept], np.float32).reshape(-1, 4, 4)
    masks, frames = np.stack([region(row) for row in kept]), np.array([row["frame"] for row in kept])

    def wanted(source: Any, place: Any) -> np.ndarray:
        return localise(source, masks[place], frames=frames[place], upsample="nearest").measures

    np.testing.assert_array_equal(found.own, wanted(grids, np.arange(n)))
    priors, _ = prior_maps(grids, cell.class_of, cell.patient_of)
    np.testing.assert_array_equal(found.baselines["prior"], wanted(priors, np.arange(n)))
    whole = np.repeat(center_map()[None], n, axis=0)
    center = localise(whole, masks, frames=frames, full_image=True).measures
    np.testing.assert_array_equal(found.baselines["center"], center)
    known = ~np.isnan(found.baselines["mask_prior"][:, 0])
    assert known.all() and (found.baselines["mask_prior"][:, 0] != localise(whole, masks).measures[:, 0]).all()
    assert not np.allclose(center, localise(whole, masks).measures), "of a crop only the seen pixels count"
    pair, other = other_patient_pairs(cell.class_of, cell.patient_of, cell.draws.seed)
    each = wanted(grids[other], pair)
    mean = np.stack([np.nanmean(each[pair == place], axis=0) for place in range(n)])
    np.testing.assert_allclose(found.baselines["other_patient"], mean, atol=1e-12)
    assert len(np.unique(frames, axis=0)) == 2 and not np.allclose(found.own, localise(grids, masks).measures)


def make_run(path: Path, *cells: tuple[str, dict[str, Any], Any]) -> Path:
    with RunDirectory(path) as made:
        made.begin({})
        for model, details, rows in cells:
            add_cell(made, model, "one", rows, **details)
    return path


def region(row: dict[str, Any]) -> np.ndarray:
    return np.unpackbits(np.frombuffer(row["region"], np.uint8).reshape(224, 28), axis=1, bitorder="little").astype(
        bool
    )


def naive(row: dict[str, Any], grid: np.ndarray) -> list[float]:
    values, inside = scaled_map(grid), region(row)
    v, r = values.ravel().astype(float), inside.ravel()
    one, two = v[r], v[~r]
    return [
        average_precision_score(r, v),
        roc_auc_score(r, v),
        one.sum() / v.sum(),
        (one.mean() - two.mean()) / np.sqrt(one.var() + two.var()),
        float(r[values.argmax()]),
    ]


def test_every_score_of_a_pair_by_loops(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4]}, random_rows(1)))
    (cell,) = load_material(run).paired
    found = pair_scores(cell, load_material(run).run)
    rows = [row for row in stored(run, "kad", "one") if row["region"] is not None]
    grids = [np.array(row["saliency"], np.float32).reshape(4, 4) for row in rows]
    assert [(row["case_id"], row["finding"]) for row in rows] == [
        (case, cell.classes[c]) for case, c in zip(cell.case_ids, cell.class_of, strict=True)
    ]
    scaled = [(each - each.min()) / (each.max() - each.min()) for each in grids]
    cases = [row["case_id"] for row in rows]
    alone = sum(cases.count(case) == 1 for case in cases)
    for place in range(0, len(rows), 3):
        row, grid = rows[place], grids[place]
        np.testing.assert_allclose(found.own[place], naive(row, grid), atol=1e-9)
        others = [
            i for i, o in enumerate(rows) if o["finding"] == row["finding"] and o["patient_id"] != row["patient_id"]
        ]
        prior = np.mean([scaled[i] for i in others], axis=0, dtype=np.float64).astype(np.float32)
        np.testing.assert_allclose(found.baselines["prior"][place], naive(row, prior), atol=1e-5)
        mean = np.mean([region(rows[i]) for i in others], axis=0, dtype=np.float64).astype(np.float32)
        np.testing.assert_allclose(found.baselines["mask_prior"][place], naive(row, mean), atol=1e-7)
        inside = [i for i, o in enumerate(rows) if o["case_id"] == row["case_id"] and i != place]
        wanted = np.mean([naive(row, grids[i]) for i in inside], axis=0) if inside else np.full(5, np.nan)
        np.testing.assert_allclose(found.baselines["other_finding"][place], wanted, atol=1e-9)
        fraction = region(row).mean()
        np.testing.assert_allclose(found.baselines["chance"][place], [fraction, 0.5, fraction, 0, fraction])
    assert 0 < alone < len(rows) and found.why["other_finding"] == {"no other finding in the image": alone}
    drawn = found.baselines["other_patient"]
    assert np.isfinite(drawn).all() and not np.allclose(drawn, found.baselines["prior"])


def spoiled(share: float, value: float = np.nan) -> Any:
    """Random rows of which this share of the pairs has a degenerate map."""
    rows = random_rows(1)
    pairs = [row for row in rows if row.saliency is not None]
    for row in pairs[: round(share * len(pairs))]:
        row.saliency = np.full_like(row.saliency, value)
    return rows


@pytest.mark.parametrize("value", [np.nan, 0.5])
def test_degenerate_maps_are_counted_and_void_a_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float
) -> None:
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4]}, spoiled(0.2, value)))
    said = study(capsys, "trust", run, "--replicates", 40)
    data = answer(run, "trust")
    (count,) = data["counts"]
    assert f"{count['degenerate']} of {count['pairs']} pairs have a degenerate map" in said and count["degenerate"] > 2
    first = data["verdicts"][0]
    assert first["verdict"] == "void" and first["degenerate"] == count["degenerate"] and "void (" in said
    assert {row["verdict"] for row in data["verdicts"]} == {"void"}
    run = make_run(tmp_path / "all", ("kad", {"grid": [4, 4]}, spoiled(1.0, value)))
    study(capsys, "trust", run, "--replicates", 40)
    data = answer(run, "trust")
    assert {row["verdict"] for row in data["verdicts"]} == {"void"}
    (chance,) = [r for r in data["verdicts"] if r["baseline"] == "chance"]
    assert chance["difference"] == pytest.approx(0, abs=1e-12), "a constant map has the scores of chance"
    (alike,) = [r for r in data["scores"] if r["measure"] == "spearman_other_finding"]
    assert alike["value"] is None and "undefined" in alike["why"]


def test_regions_that_are_no_pairs_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4], "empty": 2, "outside": 1}, random_rows(1)))
    said = study(capsys, "trust", run, "--replicates", 40)
    assert "kad on The one: 3 regions have no pixel or lie outside their image, and are no pairs." in said
    assert answer(run, "trust")["counts"][0]["uncounted_regions"] == 3


def of_patients(patients: int) -> Any:
    rows = random_rows(1)
    for row in rows:
        row.patient_id = f"p{int(row.case_id[1:]) % patients}"
    return rows


def test_few_patients_and_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "few", ("kad", {"grid": [4, 4]}, of_patients(9)))
    said = study(capsys, "trust", run, "--replicates", 40)
    assert "cannot tell (9 patients)" in said
    rows = answer(run, "trust")["verdicts"]
    assert all(row["verdict"] == "cannot tell" and row["difference_low"] is not None for row in rows)
    run = make_run(tmp_path / "one", ("kad", {"grid": [4, 4]}, of_patients(1)))
    said = study(capsys, "trust", run, "--replicates", 40)
    rows = answer(run, "trust")["verdicts"]
    assert "cannot tell (1 patient)" in said and "have no other patient with the finding" in said
    by = {row["baseline"]: row for row in rows}
    assert by["chance"]["difference"] is not None and by["chance"]["difference_low"] is None
    assert by["prior"]["difference"] is None and by["prior"]["p"] is None and by["prior"]["left_out"] > 0
    assert by["prior"]["told"] == "cannot tell (0 patients)"


def test_a_dataset_of_one_finding_asks_nothing_about_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in random_rows(1) if row.finding == "Mass"]
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4], "findings": ["Mass"]}, rows))
    said = study(capsys, "trust", run, "--replicates", 40)
    (row,) = [r for r in answer(run, "trust")["verdicts"] if r["baseline"] == "other_finding"]
    assert row["told"] == "cannot tell (0 patients)" and row["why"].startswith("no other finding in the image: ")
    assert "do not ask about the prompt" in said


def test_results_without_maps_are_left_out_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = ("boxes:mine", {"weights": "boxes", "grid": None}, random_rows(1))
    ones = ("baseline:ones", {"weights": "baseline", "grid": None, "ties": "expected"}, random_rows(1))
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4]}, random_rows(1)), ones)
    said = study(capsys, "trust", run, "--replicates", 40)
    assert (
        "No trust tests of baseline:ones on The one: a run keeps no maps of this baseline."
        in answer(run, "trust")["facts"]
    )
    assert "baseline:ones: a reference map" not in said, "it stands in no table"
    assert {row["model"] for row in answer(run, "trust")["verdicts"]} == {"kad"}
    run = make_run(tmp_path / "none", boxes)
    said = study(capsys, "trust", run, code=1)
    assert "has no maps to test" in said and "boxes from a file have no map." in said


def finite(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from finite(each)


def test_two_models_are_one_family_and_measures_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(
        tmp_path / "run", ("kad", {"grid": [4, 4]}, random_rows(1)), ("mavl", {"grid": [4, 4]}, random_rows(1))
    )
    study(capsys, "trust", run, "--replicates", 40)
    data = answer(run, "trust")
    assert [row["family"] for row in data["verdicts"]] == [6] * 6
    main = [row for row in data["differences"] if row["class"] == "mean" and not row["exploratory"]]
    assert {row["measure"] for row in main} == set(MEASURES) and {row["family"] for row in main} == {6}
    alike = [row["p_holm"] for row in data["verdicts"]]
    assert alike[:3] == alike[3:], "the same maps"
    assert {row["model"] for row in data["counts"]} == {"kad", "mavl"} and all(np.isfinite([*finite(data)]))


def test_a_score_of_a_degenerate_map_of_another_finding_is_degenerate(tmp_path: Path) -> None:
    rows = random_rows(1)
    kept = [row for row in rows if row.saliency is not None]
    cases = [row.case_id for row in kept]
    flat = next(row for row in kept if cases.count(row.case_id) > 1)
    flat.saliency = np.zeros_like(flat.saliency)
    run = make_run(tmp_path / "run", ("kad", {"grid": [4, 4]}, rows))
    (cell,) = load_material(run).paired
    degenerate = pair_scores(cell, load_material(run).run).degenerate
    assert degenerate["own"].sum() == 1 and degenerate["chance"].sum() == 1
    assert degenerate["other_finding"].tolist() == [case == flat.case_id for case in cell.case_ids]
