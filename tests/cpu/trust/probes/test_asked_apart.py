"""The probe `prompts` asks an image several prompt sets: on ONNX Runtime the image part of the graph runs once for it,
and the rows are those of whole runs to the bit. Its rules: tests/none/trust/probes/test_prompts_probe.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.backends.ort_parts import OrtParts
from xbench_fast.engines.base import Engine
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.runtime.trust.probes.asking import AskedModel
from xbench_fast.runtime.trust.probes.probe import ProbeOptions
from xbench_fast.runtime.trust.probes.probe_images import PreparedImage
from xbench_fast.runtime.trust.probes.prompted import PromptsProbe

pytest.importorskip("onnxruntime")

NAMES = ("Effusion", "Mass", "Nodule")


def test_the_image_part_runs_once_for_an_image(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, rng = Bundle.load(root / "demo" / "bundles" / "kad-demo"), np.random.default_rng(0)
    pixels, regions = rng.integers(0, 256, (2, 1, 224, 224), np.uint8), rng.random((3, 224, 224)) > 0.5
    images = [PreparedImage(str(at), "p", None, pixels[at], NAMES, regions, (0.0, 0.0, 1.0, 1.0)) for at in range(2)]
    encoded, ran = list[bytes](), list[int]()
    encode, run = OrtParts.encode, Engine.run
    monkeypatch.setattr(OrtParts, "encode", lambda self, two: (encoded.append(two[0].tobytes()), encode(self, two))[1])
    monkeypatch.setattr(Engine, "run", lambda self, *given: (ran.append(1), run(self, *given))[1])

    def rows() -> tuple[list[Any], int]:
        asked, passes = {name: name for name in NAMES}, list[int]()
        with open_engine(bundle, "onnxruntime-cpu", threads=1) as engine:
            model = AskedModel(engine, bundle.prompt_set("chestxdet10"), asked, 8, passes.append)
            assert model.queries_meet
            ran.clear()
            return [row for image in images for row in PromptsProbe(ProbeOptions()).rows(image, model)], sum(passes)

    apart, passes = rows()
    assert encoded == [one.tobytes() for one in pixels] and passes == 2 * (1 + len(NAMES)) and not ran
    monkeypatch.setattr("xbench_fast.engines.backends.ort.too_large", lambda size: "it is told to")
    assert rows() == (apart, passes) and len(ran) == passes
