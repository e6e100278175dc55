"""The batch and the chunk that an engine gets where the user states none, or both."""

from __future__ import annotations

import pytest
from xbench_fast.engines.backends import torch_reasons
from xbench_fast.engines.select import PREFERENCE, default_batch, runs_on_gpu
from xbench_fast.runtime.evaluation.cell_options import Options


@pytest.mark.parametrize("reason", [None, "there is no NVIDIA GPU"])
def test_the_default_depends_on_the_engine(reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_reasons, "torch_cuda_reason", lambda device: reason)
    asked: list[int] = []
    monkeypatch.setattr(torch_reasons, "torch_cuda_reason", lambda device: asked.append(device) or reason)
    options = Options(gpu=3).for_engine("torch", None)
    assert set(asked) == {3} and options.batch == (256 if reason is None else 16)
    sizes = {name: default_batch(name) for name in (*PREFERENCE, "auto", "mine.py:Engine")}
    on_cpu = {"onnxruntime-cpu"} if reason is None else {"onnxruntime-cpu", "torch"}
    assert {name for name, size in sizes.items() if size == 256} == set(PREFERENCE) - on_cpu
    assert {size for name, size in sizes.items() if not runs_on_gpu(name)} == {16}


@pytest.mark.parametrize(
    ("batch", "chunk", "expected"),
    [
        (None, 512, (256, 512)),
        (None, 100, (100, 100)),
        (None, 300, (256, 512)),
        (384, 512, (384, 768)),
        (1024, 512, (1024, 1024)),
        (7, 512, (7, 518)),
        (16, 512, (16, 512)),
    ],
)
def test_a_chunk_on_a_gpu_is_whole_batches(batch: int | None, chunk: int, expected: tuple[int, int]) -> None:
    options = Options(chunk=chunk).for_engine("tensorrt", batch)
    assert (options.engine, options.batch, options.chunk) == ("tensorrt", *expected)
    assert options.for_engine("tensorrt", batch) == options, "a worker may do it again"
    on_cpu = Options(chunk=chunk).for_engine("onnxruntime-cpu", batch)
    assert (on_cpu.batch, on_cpu.chunk) == (batch or 16, chunk), "the keys of finished cells are kept"
