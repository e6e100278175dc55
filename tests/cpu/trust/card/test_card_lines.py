"""The lines of a trust card: whose numbers they are, and what their words are."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from card_world import DATASET, MODEL, card_of, cards, command, make_card_world, say
from stored_counts import add_cell, random_rows
from xbench_fast.runtime.cli.trust_command import trust as trust_command
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling
from xbench_fast.runtime.results.studied import write_study
from xbench_fast.runtime.trust.card.card import WORDS
from xbench_fast.runtime.trust.card.words import CLAIMS
from xbench_fast.runtime.trust.questions.trust_study import study_trust


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cards")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return make_card_world(folder)


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def record(trust: Path, probe: str) -> list[dict[str, Any]]:
    cell = json.loads((trust / "trust.json").read_text())["cells"][f"{MODEL}--{DATASET}--{probe}"]
    return cast(list[dict[str, Any]], cell["questions"])


def test_lines_1_to_3_are_those_of_the_study_of_trust(world: Path) -> None:
    card = card_of(world)
    rows = study_trust(load_material(world / "run", sampling=Resampling(40))).data["verdicts"]
    for line, baseline in zip(card["lines"], ("chance", "prior", "other_finding"), strict=False):
        (row,) = [row for row in rows if (row["model"], row["baseline"]) == (MODEL, baseline)]
        number = line["numbers"][0]
        assert line["verdict"] == number["word"] == row["verdict"]
        assert [number[name] for name in ("value", "low", "high")] == [
            row[f"difference{end}"] for end in ("", "_low", "_high")
        ]
        assert all(number[name] == row[name] for name in ("p", "p_holm", "p_bound", "family", "pairs", "patients"))
        assert (
            number["criterion"] == "above 0 by more than 0.01" and sum(number["left_out"].values()) == row["left_out"]
        )
    assert card["lines"][0]["numbers"][1]["what"] == "pointing"
    assert card["lines"][2]["told"] == f"cannot tell ({card['lines'][2]['numbers'][0]['patients']} patients)"
    assert "those with a region in the same image" in card["lines"][2]["notes"][0]


def test_lines_4_to_7_are_those_of_the_trust_directory(world: Path) -> None:
    say(world / "trust", "randomisation", ("pass", "pass", "pass"))
    say(world / "trust", "deletion", ("pass", "cannot tell", "pass", "pass"))
    say(world / "trust", "region", ("pass", "fail"))
    lines = card_of(world, world / "trust")["lines"]
    assert [line["verdict"] for line in lines[3:7]] == ["pass", "cannot tell", "fail", "pass"]
    for line, probe in zip(lines[3:7], ("randomisation", "deletion", "region", "stability"), strict=True):
        for number, told in zip(line["numbers"], record(world / "trust", probe), strict=True):
            names = ("value", "low", "high", "p", "p_holm", "family", "pairs", "patients", "criterion", "word")
            assert all(number[name] == told[name] for name in names) and number["what"] == told["text"]
        assert line["table"].startswith(str(world / "trust" / "trust.csv")) and line["command"] == ""
    assert "2 of 9 layers decide the score but not the map" in lines[3]["finding"]
    assert [number["unit"] for number in lines[3]["numbers"]] == ["similarity", "similarity", "ROC AUC"]
    worst = max(
        (told["flip"]["value"], change)
        for change, told in json.loads((world / "trust/trust.json").read_text())["cells"][
            f"{MODEL}--{DATASET}--stability"
        ]["facts"].items()
        if change not in ("flip", "change_correlation")
    )
    assert f"the worst is {worst[1]}, which changes {worst[0]:.1%} of the hits" in lines[6]["finding"]
    assert "repeat: the same image gave the same bits twice" in lines[6]["notes"]
    assert lines[4]["told"] == f"cannot tell ({lines[4]['numbers'][0]['patients']} patients)"


def test_without_a_trust_directory_lines_4_to_7_name_the_command(world: Path) -> None:
    lines = card_of(world)["lines"]
    for line, probe in zip(lines[3:7], ("randomisation", "deletion", "region", "stability"), strict=True):
        assert (line["verdict"], line["numbers"], line["table"]) == ("not run", [], "")
        assert line["why"] == f"no trust directory has the probe {probe}"
    (words,) = {line["command"] for line in lines[3:7]}  # one command, so that its tests are one family
    program, name, *arguments = shlex.split(words)
    found = trust_command.make_context(name, arguments).params
    assert (program, found["models"], found["datasets"], found["out"]) == (
        "xbench-fast",
        (MODEL,),
        (DATASET,),
        Path("trust"),
    )
    assert {"randomisation", "deletion", "region", "stability"} <= set(found["probe_names"])
    assert found["data"] == (
        f"coco={json.loads((world / 'run/run.json').read_text())['config']['datasets']['coco']['root']}",
    )
    assert lines[7]["verdict"] == "not run" and "no table has any" in lines[7]["why"]
    assert lines[7]["command"] == f"xbench-fast study subgroups {world / 'run'} --attributes coco=FILE"


def test_only_missing_probes_are_in_the_command(world: Path) -> None:
    lines = card_of(world, world / "trust")["lines"]
    assert "--probe stability" not in lines[3]["command"] and "--probe deletion" in lines[3]["command"]
    assert lines[3]["command"].endswith(f"--out {world / 'trust'}")


def test_line_3_takes_the_probe_of_all_findings_where_there_is_one(world: Path) -> None:
    stored = card_of(world)["lines"][2]
    say(world / "trust", "prompts", ("fail",), low=-0.3, value=-0.2, high=-0.1)
    line = card_of(world, world / "trust")["lines"][2]
    assert (stored["verdict"], line["verdict"]) == ("cannot tell", "fail") and line["command"] == ""
    own, beside = line["numbers"]
    assert own["what"] == "text of prompts_average_precision" and own["word"] == "fail" and beside["word"] is None
    assert beside["what"].endswith("by stored maps: cannot tell") and beside["value"] == stored["numbers"][0]["value"]
    assert "absent ones too" in line["finding"]


def test_line_9_lists_what_the_studies_of_strata_and_failures_have(world: Path) -> None:
    card = card_of(world)
    line = card["lines"][8]
    assert (line["verdict"], line["told"]) == ("no verdict", "no verdict")
    command("study", "failures", "run", "--top", 1, "--quiet", "--no-overlays", "--replicates", 40)
    command("study", "strata", "run", "--quiet", "--replicates", 40)
    failures = json.loads(Path("run/studies/failures/failures.json").read_text())
    worst = next(row for row in failures["classes"] if row["model"] == MODEL)
    strata = json.loads(Path("run/studies/strata/strata.json").read_text())["strata"]
    first = next(row for row in strata if row["model"] == MODEL and row["division"] == "fixed" and row["n"])
    small, finding = line["numbers"]
    assert (finding["value"], finding["low"], finding["pairs"]) == (
        worst["pointing"],
        worst["pointing_low"],
        worst["n"],
    )
    assert (small["value"], small["high"], small["pairs"]) == (first["pointing"], first["pointing_high"], first["n"])
    cases = [row["case"] for row in failures["cases"] if row["model"] == MODEL and row["end"] == "worst"]
    assert len(cases) == 3 and [text.split(",")[0] for text in card["cases"]] == cases
    assert ", ".join(cases) in line["finding"]


def test_line_8_takes_the_study_in_the_run_directory_if_it_is_of_this_result(world: Path) -> None:
    # 20 patients of two images each: 10 in a group are too few to be tested, so that nothing can be told.
    rows = ["image,sex", *(f"case{case:04d},{'FM'[case // 2 % 2]}" for case in range(40))]
    (world / "table.csv").write_text("\n".join(rows) + "\n")
    command("study", "subgroups", "run", "--attributes", "table.csv", "--quiet", "--replicates", 40)
    line = card_of(world)["lines"][7]
    assert line["verdict"] == "cannot tell" and "0 gaps tested, 1 not tested" in line["why"]
    path = world / "run/studies/subgroups/subgroups.json"
    told = json.loads(path.read_text())
    row = told["summary"][0] | {"tested": 1, "not_tested": 2, "attribute": "sex", "first": "F", "second": "M",
                                "standardised": -0.2, "standardised_low": -0.3, "standardised_high": -0.1,
                                "standardised_p": 0.001, "standardised_p_holm": 0.002, "patients_first": 30,
                                "patients_second": 40, "verdict": "fail"}  # fmt: skip
    told["summary"][0] = row
    write_study(path, told)
    line = card_of(world)["lines"][7]
    assert line["verdict"] == "fail" and line["numbers"][0]["value"] == -0.2 and line["numbers"][0]["family"] == 1
    assert "1 gap tested, 2 not tested" in line["finding"] and line["table"] == f"{path.parent}/subgroups.md"
    assert cards(world, pairs="true_positives")[MODEL].lines[7].word != "fail", "a study of all pairs is not taken"
    told["results"] = [each | {"rows": "another"} for each in told["results"]]
    write_study(path, told)
    line = card_of(world)["lines"][7]
    assert line["verdict"] == "cannot tell" and "is of earlier results" in " ".join(line["notes"]), "it is made anew"


def test_a_baseline_has_what_needs_no_model(world: Path) -> None:
    card = cards(world)["baseline:center"].to_json
    lines = card["lines"]
    assert card["head"]["saliency"] == "not described"
    assert [line["verdict"] for line in lines[3:7]] == ["not applicable"] * 4
    assert all("a baseline is no model" in line["why"] and not line["command"] for line in lines[3:7])
    assert lines[2]["numbers"][0]["value"] == 0 and lines[2]["verdict"] in ("fail", "cannot tell")
    assert (lines[8]["verdict"], lines[8]["why"]) == ("not applicable", "a baseline ignores the image")


@pytest.mark.parametrize(("kind", "told"), [("constant", "void"), ("one patient", "cannot tell (1 patient)")])
def test_odd_maps_and_patients_are_counted(tmp_path: Path, kind: str, told: str) -> None:
    rows = random_rows(1)
    for row in rows:
        if kind == "one patient":
            row.patient_id = "p"
        elif row.area is not None:
            row.keep(np.frombuffer(row.region, np.uint8).reshape(224, 28), row.frame, np.ones((4, 4), np.float32))
            row.degenerate = True
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        add_cell(run, "odd", "data", rows, weights="stand-in")
    card = cards(tmp_path)["odd"].to_json
    pairs, first = card["head"]["pairs"], card["lines"][0]
    assert first["told"] == (f"void ({pairs} of {pairs} maps are degenerate)" if kind == "constant" else told)
    assert card["head"]["degenerate maps"] == (pairs if kind == "constant" else "2")
    assert card["stamps"][0].startswith("odd: stand-in weights")
    json.dumps(card, allow_nan=False)


def test_the_card_as_json_has_no_total(world: Path) -> None:
    card = card_of(world, world / "trust")
    text = json.dumps(card, allow_nan=False)
    assert [line["line"] for line in card["lines"]] == list(range(1, 10))
    assert {line["verdict"] for line in card["lines"]} <= set(WORDS)
    assert card["not_to_be_claimed"] == list(CLAIMS) and len(CLAIMS) == 6
    assert set(card) == {"schema", "model", "dataset", "title", "head", "stamps", "lines", "cases",
                         "not_to_be_claimed", "facts"}  # fmt: skip
    head = card["head"]
    assert head["use"] == "research use; not a medical device" and (head["pairs"], head["degenerate maps"]) == (
        "24",
        "0",
    )
    assert head["saliency"] == "attention, official: sums of pixel blocks" and len(head["bundle"]) == 64
    assert "NaN" not in text
