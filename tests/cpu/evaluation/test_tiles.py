"""Images in tiles (docs/saliency.md), held against a model at the larger size and against plain loops; with every other
feature: tests/cpu/joints/pairs_of_tiles.py."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic
import xbench_fast as xb
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import maximum_filter
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ConfigError, RunError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.datasets.pixels import ReadyImages
from xbench_fast.runtime.data.images.tiles import Tiling

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIDE, GRID = synthetic.SIZE, synthetic.GRID
CASES = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of twice the model's input."""
    synthetic.make_dataset(tmp_path / "data", CASES)
    rng = np.random.default_rng(7)
    document = json.loads((tmp_path / "data/annotations.json").read_text())
    for image in document["images"]:
        image |= {"height": 2 * SIDE, "width": 2 * SIDE}
        pixels = rng.integers(0, 256, (2 * SIDE, 2 * SIDE), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data/images" / image["file_name"])
    (tmp_path / "data/annotations.json").write_text(json.dumps(document))
    synthetic.make_bundle(tmp_path / "blocks", graph=synthetic.save_graph(tmp_path / "graph.onnx"))
    return tmp_path


def evaluate(folder: Path, out: str, **more: Any) -> tuple[dict[str, Any], Any]:
    options = {"threads": 1, "batch": 4, "chunk": 8, "engine": "onnxruntime-cpu", "progress": False, **more}
    xb.evaluate(folder / "blocks", "coco", folder / "data", out=folder / out, **options)
    (cell,) = json.loads((folder / out / "run.json").read_text())["cells"].values()
    return cell, pq.read_table(folder / out / cell["file"])


def picture(folder: Path, case: str, side: int) -> NDArray[np.uint8]:
    image = Image.open(folder / "data/images" / f"{case}.png")
    return np.asarray(image if image.width == side else image.resize((side, side), Image.Resampling.BILINEAR))


def test_maps_are_those_of_the_tiles_and_scores_of_the_whole(folder: Path) -> None:
    bundle = Bundle.load(folder / "blocks")
    text = bundle.prompt_set("coco").features
    cell, rows = evaluate(folder, "run", tiles="2x2")
    assert cell["model"] == "blocks+2x2" and cell["grid"] == [2 * GRID, 2 * GRID]
    assert cell["variant_of"] == "blocks" and cell["tiles"].endswith("score: the whole image's")
    _, plain = evaluate(folder, "plain")
    assert rows["logit"].equals(plain["logit"]) and not rows["saliency"].equals(plain["saliency"])
    place = {name: at for at, name in enumerate(synthetic.CLASSES)}
    seen = 0
    for row in rows.to_pylist():
        if row["saliency"] is None:
            continue
        fine = picture(folder, row["case_id"], 2 * SIDE)
        tiles = [fine[y : y + SIDE, x : x + SIDE] for y in (0, SIDE) for x in (0, SIDE)]
        maps = synthetic.model(np.stack(tiles)[:, None], text)[1][:, place[row["finding"]]]
        wanted = np.block([[maps[0], maps[1]], [maps[2], maps[3]]])
        assert np.array_equal(np.array(row["saliency"], np.float32).reshape(2 * GRID, 2 * GRID), wanted)
        assert row["frame"] == [0, 0, 1, 1]
        seen += 1
    assert seen


def test_the_largest_score(folder: Path) -> None:
    bundle = Bundle.load(folder / "blocks")
    text = bundle.prompt_set("coco").features
    cell, rows = evaluate(folder, "run", tiles="1x3@0.5", tile_score="largest")
    assert cell["model"] == "blocks+1x3@0.5-largest"
    place = {name: at for at, name in enumerate(synthetic.CLASSES)}
    for row in rows.to_pylist():
        side = 2 * SIDE  # 3 - 2 x 0.5
        fine = picture(folder, row["case_id"], side)
        fine = np.asarray(Image.fromarray(fine).resize((side, SIDE), Image.Resampling.BILINEAR))
        inputs = [picture(folder, row["case_id"], SIDE), *(fine[:, x : x + SIDE] for x in (0, SIDE // 2, SIDE))]
        logits = synthetic.model(np.stack(inputs)[:, None], text)[0][:, place[row["finding"]]]
        assert row["logit"] == logits.max()


@pytest.mark.parametrize("text", ["1x1", "1x1@0.5"])
def test_one_tile_is_no_tiles(folder: Path, text: str) -> None:
    cell, rows = evaluate(folder, "run", tiles=text)
    plain, wanted = evaluate(folder, "plain")
    assert rows.equals(wanted) and cell["key"] == plain["key"] and "tiles" not in cell


@pytest.mark.parametrize(
    ("text", "cells"),
    [("2x2@0.25", 7), ("3x2@0.5", 14), ("2x5@0.9", 8), ("3x3@0.5", 3), ("3x2@0.25", 5), ("2x2@0.5", 1)],
)
def test_overlaps_are_averaged(text: str, cells: int) -> None:
    """Against a loop over cells and tiles."""
    size, tiling = 56, Tiling(text)
    rng = np.random.default_rng(1)
    maps = rng.normal(size=(len(tiling), cells, cells)).astype(np.float32)
    (height, width), grid = tiling.sides(size), tiling.grid((cells, cells), size)
    assert all(abs(side - cells * length / size) <= 0.5 for side, length in zip(grid, (height, width), strict=True))
    tops = [round(at * (height - size) / max(tiling.rows - 1, 1)) for at in range(tiling.rows)]
    lefts = [round(at * (width - size) / max(tiling.columns - 1, 1)) for at in range(tiling.columns)]

    def read(tile: NDArray[np.float32], y: float, x: float) -> float:
        y, x = (min(max(v * cells / size - 0.5, 0), cells - 1) for v in (y, x))
        y0, x0 = int(y), int(x)
        y1, x1 = min(y0 + 1, cells - 1), min(x0 + 1, cells - 1)
        top = tile[y0, x0] * (1 - x + x0) + tile[y0, x1] * (x - x0)
        return float(top * (1 - y + y0) + (tile[y1, x0] * (1 - x + x0) + tile[y1, x1] * (x - x0)) * (y - y0))

    wanted = np.empty(grid)
    for i, j in np.ndindex(*grid):
        y, x = (i + 0.5) * height / grid[0], (j + 0.5) * width / grid[1]
        wanted[i, j] = np.mean(
            [
                read(maps[r * tiling.columns + c], y - tops[r], x - lefts[c])
                for r in range(tiling.rows)
                for c in range(tiling.columns)
                if 0 <= y - tops[r] <= size and 0 <= x - lefts[c] <= size
            ]
        )
    assert np.allclose(tiling.stitched(maps, size), wanted, atol=1e-5)
    several = np.broadcast_to(maps[:, None, None], (len(tiling), 2, 3, cells, cells))
    assert np.allclose(tiling.stitched(np.ascontiguousarray(several), size), wanted, atol=1e-5)


@pytest.mark.parametrize("text", ["2", "0x2", "2x2@1", "2x2@-0.1", "9x9", "2x2@0.95", "2x2@nan", "a", "2x2@0.25 "])
def test_a_wrong_grid_is_one_sentence(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"--tiles takes ROWSxCOLUMNS@OVERLAP, such as 2x2@0\.25"):
        evaluate(folder, "run", tiles=text)
    assert not (folder / "run/run.json").exists()


def test_another_score_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="The option 'tile_score' cannot be 'mean': known are whole, largest"):
        evaluate(folder, "run", tiles="2x2", tile_score="mean")


def test_the_larger_image_is_made_as_the_input_is() -> None:
    crop = Geometry("crop", 224, 256, "bicubic")
    assert Tiling("2x3@0.5").geometry(crop) == Geometry("crop", 448, 512, "bicubic")
    assert Tiling("64x1").geometry(Geometry("squash", 128, 128, "bilinear")).size == 8192
    assert Tiling("2x2").description != Tiling("2x2", largest=True).description


def test_an_image_without_its_larger_form_is_not_ready() -> None:
    """One of two sources has prepared it: what is there is not half an image."""
    several = [SimpleNamespace(case_id=str(at)) for at in range(3)]

    def source(ready: list[bool], side: int) -> Any:
        def read_many(cases: Any, target: Any) -> ReadyImages:
            target[np.array(ready)] = 7
            sizes, images = np.full((3, 2), 9, np.int32), np.full((3, 16), 5, np.uint8)
            return ReadyImages(np.array(ready), sizes, images)

        return SimpleNamespace(read_many=read_many)

    target = np.zeros((3, 5, 8, 8), np.uint8)
    tiled = Tiling("2x2").source(source([True, True, False], 8), source([True, False, True], 16), 8)
    found = tiled.read_many(several, target)  # type: ignore[attr-defined]
    assert found.ready.tolist() == [True, False, False]
    assert (target[0] == 7).all() and not target[1:].any()
    assert found.sizes[0].all() and not found.sizes[1:].any() and not found.images[1:].any()


def test_what_would_be_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs images of 14336 pixels"):
        Tiling("64x1").geometry(Geometry("squash", 224, 224, "bilinear"))


def test_negative_prompts_have_no_largest_score(tmp_path: Path) -> None:
    synthetic.make_dataset(tmp_path / "data", 4)
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    made = synthetic.make_bundle(tmp_path / "blocks", several=True, sets=("coco",), graph=graph)
    assert (made.prompt_set("coco").polarity < 0).any()
    with pytest.raises(RunError, match="has negative prompts, whose largest score means nothing"):
        evaluate(tmp_path, "run", tiles="2x2", tile_score="largest")


def detector(side: int, wanted: float) -> Any:
    """A model that answers to disks of about `wanted` pixels in the radius: the mean within less a ring around."""
    grid = np.hypot(*(np.mgrid[-8:9, -8:9]))
    inner, outer = (grid <= wanted).astype(float), ((grid > wanted + 1) & (grid <= wanted + 3)).astype(float)
    kernel = inner / inner.sum() - outer / outer.sum()
    spectrum = np.fft.rfft2(np.pad(kernel, (0, side + 16 - 17)), (side + 16, side + 16))

    def model(pixels: NDArray[np.uint8], findings: list[str]) -> tuple[Any, Any]:
        padded = np.pad(pixels[:, 0].astype(float), ((0, 0), (8, 8), (8, 8)), mode="edge")
        whole = np.fft.irfft2(np.fft.rfft2(padded, (side + 16, side + 16)) * spectrum, (side + 16, side + 16))
        maps = maximum_filter(whole[:, 16:, 16:], (1, 3, 3))[:, ::2, ::2]
        maps = np.repeat(maps[:, None], len(findings), 1).astype(np.float32)
        return maps.max(axis=(2, 3)), maps

    return model


@pytest.mark.parametrize(("tiles", "scale"), [("4x4", 4.0), ("2x2@0.25", 1.75)])
def test_the_smallest_regions_rise_where_the_model_is_right_at_a_larger_size(
    tmp_path: Path, tiles: str, scale: float
) -> None:
    """Phantoms with disks of 0.5 to 8 % of the side in noise; the model is right for the small ones at `scale` times
    its size."""
    side, native, rng = 64, 256, np.random.default_rng(3)
    (tmp_path / "data/images").mkdir(parents=True)
    images, boxes = [], []
    radii = np.tile([3.0, 16.0], 24)
    y, x = np.mgrid[:native, :native]
    for index, radius in enumerate(radii.tolist()):
        picture = rng.normal(100, 25, (native, native))
        cy, cx = rng.integers(20, native - 20, 2).tolist()
        picture[np.hypot(y - cy, x - cx) <= radius] += 45
        name = f"case{index:04d}"
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(tmp_path / f"data/images/{name}.png")
        images.append({"id": name, "file_name": f"{name}.png", "height": native, "width": native})
        box = [cx - radius, cy - radius, 2 * radius, 2 * radius]
        boxes.append({"image_id": name, "category_id": 1, "bbox": box})
    document = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "Nodule"}]}
    (tmp_path / "data/annotations.json").write_text(json.dumps(document))
    geometry = Geometry("squash", side, side, "bilinear")
    model = detector(side, 3 * side / native * scale)
    hits = []
    for out, more in (("plain", {}), ("tiles", {"tiles": tiles})):
        how = {"out": tmp_path / out, "geometry": geometry, "name": "disks", "threads": 1, "progress": False, **more}
        xb.evaluate(model, "coco", tmp_path / "data", **how)
        (cell,) = json.loads((tmp_path / out / "run.json").read_text())["cells"].values()
        table = pq.read_table(tmp_path / out / cell["file"])
        found = dict(zip(table["case_id"].to_pylist(), table["hit"].to_pylist(), strict=True))
        hits.append([np.mean([found[f"case{i:04d}"] for i in range(len(radii)) if radii[i] == r]) for r in (3, 16)])
    assert hits[1][0] > hits[0][0] + 0.2, hits
