"""INT8 bundles: the forms they have, and which processors and engines compute what the export measured.

Processors of the x86 family without VNNI multiply unsigned by signed bytes in pairs whose sum is cut to 16 bits. With
weights of the full range this sum can exceed 16 bits, and other numbers follow without any message. VNNI sums in
32 bits; so do ARM processors.

A runtime that leaves out one of the roundings to bytes that the graph states gives other numbers too. OpenVINO adds the
result of a convolution to the other branch of a residual block before it is rounded (docs/parity.md §5.1).
"""

from __future__ import annotations

import platform
from functools import cache
from typing import TYPE_CHECKING, Final

from .processor import cpuinfo

if TYPE_CHECKING:
    from .manifest import Manifest

FORMS: Final = {
    "vnni": "unsigned activations, signed weights, for processors that sum byte products in 32 bits",
    "any-cpu": "unsigned activations, signed weights of 7 bits, which no processor cuts",
    "tensorrt": "signed activations and weights, biases in float32, for TensorRT",
}
"""The forms of an INT8 graph."""

OTHER_NUMBERS: Final = ("OpenVINO",)
"""Runtimes that give an INT8 graph of any form other maps than the export measured, without a message."""

_VNNI: Final = {"avx512_vnni", "avx_vnni"}
_X86: Final = {"x86_64", "amd64", "x86", "i386", "i686"}


def sums_exactly(machine: str, cpuinfo: str) -> bool:
    """Whether a processor sums byte products in 32 bits, by `platform.machine()` and the text of /proc/cpuinfo.

    An x86 processor whose flags are not known counts as one without VNNI.
    """
    if machine.lower() not in _X86:
        return True
    flags = (line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("flags"))
    return any(_VNNI & set(words) for words in flags)


@cache
def saturates() -> bool:
    """Whether this machine's processor can cut the sums of byte products to 16 bits."""
    return not sums_exactly(platform.machine(), cpuinfo())


def engine_complaint(manifest: Manifest, name: str, backend: str) -> str | None:
    """Why `backend` must not run the INT8 bundle `name` on this machine, a sentence; None if it may, or if the bundle
    is of another precision. A graph that was wrapped states no form: it counts as one of the full range."""
    if manifest.precision != "int8":
        return None
    form = None if manifest.quantisation is None else manifest.quantisation.form
    if other := next((runtime for runtime in OTHER_NUMBERS if runtime.lower() in backend.lower()), None):
        return (
            f"{name} holds int8, to which {other} gives other maps, since it leaves out roundings of the graph; use "
            "--engine onnxruntime-cpu, or export it in fp32."
        )
    if backend == "onnxruntime-cuda":
        return (
            f"{name} holds int8, for which ONNX Runtime's CUDA provider has no products; use --engine onnxruntime-cpu, "
            "or export it with --int8-for tensorrt."
        )
    if backend == "torch":
        return (
            f"{name} holds int8, whose byte products the engine torch does not have: in float32 they would be rounded "
            "in other places; use --engine onnxruntime-cpu, or export it in fp16."
        )
    if backend.startswith("tensorrt") and form not in ("tensorrt", None):
        return (
            f"{name} holds int8 for CPUs, with unsigned activations that TensorRT does not take; use --engine "
            "onnxruntime-cpu, or export it with --int8-for tensorrt."
        )
    if backend == "onnxruntime-cpu" and form != "any-cpu" and saturates():
        return (
            f"{name} was quantised to the full range of 8 bits, and this processor has no VNNI: it would cut sums of "
            "byte products to 16 bits and give other numbers; export it with --int8-for any-cpu, or in fp32."
        )
    return None
