"""The canonical map is written once per language: NumPy, numba and JavaScript agree to the last bit.

CUDA and numba are compared in `test_sweep_cuda`.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import numpy as np
import pytest
from naive_sweep import F, extreme_grids, naive_map
from xbench_fast.metrics_gpu.sweep.maps import scaled_map, upsampled
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import MODES, Sweeping
from xbench_fast.runtime.reporting.page.viewing.assets import shared_asset

SIZE = 48
WAYS = [
    *(Sweeping(mode) for mode in MODES),
    Sweeping("nearest", "none", ">", 0.5),
    Sweeping("align_corners", "max", ">="),
]


def cases():
    """Maps float32 [h, w] and the part of the image that each covers: ordinary, padded, cut, unseen, degenerate
    and at the ends of float32."""
    rng = np.random.default_rng(0)
    whole, padded, part = (0.0, 0.0, 1.0, 1.0), (-0.2, 0.0, 1.1, 1.0), (0.13, 0.5, 0.9, 0.77)
    grids = [rng.random(size, dtype=F) for size in ((14, 14), (7, 9), (1, 5), (64, 64))]
    grids += [rng.standard_normal((5, 5)).astype(F) * F(1e-3) - F(2), np.full((3, 3), F(0.25)), -rng.random((4, 4), F)]
    grids.append(np.array([[-1, 0], [-2, -0.5]], F))  # the largest value is 0, by which nothing can be divided
    grids += list(extreme_grids(30, (7, 7), seed=3))
    broken = rng.random((6, 6), dtype=F)
    broken[2, 3] = np.nan
    return [(grid, frame) for grid in [*grids, broken] for frame in (whole, padded, part, (2.0, 0.0, 3.0, 1.0))]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_javascript_draws_the_map_that_numpy_and_the_sweep_have(way):
    if shutil.which("node") is None:
        pytest.skip("node is not on this machine")
    code = (
        shared_asset("saliency.js")
        + """
        const [maps, how, size] = JSON.parse(require("fs").readFileSync(0, "utf8"));
        how.thresholds = floatsOf(how.thresholds);
        const answers = maps.map(([map, grid, frame]) => {
            const swept = sweepMap(floatsOf(map), grid, frame, how, size);
            const area = new Array(101).fill(0);
            for (const level of swept.levels) for (let k = 0; k < level; k++) area[k]++;
            return [Buffer.from(swept.normal.buffer).toString("base64"), area, swept.argmax, swept.flat];
        });
        console.log(JSON.stringify(answers));"""
    )
    sent = [[text(grid), list(grid.shape), list(frame)] for grid, frame in cases()]
    how = {"upsample": way.upsample, "normalise": way.normalise, "thresholds": text(way.thresholds)}
    done = subprocess.run(
        ["node", "-e", code],
        input=json.dumps([sent, how, SIZE]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (grid, frame), (normal, area, argmax, flat) in zip(cases(), json.loads(done.stdout), strict=True):
        expected = scaled_map(grid, size=(SIZE, SIZE), frame=frame, sweeping=way)
        found = np.frombuffer(base64.b64decode(normal), "<f4").reshape(SIZE, SIZE)
        assert np.array_equal(found, expected)
        counts = sweep(grid[None], np.ones((1, SIZE, SIZE), bool), frames=np.array([frame]), sweeping=way)
        assert (area, flat) == (counts.area[0].tolist(), bool(counts.degenerate[0]))
        assert flat or argmax == counts.argmax[0]
        assert [int((expected >= t).sum()) for t in way.thresholds] == area


@pytest.mark.parametrize("mode", MODES)
def test_numpy_upsamples_as_a_loop_over_rows(mode):
    for grid, frame in cases():
        found = upsampled(grid, (SIZE, SIZE + 5), frame, mode)
        with np.errstate(invalid="ignore", over="ignore"):
            values, seen = naive_map(grid, SIZE, SIZE + 5, frame, mode)
        assert np.array_equal(found.rows[:, None] & found.columns, seen)
        assert np.array_equal(found.full_image(np.nan), values, equal_nan=True)


def text(values):
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
