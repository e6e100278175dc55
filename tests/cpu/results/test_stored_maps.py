"""The maps and regions that a run directory keeps: with them a finished cell can be swept again without its model."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset, model, prompt_set, reference_sweep
from xbench_fast.engines.errors import RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.metrics_gpu.sweep.masks import unpack_masks
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results import schema
from xbench_fast.runtime.results.load_rows import CellRows, load_run
from xbench_fast.runtime.results.run_json import store_run
from xbench_fast.runtime.results.stored_maps import load_maps


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data", missing=(4,)), "coco")


@pytest.fixture
def world(tmp_path: Path, data: DatasetConfig) -> World:
    """A model that sees a crop, so that frames matter, and two baselines."""
    world = World(tmp_path)
    bundle = make_bundle(tmp_path / "crop-32", geometry=Geometry("crop", 32, 36, "bilinear"), several=True)
    assert world.run([bundle.path], [data], baselines=["baseline:ones", "baseline:chance"]).computed == 3
    return world


def test_a_cell_is_swept_again_from_what_is_kept(world: World) -> None:
    run = load_run(world.out)
    cell = next(cell for cell in run.cells() if cell.model == "crop-32")
    kept = load_maps(run, "crop-32", "coco")
    assert kept.saliency is not None and kept.saliency.shape == (len(cell.counts), 4, 4) and len(kept) == 11
    again = reference_sweep(kept.saliency, kept.masks, frames=kept.frames)
    for name in ("area", "overlap", "region", "argmax", "hit", "degenerate"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cell.counts, name))
    for name in ("argmax", "hit", "degenerate"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(cell.counts, name))
    np.testing.assert_array_equal(kept.class_of, cell.class_of)
    assert kept.finding[:3] == ("Mass", "Effusion", "Mass") and kept.case_id[:3] == ("case0000", "case0000", "case0003")
    assert kept.patient_id[2] == "p1" and kept.frames[0].tolist() == [2 / 36, 9 / 50, 34 / 36, 41 / 50]


def test_the_map_is_the_mean_over_prompts_before_normalisation(world: World, data: DatasetConfig) -> None:
    from PIL import Image

    kept = load_maps(load_run(world.out), "crop-32", "coco")
    picture = Image.open(data.root / "images" / "case0000.png").resize((50, 36), Image.Resampling.BILINEAR)
    _, maps = model(np.asarray(picture)[None, None, 2:34, 9:41], prompt_set(several=True).features)
    assert kept.saliency is not None
    np.testing.assert_array_equal(kept.saliency[0], maps[0, :2].astype(np.float64).mean(0).astype(np.float32))


def test_the_regions_are_those_of_the_annotation(world: World, data: DatasetConfig) -> None:
    kept = load_maps(load_run(world.out), "baseline:ones", "coco")
    document = json.loads((data.root / "annotations.json").read_text())
    x, y, w, h = document["annotations"][0]["bbox"]
    i, j = np.arange(224) * 40 // 224, np.arange(224) * 56 // 224
    expected = ((i >= y) & (i < y + h))[:, None] & ((j >= x) & (j < x + w))[None, :]
    np.testing.assert_array_equal(unpack_masks(kept.masks, 224)[0], expected)
    assert len(kept) == 12  # a baseline needs no image


def test_baselines_keep_maps_only_where_they_differ(world: World) -> None:
    run = load_run(world.out)
    assert load_maps(run, "baseline:ones", "coco").saliency is None
    chance = load_maps(run, "baseline:chance", "coco")
    assert chance.saliency is not None and chance.saliency.shape == (12, 14, 14)
    assert len(np.unique(chance.saliency[:, 0, 0])) > 6
    assert (world.entry("crop-32--coco")["grid"], world.entry("baseline:ones--coco")["grid"]) == ([4, 4], None)


def test_rows_without_a_region_keep_nothing(world: World) -> None:
    rows = world.table("crop-32--coco").to_pylist()
    for row in rows:
        empty = row["area"] is None
        assert all((row[name] is None) == empty for name in ("saliency", "region", "frame"))
    assert sum(row["area"] is None for row in rows) == 29


def test_numbers_are_read_without_the_maps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = pq.ParquetFile.read_row_groups

    def groups(file: pq.ParquetFile, places: list[int], columns: list[str]) -> object:
        read.extend(columns)
        return real(file, places, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", groups)
    assert len(list(load_run(world.out).cells())) == 3
    assert "area" in read and not {"saliency", "region", "frame"} & set(read)


def arrays(cell: CellRows) -> dict[str, Any]:
    found = {
        field.name: getattr(cell, field.name) for field in fields(cell) if field.name not in ("counts", "read_truth")
    }
    counts = {f"counts.{field.name}": getattr(cell.counts, field.name) for field in fields(cell.counts)}
    return {**found, **counts, "truth": cell.truth}


@pytest.mark.parametrize("rows", [None, 5, 1])
def test_a_cell_is_the_same_in_parts(world: World, monkeypatch: pytest.MonkeyPatch, rows: int | None) -> None:
    """Also if the groups of the file divide cases, which have two rows here."""
    if rows:
        path = world.out / world.entry("crop-32--coco")["file"]
        pq.write_table(pq.read_table(path), path, row_group_size=rows)
    groups: list[int] = []
    real = pq.ParquetFile.read_row_groups

    def read(file: pq.ParquetFile, places: list[int], columns: list[str]) -> object:
        groups.append(len(places))
        return real(file, places, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", read)
    run = load_run(world.out)
    whole, table = run.cell("crop-32", "coco"), run.table("crop-32", "coco")
    assert len(groups) == 2
    monkeypatch.setattr(schema, "_PART_ROWS", 1)
    parts = run.cell("crop-32", "coco")
    assert groups[2:] == {None: [1] * 3, 5: [2] * 4, 1: [2] * 20}[rows]
    for name, value in arrays(whole).items():
        np.testing.assert_array_equal(value, arrays(parts)[name], err_msg=name)
    assert run.table("crop-32", "coco").equals(table)


def test_many_rows_are_read_in_parts_of_one_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows in four have no region and no counts; what stays of them is a few bytes."""
    path = world.out / world.entry("crop-32--coco")["file"]
    few = pq.read_table(path)
    most, kept = [], []
    real = pq.ParquetFile.read_row_groups
    monkeypatch.setattr(schema, "_PART_ROWS", 2000)
    for times in (100, 400):
        pq.write_table(pa.concat_tables([few] * times), path, row_group_size=800)
        run = load_run(world.out)
        run.data["cells"]["crop-32--coco"]["cases"] = 20 * times
        sizes: list[int] = []

        def read(file: pq.ParquetFile, places: list[int], columns: list[str], sizes: list[int] = sizes) -> object:
            found = real(file, places, columns)
            sizes.append(found.nbytes)
            return found

        monkeypatch.setattr(pq.ParquetFile, "read_row_groups", read)
        cell = run.cell("crop-32", "coco")
        assert len(sizes) == -(-40 * times // 2400) and len(cell.counts) == 11 * times
        most.append(max(sizes))
        kept.append(sum(value.nbytes for value in arrays(cell).values() if isinstance(value, np.ndarray)))
    assert most[0] == most[1] < 2400 * 1000
    assert (kept[1] - kept[0]) / (40 * 300) < 11 / 40 * 860 + 24


def test_maps_of_some_cases(world: World) -> None:
    run = load_run(world.out)
    whole, some = load_maps(run, "crop-32", "coco"), load_maps(run, "crop-32", "coco", {"case0003", "other"})
    own = [place for place, case in enumerate(whole.case_id) if case == "case0003"]
    assert own and some.case_id == tuple(whole.case_id[place] for place in own)
    assert whole.saliency is not None and some.saliency is not None
    np.testing.assert_array_equal(some.saliency, whole.saliency[own])
    np.testing.assert_array_equal(some.masks, whole.masks[own])


def test_what_cannot_be_read_is_said(world: World) -> None:
    run = load_run(world.out)
    with pytest.raises(RunError, match="has no result of other on coco: not evaluated"):
        load_maps(run, "other", "coco")
    path = world.out / world.entry("crop-32--coco")["file"]
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["saliency", "region", "frame"]), path)
    with pytest.raises(RunError, match="kept no maps; run the same eval command again"):
        load_maps(run, "crop-32", "coco")
    path.write_bytes(b"PAR1")
    with pytest.raises(RunError, match="cannot be read"):
        load_maps(run, "crop-32", "coco")
    with pytest.raises(RunError, match="crop-32 on coco: its result file cells/"):
        load_maps(load_run(world.out), "crop-32", "coco")


def test_results_of_an_older_version_are_made_anew(world: World, data: DatasetConfig, tmp_path: Path) -> None:
    document = json.loads((world.out / "run.json").read_text())
    document["cells"]["crop-32--coco"]["ingredients"]["result_version"] = 1
    document["cells"]["crop-32--coco"]["key"] = "0" * 64
    store_run(world.out, document)
    old = world.out / world.entry("crop-32--coco")["file"]
    old.unlink()
    assert world.run([tmp_path / "crop-32"], [data]).computed == 1
    assert any("computed again, because this changed: result_version" in line for line in world.lines)
