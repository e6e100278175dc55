"""A probe that asks about all images before it changes one: what is kept, and what is computed again."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic import GRID, SIZE, BlockEngine, make_bundle, make_dataset
from trust_command import asked, entry, rows
from xbench_fast.engines.base import Scores
from xbench_fast.metrics_gpu.trust.reference_maps import prior_maps
from xbench_fast.runtime.cli import main

pytestmark = pytest.mark.usefixtures("empty_drawings")

DATA = "data/images/case{:04d}.png"


def contrast(self: BlockEngine, pixels: Any, text: Any) -> Scores:
    """The score is high where a block is brighter than the image, and low when everything is filled."""
    self.calls.append(len(pixels))
    side = SIZE // GRID
    blocks = pixels.reshape(len(pixels), 1, GRID, side, GRID, side).mean((3, 5)).astype(np.float32)
    maps = blocks * text[None, :, 0, None, None]
    above = blocks.max(axis=(2, 3)) - blocks.mean(axis=(2, 3))
    return Scores(np.repeat(above / 3 - 3, len(text), axis=1), maps)


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle and 20 images, of which 7 have a Mass and 5 an Effusion."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BlockEngine, "_run", contrast)
    make_bundle(tmp_path / "models" / "blocks-32")
    make_dataset(tmp_path / "data")
    return tmp_path


trust = partial(asked, "deletion")


def stopped(patch: pytest.MonkeyPatch, after: int) -> None:
    """Interrupts the run when the model has been asked about this many batches."""
    calls = 0

    def stopping(self: BlockEngine, pixels: Any, text: Any) -> Scores:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return contrast(self, pixels, text)

    with patch.context() as own:
        own.setattr(BlockEngine, "_run", stopping)
        trust(status=130)


def test_the_maps_of_all_pairs_come_first_and_their_passes_are_in_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    trust()
    found = rows().to_pylist()
    surveyed = [row for row in found if row["map"] is not None]
    assert found[:12] == surveyed and len(found) == 12 + 24 and all(row["fill"] is None for row in surveyed)
    # 4 steps of a 4 x 4 grid: 3 inner stages, twice, for own, prior and 3 random orders, under each of two fills.
    most = 10 * 1 + sum(1 + 2 * (1 + 6 * (2 * pairs + 3)) for pairs in [2] * 2 + [1] * 8)
    assert f"12 pairs of 10 images, at most {most} forward passes" in capsys.readouterr().out
    done = [row for row in found if row["own_deletion"] is not None]
    assert done and all(row["prior_deletion"] is not None for row in done)
    curves = sum(6 * 2 + 6 * 3 / sum(each["case_id"] == row["case_id"] and each["fill"] == row["fill"] for each in done)
                 for row in done)  # fmt: skip
    assert entry()["made"] == 10 + 3 * 10 + round(curves)
    maps = np.stack([np.frombuffer(row["map"], "<f4").reshape(GRID, GRID) for row in surveyed])
    ids = [[row[name] for row in surveyed] for name in ("finding", "patient_id")]
    assert prior_maps(maps, *(np.unique(each, return_inverse=True)[1] for each in ids))[1].all()


def test_an_interrupted_run_keeps_its_survey(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trust("--out", "whole")
    stopped(monkeypatch, 12)  # 5 batches of the survey, and 2 images
    parts = sorted(path.name for path in Path("trust/cells").glob("*.parts/*"))
    assert parts == ["000000.parquet", "000001.parquet"]
    capsys.readouterr()
    trust()
    assert rows().equals(rows("whole")) and entry()["made"] < entry("whole")["made"] - 10
    trust()
    assert "finished before, reused" in capsys.readouterr().out


def test_an_image_that_changes_changes_the_priors_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose own rows had not been computed."""
    stopped(monkeypatch, 12)
    picture = np.asarray(Image.open(DATA.format(18)))
    Image.fromarray(np.roll(picture[::-1], 9, axis=1)).save(DATA.format(18))
    trust()
    trust("--out", "whole")
    assert rows().equals(rows("whole")) and entry()["made"] == entry("whole")["made"]


def test_skipped_images_are_counted_once(world: Path) -> None:
    Path(DATA.format(4)).unlink()
    Path(DATA.format(6)).write_bytes(b"no image")
    trust()
    assert entry()["skipped"] == {"missing": 1, "unreadable": 1}


def test_the_pairs_a_verdict_leaves_out_are_in_the_csv() -> None:
    trust()
    with Path("trust/trust.csv").open() as stream:
        found = list(csv.DictReader(stream))
    assert [row["question"] for row in found] == [
        "deletion_mean",
        "insertion_mean",
        "deletion_blur16",
        "insertion_blur16",
    ]
    for row, record in zip(found, entry()["questions"], strict=True):
        assert int(row["left_out"]) == sum(record["left_out"].values())
        assert row["why"] == "; ".join(f"{why}: {count}" for why, count in record["left_out"].items() if count)
    assert found[2]["why"] == "the filled image keeps more than 50 % of p: 12" and found[0]["why"] == ""


def test_the_changes_of_stability_are_a_table_and_rows_of_the_csv(capsys: pytest.CaptureFixture[str]) -> None:
    trust("--probe", "stability", "--levels", "all")
    said, text = capsys.readouterr().out, Path("trust/trust.txt").read_text()
    assert "Stability: each change" in said and "Stability: each change" in text
    with Path("trust/trust.csv").open() as stream:
        found = [row for row in csv.DictReader(stream) if row["probe"] == "stability"]
    assert [row["question"] for row in found][:3] == ["flips", "shift 2", "shift 4"] and len(found) == 18
    cells = json.loads(Path("trust/trust.json").read_text())["cells"].values()
    (facts,) = [cell["facts"] for cell in cells if cell["probe"] == "stability"]
    for row in found[1:]:
        fact = facts[row["question"]]
        assert float(row["value"]) == fact["flip"]["value"] and int(row["gained"]) == fact["gained"]
        assert row["verdict"] == "" and float(row["distance_90"]) == fact["distance_90"]
        assert float(row["rank_change"]) == fact["rank_change"]["value"]
    trust("--probe", "stability")
    assert "computed again, because this changed: probe" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("baseline:ones", "xbench-fast study trust RUN tests the maps that a run keeps of it, for baseline:center and"),
        ("maps:folder", "xbench-fast study trust RUN tests the maps that a run keeps of it."),
        ("boxes:answers.jsonl", "the tests are of maps, and boxes have none."),
        ("boxes:mine=answers.jsonl", "the tests are of maps, and boxes have none."),
        ("reader:second", "the tests are of maps, and boxes have none."),
    ],
)
def test_what_is_no_bundle_is_told_where_to_go(model: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trust", "--model", model, "--data", "coco=data"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and f"'{model}' is no bundle, and only bundles can be asked again" in said
    assert words in " ".join(said.split())


def test_dali_needs_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    trust("--decoder", "dali", status=2)
    assert "--decoder dali decodes into the cache, once for all probes; give --cache" in capsys.readouterr().err
