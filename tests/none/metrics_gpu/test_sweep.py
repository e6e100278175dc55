"""The sweep equals a naive evaluation of the canonical arithmetic, in integers.

The oracle upsamples row by row with NumPy float32 arrays (and, once, pixel by pixel), compares the whole map with each
threshold, and shares no code with the package: neither the axis tables, nor the thresholds, nor the histogram.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_sweep import TAUS, F, any_case, assert_equal, extreme_grids, frames_of, naive_source, random_masks
from xbench_fast.metrics_gpu.sweep.counts import Counts, PackedCounts, packed_size
from xbench_fast.metrics_gpu.sweep.masks import pack_masks, unpack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping


def test_equals_a_double_loop_over_pixels():
    rng = np.random.default_rng(2)
    grid, mask = rng.standard_normal((7, 7)).astype(F), random_masks(rng, 1, 64, 64)[0]
    source = [naive_source(i, 64, 7, 0.0, 1.0, "bilinear") for i in range(64)]
    values = [[F(0)] * 64 for _ in range(64)]
    for y, (y0, y1, wy) in enumerate(source):
        for x, (x0, x1, wx) in enumerate(source):
            a = grid[y0, x0] * (F(1) - wx) + grid[y0, x1] * wx
            b = grid[y1, x0] * (F(1) - wx) + grid[y1, x1] * wx
            values[y][x] = a * (F(1) - wy) + b * wy
    low, high = min(map(min, values)), max(map(max, values))
    area, overlap = [0] * 101, [0] * 101
    for y in range(64):
        for x in range(64):
            for k, tau in enumerate(TAUS):
                if (values[y][x] - low) / (high - low) >= tau:
                    area[k] += 1
                    overlap[k] += int(mask[y, x])
    counts = sweep(grid[None], mask[None])
    assert counts.area[0].tolist() == area and counts.overlap[0].tolist() == overlap


@pytest.mark.parametrize("mode", ["bilinear", "align_corners", "nearest"])
@pytest.mark.parametrize("cells", [(7, 7), (14, 14), (16, 16), (32, 32), (64, 64), (1, 9), (3, 1), (1, 1)])
def test_equals_the_naive_map_on_the_evaluation_grid(cells, mode):
    rng = np.random.default_rng(sum(cells))
    grids = rng.standard_normal((2, *cells)).astype(F)
    masks = random_masks(rng, 2, 224, 224)
    assert_equal(sweep(grids, masks, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)


@pytest.mark.parametrize("mode", ["bilinear", "align_corners", "nearest"])
@pytest.mark.parametrize("size", [(1, 1), (1, 33), (31, 7), (13, 64), (97, 101), (40, 255)])
def test_equals_the_naive_map_on_odd_grids(size, mode):
    rng = np.random.default_rng(size[0] * 1000 + size[1])
    grids = rng.random((5, 14, 11), dtype=F)
    masks = random_masks(rng, 5, *size)
    assert_equal(sweep(grids, masks, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)
    assert_equal(sweep(grids, pack_masks(masks), size=size, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)


@pytest.mark.parametrize("mode", ["bilinear", "align_corners", "nearest"])
def test_fields_of_view(mode):
    rng = np.random.default_rng(5)
    grids = rng.random((12, 7, 7), dtype=F) + F(0.5)
    masks, frames = random_masks(rng, 12, 41, 50), frames_of(rng, 12)
    frames[:4] = [[0, 0.125, 1, 0.875], [0.2, 0, 0.8, 1], [-0.25, 0, 1.25, 1], [1.5, 0, 2, 1]]
    counts = sweep(grids, masks, frames=frames, sweeping=Sweeping(upsample=mode))
    assert_equal(counts, grids, masks, frames, mode)
    assert counts.degenerate[3] and not counts.degenerate[:3].any()


def test_the_shape_of_the_map_does_not_matter_for_equality():
    rng = np.random.default_rng(11)
    y, x = np.mgrid[:14, :14].astype(F)
    peak = np.exp(-((y - 4) ** 2 + (x - 9) ** 2) / F(6)).astype(F)
    grids = np.stack(
        [
            peak,
            -peak,
            peak**8,
            (y + x).astype(F),
            (x > 6).astype(F),
            np.where((y == 3) & (x == 8), F(1), F(0)),
            np.round(peak, 2),
            np.tile(F([0, 1]), (14, 7)),
            F(0.3) + F(1e-3) * rng.random((14, 14), dtype=F),
            F(1000) + rng.random((14, 14), dtype=F),
            F(1e-38) * rng.random((14, 14), dtype=F),
            F(3e-44) * rng.random((14, 14), dtype=F),
            F(1e38) * rng.standard_normal((14, 14)).astype(F),
            np.where((y == 13) & (x == 13), F(1e30), peak),
            rng.integers(0, 3, (14, 14)).astype(F),
            rng.integers(0, 101, (14, 14)).astype(F) / F(100),
        ]
    )
    masks = random_masks(rng, len(grids), 224, 224)
    for mode in ("bilinear", "align_corners", "nearest"):
        assert_equal(sweep(grids, masks, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)


def test_two_cells_whose_difference_overflows():
    """No pixel is as large as the cells: the range of the pixels is a float32, that of the cells is not."""
    grids, masks = np.zeros((1, 14, 14), F), np.ones((1, 224, 224), bool)
    grids[0, 3, 3], grids[0, 9, 9] = 1.79e38, -1.79e38
    counts = sweep(grids, masks)
    assert not counts.degenerate[0] and counts.area[0, 50] > 49_000
    assert_equal(counts, grids, masks)


@pytest.mark.parametrize("cells", [(14, 14), (7, 7)])
@pytest.mark.parametrize("mode", ["bilinear", "align_corners", "nearest"])
def test_the_ends_of_float32(cells, mode):
    grids = extreme_grids(100, cells, seed=1)
    masks = random_masks(np.random.default_rng(0), len(grids), 96, 97)
    counts = sweep(grids, masks, sweeping=Sweeping(upsample=mode))
    assert 20 < counts.degenerate.sum() < 80
    assert_equal(counts, grids, masks, mode=mode)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_not_finite_is_degenerate_wherever_it_stands(bad):
    grids = np.random.default_rng(0).random((4, 5, 5), dtype=F)
    for p, cell in enumerate([(0, 0), (2, 3), (4, 4), (4, 0)]):
        grids[(p, *cell)] = bad
    counts = sweep(grids, np.ones((4, 30, 30), bool))
    assert counts.degenerate.all() and not counts.hit.any()
    assert (counts.area[:, 0] == 900).all() and (counts.area[:, 1:] == 0).all()
    assert (counts.overlap[:, 0] == 900).all() and (counts.overlap[:, 1:] == 0).all()
    assert (counts.argmax == 0).all() and (counts.region == 900).all()


def test_not_finite_outside_the_seen_part_does_not_count():
    rng = np.random.default_rng(1)
    grids = rng.random((1, 8, 8), dtype=F)
    grids[0, 0, :] = np.nan  # the padding above the image
    masks, frames = random_masks(rng, 1, 32, 32), np.array([[-0.5, 0.0, 1.5, 1.0]])
    counts = sweep(grids, masks, frames=frames)
    assert_equal(counts, grids, masks, frames)
    assert not counts.degenerate[0]
    skipped = rng.random((1, 9, 9), dtype=F)
    skipped[0, 2, 2] = np.inf  # a cell that nearest sampling at 3 pixels does not read
    assert not sweep(skipped, np.ones((1, 3, 3), bool), sweeping=Sweeping(upsample="nearest")).degenerate[0]


@pytest.mark.parametrize("value", [0.0, -0.0, 0.37, -5.0, 3e38])
def test_a_constant_map_is_degenerate(value):
    mask = np.zeros((1, 224, 224), bool)
    mask[0, :3, :3] = True
    counts = sweep(np.full((1, 14, 14), value, F), mask, sweeping=Sweeping(upsample="nearest"))
    assert counts.degenerate[0] and not counts.hit[0]
    assert counts.area[0, 0] == 224 * 224 and counts.area[0, 1:].sum() == 0
    assert counts.overlap[0, 0] == counts.region[0] == 9 and counts.overlap[0, 1:].sum() == 0


def test_a_range_beyond_float32_is_degenerate():
    grids = F([[[-3e38, 3e38]]])
    masks = np.ones((1, 2, 2), bool)
    assert_equal(sweep(grids, masks), grids, masks)
    assert sweep(grids, masks).degenerate[0]


def test_ties_take_the_first_maximum_in_row_major_order():
    grids = np.zeros((1, 4, 4), F)
    grids[0, 1, 2] = grids[0, 2, 0] = 1
    mask = np.zeros((1, 8, 8), bool)
    mask[0, 2, 4] = True
    counts = sweep(grids, mask, sweeping=Sweeping(upsample="nearest"))
    assert counts.argmax[0] == 2 * 8 + 4 and counts.hit[0]
    assert counts.area[0, 100] == 8 and counts.overlap[0, 100] == 1


def test_bits_beyond_the_width_are_ignored():
    rng = np.random.default_rng(3)
    grids, masks = rng.random((3, 7, 7), dtype=F), random_masks(rng, 3, 20, 21)
    packed = pack_masks(masks)
    assert packed.shape == (3, 20, 3) and np.array_equal(unpack_masks(packed, 21), masks)
    packed[..., -1] |= 0b11100000
    assert_equal(sweep(grids, packed, size=(20, 21)), grids, masks)


def test_strided_readonly_and_memory_mapped_inputs(tmp_path):
    rng = np.random.default_rng(4)
    grids, masks = rng.random((6, 7, 7), dtype=F), random_masks(rng, 6, 30, 45)
    expected = sweep(grids, masks)
    np.save(tmp_path / "masks.npy", pack_masks(masks))
    mapped = np.load(tmp_path / "masks.npy", mmap_mode="r")
    wide = np.zeros((6, 14, 14), F)
    wide[:, ::2, ::2] = grids
    shifted = np.frombuffer(b"\0" + pack_masks(masks).tobytes(), np.uint8)[1:].reshape(mapped.shape)
    fixed = grids.copy()
    fixed.setflags(write=False)
    for saliency, regions in [(wide[:, ::2, ::2], mapped), (fixed, shifted), (grids, masks[:, :, :])]:
        counts = sweep(saliency, regions, size=(30, 45))
        assert np.array_equal(counts.area, expected.area) and np.array_equal(counts.overlap, expected.overlap)
    backwards = sweep(grids[::-1], masks[::-1])
    assert np.array_equal(backwards.area[::-1], expected.area) and np.array_equal(backwards.hit[::-1], expected.hit)


def test_threads_give_the_same_counts():
    rng = np.random.default_rng(6)
    grids, masks = rng.random((64, 14, 14), dtype=F), random_masks(rng, 64, 224, 224)
    whole = sweep(grids, masks)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda i: sweep(grids[i : i + 8], masks[i : i + 8]), range(0, 64, 8)))
    merged = Counts.concatenate(parts)
    for name in ("area", "overlap", "region", "argmax", "hit", "degenerate"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name))


def test_no_pair_and_concatenation():
    none = sweep(np.zeros((0, 14, 14), F), np.zeros((0, 224, 224), bool))
    assert len(none) == 0 and none.area.shape == (0, 101) and len(Counts.concatenate([])) == 0
    some = sweep(np.eye(3, dtype=F)[None], np.ones((1, 4, 4), bool))
    assert len(Counts.concatenate([none, some, some])) == 2
    assert len(some.take(np.array([False]))) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"saliency": np.zeros((1, 2, 2))}, TypeError, "float32"),
        ({"saliency": [[[1.0]]]}, TypeError, "float32"),
        ({"saliency": np.zeros((2, 2), F)}, ValueError, r"\[P, h, w\]"),
        ({"saliency": np.zeros((1, 0, 2), F)}, ValueError, "h, w >= 1"),
        ({"saliency": np.zeros((3, 2, 2), F)}, ValueError, "3 saliency maps do not fit 1 masks"),
        ({"masks": np.zeros((1, 8, 8), np.int32)}, TypeError, "bool or a packed uint8"),
        ({"masks": np.zeros((8, 8), bool)}, ValueError, "three axes"),
        ({"masks": np.zeros((1, 8, 0), bool)}, ValueError, "at least one pixel"),
        ({"masks": np.zeros((1, 8, 8), np.uint8)}, ValueError, "packed masks"),
        ({"masks": np.zeros((1, 8, 1), np.uint8), "size": (8, 9)}, ValueError, "packed masks"),
        ({"size": (9, 8)}, ValueError, "does not fit"),
        ({"frames": np.zeros((2, 4))}, ValueError, r"shape \(1, 4\)"),
        ({"frames": np.array([[0.5, 0, 0.5, 1]])}, ValueError, "frame 0"),
        ({"frames": np.array([[0, 0, np.nan, 1]])}, ValueError, "frame 0"),
    ],
)
def test_misuse_is_one_clear_sentence(arguments, error, words):
    right = {"saliency": np.zeros((1, 2, 2), F), "masks": np.zeros((1, 8, 8), bool)}
    with pytest.raises(error, match=words):
        sweep(**{**right, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"upsample": "bicubic"}, "unknown upsampling 'bicubic'; known: bilinear, align_corners, nearest"),
        ({"normalise": "sum"}, "unknown normalisation 'sum'; known: minmax, max, none"),
        ({"comparison": "<"}, "comparison is >= or >, got '<'"),
        ({"tau_scale": 0.0}, "positive, finite scale, got 0.0"),
    ],
)
def test_unknown_ways_to_read_maps_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Sweeping(**arguments)


def test_packing_refuses_other_types():
    with pytest.raises(TypeError, match="bool"):
        pack_masks(np.zeros((1, 2, 2), np.uint8))
    with pytest.raises(ValueError, match=r"\[P, H, W\]"):
        pack_masks(np.zeros((2, 2), bool))


@settings(max_examples=150)
@given(data=st.data())
def test_any_grid_any_frame_any_mode(data):
    grid, mask, frame, mode = any_case(data, 40)
    counts = sweep(grid[None], mask[None], frames=frame, sweeping=Sweeping(upsample=mode))
    assert_equal(counts, grid[None], mask[None], frame, mode)


def test_counts_of_masks_are_kept_once():
    region, argmax, hit = np.full(3, 40, np.int32), np.zeros(3, np.int32), np.ones(3, bool)
    masks = Counts.of_masks(np.array([9, 50, 7], np.int32), np.array([3, 40, 0], np.int32), region, argmax, hit)
    for counts, area in (
        (masks, [9, 50, 7]),
        (masks.take(np.array([2, 0])), [7, 9]),
        (masks.take(hit), [9, 50, 7]),
        (masks.take(np.zeros(0, np.intp)), []),
        (Counts.concatenate([masks, masks.take(slice(1, 2))]), [9, 50, 7, 50]),
    ):
        assert counts.area.tolist() == [[pixels] * 101 for pixels in area]
        assert counts.area.strides[1] == counts.overlap.strides[1] == 0 or not area
    some = sweep(np.eye(3, dtype=F)[None], np.ones((1, 4, 4), bool))
    both = Counts.concatenate([masks, some])
    assert (both.area[:3] == masks.area).all() and (both.overlap[3:] == some.overlap).all()


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_packed_counts_lie_one_behind_another_and_are_copied_at_once(pairs: int) -> None:
    assert packed_size(pairs) == pairs * (2 * 101 * 4 + 2 * 4 + 2)
    memory = np.zeros(packed_size(pairs), np.uint8)
    packed = PackedCounts(memory, pairs)
    rng = np.random.default_rng(pairs)
    wanted = {name: rng.integers(0, 9999, getattr(packed, name).shape) for name in vars(packed) if name != "memory"}
    for name, values in wanted.items():
        array = getattr(packed, name)
        array[...] = values
        assert array.flags.aligned and (not pairs or np.shares_memory(array, memory))
    copies: list[np.ndarray] = []
    copied = packed.copied(lambda array: copies.append(array.copy()) or copies[-1])
    memory[...] = 0
    assert len(copies) == 1 and type(copied) is Counts
    for name, values in wanted.items():
        array = getattr(copied, name)
        np.testing.assert_array_equal(array, values.astype(array.dtype))
    assert len(packed.on_host().take(slice(0, 2))) == min(pairs, 2)
