"""`--protocol`: what it changes in the rows, and that a result belongs to its protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluation_world import World, same
from synthetic import make_bundle, make_dataset, reference_sweep
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.metrics_gpu.grounding.native import native_map
from xbench_fast.metrics_gpu.grounding.protocols import PROTOCOLS, protocol
from xbench_fast.metrics_gpu.sweep.masks import unpack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.evaluation.measure import Measure
from xbench_fast.runtime.evaluation.reference.map_files import MapFolder
from xbench_fast.runtime.host.config import DatasetConfig, load_config
from xbench_fast.runtime.reporting.native_tables import load_native
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.stored_maps import MapRows, load_maps

F = np.float32


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")


def attention(data: DatasetConfig) -> MapFolder:
    """Maps of 14 x 14 cells like attention, on the scale of the thresholds of MedKLIP and MAVL; one has two maxima."""
    folder, rng = data.root / "attention", np.random.default_rng(3)
    for case in Coco(data.root).cases():
        for name in case.regions:
            values = rng.random((14, 14)) ** 4
            if case.case_id == "case0003":
                values[[1, -2], [1, -2]] = 2.0
            (folder / case.case_id).mkdir(parents=True, exist_ok=True)
            np.save(folder / case.case_id / f"{name}.npy", (values / values.sum()).astype(F))
    return MapFolder(folder)


def rows_and_maps(world: World, name: str) -> tuple[list[dict[str, Any]], MapRows]:
    rows = [row for row in world.table(f"{name}--coco").to_pylist() if row["area"] is not None]
    return rows, load_maps(load_run(world.out), name, "coco")


def test_medklip_cuts_raw_maps_and_lets_any_maximum_hit(world: World, data: DatasetConfig) -> None:
    outcome = world.run([], [data], files=[attention(data)], sweep=sweep, protocol="medklip")
    assert outcome.computed == 1
    assert world.entry("maps:attention--coco")["protocol"] == "medklip"
    rows, maps = rows_and_maps(world, "maps:attention")
    assert maps.saliency is not None
    for row, grid, mask in zip(rows, maps.saliency, unpack_masks(maps.masks, 224), strict=True):
        full = np.repeat(np.repeat(grid, 16, axis=0), 16, axis=1)
        marked = full > F(0.008)
        assert (row["area"][50], row["overlap"][50]) == (marked.sum(), (marked & mask).sum())
        assert row["hit"] == bool((mask & (full == full.max())).any())
    first = [
        bool(mask.reshape(-1)[row["argmax"]]) for row, mask in zip(rows, unpack_masks(maps.masks, 224), strict=True)
    ]
    assert any(row["hit"] and not hit for row, hit in zip(rows, first, strict=True))  # the rule makes a difference here


def test_mavl_marks_more_than_a_thousandth(world: World, data: DatasetConfig) -> None:
    world.run([], [data], files=[attention(data)], sweep=sweep, protocol="mavl")
    rows, maps = rows_and_maps(world, "maps:attention")
    assert maps.saliency is not None
    centre = np.linspace(0, 13, 224)
    low = np.minimum(centre.astype(int), 12)
    weight = centre - low
    for row, grid in zip(rows, maps.saliency.astype(np.float64), strict=True):
        across = grid[:, low] * (1 - weight) + grid[:, low + 1] * weight
        full = across[low] * (1 - weight)[:, None] + across[low + 1] * weight[:, None]
        for k in (1, 5, 20):
            assert abs(row["area"][k] - (full > 0.001 * k).sum()) <= 2


def test_the_paper_shares_the_rows_of_the_default(world: World, data: DatasetConfig, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "blocks-32").path
    world.run([bundle], [data])
    before = world.table()
    assert world.run([bundle], [data], protocol="paper").reused == 1
    assert world.entry()["protocol"] == "paper" and world.table().equals(before)
    assert world.lines == ["blocks-32 on coco: finished before, reused (protocol paper instead of default)"]


def test_another_protocol_is_another_result_in_the_same_place(world: World, data: DatasetConfig) -> None:
    folder = attention(data)
    world.run([], [data], files=[folder], sweep=sweep)
    default, file = world.table("maps:attention--coco"), world.entry("maps:attention--coco")["file"]
    assert world.run([], [data], files=[folder], sweep=sweep, protocol="mavl").computed == 1
    said = "computed again, because this changed: sweep (protocol mavl instead of default)"
    assert any(said in line for line in world.lines)
    assert not same(world.table("maps:attention--coco"), default)
    # Both are on disk: going back computes nothing.
    assert world.run([], [data], files=[folder], sweep=sweep).reused == 1
    entry = world.entry("maps:attention--coco")
    assert (entry["protocol"], entry["file"]) == ("default", file)
    assert same(world.table("maps:attention--coco"), default)


def test_keys_differ_where_counts_do() -> None:
    texts = {name: Measure(protocol(name), sweep).description for name in PROTOCOLS}
    assert texts["default"] == texts["paper"] == texts["biovil"] and len(set(texts.values())) == len(PROTOCOLS) - 2


def test_baselines_have_no_scale_that_a_raw_threshold_could_cut(world: World, data: DatasetConfig) -> None:
    names = ["baseline:ones", "baseline:center", "baseline:chance"]
    outcome = world.run([], [data], baselines=names, sweep=sweep, protocol="medklip")
    assert outcome.computed == 1 and [model for model, _, _ in outcome.skipped] == names[1:]
    assert "has no scale of its own" in outcome.skipped[0][2]
    assert world.run([], [data], baselines=names, sweep=sweep, protocol="chexlocalize").computed == 3


def test_native_counts_of_a_model_that_sees_a_crop(world: World, data: DatasetConfig, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "crop-32", geometry=Geometry("crop", 32, 36, "bilinear"))
    world.run([bundle.path], [data], sweep=sweep, protocol="chexlocalize", threads=2)
    rows, maps = rows_and_maps(world, "crop-32")
    assert maps.saliency is not None
    cases = {case.case_id: case for case in Coco(data.root).cases()}
    for row, saliency, frame in zip(rows, maps.saliency, maps.frames, strict=True):
        native = row["native"]
        region = cases[row["case_id"]].regions[row["finding"]].mask(40, 56)
        assert (native["height"], native["width"], native["region"]) == (40, 56, region.sum())
        full = reference_map(saliency, frame)
        np.testing.assert_allclose(native_map(saliency, 40, 56, tuple(frame)), full, rtol=1e-6)
        scaled = (full - full.min()) / (full.max() - full.min())
        for k in (0, 20, 40, 70):
            marked = scaled > F(k / 100)
            assert abs(native["area"][k] - marked.sum()) <= 1
            assert abs(native["overlap"][k] - (marked & region).sum()) <= 1
        assert native["hit"] == region.reshape(-1)[int(np.argmax(full))]
        assert native["otsu_overlap"] <= min(native["otsu_area"], native["region"])
    default = reference_sweep(maps.saliency, maps.masks, frames=maps.frames)
    # On the 224 grid the rows hold the comparison by > alone.
    assert [row["argmax"] for row in rows] == default.argmax.tolist()
    assert all(row["area"][100] == 0 for row in rows)


def reference_map(saliency: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """A map on 40 x 56 pixels, pixel by pixel; what the crop does not hold is its minimum."""
    full = np.full((40, 56), np.nan)
    for i in range(40):
        for j in range(56):
            y, x = (i + 0.5) / 40, (j + 0.5) / 56
            if frame[0] <= y < frame[2] and frame[1] <= x < frame[3]:
                v = np.clip((y - frame[0]) / (frame[2] - frame[0]) * 4 - 0.5, 0, 3)
                u = np.clip((x - frame[1]) / (frame[3] - frame[1]) * 4 - 0.5, 0, 3)
                a, b = int(v), int(u)
                c, d = min(a + 1, 3), min(b + 1, 3)
                top = saliency[a, b] * (1 - (u - b)) + saliency[a, d] * (u - b)
                low = saliency[c, b] * (1 - (u - b)) + saliency[c, d] * (u - b)
                full[i, j] = top * (1 - (v - a)) + low * (v - a)
    return np.where(np.isnan(full), np.nanmin(full), full)


def test_native_counts_that_are_not_possible(world: World, data: DatasetConfig) -> None:
    """In a file of a version that wrote no checksum."""
    world.run([], [data], baselines=["baseline:center"], sweep=sweep, protocol="chexlocalize")
    table, file = world.table("baseline:center--coco"), world.out / world.entry("baseline:center--coco")["file"]
    place, run = table.column_names.index("native"), load_run(world.out)
    for name in ("area", "overlap", "region", "otsu_area", "otsu_overlap"):
        native = table["native"].to_pylist()
        values = next(value for value in native if value is not None)
        if isinstance(values[name], list):
            values[name][50] += 1 << 20
        else:
            values[name] += 1 << 20
        changed = table.set_column(place, table.schema.field(place), pa.array(native, table.schema.field(place).type))
        pq.write_table(changed, file)
        with pytest.raises(RunError, match=f"{file} is damaged: .* in 1 of "):
            load_native(run, "baseline:center", "coco")


def test_only_that_protocol_looks_at_native_size(world: World, data: DatasetConfig) -> None:
    world.run([], [data], baselines=["baseline:center"], protocol="default")
    assert set(world.table("baseline:center--coco")["native"].to_pylist()) == {None}
    assert load_native(load_run(world.out), "baseline:center", "coco") is None


def test_a_degenerate_map_is_empty_at_native_size(world: World, data: DatasetConfig) -> None:
    folder = attention(data)
    for name, value in (("case0003/Mass", 1.0), ("case0006/Mass", np.nan)):
        np.save(folder.folder / f"{name}.npy", np.full((14, 14), value, F))
    world.run([], [data], files=[MapFolder(folder.folder)], sweep=sweep, protocol="chexlocalize")
    rows = {row["case_id"]: row for row in rows_and_maps(world, "maps:attention")[0] if row["finding"] == "Mass"}
    for case in ("case0003", "case0006"):
        assert rows[case]["degenerate"] and rows[case]["native"]["otsu_area"] == 0
        assert set(rows[case]["native"]["area"]) == {0} and not rows[case]["native"]["hit"]


def test_the_command_and_the_file_name_a_protocol(
    tmp_path: Path, data: DatasetConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["eval", "--model", "baseline:ones", "--data", f"coco={data.root}"]

    def run(*more: str) -> int:
        with pytest.raises(SystemExit) as caught:
            main([*line, *more])
        return int(caught.value.code or 0)

    assert run("--protocol", "medclip") == 2
    assert "Unknown protocol 'medclip': did you mean 'medklip'? known are default, paper" in capsys.readouterr().err
    (tmp_path / "xbench.toml").write_text("[eval]\nprotocol = 'mavl'\n")
    assert load_config().eval.protocol == "mavl" and run() == 0
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["cells"]["baseline:ones--coco"]["protocol"] == document["config"]["protocol"] == "mavl"
    assert run("--protocol", "paper") == 0
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["cells"]["baseline:ones--coco"]["protocol"] == "paper"
    (tmp_path / "xbench.toml").write_text("[eval]\nprotocol = 3\n")
    with pytest.raises(ConfigError, match=r"eval\.protocol"):
        load_config()


def test_the_help_names_every_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in PROTOCOLS) and "maps:FOLDER" in text
