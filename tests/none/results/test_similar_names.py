"""Models and datasets whose names differ in a sign, a separator or letter case: none writes over another's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.strict_json import CHECKSUM
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard
from xbench_fast.runtime.results.stored_maps import load_maps
from xbench_fast.runtime.trust.card.making import with_cards

SIMILAR = ("a b", "a_b", "a-b", "A_b")


def named(folder: Path, *names: str) -> list[DatasetConfig]:
    return [DatasetConfig(name, folder, "coco", prompts="coco") for name in names]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "data", 12)


def of_older_version(run: Path, edit: Any) -> None:
    """run.json as a version without checksums and digests wrote it."""
    data = json.loads((run / "run.json").read_text())
    edit(data)
    (run / "run.json").write_text(json.dumps({key: value for key, value in data.items() if key != CHECKSUM}))


def test_separators_in_names_do_not_mix_cells(world: World, tmp_path: Path, images: Path) -> None:
    """In one evaluation and in two, which keep both results and reuse them."""
    bundles = [make_bundle(tmp_path / name).path for name in ("k", "k--x")]
    outcome = world.run(bundles, named(images, "x--y", "y"))
    assert not outcome.problems and outcome.computed == 4
    cells = read_run(world.out)["cells"]
    assert "k--y" in cells and len(cells) == 4
    assert sum(key.startswith("k--x--y-") for key in cells) == 2, "k on x--y, and k--x on y"
    assert {row["state"] for row in outcome.to_json(cells)} == {"computed"}
    run = load_run(world.out)
    for model, dataset in run.finished:
        assert set(run.table(model, dataset)["model"].to_pylist()) == {model}
        assert load_maps(run, model, dataset).entry["dataset"] == dataset
    assert world.run(bundles, named(images, "x--y", "y")).reused == 4


def test_keys_of_earlier_versions_are_read_and_their_results_reused(world: World, tmp_path: Path, images: Path) -> None:
    bundle = make_bundle(tmp_path / "k--x").path
    world.run([bundle], named(images, "y"))
    of_older_version(world.out, lambda data: data.update(cells={"k--x--y": next(iter(data["cells"].values()))}))
    assert load_run(world.out).finished == [("k--x", "y")]
    assert world.run([bundle], named(images, "y")).reused == 1
    assert world.run([make_bundle(tmp_path / "k").path], named(images, "x--y")).computed == 1
    assert load_run(world.out).finished == [("k--x", "y"), ("k", "x--y")]


def test_each_of_similar_datasets_has_its_index_its_latex_and_its_card(
    world: World, tmp_path: Path, images: Path
) -> None:
    world.run([make_bundle(tmp_path / "blocks-32").path], named(images, *SIMILAR))
    assert len(list((world.out / "images").iterdir())) == 4
    report = make_report(world.out, Choices(replicates=40))
    written = write_report(with_cards(report, [], page=False), page=False)
    assert len({str(path).lower() for path in written}) == len(written)
    stems = [path.stem for path in written]
    for start, end in (("pointing-a-b", ".tex"), ("dice-a-b", ".tex"), ("blocks-32--a", ".json")):
        assert sum(path.stem.lower().startswith(start) and path.suffix == end for path in written) == 4, stems
    shown = {json.loads(path.read_text())["dataset"] for path in written if path.parent.name == "cards"}
    assert any(name.startswith("a b") for name in shown) and len(shown) == 4
    labels = [line for line in (world.out / "report" / "tables.tex").read_text().splitlines() if "label{" in line]
    assert len({line[line.index("\\label") :] for line in labels}) == len(labels)


def test_a_name_alone_keeps_its_files(world: World, tmp_path: Path, images: Path) -> None:
    world.run([make_bundle(tmp_path / "blocks-32").path], named(images, "My Data"))
    written = {path.name for path in write_report(make_report(world.out, Choices(replicates=0)), page=False)}
    assert {"pointing-my-data.tex", "dice-my-data.tex"} <= written
    assert next((world.out / "cells").iterdir()).name.startswith("blocks-32--My_Data-")


def test_tracebacks_of_similar_cells_stay_apart(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as run:
        notes = {run.keep_traceback(model, name) for model in ("k", "k--a b") for name in (*SIMILAR, "a b--a b")}
    assert len({str(note).lower() for note in notes}) == 10


def test_similar_names_share_prepared_images_of_the_same_files(world: World, tmp_path: Path, images: Path) -> None:
    """The content is the same, so neither empties the store of the other."""
    bundle, cache = make_bundle(tmp_path / "blocks-32").path, tmp_path / "cache"
    world.run([bundle], named(images, "a b"), cache=cache)
    before = {path: path.read_bytes() for path in cache.glob("*/records.bin")}
    world.run([bundle], named(images, "a_b"), cache=cache)
    assert before and {path: path.read_bytes() for path in cache.glob("*/records.bin")} == before


def test_shards_with_separators_in_names_are_merged(world: World, tmp_path: Path, images: Path) -> None:
    bundles = [make_bundle(tmp_path / name).path for name in ("k", "k--x")]
    shards = []
    for number in (1, 2):
        world.out = tmp_path / f"shard-{number}-of-2"
        world.run(bundles, named(images, "x--y", "y"), shard=Shard(number, 2), chunk=4)
        of_older_version(world.out, lambda data, number=number: data["config"].update(shard=f"{number}/2"))
        shards.append(world.out)
    outcome = merge_shards(shards, tmp_path / "merged", lambda line: None)
    assert not outcome.problems and outcome.computed == 4
    run = load_run(tmp_path / "merged")
    assert all(set(run.table(*cell)["model"].to_pylist()) == {cell[0]} for cell in run.finished)
    assert sum(len(pq.read_table(path)) for path in (tmp_path / "merged" / "cells").iterdir()) == 4 * 12 * 2
