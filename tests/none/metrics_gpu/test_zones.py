"""Zones, sides, ceilings and floors against naive loops (docs/words.md §6, §7)."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.metrics_gpu.zones.bounds import BOUNDS, statement_scores
from xbench_fast.metrics_gpu.zones.cells import cells_of, sides_of_boxes
from xbench_fast.metrics_gpu.zones.thorax_places import (
    CELLS,
    FIXED,
    IMAGE,
    ThoraxFrame,
    cell_names,
    mirrored_place,
    rectangle_of,
    rectangles_of,
    sides_of,
    single_statements,
)
from xbench_fast.metrics_gpu.zones.usual_zones import usual_cells

SIZES = ((224, 224), (448, 672))
FRAMES = (FIXED, IMAGE, ThoraxFrame(0.1, 0.05, 0.9, 0.95, 0.45))
Bools = NDArray[np.bool_]


def drawn(names: tuple[str, ...], frame: ThoraxFrame, size: tuple[int, int]) -> Bools:
    """The places on the image's own grid, pixel by pixel."""
    width, height = size
    mask = np.zeros((height, width), np.bool_)
    for rectangle in rectangles_of(names):
        x1, y1, x2, y2 = (int(edge) for edge in frame.pixels(rectangle, size))
        mask[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)] = True
    return mask


def on_grid(mask: Bools) -> Bools:
    height, width = mask.shape
    return mask[np.arange(224) * height // 224][:, np.arange(224) * width // 224]


def test_statement_scores_against_masks() -> None:
    rng = np.random.default_rng(0)
    statements = single_statements()
    assert len(statements) == 118 == len(set(map(frozenset, statements)))
    for frame in FRAMES:
        for size in SIZES:
            region = np.zeros(size[::-1], np.bool_)
            for _ in range(2):
                y, x = rng.integers(0, size[1] // 2), rng.integers(0, size[0] // 2)
                region[y : y + size[1] // 3, x : x + size[0] // 4] = True
            small = on_grid(region)
            scores = statement_scores(
                [frame], np.array([size]), small[None], lambda pair, at, seen=region: seen[at[:, 1], at[:, 0]]
            )
            for number, names in enumerate(statements):
                words = on_grid(drawn(tuple(names), frame, size))
                both = (words & small).sum()
                assert scores.dice[0, number] == pytest.approx(2 * both / (words.sum() + small.sum()), abs=1e-12)
                assert scores.iou[0, number] == pytest.approx(both / (words | small).sum(), abs=1e-12)
                x1, y1, x2, y2 = frame.pixels(rectangles_of(names)[0], size)
                assert scores.hit[0, number] == region[int((y1 + y2) / 2), int((x1 + x2) / 2)]
            bounds = scores.bounds(np.array([5]), np.array([0]))[0]
            best = int(scores.dice[0].argmax())
            assert bounds[0].tolist() == [scores.dice[0, best], scores.iou[0, best], scores.hit[0].any()]
            assert bounds[1, 0] == scores.dice[0, :63].max() and bounds[1, 2] == scores.hit[0, :63].any()
            assert bounds[2, 0] == scores.dice[0, 4] and np.isnan(bounds[BOUNDS.index("prior")]).all()
            assert bounds[BOUNDS.index("bilateral"), 0] == scores.dice[0, 62]


def naive_cells(boxes: list[tuple[int, int, int, int]]) -> int:
    """On an image of 600 x 600 whose frame is the image: zones of 300 x 200."""
    found = 0
    for x1, y1, x2, y2 in boxes:
        shares = []
        for side in range(2):
            for level in range(3):
                wide = max(0, min(x2, 300 * side + 300) - max(x1, 300 * side))
                high = max(0, min(y2, 200 * level + 200) - max(y1, 200 * level))
                shares.append(Fraction(wide * high))
        area = (x2 - x1) * (y2 - y1)
        for cell, share in enumerate(shares):
            if share >= Fraction(area, 4) or share >= 30000 or (share == max(shares) and cell == shares.index(share)):
                found |= 1 << cell
    return found


def test_cells_and_sides_of_boxes() -> None:
    rng, size = np.random.default_rng(1), (600, 600)
    for _ in range(300):
        boxes = []
        for _ in range(rng.integers(1, 4)):
            (x1, x2), (y1, y2) = (sorted(rng.choice(601, 2, replace=False).tolist()) for _ in range(2))
            boxes.append((x1, y1, x2, y2))
        array = np.array(boxes, np.float64)
        assert cells_of(array, IMAGE, size) == naive_cells(boxes)
        right = [4 * max(0, min(x2, 300) - x1) >= x2 - x1 for x1, _, x2, _ in boxes]
        left = [4 * max(0, x2 - max(x1, 300)) >= x2 - x1 for x1, _, x2, _ in boxes]
        central = all(a and b for a, b in zip(right, left, strict=True))
        assert sides_of_boxes(array, IMAGE, size) == (0 if central else any(right) + 2 * any(left))
    assert cells_of(np.zeros((0, 4)), IMAGE, size) == 0
    small = np.array([[0.0, 0.0, 20.0, 10.0]])  # outside the frame, whose outer zones reach to the edge
    assert cell_names(cells_of(small, FIXED, size)) == ("RU",)
    assert cell_names(cells_of(np.array([[560.0, 560.0, 600.0, 600.0]]), FIXED, size)) == ("LL",)


def test_adjoining_zones_are_one_rectangle() -> None:
    assert rectangles_of(("RL", "LU", "RM")) == [(0.0, 1 / 3, 0.5, 1.0), (0.5, 0.0, 1.0, 1 / 3)]
    assert len(rectangles_of(("RU", "RL"))) == 2 and len(rectangles_of(("RU", "RM'", "RU"))) == 2
    for count in range(1, 7):
        for names in combinations(CELLS, count):
            area = sum((u2 - u1) * (v2 - v1) for u1, v1, u2, v2 in rectangles_of(names))
            assert area == pytest.approx(count / 6)


def test_mirrored_places_are_mirror_images() -> None:
    for names in single_statements():
        for name in names:
            if name not in ("R.upper_lobe", "L.upper_lobe") and "." in name + "." and name[0] in "RL":
                u1, v1, u2, v2 = rectangle_of(name)
                assert rectangle_of(mirrored_place(name)) == pytest.approx((1 - u2, v1, 1 - u1, v2))
    assert mirrored_place("heart") == "heart" and sides_of(("heart", "R.apex")) == 1 and sides_of(("heart",)) == 0
    assert sides_of(("RU", "LL'")) == 3


def test_usual_zones_are_those_of_other_patients() -> None:
    rng = np.random.default_rng(2)
    cells, of_class, patient = rng.integers(1, 5, 60), rng.integers(0, 3, 60), rng.integers(0, 25, 60)
    of_class[0], patient[0] = 7, 99
    found = usual_cells(cells, of_class, patient)
    for pair in range(60):
        others = cells[(of_class == of_class[pair]) & (patient != patient[pair])].tolist()
        counts = Counter(others)
        most = max(counts.values(), default=0)
        assert found[pair] == min((value for value, count in counts.items() if count == most), default=0)
    assert found[0] == 0
