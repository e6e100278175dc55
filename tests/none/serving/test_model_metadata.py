"""What the server says of a model beside the protocol's own words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import make_bundle
from xbench_fast.runtime.serving.inference.metadata import model_metadata


@pytest.mark.parametrize("resized", ["", "positions resampled from 224"])
def test_a_model_for_another_size_of_picture_says_so(tmp_path: Path, resized: str) -> None:
    bundle = make_bundle(tmp_path / "blocks-32")
    manifest = replace(bundle.manifest, resized=resized)
    model = SimpleNamespace(
        name="blocks-32",
        version="1",
        bundle=SimpleNamespace(manifest=manifest, digest=bundle.digest),
        info=SimpleNamespace(backend="onnxruntime-cpu", detail="", precision="fp32"),
        geometry=manifest.geometry,
        grid=manifest.grid,
        prompt_sets={},
        default_set="coco",
    )
    parameters = model_metadata(model)["parameters"]  # type: ignore[arg-type]
    assert parameters.get("resized", "") == resized and parameters["geometry"]["size"] == manifest.geometry.size
