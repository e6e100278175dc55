"""Smoothing of a map by a constant matrix: SciPy's Gaussian filter, and exported under a name the bundle can give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from scipy.ndimage import gaussian_filter
from xbench_fast.engines.manifest import known_smoothing
from xbench_fast.export.models.layers.resampling import SIGMA, Resampled, gaussian_matrix
from xbench_fast.export.models.saliency_maps import MAPS, SMOOTHED


def test_bundles_that_do_not_state_it_are_known_by_their_model_and_map() -> None:
    for model, maps in MAPS.items():
        official, *others = maps
        assert known_smoothing(model, "official") == (SIGMA if official == SMOOTHED else 0), model
        assert not any(known_smoothing(model, name) for name in others)


@pytest.mark.parametrize("cells", [1, 3, 14, 15, 19])
def test_the_matrix_smooths_as_scipy_does(cells: int) -> None:
    maps = np.random.default_rng(cells).normal(size=(2, 3, cells, cells))
    wanted = gaussian_filter(maps, sigma=(0, 0, 1.5, 1.5), mode="reflect", truncate=4.0)
    smoothed = Resampled(gaussian_matrix(cells))(torch.as_tensor(maps, dtype=torch.float32))
    np.testing.assert_allclose(smoothed.numpy(), wanted, rtol=0, atol=2e-6)


def test_it_is_no_weight_of_a_checkpoint_and_keeps_its_name_in_the_graph(tmp_path: Path) -> None:
    with torch.device("meta"):  # how adapters build a network before its weights are read
        smooth = Resampled(gaussian_matrix(14))
    assert not smooth.state_dict() and smooth.matrix.device.type == "cpu"
    path = tmp_path / "graph.onnx"
    maps = torch.randn(2, 3, 14, 14)
    dimensions = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("findings")},)
    torch.onnx.export(smooth.eval(), (maps,), str(path), dynamo=True, dynamic_shapes=dimensions, verbose=False)
    assert [tensor.name for tensor in onnx.load(str(path)).graph.initializer] == ["matrix"]
