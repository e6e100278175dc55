"""`report --card` and `--trust`: files, mistakes, and what a report without cards reads."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xbench_fast as xb
from card_world import DATASET, MODEL, OPTIONS, cards, change, changed, command, make_card_world
from synthetic import make_bundle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return make_card_world(folder)


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run and the trust directory, to be changed."""
    for name in ("run", "trust"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "trust-x is no trust directory: it holds no trust.json"),
        (lambda folder: folder.mkdir(), "trust-x is no trust directory: it holds no trust.json"),
        (lambda folder: (folder.mkdir(), (folder / "trust.json").write_text("{")), "trust-x/trust.json cannot be read"),
        (lambda folder: (folder.mkdir(), (folder / "trust.json").write_text("[]")), "trust-x/trust.json is damaged"),
        (
            lambda folder: (shutil.copytree("trust", folder), _lacking(folder)),
            "trust-x/trust.json does not have what this version reads (KeyError('questions'))",
        ),
    ],
)
def test_a_folder_that_is_none_is_named(world: Path, capsys: pytest.CaptureFixture[str], make: Any, words: str) -> None:
    make(Path("trust-x"))
    command("report", "run", "--trust", "trust-x", "--quiet", status=1)
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said and not Path("run/report").exists()


def _lacking(folder: Path) -> None:
    def drop(data: dict[str, Any]) -> None:
        del data["cells"][f"{MODEL}--{DATASET}--stability"]["questions"]

    change(folder, drop)


def test_a_card_needs_intervals(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("report", "run", "--card", "--replicates", 0, status=2)
    assert "A trust card needs intervals, and --replicates is 0; give 40 or more." in capsys.readouterr().err


def test_the_report_says_what_is_not_on_a_card(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(world / "trust", world / "other", ingredients={"bundle": "ab" * 32})
    command("report", "run", "--trust", "other", "--no-page", "--replicates", 40)
    said = capsys.readouterr()
    line = next(each for each in said.err.splitlines() if "not on the card" in each)
    assert line.startswith("blocks-32 on coco, stability, repeat: not on the card: results of another bundle")
    assert said.err.count("not on the card") == 1 and "Holds still" in said.out


def test_a_report_without_cards_reads_no_code_of_them(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command("report", "run", "--card", "--no-page", "--quiet", "--replicates", 40)
    (world / "run/report/cards/kept.txt").write_text("mine")
    assert sorted(path.name for path in (world / "run/report/cards").iterdir()) == [
        "baseline_center--coco.json",
        "blocks-32--coco.json",
        "kept.txt",
    ]
    told = json.loads((world / "run/report/report.json").read_text())
    assert [card["model"] for card in told["cards"]] == [MODEL, "baseline:center"]
    assert "| blocks-32 | coco | 7 | Holds still |" in (world / "run/report/tables.md").read_text()
    assert (world / "run/report/latex/cards.tex").is_file()
    for room in ("trust", "reporting.studies"):
        for name in [name for name in sys.modules if name.startswith(f"xbench_fast.runtime.{room}")]:
            monkeypatch.setitem(sys.modules, name, None)
    command("report", "run", "--no-page", "--quiet", "--replicates", 40)
    assert [path.name for path in (world / "run/report/cards").iterdir()] == ["kept.txt"]
    assert "cards" not in json.loads((world / "run/report/report.json").read_text())
    assert not (world / "run/report/latex/cards.tex").exists()


def test_cards_are_a_data_frame_too(world: Path) -> None:
    run = xb.load_run(world / "run")
    found = run.table("cards", trust="trust", replicates=40)
    cells = cards(world, world / "trust", replicates=40)
    assert [(row.model, row.line) for row in found.drop_duplicates(["model", "line"]).itertuples()] == [
        (model, line) for model in cells for line in range(1, 10)
    ]
    for model, card in cells.items():
        for line in card.lines:
            rows = found[(found.model == model) & (found.line == line.number)]
            assert set(rows.verdict) == {line.word} and set(rows.question) == {line.question}
            assert set(rows.why) == {line.why} and set(rows.protocol) == {"default"}
            if not line.numbers:
                assert rows.metric.tolist() == [""] and rows.value.isna().all() and rows.n.tolist() == [0]
                continue
            names = ("value", "low", "high", "p", "p_holm")
            for row, item in zip(rows.to_dict("records"), line.numbers, strict=True):
                numbers = [getattr(item, name) for name in names]
                assert [None if np.isnan(row[name]) else row[name] for name in names] == numbers
                assert (row["metric"], row["what"], row["word"] or None) == (item.label, item.what, item.word)
                assert (row["n"], row["patients"], row["family"]) == (item.pairs, item.patients, item.family or 0)
    assert len(found[(found.line == 7) & (found.word == "pass")]) == 1
    assert (run.table("cards", replicates=40).query("line == 7 and model == @MODEL").verdict == "not run").all()
    with pytest.raises(xb.XBenchError, match="'grounding' has nothing of trust directories"):
        run.table(trust="trust")
    with pytest.raises(xb.XBenchError, match="needs intervals"):
        run.table("cards", replicates=0)


def test_the_pairs_that_a_report_leaves_are_those_of_its_cards(world: Path) -> None:
    def card(*options: object) -> dict[str, Any]:
        command("report", "run", "--card", "--no-page", "--quiet", "--replicates", 40, *options)
        found: dict[str, Any] = json.loads((world / f"run/report/cards/{MODEL}--{DATASET}.json").read_text())
        return found

    whole, left = card(), card("--pairs", "true_positives")
    run = json.loads((world / "run/run.json").read_text())["cells"][f"{MODEL}--{DATASET}"]
    pairs = [row for row in pq.read_table(world / "run" / run["file"]).to_pylist() if row["area"] is not None]
    counts = len(pairs), sum(row["logit"] >= 0 for row in pairs)
    assert (int(whole["head"]["pairs"]), int(left["head"]["pairs"])) == counts and 0 < counts[1] < counts[0]
    for told, count in zip((whole, left), counts, strict=True):
        assert told["lines"][0]["numbers"][1]["pairs"] == count and f"{count} pairs of" in told["lines"][8]["finding"]
    said = "made with --pairs true_positives; what trust directories hold, and the commands named on the lines, rest on"
    assert left["facts"][0] == f"{said} all pairs" and not any("made with" in fact for fact in whole["facts"])


def test_a_bundle_is_known_by_its_hash_and_printed_names_are_used(made: Path, world: Path) -> None:
    """The trust directory names the bundle's folder, the report the printed name."""
    command("report", "run", "--trust", "trust", "--name", f"{MODEL}=Ours", "--name", f"{DATASET}=Set", "--no-page",
            "--quiet", "--replicates", 40, "--model", MODEL)  # fmt: skip
    (card,) = json.loads((world / "run/report/report.json").read_text())["cards"]
    assert (card["model"], card["title"], card["lines"][6]["verdict"]) == ("Ours", "Set", "pass")
    assert MODEL in card["lines"][3]["command"], "the command needs the bundle's own name"
    shutil.copytree(made / "data", world / "data")
    make_bundle(world / "models" / "renamed")
    command("trust", "--model", "renamed", *OPTIONS, "--out", "again", "--probe", "stability")
    assert cards(world, world / "again")[MODEL].lines[6].word == "pass"
