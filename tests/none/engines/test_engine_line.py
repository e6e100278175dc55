"""What is said about the engine that `auto` takes, and where there is none."""

from __future__ import annotations

import sys

import pytest
from xbench_fast.engines import select
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import choose


@pytest.fixture
def no_gpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tensorrt", "tensorrt_rtx", "cupy"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(select._REASONS._entries, "onnxruntime-cuda", f"{__name__}:_refused")


def _refused(device: int) -> str:
    return "the installed onnxruntime is the CPU build; install xbench-fast[gpu]."


def test_a_run_on_a_machine_without_a_gpu_has_a_short_line(
    no_gpu_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "gpu_seen", lambda: False)
    assert choose() == ("onnxruntime-cpu", "engine onnxruntime-cpu")


def test_a_gpu_that_is_not_used_is_one_hint(no_gpu_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "gpu_seen", lambda: True)
    assert choose()[1] == (
        "engine onnxruntime-cpu; the GPU of this machine is not used: the installed onnxruntime is the CPU build; "
        "install xbench-fast[gpu]; xbench-fast doctor says more"
    )
    assert choose("onnxruntime-cpu")[1] == "engine onnxruntime-cpu (as asked)"


def test_without_an_engine_one_sentence_says_what_to_install(
    no_gpu_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineError) as told:
        choose()
    assert str(told.value) == (
        "No engine can run here: onnxruntime is not installed; install xbench-fast[cpu], xbench-fast[gpu] (CUDA 12) or "
        "xbench-fast[gpu-cuda13] (CUDA 13); xbench-fast doctor lists every engine."
    )
