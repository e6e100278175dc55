"""Checks what works on this machine, and why the rest does not: engines, the sweep, optional packages.

The checks of the image decoders are in `images/decoder_checks.py`; `cli/doctor.py` passes them in.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from ...engines.errors import words_of
from ...engines.extras import install_advice

_EXTRAS: tuple[tuple[str, str, str], ...] = (
    # distribution, module, what it is for; engines and what a GPU needs have rows of their own
    ("onnx", "onnx", "exports checkpoints; the engine torch"),
    ("transformers", "transformers", "exports checkpoints"),
    ("open_clip_torch", "open_clip", "exports CLIP checkpoints"),
    ("matplotlib", "matplotlib", "draws figures"),
    ("starlette", "starlette", "serves models"),
    ("highdicom", "highdicom", "writes DICOM objects"),
    ("ray", "ray", "spreads an evaluation over machines"),
)

_PACKAGES = {
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "tensorrt-rtx": ("tensorrt-rtx",),
    "torch": ("torch",),
    "onnxruntime-cuda": ("onnxruntime-gpu",),
    "onnxruntime-cpu": ("onnxruntime", "onnxruntime-gpu"),
}


@dataclass(frozen=True)
class MachineCheck:
    """One check: `group` ("engine", "decoder", "gpu", "metrics", "extra"), whether it is usable, and the
    reason why not, or the measurement."""

    group: str
    name: str
    usable: bool
    version: str | None = None
    reason: str = ""


def examine(decoders: Iterable[MachineCheck] = (), gpu_decoders: Iterable[MachineCheck] = ()) -> list[MachineCheck]:
    """Runs all checks; `decoders` and `gpu_decoders` are inserted at their places.

    Engines are run, not only looked up; extras are only looked up.
    """
    return [*_engines(), *decoders, *_gpu(gpu_decoders), *_metrics(), *_extras()]


def _engines() -> Iterator[MachineCheck]:
    from ...engines.select import backend_status

    for status in backend_status():
        release = next(filter(None, map(installed_version, _PACKAGES.get(status.name, ()))), None)
        yield MachineCheck("engine", status.name, status.usable, release, status.reason)


def _gpu(decoders: Iterable[MachineCheck]) -> Iterator[MachineCheck]:
    """Checks of group "gpu": what the engines and the sweep on a GPU need; without a driver only that there is none."""
    from ...engines.backends.cuda_libraries import lacking_libraries
    from ...engines.backends.gpu import gpu_reason
    from . import packages as packages

    installed = packages.installed_packages()
    needed = {cuda for name, release in installed.items() if (cuda := packages.cuda_of(name, release)) is not None}
    driver, runs = packages.driver_version(), packages.driver_cuda()
    reason = packages.driver_reason(driver, runs, needed)
    words = f"CUDA up to {runs[0]}.{runs[1]}" if runs else ""
    yield MachineCheck("gpu", "NVIDIA driver", reason is None, driver, reason or words)
    if driver is None and runs is None:
        return
    reason = gpu_reason()
    cupy = next((release for name, release in installed.items() if name.startswith("cupy")), None)
    yield MachineCheck("gpu", "CuPy", reason is None, cupy, reason or "")
    if reason is None:
        yield tried("gpu", "sweep (GPU)", cupy, _sweep_on_gpu)
    same, words = packages.mixture(installed)
    yield MachineCheck("gpu", "CUDA packages", same, None, words)
    if len(needed) == 1:  # of a mixture it is not known which are meant
        lacking = lacking_libraries(needed.pop())
        yield MachineCheck("gpu", "CUDA libraries", lacking is None, None, lacking or "")
    yield from decoders


def _metrics() -> Iterator[MachineCheck]:
    yield tried("metrics", "sweep (CPU)", installed_version("numba"), _sweep_once)


def _extras() -> Iterator[MachineCheck]:
    offered = _offered()
    for distribution, module, purpose in _EXTRAS:
        release = installed_version(distribution)
        if release is None:
            extra = offered.get(_plain(distribution))
            advice = install_advice(extra) if extra else "nothing here needs it"
            yield MachineCheck("extra", distribution, False, None, f"not installed ({purpose}); {advice}")
        elif importlib.util.find_spec(module) is None:
            yield MachineCheck(
                "extra", distribution, False, release, f"installed, but its module {module} is missing; reinstall it"
            )
        else:
            yield MachineCheck("extra", distribution, True, release)
    if installed_version("onnxruntime") and installed_version("onnxruntime-gpu"):
        yield MachineCheck(
            "extra",
            "one onnxruntime",
            False,
            None,
            "onnxruntime and onnxruntime-gpu overwrite each other; uninstall both, install one",
        )


def tried(group: str, name: str, release: str | None, probe: Callable[[], None]) -> MachineCheck:
    """A check that is usable if `probe` raises nothing; `release` is the version of the tested package."""
    try:
        probe()
    # A broken installation can raise any exception; it is the reason of the check.
    except Exception as error:
        return MachineCheck(group, name, False, release, words_of(error))
    return MachineCheck(group, name, True, release)


def _sweep_once() -> None:
    import numpy as np

    if not _counts_rightly(np.asarray):
        raise ValueError("the compiled sweep counts wrongly here; clear numba's cache and reinstall it")


def _sweep_on_gpu() -> None:
    """Compiles the kernels and runs them once."""
    from ...engines.backends.gpu import load_cupy

    if not _counts_rightly(load_cupy().asarray):
        raise ValueError("the sweep's kernel counts wrongly on this GPU; use --engine onnxruntime-cpu")


def _counts_rightly(array: Callable[[Any], Any]) -> bool:
    import numpy as np

    from ...metrics_gpu.sweep.sweep import sweep

    maps, masks = np.arange(4, dtype=np.float32).reshape(1, 2, 2), np.ones((1, 8, 8), np.bool_)
    counts = sweep(array(maps), array(masks), size=(8, 8)).on_host()
    return int(counts.area[0, 0]) == 64 and bool(counts.hit[0])


def _offered() -> dict[str, str]:
    """Distribution -> the first extra of this project that installs it, from the installed metadata."""
    try:
        wanted = requires("xbench-fast") or []
    except PackageNotFoundError:
        return {}
    requirement = re.compile(r"""\s*([A-Za-z0-9._-]+).*extra\s*==\s*["']([^"']+)["']""")
    matches = filter(None, map(requirement.match, reversed(wanted)))
    return {_plain(match[1]): match[2] for match in matches if match[2] != "dev"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_version(name: str) -> str | None:
    """The version of a distribution; None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
