"""What a trust directory may not bring onto a card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from card_world import DATASET, MODEL, OPTIONS, change, changed, command, make_card_world
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.reporting.studies.material import Material, load_material
from xbench_fast.runtime.results.selected_pairs import Resampling
from xbench_fast.runtime.trust.card.card import CardLine
from xbench_fast.runtime.trust.card.probe_lines import probe_line
from xbench_fast.runtime.trust.card.trust_results import TrustResults


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return make_card_world(folder)


@pytest.fixture(scope="module")
def material(made: Path) -> Material:
    return load_material(made / "run", sampling=Resampling(10))


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    """A copy of the trust directory, to be changed."""
    shutil.copytree(made / "trust", tmp_path / "trust")
    return tmp_path


def stability(material: Material, *trust: Path) -> CardLine:
    """Line 7 of the bundle's card."""
    cell = next(cell for cell in material.cells if cell.model == MODEL)
    told = TrustResults(trust)
    line = probe_line("stability", cell, told.of_cell(cell, material.path / str(cell.rows.entry["file"])), "command")
    told.check_used([(cell.model, cell.dataset)])
    return line


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ({"ingredients": {"bundle": "ab" * 32}}, "another bundle (abababababab, and the run has "),
        ({"ingredients": {"prompt_set": "cd" * 32}}, "another prompt set (cdcdcdcdcdcd, and the run has "),
        ({"ingredients": {"dataset": [DATASET, "ef" * 32]}}, "another content of the dataset (efefefefefef, and "),
        (
            {"ingredients": {"dataset": [DATASET, "ef" * 32], "limit": 9}, "content": "ef" * 32},
            "other cases (--limit 9, and the run has no --limit)",
        ),
        ({"ingredients": {"findings": {"Mass": "Nodule"}}}, "findings that the run did not ask (Mass)"),
        ({"ingredients": {"engine": "numpy int8"}}, "another precision (int8, and the run has fp32)"),
    ],
)
def test_results_of_something_else_are_not_run(
    world: Path, material: Material, values: dict[str, Any], differs: str
) -> None:
    other = changed(world / "trust", world / "other", **values)
    line = stability(material, other)
    assert (line.word, line.numbers, line.command) == ("not run", (), "command")
    assert line.why.startswith(f"results of {differs}") and f"in {other / 'trust.json'}; run trust again" in line.why
    assert stability(material, world / "trust").word == "pass", "the control"


def test_another_engine_of_the_same_precision_is_noted(world: Path, material: Material) -> None:
    other = changed(world / "trust", world / "other", engine="tensorrt fp32", ingredients={"engine": "tensorrt fp32"})
    line = stability(material, other)
    assert line.word == "pass" and "computed by tensorrt fp32, and the run by numpy fp32" in line.notes


def test_some_findings_alone_are_taken_and_named(world: Path, material: Material) -> None:
    other = changed(world / "trust", world / "other")

    def fewer(data: dict[str, Any]) -> None:
        for entry in data["cells"].values():
            entry["ingredients"]["findings"] = {"Mass": "Mass"}

    line = stability(material, change(other, fewer))
    assert line.word == "pass" and line.finding.endswith("; asked of 1 of 2 findings: Mass.")
    assert "findings" not in stability(material, world / "trust").finding


def test_what_is_missing_is_run_where_it_replaces_nothing(world: Path, material: Material) -> None:
    (cell,) = (cell for cell in material.cells if cell.model == MODEL)
    trust, out = world / "trust", Path("trust")
    assert TrustResults([]).out_for(cell, out) == out and TrustResults([trust]).out_for(cell, out) == trust
    other = changed(trust, world / "other", ingredients={"bundle": "ab" * 32})
    assert TrustResults([other, trust]).out_for(cell, out) == trust
    (world / "other-2").mkdir()
    assert TrustResults([other]).out_for(cell, out) == world / "other-3"


def test_other_images_than_those_of_the_run_are_not_run(world: Path, material: Material) -> None:
    entry = json.loads((world / "trust/trust.json").read_text())["cells"][f"{MODEL}--{DATASET}--stability"]
    file = world / "trust" / entry["file"]
    table = pq.read_table(file)
    case, cases = table["case_id"][0].as_py(), table["case_id"].to_pylist()
    hashes = [
        b"x" * 16 if each == case else image for each, image in zip(cases, table["image_hash"].to_pylist(), strict=True)
    ]
    pq.write_table(table.set_column(table.schema.get_field_index("image_hash"), "image_hash", [hashes]), file)
    line = stability(material, world / "trust")
    assert line.word == "not run" and f"of other images in {world / 'trust/trust.json'} (1 of " in line.why
    assert f"such as {case}" in line.why
    file.unlink()
    line = stability(material, world / "trust")
    assert line.word == "not run" and f"its rows in {file} are missing or damaged" in line.why


@pytest.mark.parametrize("state", ["interrupted", "running"])
def test_an_unfinished_probe_is_not_run(world: Path, material: Material, state: str) -> None:
    line = stability(material, changed(world / "trust", world / "other", state=state))
    assert line.word == "not run" and f"({state}); run the same trust command again" in line.why


def test_a_probe_that_failed_says_why(world: Path, material: Material) -> None:
    def failed(data: dict[str, Any]) -> None:
        name = f"{MODEL}--{DATASET}--stability"
        kept = {key: data["cells"][name][key] for key in ("model", "dataset", "probe")}
        data["cells"][name] = kept | {"state": "failed", "reason": "no memory."}

    line = stability(material, change(world / "trust", failed))
    assert line.word == "not run" and line.why == "it failed: no memory"


def test_two_directories_that_answer_one_probe_are_refused(world: Path, material: Material) -> None:
    shutil.copytree(world / "trust", world / "second")
    with pytest.raises(
        ConfigError, match=r"trust and .*second both hold the probe (repeat|stability) of blocks-32 on coco"
    ):
        stability(material, world / "trust", world / "second")
    same = stability(material, world / "trust", world / "second" / ".." / "trust")
    assert same.word == "pass", "one directory given twice"
    other = changed(world / "trust", world / "other", ingredients={"bundle": "ab" * 32})
    assert stability(material, other, world / "trust").word == "pass", "the one that is of this bundle"


def test_a_directory_of_another_model_or_dataset_is_refused(world: Path, material: Material) -> None:
    other = changed(world / "trust", world / "other", dataset="rsna")
    with pytest.raises(ConfigError, match=r"other: it holds blocks-32 on rsna, and the report shows blocks-32 on coco"):
        stability(material, other)


def test_a_probe_of_the_first_cases_of_the_runs_own_dataset_stands(
    made: Path, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its images are the run's; the line says from how many cases they were drawn."""
    monkeypatch.chdir(made)
    command("trust", "--model", MODEL, *OPTIONS, "--out", tmp_path / "first", "--probe", "stability", "--limit", "30")
    line = stability(material, tmp_path / "first")
    assert line.word != "not run" and "drawn from the first 30 cases" in line.finding
    assert "drawn from" not in stability(material, made / "trust").finding
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "models", "models")
    shutil.copytree(made / "data", "data")
    annotations = json.loads(Path("data/annotations.json").read_text())
    annotations["annotations"][-1]["bbox"][2] += 1  # of a case beyond the limit
    Path("data/annotations.json").write_text(json.dumps(annotations))
    command("trust", "--model", MODEL, *OPTIONS, "--out", "other", "--probe", "stability", "--limit", "30")
    line = stability(material, tmp_path / "other")
    assert line.word == "not run" and line.why.startswith("results of other cases (--limit 30, and the run has no")


def test_beside_a_run_with_a_limit_only_the_same_limit_stands(made: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(made)
    command("eval", "--model", MODEL, *OPTIONS, "--out", tmp_path / "run", "--limit", "30")
    limited = load_material(tmp_path / "run", sampling=Resampling(10))
    for limit, word in ((30, True), (20, False), (None, False)):
        out = tmp_path / f"trust-{limit}"
        more = ("--limit", limit) if limit else ()
        command("trust", "--model", MODEL, *OPTIONS, "--out", out, "--probe", "stability", *more)
        line = stability(limited, out)
        assert (line.word != "not run") is word and "drawn from" not in line.finding
