"""Views of a dataset (docs/datasets.md §0.9), held against changed files and against plain NumPy; with every other
feature: tests/cpu/joints/pairs_of_views.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import synthetic
import xbench_fast as xb
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ConfigError
from xbench_fast.metrics_gpu.trust.perturbations import jpeg_coder
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.images.views import View

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CASES = 12
SIDE, GRID = synthetic.SIZE, synthetic.GRID
MASS = pc.field("finding") == "Mass"
CONFIG = """
bundles = ["{folder}"]
[datasets.coco]
root = "{folder}/data"
augment = {augment}
"""


def make(folder: Path) -> None:
    """Images as large as the model's input, so that a changed file is a changed input."""
    synthetic.make_dataset(folder / "data", CASES)
    rng = np.random.default_rng(5)
    document = json.loads((folder / "data/annotations.json").read_text())
    for image in document["images"]:
        image |= {"height": SIDE, "width": SIDE}
        pixels = rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "data/images" / image["file_name"])
    for box in document["annotations"]:
        box["bbox"] = [*rng.integers(0, SIDE // 2, 2).tolist(), *rng.integers(3, SIDE // 2, 2).tolist()]
    (folder / "data/annotations.json").write_text(json.dumps(document))
    synthetic.make_bundle(folder / "blocks", graph=synthetic.save_graph(folder / "graph.onnx"))


def evaluate(folder: Path, augment: list[str], out: str = "run") -> dict[str, pa.Table]:
    """Model -> rows, without its name."""
    config = folder / "xbench.toml"
    config.write_text(CONFIG.format(folder=folder, augment=json.dumps(augment)) if augment else "")
    options = {"threads": 1, "batch": 4, "chunk": 8, "engine": "onnxruntime-cpu", "progress": False}
    given = {"config": config} if augment else {}
    root = None if augment else folder / "data"
    xb.evaluate(folder / "blocks", "coco", root, out=folder / out, **options, **given)
    cells = json.loads((folder / out / "run.json").read_text())["cells"].values()
    return {cell["model"]: pq.read_table(folder / out / cell["file"]).drop_columns(["model"]) for cell in cells}


def change_files(folder: Path, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> None:
    for path in sorted((folder / "data/images").iterdir()):
        Image.fromarray(change(np.asarray(Image.open(path)))).save(path)


def test_a_flip_has_the_numbers_of_flipped_files_and_boxes(tmp_path: Path) -> None:
    make(tmp_path)
    seen = evaluate(tmp_path, ["flip"])
    assert list(seen) == ["blocks", "blocks+flip"]
    change_files(tmp_path, lambda image: image[:, ::-1])
    file = tmp_path / "data/annotations.json"
    document = json.loads(file.read_text())
    for box in document["annotations"]:
        x, y, w, h = box["bbox"]
        box["bbox"] = [SIDE - x - w, y, w, h]
    file.write_text(json.dumps(document))
    (flipped,) = evaluate(tmp_path, [], "flipped").values()
    assert not seen["blocks"]["saliency"].equals(seen["blocks+flip"]["saliency"])
    assert seen["blocks"]["region"].equals(seen["blocks+flip"]["region"]), "pictures and studies use one frame"
    for name in ("case_id", "label", "logit", "region_area", "hit", "degenerate"):
        assert seen["blocks+flip"][name].equals(flipped[name]), name
    for name in ("area", "overlap"):  # weights of bilinear interpolation are not mirrored to the last bit
        counts = [np.array(rows[name].drop_null().to_pylist()) for rows in (seen["blocks+flip"], flipped)]
        assert np.abs(counts[0] - counts[1]).max() <= 4 and counts[0].max() > 100, name


@pytest.mark.parametrize(
    ("view", "change"),
    [
        ("gamma:1.2", lambda image: np.rint(255 * (image / 255) ** 1.2).astype(np.uint8)),
        ("window:120/200", lambda image: np.rint(np.clip((image - 20.0) / 200, 0, 1) * 255).astype(np.uint8)),
    ],
)
def test_a_change_of_grey_levels_has_the_rows_of_changed_files(
    tmp_path: Path, view: str, change: Callable[[Any], NDArray[np.uint8]]
) -> None:
    make(tmp_path)
    plain, seen = evaluate(tmp_path, [view]).values()
    change_files(tmp_path, change)
    (changed,) = evaluate(tmp_path, [], "changed").values()
    same = [name for name in seen.column_names if name != "image_hash"]
    assert seen.select(same).equals(changed.select(same)) and not plain.equals(seen)


def test_a_shift_moves_image_and_map_together(tmp_path: Path) -> None:
    """A shift by one cell of the map: the map, back on the image, is the plain one but for its last row and column.
    The map of Mass moves with the image; that of Effusion has a part that stays."""
    make(tmp_path)
    level = 224 // GRID
    plain, seen = evaluate(tmp_path, [f"shift:{level}"]).values()
    maps, moved = (
        np.array(table.filter(MASS)["saliency"].drop_null().to_pylist(), np.float32).reshape(-1, GRID, GRID)
        for table in (plain, seen)
    )
    assert len(maps) and np.array_equal(moved[:, 1:, 1:], maps[:, :-1, :-1])
    part = -1 / GRID
    assert {tuple(frame) for frame in seen["frame"].drop_null().to_pylist()} == {(part, part, 1 + part, 1 + part)}


def test_the_others_are_those_of_the_probe_and_the_same_twice(tmp_path: Path) -> None:
    make(tmp_path)
    views = ["jpeg:50", "noise:5"]
    first = evaluate(tmp_path, views)
    again = evaluate(tmp_path, views, "again")
    for model, rows in first.items():
        assert rows.equals(again[model]), model
    assert list(first) == ["blocks", "blocks+jpeg-50", "blocks+noise-5"]
    assert len({rows["logit"].to_pylist()[0] for rows in first.values()}) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flop", "augment has no view 'flop'"),
        ("flip:1", "flip takes no level"),
        ("shift", "shift takes a whole number of pixels of 224, from 1 to 111"),
        ("shift:-3", "shift takes"),
        ("shift:8.5", "shift takes"),
        ("gamma:0", "gamma takes an exponent from 0.1 to 10"),
        ("gamma:nan", "gamma takes"),
        ("window:120", "window takes CENTRE/WIDTH"),
        ("window:120/0", "window takes"),
        ("jpeg:101", "jpeg takes a quality from 1 to 100"),
        ("gamma: 1.2", "gamma takes"),
        ("noise:inf", "noise takes a standard deviation"),
    ],
)
def test_a_wrong_view_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        View(text)
    assert str(raised.value).count("\n") == 0
    make(tmp_path)
    with pytest.raises(ConfigError, match=f"Dataset 'coco': .*{says}"):
        evaluate(tmp_path, ["flip", text])
    assert not (tmp_path / "run/run.json").exists()


def test_names_of_views_are_names_of_files() -> None:
    assert View("window:120/255").name.isascii() and "/" not in View("window:120/255").name


def test_a_view_says_all_that_its_pixels_depend_on() -> None:
    """A shift is a part of what the model saw, higher than wide here; noise is that of the image."""
    frame = View("shift:28").frame((0.0, 0.25, 1.0, 0.75), 224)
    assert np.allclose(frame, (-1 / 8, 0.25 - 1 / 16, 1 - 1 / 8, 0.75 - 1 / 16))
    assert jpeg_coder() in View("jpeg:50").description and jpeg_coder() not in View("gamma:2").description
    pixels, noisy = np.full((32, 32), 128, np.uint8), View("noise:8")
    one, two, again = (noisy.of(pixels, Case(name, Path(name), {}, {}, "all")) for name in ("a", "b", "a"))
    assert np.array_equal(one, again) and not np.array_equal(one, two)


def test_a_live_model_has_its_views(tmp_path: Path) -> None:
    make(tmp_path)
    seen = evaluate(tmp_path, ["flip", "gamma:0.8"])
    bundle = Bundle.load(tmp_path / "blocks")
    text = bundle.prompt_set("coco").features

    def model(pixels: NDArray[np.uint8], findings: list[str]) -> tuple[Any, Any]:
        return synthetic.model(pixels, text[: len(findings)])

    xb.evaluate(
        model,
        "coco",
        config=tmp_path / "xbench.toml",
        out=tmp_path / "live",
        geometry=bundle.manifest.geometry,
        name="called",
        batch=4,
        chunk=8,
        threads=1,
        progress=False,
    )
    cells = json.loads((tmp_path / "live/run.json").read_text())["cells"].values()
    assert [cell["model"] for cell in cells] == ["called", "called+flip", "called+gamma-0.8"]
    for cell in cells:
        logits = pq.read_table(tmp_path / "live" / cell["file"])["logit"]
        other = seen[cell["model"].replace("called", "blocks")]["logit"]
        assert np.allclose(logits.to_numpy(), other.to_numpy(), rtol=1e-5)
