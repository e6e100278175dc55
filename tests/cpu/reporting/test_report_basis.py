"""What may stand beside what in a report, tried from the command line: the truth, the protocol, the rows beside."""

from __future__ import annotations

import json

import pytest
import xbench_fast as xb
from basis_world import Desk, desk

pytestmark = pytest.mark.usefixtures("empty_drawings")

__all__ = ["desk"]


def test_models_that_saw_other_boxes_have_no_difference(desk: Desk) -> None:
    """The boxes move, keeping their size, and one of two models is evaluated again."""
    desk.eval("good", "poor")
    desk.report()
    before = next(row for row in desk.csv("differences.csv") if row["number"] == "pointing")
    assert int(before["shared"]) > 15 and before["left_out"] == "0" and before["p"]
    desk.move_boxes()
    desk.eval("good")
    text = desk.report()
    assert not desk.csv("differences.csv"), "neither a difference nor a p value"
    assert f"as the two models were evaluated with different regions: {before['shared']} of maps:good and" in text
    assert "maps:good and maps:poor share no pairs on lungs: no difference can be given" in text
    table = text.split("## ")[1]
    assert "not ranked, where they have others: maps:" in table and "| **" not in table
    assert xb.load_run(desk.run).table("differences", replicates=0).empty


def test_runs_are_compared_without_pairs_whose_region_changed(desk: Desk) -> None:
    desk.eval("good")
    before, boxes = desk.run.rename(desk.folder / "before"), desk.annotations
    boxes["annotations"][0]["bbox"][0] += 6
    (desk.data / "annotations.json").write_text(json.dumps(boxes))
    desk.eval("good")
    pairs = xb.load_run(desk.run).table("grounding", replicates=0).n.iloc[0]
    said = desk.command("compare", before, desk.run, "--json", desk.folder / "c.json", "--replicates", 40)
    (cell,) = json.loads((desk.folder / "c.json").read_text())["cells"]
    assert cell["pairs"] == pairs - 1 and len(cell["region_changes"]) == 1
    assert "another region: left out of the pairs" in said
    assert {change["change"] for change in cell["changes"]} == {0}
    frame = xb.compare(before, desk.run, replicates=0).table()
    assert set(frame[(frame.metric == "pointing") & (frame.finding == "")].n) == {pairs - 1}


def test_results_of_two_protocols_stand_in_blocks(desk: Desk) -> None:
    """good by medklip and poor by default on one dataset, both by default on another."""
    desk.eval("good", "poor")
    desk.eval("good", "poor", dataset="chest")
    whole = desk.report()
    assert "protocol default" not in whole and not desk.json["other_protocols"]
    desk.eval("good", protocol="medklip")
    text = desk.report()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert "## Table 1: grounding, protocol default" in titles
    assert "## Table 1: grounding, protocol medklip" in titles
    blocks = {part.splitlines()[0]: part for part in text.split("\n## ")}
    alone = blocks["Table 1: grounding, protocol medklip"]
    assert "| maps:poor" not in alone and "| **" not in alone, "one model, so none is the best"
    assert "protocol medklip only: what was evaluated by default stands apart, because numbers of different" in alone
    assert not any("Differences" in title and "medklip" in title for title in titles)
    assert "Differences between models: lungs, protocol default" not in blocks, "poor is alone there"
    assert {(row["dataset"], row["first"]) for row in desk.csv("differences.csv")} == {("chest", "maps:good")}

    tables = {name: desk.csv(name) for name in ("table1.csv", "table1-medklip.csv")}
    assert {(row["model"], row["dataset"], row["n"] != "") for row in tables["table1-medklip.csv"]} == {
        ("maps:good", "lungs", True)
    }
    left = next(r for r in tables["table1.csv"] if (r["model"], r["dataset"]) == ("maps:good", "lungs"))
    assert left["n"] == "" and left["remark"] == "evaluated by protocol medklip, which has a table of its own"
    data = desk.json
    (other,) = data["other_protocols"]
    assert (other["protocol"], set(other["models"])) == ("medklip", {"maps:good"})
    cells = {(cell["model"], cell["dataset"], cell["protocol"]): cell for cell in data["cells"]}
    assert cells["maps:good", "lungs", "medklip"]["grounding"]["macro"]["pointing"] is not None
    for models in (other["models"], data["models"]):
        assert models["maps:good"]["mean_of_datasets"]["pointing"] is None, "of one of two datasets"
    assert data["models"]["maps:poor"]["mean_of_datasets"]["pointing"] is not None
    assert data["models"]["maps:good"]["protocol"] == "default"
    assert len({cell["basis"]["pairs"] for cell in data["cells"]}) == 1, "the same images and regions"

    frame = xb.load_run(desk.run).table("grounding", replicates=0)
    means = frame[(frame.metric == "pointing") & (frame.dataset == "")]
    assert set(means.protocol) == {"default"}
    assert set(frame[frame.dataset == "lungs"].groupby("model").protocol.first().items()) == {
        ("maps:good", "medklip"),
        ("maps:poor", "default"),
    }
    desk.report("--protocol", "default")
    assert not (desk.run / "report" / "table1-medklip.csv").exists(), "of the report before"


def test_what_subtracts_results_of_two_protocols_is_refused(desk: Desk) -> None:
    desk.eval("good", "poor")
    desk.eval("good", protocol="paper")
    for study in ("prompts", "resolution", "mechanisms"):
        said = desk.command("study", study, desk.run, code=1)
        assert "was evaluated by protocol 'paper'" in said or "by 'paper'" in said, study
        assert "choose cells of one protocol with --model and --dataset" in said
    said = desk.command("compare", desk.run, "--model", "maps:good", "--model", "maps:poor", code=1)
    assert "cannot be compared" in said


def test_a_study_of_two_protocols_is_made_of_each(desk: Desk) -> None:
    """good by medklip and poor by default on one dataset, both by default on another."""
    desk.eval("good", "poor")
    desk.eval("good", "poor", dataset="chest")
    desk.eval("good", protocol="medklip")
    studies, quick = desk.run / "studies", ("--replicates", 40)
    for study, rows in (("thresholds", "sensitivity"), ("strata", "strata"), ("calibration", "cells")):
        said = desk.command("study", study, desk.run, *quick)
        first, other = (json.loads((studies / f / f"{study}.json").read_text()) for f in (study, f"{study}-medklip"))
        assert (first["title"][-16:], other["title"][-16:]) == ("protocol default", "protocol medklip")
        assert (first["settings"]["protocol"], other["settings"]["protocol"]) == ("default", "medklip")
        for found, others in ((first, "medklip"), (other, "default")):
            assert any(f"what was evaluated by {others} stands apart" in fact for fact in found["facts"])
            assert "maps:good has no mean over datasets: it has 1 of 2 datasets." in found["facts"]
        assert {(row["model"], row["dataset"]) for row in other[rows]} == {("maps:good", "lungs")}
        means = ("mean", "mean of datasets")
        cells = {(r["model"], r["dataset"]) for r in first[rows] if r["dataset"] not in means}
        assert cells == {("maps:good", "chest"), ("maps:poor", "lungs"), ("maps:poor", "chest")}
        assert {row["model"] for row in first[rows] if row["dataset"] in means} <= {"maps:poor"}, study
        assert said.count("written: ") == 2 and str(studies / f"{study}-medklip") in said.replace("\n", "")
    assert not (studies / "strata-medklip" / "strata.png").exists(), "a model without a mean is not drawn"
    desk.command("study", "failures", desk.run, *quick, "--out", desk.folder / "mine")
    apart = [json.loads((desk.folder / f / "failures.json").read_text()) for f in ("mine", "mine-medklip")]
    assert [{row["model"] for row in part["classes"]} for part in apart] == [{"maps:good", "maps:poor"}, {"maps:good"}]
    notes = desk.folder / "mine-medklip" / "notes.txt"
    notes.write_text("my own")
    desk.command("study", "failures", desk.run, *quick, "--out", desk.folder / "mine", "--dataset", "chest")
    assert [path.name for path in notes.parent.rglob("*")] == ["notes.txt"], "what is not its own"
    desk.command("study", "strata", desk.run, *quick, "--model", "maps:poor", "--quiet")
    alone = json.loads((studies / "strata" / "strata.json").read_text())
    assert "protocol" not in alone["settings"] and not (studies / "strata-medklip").exists()


def test_a_mean_of_changes_is_of_one_protocol(desk: Desk) -> None:
    desk.eval("good", "poor")
    desk.eval("good", "poor", dataset="chest", protocol="medklip")
    both = ("maps:good", "maps:poor")
    frame = xb.compare(desk.run, models=both, replicates=0).table()
    assert set(frame.protocol) == {"default", "medklip"} and not (frame.dataset == "").any()
    desk.eval("good", "poor", dataset="other")
    frame = xb.compare(desk.run, models=both, replicates=0).table()
    means = frame[frame.dataset == ""]
    assert set(means.protocol) == {"default"} and set(means.n) == {2}


def test_a_reference_row_rests_on_the_pairs_of_the_models(desk: Desk) -> None:
    desk.eval("good", limit=20)
    desk.eval("baseline:center", "baseline:ones")
    text = desk.report()
    cells = {cell["model"]: cell for cell in desk.json["cells"]}
    assert len({(cell["n"], cell["basis"]["pairs"]) for cell in cells.values()}) == 1
    assert cells["baseline:ones"]["grounding"]["macro"]["chance"] == cells["maps:good"]["grounding"]["macro"]["chance"]
    n, every = cells["maps:good"]["n"], cells["baseline:ones"]["n"] + cells["baseline:ones"]["left_out"]
    assert n < every and f"baseline:ones on lungs: on {n} of its {every} pairs, those of the models" in text
    desk.eval("baseline:ones")
    assert desk.report().count("| baseline:center") == text.count("| baseline:center")


def test_a_study_has_the_reference_rows_of_the_report(desk: Desk) -> None:
    """The values of a baseline in a study are those of the report beside the same models."""
    desk.eval("good", limit=20)
    desk.eval("baseline:center", "baseline:ones")
    desk.report()
    cells = {cell["model"]: cell for cell in desk.json["cells"]}
    said = desk.command("study", "thresholds", desk.run, "--replicates", 40)
    center = cells["baseline:center"]
    assert f"on {center['n']} of its {center['n'] + center['left_out']} pairs, those of the models" in said
    rows = json.loads((desk.run / "studies/thresholds/thresholds.json").read_text())["sensitivity"]
    means = {row["model"]: (row["n"], row["dice_best"]) for row in rows if row["class"] == "mean"}
    assert means == {
        name: (cell["n"], pytest.approx(cell["grounding"]["macro"]["dice_best"])) for name, cell in cells.items()
    }
    whole = desk.command("study", "thresholds", desk.run, "--model", "baseline:center", "--replicates", 40)
    assert "those of the models" not in whole
    desk.move_boxes()
    desk.eval("good")
    said = desk.command("study", "thresholds", desk.run, "--replicates", 40)
    assert "baseline:center on lungs: left out: it does not have all pairs, with the same regions" in said
    rows = json.loads((desk.run / "studies/thresholds/thresholds.json").read_text())["sensitivity"]
    assert {row["model"] for row in rows} == {"maps:good"}


def test_a_reference_row_of_other_pairs_is_left_out(desk: Desk) -> None:
    """Of a part of the dataset, then of other boxes."""
    desk.eval("good")
    desk.eval("baseline:center", limit=20)
    for _ in range(2):
        text = desk.report()
        tables, coverage = text.split("## Coverage")
        assert "| baseline:center" not in tables and "| maps:good" in tables
        assert "baseline:center: left out: it does not have all pairs, with the same regions, that the models" in tables
        line = next(line for line in coverage.splitlines() if line.startswith("| baseline:center"))
        assert "left out: it does not have all pairs" in line
        assert {row["model"] for row in desk.csv("coverage.csv")} == {"maps:good", "baseline:center"}
        frame = xb.load_run(desk.run).table("coverage", replicates=0)
        assert set(frame.model) == {"maps:good", "baseline:center"}
        desk.eval("good", "baseline:center")
        desk.report()
        assert "| baseline:center" in (desk.run / "report" / "tables.md").read_text().split("## Coverage")[0]
        desk.move_boxes()
        desk.eval("baseline:center")


def pairs_of(desk: Desk) -> dict[tuple[str, str], int]:
    desk.report()
    return {(cell["model"], cell["dataset"]): cell["n"] for cell in desk.json["cells"]}


def test_a_baseline_is_cut_only_to_models_of_its_dataset_and_protocol(desk: Desk) -> None:
    desk.eval("baseline:ones")
    whole = pairs_of(desk)["baseline:ones", "lungs"]
    desk.eval("good", dataset="chest", limit=20)
    assert pairs_of(desk)["baseline:ones", "lungs"] == whole
    desk.eval("poor", protocol="medklip", limit=20)
    desk.report()
    assert {cell["model"]: cell["n"] for cell in desk.json["cells"]}["baseline:ones"] == whole


def test_a_baseline_beside_models_of_other_pairs(desk: Desk) -> None:
    """It is cut to the pairs of most models; those of a model without pairs do not count."""
    boxes = desk.annotations
    (desk.data / "annotations.json").write_text(json.dumps({**boxes, "annotations": []}))
    desk.eval("poor")
    (desk.data / "annotations.json").write_text(json.dumps(boxes))
    desk.eval("good", limit=20)
    desk.eval("baseline:ones")
    few = pairs_of(desk)
    assert few["baseline:ones", "lungs"] == few["maps:good", "lungs"] > 0 == few["maps:poor", "lungs"]
    desk.eval("poor", limit=30)
    one_each = pairs_of(desk)
    assert one_each["baseline:ones", "lungs"] > one_each["maps:poor", "lungs"] > one_each["maps:good", "lungs"]
    (desk.folder / "third").symlink_to(desk.folder / "good")
    desk.eval("third", limit=20)
    most = pairs_of(desk)
    assert most["baseline:ones", "lungs"] == most["maps:third", "lungs"] == most["maps:good", "lungs"]


def test_a_baseline_alone_keeps_its_pairs(desk: Desk) -> None:
    desk.eval("baseline:center", limit=20)
    desk.eval("baseline:ones")
    desk.report()
    assert len({cell["n"] for cell in desk.json["cells"]}) == 2
