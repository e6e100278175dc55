"""Optional packages: the extra of this project that installs them, and the sentence for one that is missing."""

from __future__ import annotations

from typing import Final

RUNNING: Final = ("cpu", "gpu", "gpu-cuda13")
"""Each of these extras has every package that an evaluation needs."""

CUDA_EXTRAS: Final = {12: "gpu", 13: "gpu-cuda13"}
"""CUDA -> the extra with the packages of that CUDA."""

_FOR: Final = {"gpu": "CUDA 12", "gpu-cuda13": "CUDA 13", "tensorrt": "CUDA 12", "tensorrt-cuda13": "CUDA 13"}


def install_advice(*extras: str) -> str:
    """What to do, as a part of a message: "install xbench-fast[gpu] (CUDA 12) or xbench-fast[gpu-cuda13] (CUDA 13)"."""
    names = [f"xbench-fast[{extra}]" for extra in extras]
    if len(extras) > 1:  # a choice needs the difference
        names = [
            f"{name} ({_FOR[extra]})" if extra in _FOR else name for name, extra in zip(names, extras, strict=True)
        ]
    return "install " + " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def missing_package(package: str, *extras: str, user: str = "", instead: str = "") -> str:
    """The sentence for a package that is not installed.

    extras: that contain it. user: what needs the package, where the request does not show it. instead: what the user
    can do without the package.
    """
    absent = f"{user} needs {package}, which is not installed" if user else f"{package} is not installed"
    return f"{absent}; {install_advice(*extras)}{', or ' + instead if instead else ''}."
