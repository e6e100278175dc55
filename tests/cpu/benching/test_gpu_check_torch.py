"""The PyTorch part of the GPU check on a machine that has PyTorch and little else of what this project depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_a_model_is_built_from_a_checkout_without_most_dependencies(root: Path) -> None:
    pytest.importorskip("torch")
    hidden = ["msgspec", "pydicom", "ftfy", "open_clip", "imagecodecs", "starlette", "onnxruntime", "cupy"]
    code = (
        "import sys\n"
        f"for name in {hidden!r}: sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(root / 'benchmarks')!r})\n"
        "import gpu_check\ngpu_check.use_checkout()\n"
        "from xbench_fast.export.torch_runner import eager_runner\n"
        "eager_runner('kad', 'demo', 'fp32', 'cpu')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
