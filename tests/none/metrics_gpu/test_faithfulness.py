"""Cells, fills, curves and placements: against naive loops and the curves of the authors of RISE (goldens)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.metrics_gpu.sweep.masks import masks_in_view
from xbench_fast.metrics_gpu.trust.faithfulness import (
    cell_order,
    curve_area,
    fill_of,
    inner_stages,
    mirrored,
    placements,
    random_orders,
    steps_of,
)


def naive_stages(start: Any, end: Any, order: Any, grid: tuple[int, int], counts: list[int]) -> list[Any]:
    """Pixel by pixel: the cells filled so far as a set."""
    found = []
    for count in counts:
        done = {int(cell) for cell in order[:count]}
        image = np.empty_like(start)
        for y in range(len(start)):
            for x in range(len(start)):
                cell = (y * grid[0] // len(start)) * grid[1] + x * grid[1] // len(start)
                image[y, x] = end[y, x] if cell in done else start[y, x]
        found.append(image)
    return found


@pytest.mark.parametrize(
    ("size", "grid", "counts"),
    [
        (28, (14, 14), [14 * k for k in range(1, 14)]),
        (28, (7, 7), [7 * k for k in range(1, 7)]),
        (30, (4, 6), [6, 12, 18]),
    ],
)
def test_stages_replace_whole_cells_in_the_order_of_the_map(
    size: int, grid: tuple[int, int], counts: list[int]
) -> None:
    rng = np.random.default_rng(size + grid[0])
    image, fill = rng.integers(0, 256, (2, size, size), dtype=np.uint8)
    order = cell_order(rng.random(grid, np.float32))
    found = inner_stages(image, fill, order, grid, steps_of(grid))
    assert np.array_equal(found, naive_stages(image, fill, order, grid, counts))


def test_a_fine_grid_takes_14_steps_that_together_fill_every_cell() -> None:
    """24 x 24 cells: 576 / 14 is not whole; each step is rounded by itself, so none drifts."""
    grid = (24, 24)
    assert (steps_of(grid), steps_of((7, 7)), steps_of((14, 14))) == (14, 7, 14)
    stages = inner_stages(
        np.zeros((24, 24), np.uint8), np.ones((24, 24), np.uint8), np.arange(576), grid, steps_of(grid)
    )
    assert [int(stage.sum()) for stage in stages] == [round(k * 576 / 14) for k in range(1, 14)]


def test_tied_cells_stand_in_the_order_of_their_indices() -> None:
    assert cell_order(np.array([[1, 3], [3, 2]], np.float32)).tolist() == [1, 2, 3, 0]
    levels = (np.arange(196) * 7 % 11).astype(np.float32)
    assert cell_order(levels.reshape(14, 14)).tolist() == sorted(range(196), key=lambda cell: (-levels[cell], cell))
    for value in (0.5, np.nan, np.inf):
        constant = np.full((2, 2), value, np.float32)
        assert cell_order(constant).tolist() == [0, 1, 2, 3]
    assert cell_order(np.array([[1, np.nan], [3, 2]], np.float32)).tolist() == [0, 1, 2, 3]


def test_random_orders_are_those_of_their_name() -> None:
    orders = random_orders("0 a", 196, 3)
    assert all(sorted(order) == list(range(196)) for order in orders.tolist())
    assert np.array_equal(orders, random_orders("0 a", 196, 3))
    assert np.array_equal(orders[0], random_orders("0 a", 196, 1)[0])
    assert not np.array_equal(orders[0], orders[1]) and not np.array_equal(orders, random_orders("0 b", 196, 3))
    places = np.stack([random_orders(f"0 {name}", 196, 1)[0].argmin() for name in range(400)])
    assert 80 < places.mean() < 115  # uniform on 0..195


def test_fills() -> None:
    image = np.zeros((224, 224), np.uint8)
    image[:, :112] = 201
    assert (fill_of(image, "mean") == 100).all()  # 100.5, half to even
    blurred = fill_of(image, "blur16").astype(int)
    assert blurred[0, 0] == 201 and blurred[0, -1] == 0  # edges repeated
    assert (np.diff(blurred[0]) <= 0).all() and abs(
        blurred[0, 112 - 16] - 201 * 0.8413
    ) < 3  # one deviation from the edge
    assert fill_of(np.zeros((28, 28), np.uint8), "blur16").shape == (28, 28)
    with pytest.raises(ValueError, match="unknown fill 'black'; known: mean, blur16"):
        fill_of(image, "black")


def test_areas_of_curves() -> None:
    assert curve_area(np.array([1.0, 0.5, 0.0])) == pytest.approx(0.5)
    found = curve_area(np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))
    assert found == pytest.approx([1.0, np.trapezoid([0.0, 1.0, 1.0]) / 2])


def naive_placements(region: Any, taken: Any, step: int) -> list[Any]:
    """Every move by multiples of `step`, with np.roll where nothing leaves the image."""
    rows, columns = np.nonzero(region)
    size, found = len(region), []
    for down in range(-size // step * step, size + 1, step):
        for right in range(-size // step * step, size + 1, step):
            y, x = rows + down, columns + right
            if min(y.min(), x.min()) >= 0 and max(y.max(), x.max()) < size and not taken[y, x].any():
                moved = np.zeros_like(region)
                moved[y, x] = True
                found.append(moved)
    return found


def l_shaped() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """A region with a corner left out, and it with another region."""
    region = np.zeros((224, 224), np.bool_)
    region[40:104, 30:60] = True
    region[40:60, 30:45] = False
    taken = region.copy()
    taken[150:220, 10:200] = True
    return region, taken


def test_placements_are_all_free_places_of_the_region() -> None:
    region, taken = l_shaped()
    wanted = naive_placements(region, taken, 16)
    found = placements(region, taken, "0 a", most=1000)
    assert len(found) == len(wanted) > 8 and np.array_equal(found, wanted)
    drawn = placements(region, taken, "0 a")
    assert len(drawn) == 8 and all(any(np.array_equal(each, other) for other in wanted) for each in drawn)
    assert len({each.tobytes() for each in drawn}) == 8
    assert np.array_equal(drawn, placements(region, taken, "0 a"))
    assert not np.array_equal(drawn, placements(region, taken, "0 b"))
    assert all(each.sum() == region.sum() and not (each & taken).any() for each in drawn)


def test_a_region_without_room_has_no_placement() -> None:
    region = np.zeros((224, 224), np.bool_)
    region[:, 20:180] = True
    assert placements(region, region, "0 a").shape == (0, 224, 224)
    with pytest.raises(ValueError, match="an empty region cannot be moved"):
        placements(np.zeros_like(region), region, "0 a")


def test_the_mirror_must_not_meet_a_region() -> None:
    region, taken = l_shaped()
    other = mirrored(region, region)
    assert other is not None and np.array_equal(other, np.fliplr(region))
    assert mirrored(region, taken) is not None
    taken[50, 224 - 31] = True  # inside the region's box, outside the region: it is the corner left out
    assert mirrored(region, taken) is not None
    taken[70, 224 - 31] = True
    assert mirrored(region, taken) is None
    region[100, 112] = region[100, 111] = True
    assert mirrored(region, region) is None


@pytest.fixture(scope="module")
def tiny(root: Path) -> Any:
    """Scores float64 [n] of images uint8 [n, 224, 224] for a finding, and the images and maps they come with."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(root / "tests/golden/trust/tiny.onnx"), providers=["CPUExecutionProvider"])
    held = np.load(root / "tests/golden/trust/randomisation.npz")

    def score(images: Any, finding: int) -> Any:
        (logits,) = session.run(["logits"], {"pixels": np.stack(images)[:, None], "text": held["text"]})
        return 1 / (1 + np.exp(-logits[:, finding].astype(np.float64)))

    return (
        score,
        held["films"],
        held["saliency"],
        json.loads((root / "tests/golden/trust/faithfulness.json").read_text()),
    )


def test_curves_of_rise(tiny: Any) -> None:
    """One cell a step, as in the file; black is only there."""
    score, images, maps, told = tiny
    checked = 0
    for curve in told["curves"]:
        image = images[curve["film"]]
        if curve["film"] and (curve["film"], curve["fill"]) != (2, "blur16"):
            continue  # each of the 24 takes 0.3 s
        fill = np.zeros_like(image) if curve["fill"] == "black" else fill_of(image, curve["fill"])
        start, end = (image, fill) if curve["mode"] == "del" else (fill, image)
        order = cell_order(maps[curve["film"], curve["finding"]])
        inner = inner_stages(start, end, order, (14, 14), 196)
        scores = score([start, *inner, end], curve["finding"])
        assert curve_area(scores) == pytest.approx(curve["auc"], abs=1e-6)
        assert scores[::14] == pytest.approx(curve["scores_every_14"], abs=1e-6)
        checked += 1
    assert checked == 8


def test_filled_regions_of_rise(tiny: Any) -> None:
    score, images, _, told = tiny
    for entry in told["region_deletion"]:
        image = images[entry["film"]]
        fill = np.zeros_like(image) if entry["fill"] == "black" else fill_of(image, entry["fill"])
        filled = []
        for key in ("region_yxhw", "elsewhere_yxhw"):
            y, x, height, width = entry[key]
            mask = np.zeros(image.shape, np.bool_)
            mask[y : y + height, x : x + width] = True
            filled.append(np.where(mask, fill, image))
            if key == "region_yxhw":
                places = placements(mask, mask, "0 a", most=1000)
            else:
                assert any(np.array_equal(mask, place) for place in places)
        wanted = [entry["score"], entry["region_filled"], entry["elsewhere_filled"]]
        assert score([image, *filled], entry["finding"]) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        ((0.0, 0.0, 1.0, 1.0), 224),
        ((0.0, 0.0, 1.0, 1.0), 384),
        ((0.1, 0.0, 0.9, 1.0), 224),
        ((-0.2, 0.0, 1.2, 1.0), 60),
    ],
)
def test_masks_in_view_hold_the_pixel_under_each_centre(frame: tuple[float, float, float, float], size: int) -> None:
    masks = np.random.default_rng(4).random((2, 224, 224)) < 0.5
    found = masks_in_view(masks, frame, size)
    assert found.shape == (2, size, size)
    for y in range(0, size, 7):
        for x in range(0, size, 11):
            row = (frame[0] + (y + 0.5) / size * (frame[2] - frame[0])) * 224
            column = (frame[1] + (x + 0.5) / size * (frame[3] - frame[1])) * 224
            seen = 0 <= row < 224
            assert found[:, y, x].tolist() == [bool(seen and mask[int(row), int(column)]) for mask in masks]
    if size == 224 and frame == (0.0, 0.0, 1.0, 1.0):
        assert np.array_equal(found, masks)
