"""The study of subgroups on rows with a planted gap, and what it says where there is nothing to compare."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from sklearn.metrics import average_precision_score, roc_auc_score
from stored_counts import CLASSES, PIXELS, add_cell
from study_world import answer, study
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.sweep.masks import unpack_masks
from xbench_fast.metrics_gpu.trust.localisation import localise
from xbench_fast.runtime.data.datasets.attributes.lookup import CaseAttributes
from xbench_fast.runtime.reporting.studies.subgroups.grouping import groupings
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.stored_maps import load_maps

CASES, PATIENTS = 240, 160
CANARY = "ZZCANARY"
QUICK = ("--replicates", 60)


def people(seed: int = 0) -> dict[str, dict[str, str]]:
    """Attributes by case; those of a patient are alike but for the view. Site is the same everywhere."""
    random = np.random.default_rng(seed)
    sex = random.choice(["F", "M"], PATIENTS)
    found = {}
    for number in range(CASES):
        view = random.choice(["AP", "PA", ""], p=[0.45, 0.45, 0.1])
        age = str(random.integers(1, 130)) if number % 9 else ""
        found[f"c{number}"] = {
            "sex": sex[number % PATIENTS],
            "view": view,
            "age": age,
            "site": CANARY,
            "code": str(number),
        }
    return found


def rows(
    hit: Callable[[dict[str, str]], float], attributes: dict[str, dict[str, str]], maps: bool = True
) -> list[ResultRow]:
    """Two findings, each in a third of the cases; hit: how often the maximum lies in the region."""
    random = np.random.default_rng(1)
    found = []
    for number, (case_id, person) in enumerate(attributes.items()):
        for place, finding in enumerate(CLASSES):
            label = int(place < 2 and random.random() < 0.5)
            row = ResultRow(case_id, f"p{number % PATIENTS}", finding, "ok", None, label)
            row.logit, row.region_area, row.sub_pixel = np.float32(random.normal() + label), 0, False
            found.append(row)
            if not label:
                continue
            row.region_area = int(random.integers(50, 9000))
            row.area = np.full(101, 500, np.int32)
            row.area[0] = PIXELS
            row.overlap = np.full(101, min(500, row.region_area) // 2, np.int32)
            row.overlap[0] = row.region_area
            row.hit, row.degenerate, row.argmax = bool(random.random() < hit(person)), False, 0
            mask = np.packbits((np.arange(PIXELS) < row.region_area).reshape(224, 224), axis=1, bitorder="little")
            saliency = random.random((4, 4), np.float32)
            row.keep(mask, (0.0, 0.0, 1.0, 1.0), saliency if maps else None)
    return found


def make(folder: Path, planted: float = 0.0, **config: Any) -> Path:
    """A run of one dataset and a table of its cases' attributes; `planted`: the hits that women lose."""
    attributes = people()
    with RunDirectory(folder / "run") as made:
        made.begin(config)
        hit = lambda person: 0.8 - planted * (person["sex"] == "F")  # noqa: E731
        add_cell(made, "kad", "one", rows(hit, attributes))
        add_cell(made, "plain", "one", rows(lambda _: 0.3, attributes, False), "baseline", grid=None)
    with (folder / "who.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, ["case", "sex", "view", "age", "site", "code"])
        table.writeheader()
        table.writerows({"case": case, **person} for case, person in attributes.items())
    return folder / "run"


@pytest.fixture(autouse=True)
def no_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a study's time is its figure."""
    if request.node.name != "test_a_planted_gap_is_found_and_others_are_not":
        monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("subgroups"), planted=0.45)


def chosen(data: dict[str, Any], name: str, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in data[name] if all(row[key] == value for key, value in wanted.items())]


def test_a_planted_gap_is_found_and_others_are_not(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = study(capsys, "subgroups", world, *QUICK, "--attributes", f"one={world.parent / 'who.csv'}")
    assert {path.suffix for path in (world / "studies/subgroups").iterdir()} >= {".png", ".svg", ".pdf", ".csv", ".md"}
    assert "Groups: The one" in said and "Gaps of pointing: The one" in said and "who.csv" in said
    data = answer(world, "subgroups")
    gaps = chosen(data, "gaps", model="kad", measure="pointing")
    assert [(row["attribute"], row["first"], row["second"]) for row in gaps] == [
        ("sex", "F", "M"),
        ("view", "AP", "PA"),
        ("view", "unknown", "all others"),
        *(("age", name, "all others") for name in ("under 18", "18-39", "40-59", "60-79", "80 and over", "unknown")),
    ]
    assert [row["attribute"] for row in gaps if row["verdict"] == "fail"] == ["sex"]
    assert gaps[0]["standardised"] < -0.3 and gaps[0]["standardised_p_holm"] < 0.001
    assert gaps[0]["patients_in_both"] == 0 and gaps[0]["gap_interval"] == "newcombe"
    assert gaps[1]["patients_in_both"] > 0 and gaps[1]["gap_interval"] == "bootstrap", "views of one patient"
    named = [(each["model"], each["dataset"], each["protocol"]) for each in data["results"]]
    assert named == [("kad", "one", "default"), ("plain", "one", "default")]
    (kad, plain) = data["summary"]
    assert (kad["verdict"], kad["attribute"], kad["first"]) == ("fail", "sex", "F")
    assert kad["tested"] + kad["not_tested"] == len(gaps) and kad["tested"] == sum(row["tested"] for row in gaps)
    assert kad["standardised"] == gaps[0]["standardised"] and plain["verdict"] != "fail"
    for kind in ("gap", "standardised"):
        ps = [row[f"{kind}_p"] for row in gaps if row["tested"]]
        assert gaps[0][f"{kind}_p_holm"] == pytest.approx(min(1, len(ps) * min(ps))), (
            "one family of a model and dataset"
        )


def test_no_gap_where_none_is_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(tmp_path)
    study(capsys, "subgroups", run, *QUICK, "--attributes", tmp_path / "who.csv", "--quiet")
    data = answer(run, "subgroups")
    assert len(data["gaps"]) > 20 and not [row for row in data["gaps"] if row["verdict"] == "fail"]
    assert [row["verdict"] for row in data["summary"]] == ["cannot tell", "cannot tell"], "wide intervals show nothing"


def test_numbers_against_the_rows(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(capsys, "subgroups", world, *QUICK, "--attributes", world.parent / "who.csv", "--by", "sex", "--quiet")
    data, attributes = answer(world, "subgroups"), people()
    assert {row["attribute"] for row in (*data["groups"], *data["gaps"])} == {"sex"}
    run = load_run(world)
    cell, maps = run.cell("kad", "one"), load_maps(run, "kad", "one")
    sex = np.array([attributes[case]["sex"] for case in maps.case_id])
    assert maps.saliency is not None
    precision = [
        average_precision_score(
            unpack_masks(maps.masks[place : place + 1], 224)[0].ravel(),
            scaled_map(maps.saliency[place], frame=(0.0, 0.0, 1.0, 1.0)).ravel(),
        )
        for place in range(len(maps))
    ]
    values = {"pointing": maps.hit.astype(float), "average_precision": np.array(precision)}
    dice = 2 * cell.counts.overlap[:, 50] / (cell.counts.area[:, 50] + cell.counts.region)
    of_image = np.array([attributes[case]["sex"] for case in cell.case_ids])
    for group in "FM":
        (row,) = chosen(data, "groups", model="kad", group=group)
        own = sex == group
        patients = {f"p{int(case[1:]) % PATIENTS}" for case, one in zip(maps.case_id, own, strict=True) if one}
        assert (row["pairs"], row["patients"], row["images"]) == (own.sum(), len(patients), (of_image == group).sum())
        for name, each in {**values, "dice_fixed": dice}.items():
            assert row[name] == pytest.approx(each[own].mean(), abs=1e-6)
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
        inside = of_image == group
        auc = [roc_auc_score(cell.labels[inside, c], cell.logits[inside, c]) for c in (0, 1)]
        assert row["auc"] == pytest.approx(np.mean(auc)) and row["auc_findings"] == 2
    for measure in ("pointing", "average_precision", "dice_fixed", "auc"):
        (gap,) = chosen(data, "gaps", model="kad", measure=measure)
        f, m = (chosen(data, "groups", model="kad", group=group)[0][measure] for group in "FM")
        assert gap["gap"] == pytest.approx(f - m)
        assert (gap["standardised"] is None) == (measure == "auc") and (gap["cmh_p"] is None) == (measure != "pointing")
    assert not chosen(data, "gaps", model="plain", measure="auc")
    stratum = list(zip(cell.class_of, np.digitize(cell.counts.region / PIXELS, (0.005, 0.02, 0.08)), strict=True))
    gap = total = 0.0
    for one in set(stratum):
        own = np.array([each == one for each in stratum])
        f, m = (maps.hit[own & (sex == group)] for group in "FM")
        if len(f) and len(m):
            gap, total = gap + own.sum() * (f.mean() - m.mean()), total + own.sum()
    (row,) = chosen(data, "gaps", model="kad", measure="pointing")
    assert row["standardised"] == pytest.approx(gap / total) and row["pairs_left_out"] == len(maps) - total
    table = list(csv.DictReader((world / "studies/subgroups/gaps.csv").open()))
    assert len(table) == len(data["gaps"]) and float(table[0]["standardised"]) == data["gaps"][0]["standardised"]


def test_maps_are_drawn_as_their_protocol_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, attributes = make(tmp_path), people()
    with RunDirectory(run) as made:
        made.begin({})
        add_cell(made, "cells", "one", rows(lambda _: 0.5, attributes), protocol="medklip")
    study(capsys, "subgroups", run, *QUICK, "--attributes", tmp_path / "who.csv", "--by", "sex", "--quiet")
    data = json.loads((run / "studies/subgroups-medklip/subgroups.json").read_text())
    maps = load_maps(load_run(run), "cells", "one")
    assert maps.saliency is not None
    scores = localise(maps.saliency, maps.masks, frames=maps.frames, upsample="nearest").average_precision
    for row in chosen(data, "groups", model="cells"):
        own = np.array([attributes[case]["sex"] == row["group"] for case in maps.case_id])
        assert row["average_precision"] == pytest.approx(scores[own].mean(), abs=1e-9)


def test_a_dataset_has_its_own_warnings_and_its_tables_are_narrow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the second dataset names no patients, and has maps that are degenerate."""
    run, attributes = make(tmp_path), people()
    other = rows(lambda _: 0.5, attributes)
    for row in other:
        row.patient_id = None
    pairs = [row for row in other if row.saliency is not None]
    for row in pairs[:3]:
        row.saliency = np.full_like(row.saliency, np.nan)
    with RunDirectory(run) as made:
        made.begin({})
        add_cell(made, "kad", "two", other)
    given = [word for name in ("one", "two") for word in ("--attributes", f"{name}={tmp_path / 'who.csv'}")]
    said = study(capsys, "subgroups", run, *QUICK, *given)
    first, second = said.split("Groups: The two")
    whole, first = first.split("Groups: The one")
    assert ["no patient IDs" in part for part in (whole, first, second)] == [True, False, True]
    assert max(len(line) for line in said.splitlines() if set(line) == {"\u2500"}) < 160
    assert f"kad on two: 3 of {len(pairs)} pairs have a degenerate map, which scores as a constant one." in said
    assert "kad on one: " not in said


def test_what_divides_nothing_is_counted(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(capsys, "subgroups", world, *QUICK, "--attributes", world.parent / "who.csv", "--quiet")
    told = answer(world, "subgroups")["facts"]
    assert "one: site has one value, known of 240 of 240 cases: no groups to compare" in told
    assert any(
        line.startswith("one: code has 240 values, more than 20, known of 240 of 240 cases: join") for line in told
    )
    assert any(line.startswith("one: who.csv is searched for case ids alone. The run's configuration") for line in told)
    assert any("ages in who.csv are not between 0 and 120 years" in line for line in told)
    assert any(line.startswith("plain on one has no average precision: ") for line in told)


def test_attributes_stay_in_their_tables(
    world: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        study(capsys, "subgroups", world, *QUICK, "--attributes", world.parent / "who.csv", "--quiet")
    assert CANARY not in caplog.text
    for file in world.rglob("*"):
        assert CANARY not in file.name and not (file.is_file() and CANARY.encode() in file.read_bytes()), file


def table(folder: Path, text: str) -> Path:
    (folder / "table.csv").write_text(text)
    return folder / "table.csv"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "no attributes, because it cannot be read. The run's configuration does not say where"),
        (("--attributes", "nowhere.csv"), "The table nowhere.csv of --attributes does not exist"),
        (("--attributes", "on=TABLE"), "there are no results of 'on': did you mean 'one'?"),
        (("--attributes", "TABLE", "--attributes", "one=TABLE"), "gives the dataset 'one' two tables"),
        (("--attributes", "TABLE", "--by", "seks"), "No case has an attribute 'seks': did you mean 'sex'?"),
        (("--attributes", "BAD"), "row 3: the value in the column 'age' is not a number of years"),
        (("--attributes", "OTHER"), "names none of the 240 cases, the first of which is 'c0'"),
    ],
)
def test_mistakes_are_sentences(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "TABLE").write_text("case,sex\nc0,F\nc1,M\n")
    (tmp_path / "BAD").write_text("case,age\nc0,4\nc1,four\n")
    (tmp_path / "OTHER").write_text("case,sex\nx,F\n")
    words = [re.sub("TABLE|BAD|OTHER", lambda name: str(tmp_path / name[0]), text) for text in given]
    usage = sentence.startswith(("The table nowhere", "there are no", "gives the", "No case has"))
    said = study(capsys, "subgroups", world, *words, "--out", tmp_path / "out", code=2 if usage else 1)
    assert sentence in said and len(said.strip().splitlines()) == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("known", [1, 9, 12])
def test_few_cases_are_counted(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], known: int) -> None:
    """A group of one patient, or of fewer than a test needs, beside one of unknown and one of another value."""
    maps = load_maps(load_run(world), "kad", "one")
    with_pairs = dict.fromkeys(case for case in maps.case_id if int(case[1:]) < PATIENTS)
    women = [case for case in with_pairs if people()[case]["sex"] == "F"]
    others = [case for case in with_pairs if case not in women[:known]][:80]
    silent = [case for case in people() if case not in maps.case_id and int(case[1:]) < PATIENTS]
    mine = women[:known] + (silent[:12] if known == 9 else [])  # these have scores, but no region
    text = "case,ward\n" + "".join(f"{case},a\n" for case in mine) + "".join(f"{c},b\n" for c in others)
    given = ("--attributes", table(tmp_path, text), "--out", tmp_path / "out")
    study(capsys, "subgroups", world, *QUICK, *given)
    data = json.loads((tmp_path / "out/subgroups.json").read_text())
    (row,) = chosen(data, "groups", model="kad", group="a")
    assert (row["images"], row["patients"]) == (len(mine), known) and (row["pointing"] is None) == (known < 10)
    few, *tested = chosen(data, "gaps", model="kad", measure="pointing")
    assert few["gap_p"] is few["standardised_p_holm"] is few["verdict"] is None and not few["tested"]
    assert (few["first"], few["patients_first"], few["gap"] is None) == ("a", known, known < 10)
    assert (few["mantel_haenszel"] is few["cmh_p"] is None) == (known < 10)
    aucs = chosen(data, "gaps", model="kad", measure="auc", first="a")
    assert (len(aucs) == 1 and aucs[0]["gap_p"] is not None) == (known == 9), "of 21 patients with images"
    (summary, _) = data["summary"]
    assert (summary["tested"], summary["not_tested"], len(tested)) == (2, 1, 2)
    largest = max(tested, key=lambda gap: abs(gap["standardised"]))
    assert summary["standardised"] == largest["standardised"]
    assert known < 10 or abs(few["standardised"]) > abs(largest["standardised"]), "a large gap, but not tested"


def test_ages_are_in_their_groups() -> None:
    ages = {"0": 0.0, "17": 17.99, "18": 18.0, "39": 39.0, "40": 40.0, "59": 59.9, "60": 60.0, "79": 79.0, "80": 80.0}
    described = CaseAttributes(tuple({"age": age} for age in ages.values()), "test")
    ((division,), told) = groupings(described, tuple(ages))
    assert division.names == ("under 18", "18-39", "40-59", "60-79", "80 and over") and not told
    assert division.members(tuple(ages)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_the_table_of_the_configuration(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    table(tmp_path, "case,sex\n" + "".join(f"c{n},{'FM'[n % 2]}\n" for n in range(CASES)))
    text = '[datasets.one]\nroot = "data"\nreader = "coco"\nattributes = "table.csv"\n'
    (tmp_path / "mine.toml").write_text(text)
    given = ("--config", tmp_path / "mine.toml", "--out", tmp_path / "out", "--quiet")
    study(capsys, "subgroups", world, *QUICK, *given)
    data = json.loads((tmp_path / "out/subgroups.json").read_text())
    assert [row["images"] for row in chosen(data, "groups", model="kad")] == [120, 120]
    assert data["facts"][0] == "attributes: The one: table.csv"
    option = ("--data", f"one={tmp_path / 'data'}", "--data-option", f"one.attributes={tmp_path / 'table.csv'}")
    study(capsys, "subgroups", world, *QUICK, *option, "--out", tmp_path / "again", "--quiet")
    assert (tmp_path / "again/gaps.csv").read_bytes() == (tmp_path / "out/gaps.csv").read_bytes()


def test_attributes_of_the_dataset_where_it_is_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder alone is enough: the reader and its options are those of the run."""
    entry = {"root": str(tmp_path / "gone"), "reader": "coco", "options": {"title": "one"}}
    run = make(tmp_path, datasets={"one": entry})
    images = [{"id": f"c{n}", "file_name": f"image{n}.png"} for n in range(CASES)]
    document = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "Mass"}]}
    (tmp_path / "here/images").mkdir(parents=True)
    (tmp_path / "here/annotations.json").write_text(json.dumps(document))
    said = study(capsys, "subgroups", run, *QUICK, "--attributes", tmp_path / "who.csv")
    assert "who.csv is searched for case ids alone. The folder" in said
    here = ("--data", f"one={tmp_path / 'here'}")
    told = study(capsys, "subgroups", run, *here, code=1)
    assert "has no results on cases with attributes: one: its files have no attributes" in told
    assert told.count("no attributes") == 1 and "; give a table with --attributes one=FILE." in told
    names = "image,sex\n" + "".join(f"image{n}.png,{'FM'[n % 2]}\n" for n in range(CASES))
    (tmp_path / "names.csv").write_text(names)
    (tmp_path / "mine.toml").write_text('[datasets.one]\nroot = "here"\nattributes = "names.csv"\n')
    for given in ((*here, "--attributes", tmp_path / "names.csv"), ("--config", tmp_path / "mine.toml")):
        study(capsys, "subgroups", run, *QUICK, *given, "--by", "sex", "--quiet", "--out", tmp_path / "out")
        data = json.loads((tmp_path / "out/subgroups.json").read_text())
        assert sum(row["images"] for row in chosen(data, "groups", model="kad")) == CASES
        (tmp_path / "out/subgroups.json").unlink()
