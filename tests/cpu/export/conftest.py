"""What makes exports cheaper in tests alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def operators_read_once() -> Iterator[None]:
    """torch.onnx.export describes all operators of onnxscript anew for each graph, which takes an eighth of a small
    export. They are the same in each call, and it changes none."""
    pytest.importorskip("torch")
    from torch.onnx._internal.exporter import _registration

    onnxscript = _registration.onnxscript_apis  # loaded when it is used
    read = cache(lambda: onnxscript.get_torchlib_ops())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_registration, "onnxscript_apis", SimpleNamespace(get_torchlib_ops=read))
        yield


@pytest.fixture(scope="module")
def one_thread_of_torch() -> Iterator[None]:
    """Waiting threads of OpenMP take the cores from ONNX Runtime and from the other process of tests: on two busy cores
    the nine tests of test_model_families.py took 103 s with two threads and 72 s with one."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
