"""The sweep on a real GPU equals the sweep on the CPU, to the last integer."""

from __future__ import annotations

import numpy as np
import pytest
from naive_sweep import mean_cases
from xbench_fast.engines.backends.gpu import gpu_reason, load_cupy
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.gpu import mean_maps
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping

pytestmark = pytest.mark.gpu
F = np.float32


@pytest.fixture(scope="module")
def cupy():
    reason = gpu_reason()
    if reason is not None:
        pytest.skip(f"no GPU can be used here: {reason}")
    return load_cupy()


def assert_same(device: Counts, host: Counts) -> None:
    copied = device.on_host()
    for name in ("area", "overlap", "region", "argmax", "hit", "degenerate"):
        assert np.array_equal(getattr(copied, name), getattr(host, name)), name


def world(pairs, cells, size, seed=0):
    """Maps of several kinds, some flat, tied or not finite, and regions from empty to everything."""
    rng = np.random.default_rng(seed)
    grids = rng.standard_normal((pairs, *cells)).astype(F)
    grids[1::7] = np.round(grids[1::7])
    grids[2::7] = np.exp(4 * grids[2::7])
    grids[3::7] = F(1000) + grids[3::7]
    grids[4::14] = 0.25
    grids[5::14, 0, 0] = np.nan
    grids[6::14] *= F(1e-40)
    masks = rng.random((pairs, *size)) < rng.random((pairs, 1, 1)) ** 3
    masks[:2] = [[[False]], [[True]]]
    return grids, masks


@pytest.mark.parametrize("mode", ["bilinear", "align_corners", "nearest"])
@pytest.mark.parametrize("cells", [(1, 1), (7, 7), (14, 14), (16, 16), (32, 32), (64, 64), (3, 50), (600, 5)])
@pytest.mark.parametrize("size", [(224, 224), (1024, 1024), (97, 101), (1, 33)])
def test_equals_the_cpu(cupy, cells, size, mode):
    grids, masks = world(28, cells, size, sum(cells) + sum(size))
    expected = sweep(grids, masks, sweeping=Sweeping(upsample=mode))
    assert_same(sweep(cupy.asarray(grids), cupy.asarray(masks), sweeping=Sweeping(upsample=mode)), expected)
    packed = cupy.asarray(pack_masks(masks))
    assert_same(sweep(cupy.asarray(grids), packed, size=size, sweeping=Sweeping(upsample=mode)), expected)


@pytest.mark.parametrize("comparison", [">=", ">"])
@pytest.mark.parametrize("normalise", ["minmax", "max", "none"])
def test_fields_of_view_and_other_protocols(cupy, normalise, comparison):
    grids, masks = world(56, (14, 14), (224, 224), 3)
    rng = np.random.default_rng(1)
    start, length = rng.uniform(-0.4, 0.5, (56, 2)), rng.uniform(0.3, 1.4, (56, 2))
    frames = np.concatenate([start, start + length], axis=1)
    for scale in (1.0, 0.016):
        options = {"frames": frames, "sweeping": Sweeping("bilinear", normalise, comparison, scale)}
        assert_same(sweep(cupy.asarray(grids), cupy.asarray(masks), **options), sweep(grids, masks, **options))


def test_a_large_batch_in_a_stream_of_its_own(cupy):
    grids, masks = world(500, (14, 14), (224, 224), 5)
    grids, packed = np.tile(grids, (40, 1, 1)), np.tile(pack_masks(masks), (40, 1, 1))
    on_gpu = cupy.asarray(grids), cupy.asarray(packed)
    cupy.cuda.get_current_stream().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    counts = sweep(*on_gpu, stream=stream)
    stream.synchronize()
    assert_same(counts, sweep(grids, packed))
    again = sweep(*on_gpu)
    assert_same(again, counts.on_host())


@pytest.mark.parametrize("cells", [(14, 14), (3, 1), (1, 2)])
def test_means_of_maps_have_the_bits_of_numpys(cupy, cells):
    maps, starts, places, expected = mean_cases(cells)
    assert mean_maps(cupy.asarray(maps), starts, places).get().tobytes() == expected.tobytes()
