"""Benchmarks of a GPU over a device made of arrays: what is submitted, checked and told. Times mean nothing here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import SIZE, make_bundle
from xbench_fast.engines.backends.tensorrt import TensorRtEngine
from xbench_fast.engines.base import EngineOptions, Scores
from xbench_fast.engines.errors import EngineError
from xbench_fast.metrics_gpu.nvrtc import KernelError
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.benching import ceilings, parts
from xbench_fast.runtime.benching import engine_alone as models
from xbench_fast.runtime.benching.ceilings import Ceilings
from xbench_fast.runtime.benching.engine_alone import Subject, offline, single_stream
from xbench_fast.runtime.benching.parts import gpu_sweep
from xbench_fast.runtime.benching.plan import Plan

PLAN = Plan(("offline",), (4,), 12, 6, repeats=5)
CEILINGS = Ceilings("cuda:0", 7874e3, {"fp32": 3e6, "fp16": 6e6})


@pytest.fixture
def cupy(device: Any) -> Any:
    return device


def subject(engine: Any, monkeypatch: pytest.MonkeyPatch, factor: float = 1.0) -> Subject:
    """The engine as a subject, checked against itself times `factor`, as no onnxruntime runs the fake's bundle."""

    def oracle(bundle: Any, pixels: Any, text: Any) -> Scores:
        scores = engine.run(pixels, text)
        return Scores(scores.logits * np.float32(factor), scores.saliency)

    monkeypatch.setattr(models, "oracle_scores", oracle)
    monkeypatch.setattr(models, "image_macs", lambda bundle, text: 1000)
    return Subject.of(engine, PLAN)


def test_resident_pixels_go_from_slot_to_slot(cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TensorRtEngine(make_bundle(tmp_path / "blocks-32"), options=EngineOptions(4)) as engine:
        one = subject(engine, monkeypatch)
        submitted = []
        submit = engine.submit
        monkeypatch.setattr(
            engine, "submit", lambda pixels, text, slot: submitted.append((pixels, slot)) or submit(pixels, text, slot)
        )
        found = offline(one, PLAN, CEILINGS, 4)
        resident = submitted[1:]  # the first one only finds out what fits
        assert len(resident) == 6 * 3 and [slot for _, slot in resident[:3]] == [0, 1, 0]
        for pixels, slot in resident:
            assert pixels.shape == (4, 1, SIZE, SIZE) and pixels.get().std() > 0
            assert pixels.data.ptr == engine.input(slot, 3).data.ptr
        assert found.counts == {"images": 12} and found.batch == 4 and not found.problems
        assert found.limit is not None and found.limit.rate == 3000 and "fp32" in found.limit.name
        latencies = single_stream(one, PLAN, CEILINGS)
        assert len(latencies.latencies) == 100 and latencies.batch == 1


def test_a_batch_that_does_not_fit_is_halved_and_said(cupy: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with TensorRtEngine(make_bundle(tmp_path / "blocks-32"), options=EngineOptions(8)) as engine:
        one = subject(engine, monkeypatch)
        engine._buffers.clear()
        cupy.memory = 5 * SIZE * SIZE
        found = offline(one, PLAN, CEILINGS, 8)
        assert found.batch == 4 and found.counts == {"images": 12} and "batches of 4" in " ".join(found.notes)


def test_a_gpu_that_fails_while_it_is_measured_is_an_error_of_that_measurement(
    cupy: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Which becomes a row with its reason, and the others go on. So does a library that CuPy does not find."""

    def failing() -> None:
        raise cupy.cuda.runtime.CUDARuntimeError("cudaErrorLaunchTimeout: the launch timed out")

    with TensorRtEngine(make_bundle(tmp_path / "blocks-32"), options=EngineOptions(4)) as engine:
        one, wait = subject(engine, monkeypatch), engine.stream.synchronize
        monkeypatch.setattr(engine.stream, "synchronize", failing)
        with pytest.raises(EngineError, match="Measuring blocks-32 failed: cudaErrorLaunchTimeout: the launch"):
            offline(one, PLAN, CEILINGS, 4)
        monkeypatch.setattr(engine.stream, "synchronize", wait)

    def absent(*_: Any) -> None:
        raise RuntimeError("Failure finding libcublas.so.13")  # as cuda-pathfinder raises it

    monkeypatch.setattr(cupy, "copyto", absent, raising=False)
    with pytest.raises(EngineError, match=r"Measuring the GPU failed: .*libcublas.so.13; xbench-fast doctor names"):
        ceilings.gpu_ceilings(0, ceilings.CeilingSizes(64, 4))
    assert gpu_sweep(PLAN, None).limit is None, "the sweep is measured without them"


def test_wrong_scores_of_a_gpu_spoil_everything_measured_with_it(cupy: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with TensorRtEngine(make_bundle(tmp_path / "blocks-32"), options=EngineOptions(4)) as engine:
        found = offline(subject(engine, monkeypatch, 1.1), PLAN, None, 4)
        assert "logits differ" in found.reasons()[0] and found.limit is None


def test_the_kernel_is_measured_on_the_device_and_checked(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_DISTINCT", 4)
    found = gpu_sweep(PLAN, CEILINGS)
    assert found.counts == {"pairs": 6} and not found.problems
    assert found.limit is not None and found.limit.rate == pytest.approx(1000)
    launched = [grid for name, grid, _ in cupy.launches if name == "sweep"]
    assert launched == [(3,)] + [(6,)] * 6
    with monkeypatch.context() as patch:
        patch.setattr(parts, "sweep", lambda maps, masks: sweep(cupy.asarray(1 - np.asarray(maps)), masks))
        assert "the sweep's" in gpu_sweep(PLAN, CEILINGS).problems[0]

    def failing(maps: Any, masks: Any) -> Any:
        raise cupy.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(parts, "sweep", failing)
    with pytest.raises(EngineError, match="cudaErrorIllegalAddress"):
        gpu_sweep(PLAN, CEILINGS)

    def missing(maps: Any, masks: Any) -> Any:
        raise KernelError("The compiler is not found.")

    monkeypatch.setattr(parts, "sweep", missing)
    with pytest.raises(EngineError, match=r"^The compiler is not found\.$"):
        gpu_sweep(PLAN, CEILINGS)
