"""How regions are drawn and merged, and how they reach the evaluation grid (docs/datasets.md §0.3, §0.4)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.dataset import Region
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_grid import region_grid
from xbench_fast.runtime.data.datasets.region_shapes import Ellipse, Polygons, Rle, RunText, Union, fill_polygon, union


class Drawn:
    """A region that is nothing but its mask: it takes the general way through `region_grid`."""

    def __init__(self, mask: np.ndarray) -> None:
        self._mask = mask

    def mask(self, height: int, width: int) -> np.ndarray:
        return self._mask


def painted(boxes: list[tuple[float, float, float, float]], height: int, width: int) -> np.ndarray:
    """Pixel by pixel: is it inside any box?"""
    mask = np.zeros((height, width), bool)
    for row in range(height):
        for column in range(width):
            for x1, y1, x2, y2 in boxes:
                bottom, right = max(int(y2), int(y1) + 1), max(int(x2), int(x1) + 1)
                mask[row, column] |= int(y1) <= row < bottom and int(x1) <= column < right
    return mask


def sampled(mask: np.ndarray, grid: int) -> np.ndarray:
    """Nearest neighbour by floor(i * N / grid), in whole numbers."""
    height, width = mask.shape
    return np.array([[mask[i * height // grid, j * width // grid] for j in range(grid)] for i in range(grid)])


coordinates = st.one_of(st.integers(-8, 60), st.floats(-8, 60))
sides = st.integers(1, 40)


@given(st.lists(st.tuples(coordinates, coordinates, coordinates, coordinates), max_size=4), sides, sides)
def test_boxes_equal_the_painting_rule(boxes: list[tuple[float, float, float, float]], height: int, width: int) -> None:
    np.testing.assert_array_equal(Boxes(tuple(boxes)).mask(height, width), painted(boxes, height, width))


def test_sizes_are_truncated_before_they_are_added() -> None:
    # x = 1.9, w = 1.9: columns int(1.9) .. int(1.9) + int(1.9) - 1, one column; int(1.9 + 1.9) would give two.
    mask = Boxes.from_sizes([(1.9, 0.9, 1.9, 2.9)]).mask(6, 6)
    assert mask.sum() == 2 and mask[0, 1] and mask[1, 1]


def test_a_box_without_area_still_covers_one_pixel_and_one_outside_covers_none() -> None:
    assert Boxes(((3.0, 2.0, 3.0, 2.0),)).mask(5, 5).sum() == 1
    assert Boxes.from_sizes([(3.2, 2.2, 0.5, 0.5)]).mask(5, 5)[2, 3]
    assert not Boxes(((5.0, 0.0, 9.0, 9.0),)).mask(5, 5).any()
    assert Boxes(((-3.0, -3.0, 2.0, 2.0),)).mask(5, 5).sum() == 4


@given(
    st.lists(st.tuples(coordinates, coordinates, coordinates, coordinates), max_size=3),
    sides,
    sides,
    st.integers(1, 30),
)
def test_boxes_reach_the_grid_as_their_mask_does(
    boxes: list[tuple[float, float, float, float]], height: int, width: int, grid: int
) -> None:
    region = Boxes(tuple(boxes))
    found, sub_pixel = region_grid(region, height, width, grid)
    general, also = region_grid(Drawn(region.mask(height, width)), height, width, grid)
    np.testing.assert_array_equal(found, general)
    assert sub_pixel == also
    native = painted(boxes, height, width)
    direct = sampled(native, grid)
    assert sub_pixel == (bool(native.any()) and not direct.any())
    if not sub_pixel:
        np.testing.assert_array_equal(found, direct)


@settings(max_examples=60)
@given(st.data(), st.integers(500, 3000), st.integers(500, 3000))
def test_boxes_on_large_images(data: st.DataObject, height: int, width: int) -> None:
    row, column = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    region = Boxes.from_sizes([(column, row, data.draw(st.integers(1, 900)), data.draw(st.integers(1, 900)))])
    mask = region.mask(height, width)
    found, sub_pixel = region_grid(region, height, width)
    if sub_pixel:
        assert found.sum() == 1
    else:
        np.testing.assert_array_equal(found, mask[np.arange(224) * height // 224][:, np.arange(224) * width // 224])


def test_one_pixel_of_a_large_image_becomes_exactly_one_pixel() -> None:
    for row, column in ((0, 0), (1999, 2999), (1234, 777), (9, 14)):
        region = Boxes.from_sizes([(column, row, 1, 1)])
        found, sub_pixel = region_grid(region, 2000, 3000)
        assert found.sum() == 1
        expected = (row * 224 // 2000, column * 224 // 3000)
        if sub_pixel:
            assert found[expected]
    assert region_grid(Boxes.from_sizes([(1, 1, 1, 1)]), 2000, 3000)[1]


def test_a_mask_of_1024_pixels_through_the_floor_rule() -> None:
    mask = np.random.default_rng(0).random((1024, 1024)) < 0.5
    found, sub_pixel = region_grid(Drawn(mask), 1024, 1024)
    index = [int(i * 1024 / 224) for i in range(224)]
    np.testing.assert_array_equal(found, mask[index][:, index])
    assert not sub_pixel


def test_a_rescued_region_stands_where_its_centroid_is() -> None:
    # Rows 1 and 3 of 20, seen through a grid of 4 (rows 0, 5, 10, 15): nothing is met, the centroid is row 2.5 -> 0.
    mask = np.zeros((20, 20), bool)
    mask[1, 6], mask[3, 8] = True, True
    found, sub_pixel = region_grid(Drawn(mask), 20, 20, 4)
    assert sub_pixel and found.sum() == 1 and found[0, 1]


def test_an_empty_region_stays_empty_and_is_not_rescued() -> None:
    for region in (Boxes(()), Boxes(((50, 50, 60, 60),)), Drawn(np.zeros((20, 20), bool))):
        found, sub_pixel = region_grid(region, 20, 20)
        assert not found.any() and not sub_pixel


@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_run_lengths_go_down_the_columns(bits: list[bool]) -> None:
    mask = np.array(bits).reshape(3, 4)
    counts, last, run = [], False, 0
    for column in range(4):
        for row in range(3):
            if mask[row, column] != last:
                counts.append(run)
                last, run = mask[row, column], 0
            run += 1
    counts.append(run)
    np.testing.assert_array_equal(Rle((3, 4), tuple(counts)).mask(3, 4), mask)


def test_gap_and_length_pairs_may_leave_the_rest_out() -> None:
    mask = RunText((3, 4), "2 2 1 1", "pairs").mask(3, 4)
    expected = np.zeros((3, 4), bool)
    expected[2, 0] = expected[0, 1] = expected[2, 1] = True
    np.testing.assert_array_equal(mask, expected)
    assert Rle((3, 4), (10, 2)).mask(3, 4)[2, 3]


def test_runs_of_coco_fill_their_grid() -> None:
    """The encoder of pycocotools writes 13 for [[0, 1], [1, 1]] and 4 for an empty mask of 2 x 2."""
    np.testing.assert_array_equal(Rle.from_string((2, 2), "13").mask(2, 2), [[0, 1], [1, 1]])
    assert Rle.from_string((2, 2), "4").mask(2, 2).sum() == RunText((2, 2), "4", "coco").area == 0
    for text, counts, filled in (("11", (1, 1), 2), ("", (), 0), ("1", (1,), 1)):
        for make in (
            lambda text=text: Rle.from_string((2, 2), text),
            lambda text=text: RunText((2, 2), text, "coco"),
            lambda counts=counts: Rle((2, 2), counts),
        ):
            with pytest.raises(DataError, match=f"has runs of {filled} pixels, its grid of 2 x 2 has 4: it is cut off"):
                make()


def test_run_lengths_that_do_not_fit_are_refused() -> None:
    for counts in ((13,), (5, 8), (-1, 3), (10**30, 3), (-(10**30), 3), (10**30, -(10**30))):
        with pytest.raises(DataError, match="does not fit"):
            Rle((3, 4), counts)
    with pytest.raises(DataError, match="3 x 4 cannot be drawn on 4 x 3"):
        Rle((3, 4), (12,)).mask(4, 3)


def test_polygons_are_filled_with_their_outline() -> None:
    mask = Polygons((((1, 1), (4, 1), (4, 3), (1, 3)),)).mask(6, 6)
    expected = np.zeros((6, 6), bool)
    expected[1:4, 1:5] = True
    np.testing.assert_array_equal(mask, expected)
    two = Polygons((((0, 0), (1, 0), (1, 1)), ((4, 4), (5, 4), (5, 5)))).mask(6, 6)
    assert two[0, 0] and two[5, 5] and not two[2:4].any()


def test_merging_is_a_union_and_never_a_sum_or_the_last_one() -> None:
    first, second = Boxes(((0, 0, 3, 3),)), Boxes(((2, 2, 5, 5),))
    merged = union([first, second])
    assert isinstance(merged, Boxes)
    mask = merged.mask(6, 6)
    assert mask.dtype == bool and mask.sum() == 9 + 9 - 1
    mixed = union([first, Rle((6, 6), (35, 1))])
    assert isinstance(mixed, Union) and mixed.mask(6, 6).sum() == 10
    assert union([first]) is first and isinstance(first, Region)
    with pytest.raises(ValueError):
        union([])


def test_compressed_run_lengths_equal_the_polygons_they_were_made_from(shared: Path) -> None:
    folder = shared / "data/annotations/chexlocalize"
    polygons = json.loads((folder / "gt_annotations_val.json").read_text())
    masks = json.loads((folder / "gt_segmentations_val.json").read_text())
    compared = 0
    for key, classes in masks.items():
        for name, coded in classes.items():
            mask = Rle.from_string(tuple(coded["size"]), coded["counts"]).mask(*coded["size"])
            outlines = polygons.get(key, {}).get(name)
            if not outlines:
                assert not mask.any()
                continue
            drawn = Polygons(tuple(tuple(map(tuple, outline)) for outline in outlines)).mask(*coded["size"])
            length = sum(np.hypot(*np.diff([*o, o[0]], axis=0).T).sum() for o in map(np.asarray, map(list, outlines)))
            assert np.sum(mask != drawn) <= 2 * length and np.sum(mask & drawn) > 0.95 * np.sum(mask)
            compared += 1
    assert compared >= 4


def test_a_compressed_string_that_is_cut_off_is_refused() -> None:
    with pytest.raises(DataError, match="middle"):
        Rle.from_string((3, 4), "P")
    with pytest.raises(DataError, match="does not belong"):
        Rle.from_string((3, 4), "é")


def test_a_centroid_is_that_of_pixel_centres() -> None:
    """Rows 4 and 5 meet at 5.0, where grid row 1 begins; their indices alone would have the mean 4.5, in row 0."""
    mask = np.zeros((20, 20), bool)
    mask[4:6, 1] = True
    for region in (Drawn(mask), Boxes(((1, 4, 2, 6),))):
        found, _ = region_grid(region, 20, 20, 4)
        assert np.argwhere(found).tolist() == ([[1, 0]] if not mask[::5, ::5].any() else [])
    np.testing.assert_array_equal(found, region_grid(Drawn(mask.T), 20, 20, 4)[0].T)


def test_fractions_of_six_decimals_end_at_whole_pixels() -> None:
    """docs/datasets.md §0.3: 7 / 61 and 20 / 61 with six decimals are 6.99999 and 19.99999."""
    corners = (0.114754, 0.465116, 0.327869, 0.860465)
    mask = Boxes((corners,), fractions=True).mask(43, 61)
    assert mask[20:37, 7:20].all() and mask.sum() == 13 * 17
    off = Boxes(((0.1147, 0.465116, 0.327869, 0.860465),), fractions=True).mask(43, 61)
    assert off[20:37, 6].all()  # 6.9967 is no rounding of 7


def test_shapes_by_the_centres_of_pixels_equal_a_loop() -> None:
    random = np.random.default_rng(5)
    height, width = 17, 23
    y, x = (axis + 0.5 for axis in np.mgrid[:height, :width])
    for _ in range(200):
        points = [(float(a), float(b)) for a, b in random.uniform(-8, 30, (random.integers(3, 9), 2)).round(1)]
        inside = np.zeros((height, width), bool)
        for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
            crosses = (ay > y) != (by > y)
            at = ax + (y - ay) * (bx - ax) / (by - ay) if ay != by else np.inf
            inside ^= crosses & (x < at)
        np.testing.assert_array_equal(fill_polygon(points, height, width), inside)
        a, b, c, d = random.uniform(-3, 20, 4).round(2)
        box = Boxes(((a, b, a + c + 4.6, b + d + 4.6),), centres=True).mask(height, width)
        np.testing.assert_array_equal(box, (x >= a) & (x < a + c + 4.6) & (y >= b) & (y < b + d + 4.6))
        turned = Ellipse(a, b, c + 4, d + 4, 30)
        u, v = (x - a) * 0.75**0.5 + (y - b) / 2, (y - b) * 0.75**0.5 - (x - a) / 2
        np.testing.assert_array_equal(turned.mask(height, width), (u / (c + 4)) ** 2 + (v / (d + 4)) ** 2 <= 1)
        rim = np.radians(np.arange(0, 360, 0.5))
        along, across = (c + 4) * np.cos(rim), (d + 4) * np.sin(rim)
        xs, ys = a + along * 0.75**0.5 - across / 2, b + along / 2 + across * 0.75**0.5
        np.testing.assert_allclose(turned.extents(1, 1)[0], (xs.min(), ys.min(), xs.max(), ys.max()), atol=1e-2)


def test_polygons_of_any_size_do_not_fail() -> None:
    assert fill_polygon([(-1e150, 3), (1e5, 1e150), (4, -1e150)], 4, 4).shape == (4, 4)
    with pytest.raises(DataError, match="pixels away"):
        Polygons((((0, 0), (1e9, 0), (0, 4)),), centres=True)
    with pytest.raises(DataError, match="ellipse reaches"):
        Ellipse(0, 0, 1e9, 4)
    with pytest.raises(DataError, match="in fractions"):
        Boxes(((0, 0, 1e300, 4),), fractions=True)
    assert not Ellipse(3, 3, 0, 2).mask(9, 9).any()


def test_the_corners_of_boxes_are_clipped_and_those_outside_dropped() -> None:
    boxes = Boxes(((-10, 5, 20, 30.5), (90, 90, 130, 120), (200, 0, 210, 10), (0, -9, 5, 0)))
    assert boxes.clipped(100, 110).tolist() == [[0, 5, 20, 30.5], [90, 90, 110, 100]]
    assert Boxes(((0.5, 0.25, 1.5, 0.5),), fractions=True).clipped(100, 200).tolist() == [[100, 25, 200, 50]]
    assert Boxes(()).clipped(10, 10).shape == (0, 4)
    marked = Boxes((*boxes.corners[2:], *boxes.corners[:2]), crowd=frozenset({(200, 0, 210, 10), (90, 90, 130, 120)}))
    assert boxes.crowded(100, 110).tolist() == [False, False] and marked.crowded(100, 110).tolist() == [False, True]
