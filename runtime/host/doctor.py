"""What works on this machine, and why the rest does not: engines, image decoders, the sweep, optional packages."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version

__all__ = ["Check", "examine"]

_EXTRAS: tuple[tuple[str, str, str], ...] = (
    # distribution (or one of several), module, what it is for
    ("onnxruntime", "onnxruntime", "runs models on the CPU"),
    ("onnxruntime-gpu", "onnxruntime", "runs models through CUDA"),
    ("torch", "torch", "exports checkpoints"),
    ("onnx", "onnx", "exports checkpoints"),
    ("transformers", "transformers", "exports checkpoints"),
    ("open_clip_torch", "open_clip", "exports CLIP checkpoints"),
    ("cupy-cuda12x|cupy-cuda13x", "cupy", "runs models and sweeps on the GPU"),
    ("tensorrt|tensorrt-cu12|tensorrt-cu13", "tensorrt", "runs models on NVIDIA GPUs"),
    ("tensorrt-rtx", "tensorrt_rtx", "runs models on NVIDIA GPUs"),
    ("nvidia-dali-cuda120|nvidia-dali-cuda130", "nvidia", "decodes images on the GPU"),
    ("matplotlib", "matplotlib", "draws figures"),
    ("starlette", "starlette", "serves models"),
    ("ray", "ray", "spreads an evaluation over machines"),
)

_PACKAGES = {
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "tensorrt-rtx": ("tensorrt-rtx",),
    "onnxruntime-cuda": ("onnxruntime-gpu",),
    "onnxruntime-cpu": ("onnxruntime", "onnxruntime-gpu"),
}


@dataclass(frozen=True)
class Check:
    """One thing: `group` ("engine", "decoder", "gpu", "metrics", "extra"), whether it is usable, and why not
    or what was measured."""

    group: str
    name: str
    usable: bool
    version: str | None = None
    reason: str = ""


def examine() -> list[Check]:
    """Tries everything once. Engines and decoders are really run, not only looked up; extras are looked up."""
    return [*_engines(), *_decoders(), *_gpu(), *_gpu_decoder(), *_metrics(), *_extras()]


def _engines() -> Iterator[Check]:
    from ...engines.select import backend_status

    for status in backend_status():
        found = next(filter(None, map(_version, _PACKAGES.get(status.name, ()))), None)
        yield Check("engine", status.name, status.usable, found if status.usable else None, status.reason)


def _decoders() -> Iterator[Check]:
    for kind in ("PNG", "JPEG"):
        yield _tried("decoder", kind, _version("pillow"), partial(_round_trip, kind))
    from ..images.samples import SYNTAXES

    pydicom = _version("pydicom")
    for name in SYNTAXES:
        yield _tried("decoder", f"DICOM {name}", pydicom, partial(_dicom_round_trip, name))


def _gpu() -> Iterator[Check]:
    """Of the same group: what the engines and the sweep on a GPU stand on."""
    from ...engines.device import gpu_reason
    from . import packages as packages

    installed = packages.installed_packages()
    needed = {cuda for name, found in installed.items() if (cuda := packages.cuda_of(name, found)) is not None}
    driver, runs = packages.driver_version(), packages.driver_cuda()
    reason = packages.driver_reason(driver, runs, needed)
    words = f"CUDA up to {runs[0]}.{runs[1]}" if runs else ""
    yield Check("gpu", "NVIDIA driver", reason is None, driver, reason or words)
    reason = gpu_reason()
    cupy = next((found for name, found in installed.items() if name.startswith("cupy")), None)
    yield Check("gpu", "CuPy", reason is None, cupy, reason or "")
    same, words = packages.mixture(installed)
    yield Check("gpu", "CUDA packages", same, None, words)


def _gpu_decoder() -> Iterator[Check]:
    """A group of its own: nothing is wrong where it is not usable."""
    from ..images.dali import dali_version
    from ..images.decoders import dali_difference

    found = dali_version()
    if found is None:
        yield Check("gpu", "DALI decoder", False, None, "not installed; the exact decoders on the CPU are used")
        return
    try:
        yield Check("gpu", "DALI decoder", True, found, str(dali_difference()))
    # Whatever a broken installation raises is the answer to the question.
    except Exception as error:
        yield Check("gpu", "DALI decoder", False, found, " ".join(str(error).split()) or type(error).__name__)


def _metrics() -> Iterator[Check]:
    yield _tried("metrics", "sweep (CPU)", _version("numba"), _sweep_once)


def _extras() -> Iterator[Check]:
    offered = _offered()
    for names, module, purpose in _EXTRAS:
        distribution = next(filter(_version, names.split("|")), names.split("|")[0])
        found = _version(distribution)
        if found is None:
            extra = next((offered[name] for name in map(_plain, names.split("|")) if name in offered), None)
            advice = f"install xbench-fast[{extra}]" if extra else "nothing here needs it"
            yield Check("extra", distribution, False, None, f"not installed ({purpose}); {advice}")
        elif importlib.util.find_spec(module) is None:
            yield Check(
                "extra", distribution, False, found, f"installed, but its module {module} is missing; reinstall it"
            )
        else:
            yield Check("extra", distribution, True, found)
    if _version("onnxruntime") and _version("onnxruntime-gpu"):
        yield Check(
            "extra",
            "one onnxruntime",
            False,
            None,
            "onnxruntime and onnxruntime-gpu overwrite each other; uninstall both, install one",
        )


def _tried(group: str, name: str, found: str | None, probe: Callable[[], None]) -> Check:
    try:
        probe()
    # Whatever a broken installation raises is the answer to the question.
    except Exception as error:
        return Check(group, name, False, found, " ".join(str(error).split()) or type(error).__name__)
    return Check(group, name, True, found)


def _round_trip(kind: str) -> None:
    import numpy as np
    from PIL import Image

    from ..images.decode import decode_grey

    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8), 130, np.uint8)).save(buffer, kind)
    if abs(int(decode_grey(buffer.getvalue(), f"a test {kind}")[0, 0]) - 130) > 2:
        raise ValueError(f"a test {kind} was decoded to wrong values")


def _dicom_round_trip(name: str) -> None:
    import numpy as np

    from ...engines.errors import ImageError
    from ..images.decode import decode_grey
    from ..images.samples import dicom_sample, sample_pixels

    try:
        grey = decode_grey(dicom_sample(name), f"a test DICOM in {name}")
    except ImageError as error:
        # The sample is whole, so the words about a damaged file would mislead.
        raise ValueError(str(error.__cause__ or error)) from error
    if not np.array_equal(grey, sample_pixels()):
        raise ValueError(f"a test DICOM in {name} was decoded to wrong values")


def _sweep_once() -> None:
    import numpy as np

    from ...metrics_gpu.sweep.sweep import sweep

    counts = sweep(np.arange(4, dtype=np.float32).reshape(1, 2, 2), np.ones((1, 8, 8), np.bool_), size=(8, 8))
    if int(counts.area[0, 0]) != 64 or not counts.hit[0]:
        raise ValueError("the compiled sweep counts wrongly here; clear numba's cache and reinstall it")


def _offered() -> dict[str, str]:
    """Distribution -> the first extra of this project that installs it, from the installed metadata."""
    try:
        wanted = requires("xbench-fast") or []
    except PackageNotFoundError:
        return {}
    found = re.compile(r"""\s*([A-Za-z0-9._-]+).*extra\s*==\s*["']([^"']+)["']""")
    matches = filter(None, map(found.match, reversed(wanted)))
    return {_plain(match[1]): match[2] for match in matches if match[2] != "dev"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
