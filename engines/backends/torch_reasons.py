"""Whether PyTorch can run here, on the CPU and on a GPU."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Final

from ..extras import missing_package
from .gpu import gpu_seen

_PACKAGES: Final = ("torch", "onnx")


def torch_reason(device: int = 0) -> str | None:
    """None if PyTorch can run here, on any GPU or the CPU, else why not."""
    absent = next((name for name in _PACKAGES if _is_absent(name)), None)
    if absent is not None:
        return missing_package(absent, "torch", user="The engine torch")
    try:
        import torch

        torch.zeros(1).add(1)
    except (ImportError, OSError, RuntimeError) as error:  # a library of it is missing or does not fit
        return f"torch is installed but does not work ({one_line(error)}); install it again"
    return None


def torch_cuda_reason(device: int = 0) -> str | None:
    """None if PyTorch computes on this GPU, else why not. Without a GPU, torch is not imported."""
    if not gpu_seen():
        return "there is no NVIDIA GPU"
    reason = torch_reason()
    if reason is not None:
        return reason
    import torch

    if torch.version.cuda is None:
        return f"the installed torch {torch.__version__} is the CPU build; install torch with CUDA"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same words come as an exception
            torch.zeros(1, device=f"cuda:{device}").add(1).item()
    except (RuntimeError, AssertionError) as error:
        driver = one_line(error).partition(". ")[0]
        return f"torch {torch.__version__} cannot use the GPU ({driver}); update the driver, or install an older torch"
    return None


def _is_absent(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ValueError:  # a module that was hidden
        return True


def one_line(error: Exception) -> str:
    """The beginning of a library's message."""
    return " ".join(str(error).split())[:300]
