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
