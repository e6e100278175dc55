"""The sweep's CUDA kernels, run on the CPU from their own source, against the naive oracle.

Not a run on a GPU: that is tests/gpu. What the shim cannot show is what the hardware and its compiler do.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from types import SimpleNamespace

import cupy_on_cpu
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_sweep import F, any_case, assert_equal, extreme_grids, frames_of, mean_cases, naive_map, random_masks
from xbench_fast.metrics_gpu.sweep import gpu as sweep_cupy
from xbench_fast.metrics_gpu.sweep import gpu_tables
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.gpu_tables import BAND, EQUAL, RUN, row_runs
from xbench_fast.metrics_gpu.sweep.maps import axis
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping

FIELDS = ("area", "overlap", "region", "argmax", "hit", "degenerate")
MODES = ("bilinear", "align_corners", "nearest")


@pytest.fixture(scope="module", params=[None, 32])
def cupy(request, sweep_library):
    """CuPy on the CPU, with the launch's own block size and with a single warp."""
    fake = cupy_on_cpu.fake_cupy(sweep_library, request.param)
    with cupy_on_cpu.installed(fake):
        yield fake


def gpu_sweep(cupy, grids, masks, **options):
    counts = sweep(cupy.asarray(grids), cupy.asarray(masks), **options)
    assert all(isinstance(getattr(counts, name), cupy.ndarray) for name in FIELDS)
    host = counts.on_host()
    assert not any(isinstance(getattr(host, name), cupy.ndarray) for name in FIELDS)
    return host


def assert_same(a: Counts, b: Counts):
    for name in FIELDS:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cells", [(7, 7), (14, 14), (16, 16), (32, 32), (64, 64), (1, 9), (3, 1), (1, 1)])
def test_equals_the_naive_map_on_the_evaluation_grid(cupy, cells, mode):
    rng = np.random.default_rng(sum(cells))
    grids, masks = rng.standard_normal((1, *cells)).astype(F), random_masks(rng, 1, 224, 224)
    assert_equal(gpu_sweep(cupy, grids, masks, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)


@pytest.mark.parametrize("size", [(1, 1), (1, 33), (31, 7), (13, 64), (97, 101), (40, 255), (1024, 1024)])
def test_other_grids_packed_or_not(cupy, size):
    rng = np.random.default_rng(size[0] * 1000 + size[1])
    grids, masks = rng.random((2, 14, 11), dtype=F), random_masks(rng, 2, *size)
    for mode in MODES if size[0] < 1000 else MODES[:1]:
        assert_equal(gpu_sweep(cupy, grids, masks, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)
        assert_equal(
            gpu_sweep(cupy, grids, pack_masks(masks), size=size, sweeping=Sweeping(upsample=mode)),
            grids,
            masks,
            mode=mode,
        )


def box_masks(pairs, side):
    """A box in every mask, so that most bands of rows lie outside the region; the first mask is empty."""
    masks = np.zeros((pairs, side, side), bool)
    for p in range(1, pairs):
        masks[p, 7 * p : 7 * p + 5 + side // 6, side - 9 * p - side // 8 : side - 9 * p] = True
    return masks


@pytest.mark.parametrize("frame", [(0, 0, 1, 1), (0, 0.125, 1, 0.875), (0.1, 0.1, 0.9, 0.6)])
def test_bands_of_rows_inside_and_outside_the_region(cupy, frame):
    """14 x 14 cells on 224 x 224: the rows of the first and third frame are bands, those of the second columns too."""
    grids, masks = shapes()[0][:18], box_masks(18, 224)
    frames = np.tile(np.float64(frame), (18, 1))
    assert_equal(gpu_sweep(cupy, grids, masks, frames=frames), grids, masks, frames)


@pytest.mark.parametrize(
    ("cells", "pixels", "mode", "kinds"),
    [
        (14, 224, "bilinear", [(8, EQUAL), *[(16, BAND)] * 13, (8, EQUAL)]),
        (14, 224, "nearest", [(16, EQUAL)] * 14),
        (14, 112, "bilinear", [(4, EQUAL), *[(8, 0)] * 13, (4, EQUAL)]),
        (7, 224, "bilinear", [(16, EQUAL), *[(16, 0)] * 12, (16, EQUAL)]),
        (1, 40, "bilinear", [(16, EQUAL), (16, EQUAL), (8, EQUAL)]),
        (2, 3, "align_corners", [(2, 0), (1, 0)]),
    ],
)
def test_runs_of_rows(cells, pixels, mode, kinds):
    found = axis(cells, pixels, mode=mode)
    (runs,) = row_runs(np.stack([found.lo, found.hi])[None], found.weight[None])
    assert [(rows & 0xFFFF, rows >> 16) for rows in runs[:, 1].tolist()] == kinds


@given(data=st.data())
def test_every_seen_row_is_in_one_run(data):
    """Of several tables; all rows of a run have its cells, and the weights that its kind says."""
    cells, pixels = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 70))
    spans = data.draw(st.lists(st.tuples(st.floats(-0.3, 0.4), st.floats(0.5, 1.3)), min_size=1, max_size=3))
    tables = [axis(cells, pixels, *span, data.draw(st.sampled_from(MODES))) for span in spans]
    runs = row_runs(np.stack([np.stack([t.lo, t.hi]) for t in tables]), np.stack([t.weight for t in tables]))
    for table, own in zip(tables, runs.tolist(), strict=True):
        taken = []
        for first, packed, lo, hi in own:
            rows = range(first, first + (packed & 0xFFFF))
            taken += rows
            assert len(rows) <= RUN and {(int(table.lo[y]), int(table.hi[y])) for y in rows} <= {(lo, hi)}
            weights = [float(table.weight[y]) for y in rows]
            assert packed >> 16 != EQUAL or len(set(weights)) == 1
            assert packed >> 16 != BAND or weights == [(2 * r + 1) / 32 for r in range(RUN)]
        assert taken == np.flatnonzero(table.seen).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_fields_of_view(cupy, mode):
    rng = np.random.default_rng(5)
    grids = rng.random((12, 7, 7), dtype=F) - F(0.5)
    masks, frames = random_masks(rng, 12, 41, 50), frames_of(rng, 12)
    frames[:4] = [[0, 0.125, 1, 0.875], [0.2, 0, 0.8, 1], [-0.25, 0, 1.25, 1], [1.5, 0, 2, 1]]
    counts = gpu_sweep(cupy, grids, masks, frames=frames, sweeping=Sweeping(upsample=mode))
    assert_equal(counts, grids, masks, frames, mode)
    assert counts.degenerate[3] and not counts.degenerate[:3].any()
    assert_same(gpu_sweep(cupy, grids, masks, frames=cupy.asarray(frames), sweeping=Sweeping(upsample=mode)), counts)


def shapes():
    """Maps of every kind: peaks, flat parts, ties, one cell, huge and subnormal ranges, not finite."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[:14, :14].astype(F)
    peak = np.exp(-((y - 4) ** 2 + (x - 9) ** 2) / F(6)).astype(F)
    signed_zeros = np.where(x > 6, F(-0.0), F(0.0))
    assert np.signbit(signed_zeros).any()
    grids = np.stack(
        [
            peak,
            -peak,
            peak**8,
            (y + x).astype(F),
            (x > 6).astype(F),
            np.where((y == 3) & (x == 8), F(1), F(0)),
            np.where((y == 3) & (x == 8), F(0), F(-1)) * F(1),
            np.where(y > 6, F(-1), signed_zeros),
            np.where(y > 6, F(1), signed_zeros),
            np.where(y > 6, F(1), -signed_zeros),
            np.where(y > 6, np.copysign(F(0), peak - F(0.5)), -peak),
            signed_zeros,
            np.round(peak, 2),
            np.tile(F([0, 1]), (14, 7)),
            F(0.3) + F(1e-3) * rng.random((14, 14), dtype=F),
            F(1000) + rng.random((14, 14), dtype=F),
            F(1e-38) * rng.random((14, 14), dtype=F),
            F(3e-44) * rng.random((14, 14), dtype=F),
            F(1e38) * rng.standard_normal((14, 14)).astype(F),
            F(3.4e38) * (2 * rng.integers(0, 2, (14, 14)) - 1).astype(F),
            np.full((14, 14), 3.4028235e38, F),
            np.where((y == 13) & (x == 13), F(1e30), peak),
            rng.integers(0, 3, (14, 14)).astype(F),
            rng.integers(0, 101, (14, 14)).astype(F) / F(100),
            np.ones((14, 14), F),
            np.zeros((14, 14), F),
            *(
                np.where((y == r) & (x == c), F(v), peak)
                for v, r, c in [(np.nan, 0, 0), (-np.nan, 5, 5), (np.inf, 13, 13), (-np.inf, 13, 0)]
            ),
        ]
    )
    return grids, random_masks(rng, len(grids), 96, 97)


@pytest.mark.parametrize("mode", MODES)
def test_the_shape_of_the_map_does_not_matter_for_equality(cupy, mode):
    grids, masks = shapes()
    masks[0], masks[1] = True, False
    assert_equal(gpu_sweep(cupy, grids, masks, sweeping=Sweeping(upsample=mode)), grids, masks, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_ends_of_float32(cupy, mode):
    grids = extreme_grids(40, (14, 14), seed=1)
    masks = random_masks(np.random.default_rng(0), len(grids), 64, 65)
    counts = gpu_sweep(cupy, grids, masks, sweeping=Sweeping(upsample=mode))
    assert not counts.degenerate.all()
    assert_equal(counts, grids, masks, mode=mode)


def test_taller_grids_than_the_kernel_keeps_ends_of(cupy):
    rng = np.random.default_rng(8)
    grids, masks = rng.random((1, 600, 5), dtype=F), random_masks(rng, 1, 64, 64)
    assert_equal(gpu_sweep(cupy, grids, masks), grids, masks)
    grids[0, 0] = np.nan
    assert gpu_sweep(cupy, grids, masks, frames=np.array([[-0.1, 0, 1, 1.0]])).degenerate[0] in (True, False)
    assert_equal(gpu_sweep(cupy, grids, masks), grids, masks)


def test_bits_beyond_the_width_are_ignored(cupy):
    rng = np.random.default_rng(3)
    grids, masks = rng.random((3, 7, 7), dtype=F), random_masks(rng, 3, 20, 21)
    packed = pack_masks(masks)
    packed[..., -1] |= 0b11100000
    assert_equal(gpu_sweep(cupy, grids, packed, size=(20, 21)), grids, masks)


def naive_other(grid, mask, mode, normalise, comparison, tau_scale):
    """Counts under another normalisation or comparison, by direct comparison of the whole map."""
    with np.errstate(all="ignore"):
        values, _ = naive_map(grid, *mask.shape, mode=mode)
        low, high = values.min(), values.max()
        span = high - low
        flat = not np.isfinite(values).all() or not (0 < span < np.inf) or (normalise == "max" and not high > 0)
        normal = np.zeros(mask.shape, F)
        if not flat:
            normal = {"minmax": lambda: (values - low) / span, "max": lambda: values / high, "none": lambda: values}[
                normalise
            ]()
    assert normal.dtype == F
    taus = [F(tau_scale * (k / 100)) for k in range(101)]
    marked = [normal >= tau if comparison == ">=" else normal > tau for tau in taus]
    argmax = 0 if flat else int(values.argmax())
    return (
        [int(m.sum()) for m in marked],
        [int((m & mask).sum()) for m in marked],
        (int(mask.sum()), argmax, bool(not flat and mask.flat[argmax]), flat),
    )


@pytest.mark.parametrize("comparison", [">=", ">"])
@pytest.mark.parametrize("normalise", ["minmax", "max", "none"])
def test_other_protocols_on_both_devices(cupy, normalise, comparison):
    grids, masks = shapes()
    for mode, scale in [("bilinear", 1.0), ("nearest", 0.016), ("align_corners", 0.1)]:
        options = {"sweeping": Sweeping(mode, normalise, comparison, scale)}
        cpu, gpu = sweep(grids, masks, **options), gpu_sweep(cupy, grids, masks, **options)
        assert_same(cpu, gpu)
        for p, (grid, mask) in enumerate(zip(grids, masks, strict=True)):
            area, overlap, rest = naive_other(grid, mask, mode, normalise, comparison, scale)
            assert cpu.area[p].tolist() == area and cpu.overlap[p].tolist() == overlap
            assert (cpu.region[p], cpu.argmax[p], cpu.hit[p], cpu.degenerate[p]) == rest


def test_unseen_pixels_take_the_minimum_in_every_protocol(cupy):
    rng = np.random.default_rng(9)
    grids, masks, frames = rng.standard_normal((6, 5, 5)).astype(F), random_masks(rng, 6, 33, 40), frames_of(rng, 6)
    for normalise in ("max", "none"):
        for shift in (F(0), F(0.5), F(3)):
            options = {"frames": frames, "sweeping": Sweeping(normalise=normalise, comparison=">", tau_scale=2.0)}
            cpu, gpu = sweep(grids + shift, masks, **options), gpu_sweep(cupy, grids + shift, masks, **options)
            assert_same(cpu, gpu)
            for p in range(6):
                values, seen = naive_map(grids[p] + shift, 33, 40, tuple(frames[p]))
                if cpu.degenerate[p]:
                    continue
                full = np.where(seen, values, values[seen].min())
                full = full / full.max() if normalise == "max" else full
                assert cpu.area[p].tolist() == [int((full > F(k / 50)).sum()) for k in range(101)]


def test_the_other_kernel_and_the_default_one_agree(cupy):
    """They share the interpolation, but neither the normalisation nor the search for a threshold."""
    from xbench_fast.metrics_gpu.sweep.plain import sweep_plain
    from xbench_fast.metrics_gpu.sweep.tables import Tables

    rng = np.random.default_rng(10)
    grids, masks = rng.random((8, 14, 14), dtype=F), random_masks(rng, 8, 64, 64)
    tables = Tables.of(np.array([[0.0, 0.0, 1.0, 1.0]]), 8, (14, 14), (64, 64), "bilinear")
    words = pack_masks(masks).view(np.uint32)
    levels, single, flags = sweep_plain(grids, words, 64, tables.arrays, 0, Sweeping().thresholds)
    counts = sweep(grids, masks)
    assert np.array_equal(levels[0], counts.area) and np.array_equal(levels[1], counts.overlap)
    assert np.array_equal(single[1], counts.argmax) and np.array_equal(flags[0], counts.hit)


@settings(max_examples=60)
@given(data=st.data())
def test_any_grid_any_frame_any_mode(cupy, data):
    grid, mask, frame, mode = any_case(data, 70)
    counts = gpu_sweep(cupy, grid[None], mask[None], frames=frame, sweeping=Sweeping(upsample=mode))
    assert_equal(counts, grid[None], mask[None], frame, mode)


def test_one_launch_for_a_batch_in_the_given_stream(cupy):
    rng = np.random.default_rng(0)
    grids, masks = rng.random((40, 7, 7), dtype=F), random_masks(rng, 40, 30, 30)
    cupy.launches.clear()
    log = []
    sweep(cupy.asarray(grids), cupy.asarray(pack_masks(masks)), size=(30, 30), stream=cupy_on_cpu.Within(log))
    assert cupy.launches == [("sweep", (40,), (sweep_cupy.THREADS,))] and len(log) == 1
    empty = sweep(cupy.asarray(grids[:0]), cupy.asarray(masks[:0]))
    assert len(empty) == 0 and len(cupy.launches) == 1
    with pytest.raises(TypeError, match="stream"):
        sweep(grids, masks, stream=cupy_on_cpu.Within(log))


def test_misuse_on_the_gpu(cupy):
    grid, mask = cupy.asarray(np.zeros((1, 2, 2), F)), cupy.asarray(np.zeros((1, 8, 8), bool))
    for arguments, error, words in [
        ({"masks": np.zeros((1, 8, 8), bool)}, TypeError, "CuPy array"),
        ({"masks": cupy.asarray(np.zeros((1, 8, 8), np.int32))}, TypeError, "packed uint8"),
        ({"masks": cupy.asarray(np.zeros((8, 8), bool))}, ValueError, "three axes"),
        ({"masks": cupy.asarray(np.zeros((1, 8, 0), bool))}, ValueError, "at least one pixel"),
        ({"masks": cupy.asarray(np.zeros((1, 8, 1), np.uint8)), "size": (8, 9)}, ValueError, "packed masks"),
        ({"size": (9, 8)}, ValueError, "does not fit"),
        ({"saliency": cupy.asarray(np.zeros((1, 2, 2)))}, TypeError, "float32"),
        ({"saliency": cupy.asarray(np.zeros((2, 2), F))}, ValueError, r"\[P, h, w\]"),
        ({"saliency": cupy.asarray(np.zeros((3, 2, 2), F))}, ValueError, "do not fit"),
        ({"frames": np.zeros((2, 4))}, ValueError, r"shape \(1, 4\)"),
        ({"masks": cupy.asarray(np.zeros((1, 1, 16384), np.uint8)), "size": (1, 131072)}, ValueError, "131040 pixels"),
    ]:
        with pytest.raises(error, match=words):
            sweep(**{"saliency": grid, "masks": mask, **arguments})


def test_tables_are_uploaded_once_for_each_frame(cupy, monkeypatch):
    """Where they differ, the places of each call's tables are uploaded too."""
    rng = np.random.default_rng(1)
    grids, masks = rng.random((5, 7, 7), dtype=F), random_masks(rng, 5, 30, 64)
    same, other = np.tile([0.0, 0.1, 1.0, 0.9], (5, 1)), frames_of(rng, 5)
    packed = cupy.asarray(pack_masks(masks))
    maps, made, asarray = cupy.asarray(grids), [], cupy.asarray
    sweep_cupy._kernels.cache_clear()
    monkeypatch.setattr(cupy, "asarray", lambda *arguments: made.append(1) or asarray(*arguments))
    counts = []
    for frames in (same, same, None, None, other, other, other[::-1][:3]):
        before = len(made)
        pairs = 5 if frames is None else len(frames)
        swept = sweep(maps[:pairs], packed[:pairs], size=(30, 64), frames=frames).on_host()
        assert_equal(swept, grids[:pairs], masks[:pairs], frames)
        counts.append(len(made) - before)
    assert counts == [9, 0, 8, 0, 8, 1, 1]


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_more_frames_than_are_kept_give_the_same_counts(cupy, monkeypatch, mode):
    """Calls with frames that are there, with new ones, with both, and with more than there is room for."""
    monkeypatch.setattr(gpu_tables, "FRAMES", 6)
    rng = np.random.default_rng(7)
    frames = frames_of(rng, 20)
    # These see less of the map, enlarged: their bands are longer, so they have fewer runs.
    frames[10:15] = [[-0.2 * n, 0, 1 + 0.3 * n, 1] for n in range(1, 6)]
    sweep_cupy._kernels.cache_clear()
    tables, most = sweep_cupy._kernels(0).tables, []
    for chosen in (
        [14, 13],
        [14, 0],  # there is room, but not for as many runs
        [0, 1, 2],
        [2, 0, 2],
        [3, 4, 1, 0],
        [5],
        [5, 6],
        [0, 6, 7],
        range(10, 15),
        [0, 12],
        range(20),
        [19, 3],
    ):
        count = len(chosen)
        grids, masks = rng.random((count, 4, 5), dtype=F), random_masks(rng, count, 40, 33)
        counts = gpu_sweep(cupy, grids, masks, frames=frames[list(chosen)], sweeping=Sweeping(upsample=mode))
        assert_equal(counts, grids, masks, frames[list(chosen)], mode)
        kept = tables._kept((get_ident(), 0, 7), (4, 5), (40, 33), mode)
        most.append(len(kept._places))
        assert len(kept._arrays[0]) == (20 if 20 in most else 6), "as many as a call needs"
    assert most[:6] == [2, 2, 4, 4, 6, 6] and max(most) <= 20 and tables._kept.cache_info().currsize == 1


def test_each_stream_and_thread_has_tables_of_its_own(cupy, monkeypatch):
    """Only the order of one stream says when the tables were read."""
    rng = np.random.default_rng(3)
    frames, tables = frames_of(rng, 3), gpu_tables.DeviceTables(cupy)
    first = tables.axes(frames, (4, 4), (20, 20), "bilinear")
    stream = SimpleNamespace(ptr=8)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: stream)
    second = tables.axes(frames, (4, 4), (20, 20), "bilinear")
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(tables.axes, frames, (4, 4), (20, 20), "bilinear").result()
    again = tables.axes(frames, (4, 4), (20, 20), "bilinear")
    places = [made[2].data.ptr for made in (first, second, third, again)]
    assert len(set(places)) == 3 and places[1] == places[3]


def test_packed_masks_are_used_in_place_where_they_are_whole_words(cupy):
    rng = np.random.default_rng(2)
    grids, masks = rng.random((3, 5, 5), dtype=F), random_masks(rng, 3, 9, 64)
    whole = cupy.asarray(pack_masks(masks))
    assert sweep_cupy._words(cupy, None, whole, 64).data.ptr == whole.data.ptr
    shifted = np.zeros(whole.nbytes + 1, np.uint8)
    shifted[1:] = whole.ravel()
    askew = cupy.asarray(shifted)[1:].reshape(whole.shape)
    assert askew.data.ptr % 4 and sweep_cupy._words(cupy, None, askew, 64).data.ptr % 4 == 0
    assert_equal(sweep(cupy.asarray(grids), askew, size=(9, 64)).on_host(), grids, masks)


def test_counters_are_emptied_before_they_overflow(cupy):
    """More than 65,535 pixels for a lane, nearly all of them in one bin and inside the region."""
    grids = np.zeros((1, 4, 4), F)
    grids[0, 0, 0] = 1
    masks = np.ones((1, 70_000, 40), bool)
    masks[0, 0, 0] = False
    assert_equal(gpu_sweep(cupy, grids, masks), grids, masks)


@pytest.mark.parametrize("cells", [(14, 14), (3, 1), (1, 2)])
def test_means_of_maps_have_the_bits_of_numpys(cupy, cells):
    maps, starts, places, expected = mean_cases(cells)
    cupy.launches.clear()
    means = sweep_cupy.mean_maps(cupy.asarray(maps), starts, places).get()
    assert means.dtype == F and means.tobytes() == expected.tobytes()
    assert cupy.launches == [("mean_maps", (-(-means.size // sweep_cupy.THREADS),), (sweep_cupy.THREADS,))]
    none = sweep_cupy.mean_maps(cupy.asarray(maps), np.zeros(1, np.intp), np.zeros(0, np.intp))
    assert none.shape == (0, *cells) and len(cupy.launches) == 1
