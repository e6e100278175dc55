"""What an evaluation says of a folder of maps: maps of no pair, of another orientation, and without a maximum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from synthetic import make_dataset
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.images.contents import Contents
from xbench_fast.runtime.evaluation.reference.map_files import MapFolder
from xbench_fast.runtime.evaluation.reference.map_orientation import _aucs, _read, orientation_check
from xbench_fast.runtime.host.config import DatasetConfig

F = np.float32
Change = Callable[[NDArray[Any]], NDArray[Any]]
SAVED: dict[str, Change] = {
    "transposed (rows as columns)": lambda grid: grid.T,
    "mirrored (left as right)": lambda grid: grid[:, ::-1],
    "upside down (top as bottom)": lambda grid: grid[::-1],
    "turned by 180 degrees": lambda grid: grid[::-1, ::-1],
    "turned by 90 degrees to the left": lambda grid: np.rot90(grid, -1),
    "turned by 90 degrees to the right": np.rot90,
    "transposed and turned by 180 degrees": lambda grid: grid[::-1, ::-1].T,
}
"""How the maps must be read -> how they were saved, which is the inverse."""


@pytest.fixture
def data(tmp_path: Path) -> DatasetConfig:
    return DatasetConfig("coco", make_dataset(tmp_path / "data", 40), "coco")


def good_maps(
    folder: Path, data: DatasetConfig, change: Change = lambda grid: grid, *, noise: float = 0.3, count: int = 99
) -> MapFolder:
    """A map of 20 x 28 cells for each region: bright where it lies, and noise; saved with this change."""
    rng = np.random.default_rng(8)
    pairs = [(case, name) for case in Coco(data.root).cases() for name in case.regions]
    for case, name in pairs[:count]:
        region = case.regions[name].mask(40, 56).reshape(20, 2, 28, 2).mean((1, 3))
        path = folder / case.case_id / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, change(region + noise * rng.random((20, 28))).astype(F))
    return MapFolder(folder)


def judged(folder: MapFolder, data: DatasetConfig) -> str:
    dataset = Coco(data.root)
    maps = folder.of(dataset.cases(), dataset.classes)
    return orientation_check(maps, dataset.cases(), list(dataset.classes), Contents())


@pytest.mark.parametrize("name", SAVED)
def test_another_orientation_is_told(tmp_path: Path, data: DatasetConfig, name: str) -> None:
    said = judged(good_maps(tmp_path / "m", data, SAVED[name], noise=2), data)
    assert said.startswith(f"read as {name}, the maps would fit the regions better (mean ROC AUC 0.")
    assert "instead of" in said and "in 24 pairs" in said and "read as they are" in said


def test_right_weak_and_few_maps_are_not_suspected(tmp_path: Path, data: DatasetConfig) -> None:
    assert judged(good_maps(tmp_path / "right", data), data) == ""
    assert judged(good_maps(tmp_path / "noise", data, noise=1e9), data) == ""
    assert judged(good_maps(tmp_path / "few", data, SAVED["mirrored (left as right)"], count=9), data) == ""
    assert judged(good_maps(tmp_path / "enough", data, SAVED["mirrored (left as right)"], count=10), data) != ""
    half = good_maps(tmp_path / "half", data)
    good_maps(tmp_path / "half", data, SAVED["mirrored (left as right)"], count=3)
    assert judged(half, data) == "", "a few files that were saved otherwise"


def test_a_pattern_that_all_maps_share_is_not_suspected(tmp_path: Path, data: DatasetConfig) -> None:
    """Findings of these images lie at the top left; a method that looks at the bottom right is bad, and not turned."""
    rng = np.random.default_rng(9)
    corner = np.add.outer(np.arange(20), np.arange(28)) / 4
    for case in Coco(data.root).cases():
        for name in case.regions:
            (tmp_path / "m" / case.case_id).mkdir(parents=True, exist_ok=True)
            np.save(tmp_path / "m" / case.case_id / f"{name}.npy", (corner + 3 * rng.random((20, 28))).astype(F))
    folder = MapFolder(tmp_path / "m")
    assert judged(folder, data) == ""
    dataset = Coco(data.root)
    pairs = [(case, name) for case in dataset.cases() for name in case.regions]
    grids, regions = _read(folder.of(dataset.cases(), dataset.classes), pairs, Contents())
    values = _aucs(grids, regions)
    assert values[:, 4].mean() > values[:, 0].mean() + 0.2, "turned by 180 degrees they do fit better"


def test_the_value_is_the_roc_auc_of_the_cells() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 50, (56, 56)).astype(F)
    region = np.zeros((56, 56), bool)
    region[3:20, 30:50] = True
    expected = [roc_auc_score(region.ravel(), read(values).ravel()) for read in (lambda grid: grid, *READ_AS.values())]
    np.testing.assert_allclose(_aucs(values[None].astype(float), region[None])[0], expected, rtol=1e-12)


READ_AS: dict[str, Change] = {
    **SAVED,
    "turned by 90 degrees to the left": np.rot90,
    "turned by 90 degrees to the right": lambda grid: np.rot90(grid, -1),
}


def test_it_changes_no_row_and_stands_in_eval_and_the_coverage(
    tmp_path: Path, data: DatasetConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = good_maps(tmp_path / "mine", data, SAVED["transposed (rows as columns)"])
    np.save(folder.folder / "stray.npy", np.eye(3, dtype=F))
    world = World(tmp_path)
    world.run([], [data], files=[MapFolder(folder.folder)], sweep=sweep)
    told = [line for line in world.lines if "warning" in line]
    assert [line.partition(": warning: ")[2][:58] for line in told] == [
        f"maps:mine: 1 of 25 maps in {folder.folder}"[:58],
        "maps:mine: read as transposed (rows as columns), the maps "[:58],
    ]
    kept = world.entry("maps:mine--coco")["warnings"]
    assert set(kept) == {"unused maps:mine", "orientation maps:mine"}
    rows = [row for row in world.table("maps:mine--coco").to_pylist() if row["area"] is not None]
    saved = np.load(folder.folder / rows[0]["case_id"] / f"{rows[0]['finding']}.npy")
    assert np.array_equal(np.reshape(rows[0]["saliency"], saved.shape), saved), "the rows are of the maps as they are"
    assert world.run([], [data], files=[MapFolder(folder.folder)], sweep=sweep).reused == 1
    assert [line for line in world.lines if "warning" in line] == told
    with pytest.raises(SystemExit):
        main(["report", str(world.out), "--no-page", "--quiet", "--out", str(tmp_path / "report")])
    page = (tmp_path / "report" / "tables.md").read_text()
    assert "maps:mine: 1 of 25 maps" in page and "read as transposed" in page


FLAT: dict[str, Change] = {
    "constant": lambda grid: np.full_like(grid, 7),
    "not a number": lambda grid: np.full_like(grid, np.nan),
    "one not a number": lambda grid: np.where(np.arange(grid.size).reshape(grid.shape) == 30, np.nan, grid),
    "infinite": lambda grid: np.where(grid == grid.max(), np.inf, grid),
}


def spoiled(folder: Path, data: DatasetConfig, change: Change | None, count: int) -> MapFolder:
    """Good maps, those of the first `count` cases with a region spoiled; None: no maps at all."""
    found = good_maps(folder, data)
    for case in [case for case in Coco(data.root).cases() if case.regions][:count]:
        for path in sorted((folder / case.case_id).iterdir()):
            np.save(path, change(np.load(path))) if change else path.write_bytes(b"rubbish")
    return found


@pytest.mark.parametrize("kind", FLAT)
def test_most_maps_without_a_maximum_are_an_error_and_the_rows_are_kept(
    tmp_path: Path, data: DatasetConfig, kind: str
) -> None:
    cases = sum(bool(case.regions) for case in Coco(data.root).cases())
    world = World(tmp_path)
    folder = spoiled(tmp_path / "mine", data, FLAT[kind], cases // 2 + 1)
    for outcome in (world.run([], [data], files=[folder], sweep=sweep), world.run([], [data], files=[folder])):
        ((model, name, text),) = outcome.mostly_lost
        assert (model, name) == ("maps:mine", "coco")
        assert f"{cases // 2 + 1} constant or not finite ones, of {cases} with a region" in text
        assert "the first is of case0000: " in text
    assert world.entry("maps:mine--coco")["state"] == "done"
    assert sum(row["area"] is not None for row in world.table("maps:mine--coco").to_pylist()) == 24
    assert any("constant or not finite, case0000: " in line for line in world.lines) or outcome.reused


def test_half_of_the_maps_is_a_number_and_no_error(tmp_path: Path, data: DatasetConfig) -> None:
    cases = sum(bool(case.regions) for case in Coco(data.root).cases())
    world = World(tmp_path)
    outcome = world.run([], [data], files=[spoiled(tmp_path / "m", data, FLAT["constant"], cases // 2)], sweep=sweep)
    assert not outcome.mostly_lost
    assert any(f"{cases // 2} constant or not finite, case0000: " in line for line in world.lines)


def test_unreadable_and_constant_maps_count_together(tmp_path: Path, data: DatasetConfig) -> None:
    cases = [case for case in Coco(data.root).cases() if case.regions]
    folder = spoiled(tmp_path / "m", data, FLAT["constant"], len(cases) // 2 + 1)
    spoiled_first = next(iter((folder.folder / cases[0].case_id).iterdir()))
    spoiled_first.write_bytes(b"rubbish")
    ((_, _, text),) = World(tmp_path).run([], [data], files=[folder], sweep=sweep).mostly_lost
    assert text.startswith(f"1 cases have unreadable saliency maps and {len(cases) // 2} constant or not finite ones")
    assert spoiled_first.name in text


def test_the_command_ends_with_an_error(tmp_path: Path, data: DatasetConfig) -> None:
    folder = spoiled(tmp_path / "m", data, FLAT["constant"], 99)
    line = ["eval", "--model", f"maps:{folder.folder}", "--data", f"coco={data.root}", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as stopped:
        main(line)
    assert stopped.value.code == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_cell_that_no_pixel_samples_decides_nothing(tmp_path: Path, value: float) -> None:
    """A map of more cells than the image has pixels: bilinear sampling meets a few of them, at every size another few.

    40 x 56 pixels of 400 x 560 cells have their centres between cells 4 and 5 of each ten; the grid of 224 does not
    meet cell 0 of 400 either.
    """
    data = DatasetConfig("coco", make_dataset(tmp_path / "few", 6), "coco")
    world, folder = World(tmp_path), tmp_path / "m"
    rng = np.random.default_rng(3)
    for case in Coco(data.root).cases():
        for name in case.regions:
            (folder / case.case_id).mkdir(parents=True, exist_ok=True)
            size = (400, 560) if case.case_id == "case0000" else (4, 4)
            np.save(folder / case.case_id / f"{name}.npy", rng.random(size).astype(F))
    first = folder / "case0000" / "Mass.npy"
    world.run([], [data], files=[MapFolder(folder)], sweep=sweep, protocol="chexlocalize")
    before = row_of(world)
    grid = np.load(first)
    grid[0, :] = grid[:, 0] = value
    np.save(first, grid)
    outcome = world.run([], [data], files=[MapFolder(folder)], sweep=sweep, protocol="chexlocalize")
    assert outcome.computed == 1 and not outcome.failed, "the cell is not lost"
    after = row_of(world)
    assert after["native"] == before["native"] and after["native"]["otsu_area"] > 0
    grid[4, 4] = value
    np.save(first, grid)
    outcome = world.run([], [data], files=[MapFolder(folder)], sweep=sweep, protocol="chexlocalize")
    assert outcome.computed == 1 and row_of(world)["native"]["otsu_area"] == 0, "a sampled one does"


def row_of(world: World) -> dict[str, Any]:
    rows = world.table("maps:m--coco").to_pylist()
    return next(row for row in rows if (row["case_id"], row["finding"]) == ("case0000", "Mass"))
