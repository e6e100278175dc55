"""A real bundle behind the public interface: as a callable, as an engine, and as `serve` answers."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xbench_fast as xb
from PIL import Image
from synthetic import make_bundle, make_dataset, save_graph
from xbench_fast.engines.bundle import Bundle
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.inference.service import Service
from xbench_fast.runtime.serving.protocol.requests import Answer, Request
from xbench_fast.runtime.serving.settings import ServiceSettings

CPU: Any = {"engine": "onnxruntime-cpu", "threads": 1}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "data", 20)


def wrapped(bundle: Bundle, prompt_set: str, data: Path, folder: Path, common: Any) -> xb.Run:
    """The bundle as a live model on `data`; a finding it has no prompt for is answered as the first one."""
    findings = bundle.manifest.prompt_sets[prompt_set].findings
    with xb.open_engine(bundle.path, **CPU) as engine:
        text = engine.text(prompt_set)

        def student(pixels: Any, asked: list[str]) -> tuple[Any, Any]:
            scores = engine.run(pixels, text)
            place = [findings.index(name) if name in findings else 0 for name in asked]
            return scores.logits[:, place], scores.saliency[:, place]

        geometry = bundle.manifest.geometry
        return xb.evaluate(student, "coco", data, out=folder / "live", geometry=geometry, **common)


def test_a_wrapped_bundle_has_the_rows_and_tables_of_the_bundle(
    small_bundles: dict[str, Bundle], data: Path, tmp_path: Path
) -> None:
    common: Any = {"batch": 4, "chunk": 8, "progress": False, "cache": tmp_path / "prepared"}
    blocks = make_bundle(tmp_path / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    for bundle, prompt_set, asked in (
        (blocks, "coco", {"Mass", "Effusion"}),
        (small_bundles["kad"], "single", {"Mass"}),
    ):
        folder = tmp_path / prompt_set
        live = wrapped(bundle, prompt_set, data, folder, common)
        options = {"coco": {"prompts": prompt_set}}
        whole = xb.evaluate(bundle.path, "coco", data, out=folder / "whole", data_options=options, **CPU, **common)
        assert any("no bundle stands behind" in note for note in live.notes) and whole.notes != live.notes
        frames = [(run.rows(), run.table("classes", replicates=100)) for run in (live, whole)]
        for one, other in zip(*frames, strict=True):
            mine = one[one.finding.isin(asked)].reset_index(drop=True)
            assert len(mine) and set(other.finding) == asked
            pd.testing.assert_frame_equal(mine.drop(columns="model"), other.drop(columns="model"))
        if asked == {"Mass", "Effusion"}:
            for name in ("grounding", "recognition"):
                one, other = (run.table(name, replicates=100).drop(columns="model") for run in (live, whole))
                pd.testing.assert_frame_equal(one, other)


def test_a_torch_module_with_gradients_and_half_precision_is_a_live_model(data: Path, tmp_path: Path) -> None:
    """Outputs of a module under training are taken as they are: detached, widened without loss, and equal."""
    torch = pytest.importorskip("torch")

    class Student(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.scale, self.kind = torch.nn.Parameter(torch.tensor([0.5, -2.0])), kind

        def forward(self, pixels: Any, findings: list[str]) -> tuple[Any, Any]:
            blocks = torch.from_numpy(pixels).float().reshape(len(pixels), 1, 4, 8, 4, 8).mean(dim=(3, 5)).round()
            saliency = blocks * self.scale[None, :, None, None]
            return saliency.mean(dim=(2, 3)).to(self.kind), saliency.to(self.kind)

    common: Any = {"geometry": xb.Geometry("squash", 32, 32, "bilinear"), "progress": False}
    rows = []
    for kind in (torch.float32, torch.bfloat16):
        module = Student(kind)

        def exact(pixels: Any, findings: list[str], module: Any = module) -> tuple[Any, Any]:
            return tuple(each.detach().float().numpy() for each in module(pixels, findings))  # type: ignore[return-value]

        for number, model in enumerate((module, exact)):
            run = xb.evaluate(model, "coco", data, out=tmp_path / f"{kind}-{number}", name="student", **common)
            rows.append(run.rows())
        pd.testing.assert_frame_equal(rows[-1], rows[-2])
        assert module.scale.grad is None and run.models == ("student",)
    assert xb.evaluate(Student(torch.float32), "coco", data, out=tmp_path / "named", **common).models == ("Student",)


def served(bundle: Path, request: Request) -> Answer:
    from xbench_fast.runtime.serving.prometheus_metrics import Metrics

    async def body() -> Answer:
        with Catalogue([bundle], engine="onnxruntime-cpu", threads=1) as catalogue:
            async with Service(catalogue, ServiceSettings(), Metrics()) as service:
                return await asyncio.wait_for(service.infer(request), 100)

    return asyncio.run(body())


def test_predictions_are_those_of_the_server(kad_demo: Any, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    grey = np.random.default_rng(5).integers(0, 255, (300, 260), dtype=np.uint8)
    file = tmp_path / "radiograph.png"
    Image.fromarray(grey).save(file)
    with xb.open_engine(kad_demo.folder, **CPU) as engine:
        name = max(engine.findings, key=lambda each: len(engine.findings[each]))
        wanted = engine.findings[name][1::2][:3]
        found = engine.predict(file, findings=wanted, tau=0.7)
        from_array = engine.predict(grey, findings=wanted, tau=0.7)
        own = engine.predict(file, prompts={"Mass": "a mass", "Nodule": ["a nodule", "a small nodule"]})
        assert engine.prepare(file).shape == (1, 1, *[engine.bundle.manifest.geometry.size] * 2)
        with pytest.raises(xb.XBenchError, match="has no finding 'Unicorn'"):
            engine.predict(file, findings=["Unicorn"])
        with pytest.raises(xb.XBenchError, match=r"absent\.png cannot be read"):
            engine.predict(tmp_path / "absent.png")
        with pytest.raises(xb.XBenchError, match=r"must be uint8 \[H, W\], not float64"):
            engine.predict(np.zeros((3, 3)))  # type: ignore[arg-type]
    with pytest.raises(xb.XBenchError, match="not open"):
        engine.predict(file)
    outputs = frozenset({"logits", "probabilities", "saliency", "boxes"})
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, "PNG")
    request = Request(
        Bundle.load(kad_demo.folder).name, images=(stream.getvalue(),), findings=wanted, outputs=outputs, tau=0.7
    )
    answer = served(kad_demo.folder, request).outputs
    for one in (found, from_array):
        assert one.findings == wanted
        np.testing.assert_array_equal(one.logits, answer["logits"][0])
        np.testing.assert_array_equal(one.probabilities, answer["probabilities"][0])
        np.testing.assert_array_equal(one.saliency, answer["saliency"][0])
        np.testing.assert_array_equal(one.boxes.drop(columns="finding").to_numpy(), answer["boxes"][:, 2:])
        assert list(one.boxes.finding) == [wanted[int(row)] for row in answer["boxes"][:, 1]]
    assert own.findings == ("Mass", "Nodule") and own.probabilities.shape == (2,)
