"""The preprocessing step of a Triton ensemble: a file that Triton's DALI backend turns into a pipeline."""

from __future__ import annotations

from typing import Final

from ...engines.geometry import Geometry

_HEAD: Final = '''"""JPEG -> pixels uint8 [1, {size}, {size}], geometry {key}; written by xbench-export triton.

Decodes to grey, resizes{cut}. DALI's resize is not Pillow's to the last bit.
"""

from nvidia.dali import {modules}
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@pipeline_def(batch_size={batch}, num_threads=2, device_id={device})
def pipe():
    image = fn.external_source(device="cpu", name="image", dtype=types.UINT8, ndim=1)
'''

_SQUASH: Final = """\
    grey = fn.decoders.image(image, device="{decoder}", output_type=types.GRAY, adjust_orientation=False)
    resized = fn.resize(grey, resize_y={size}, resize_x={size}, interp_type=types.{kernel}, antialias=True)
"""

_CROP: Final = """\
    shape = fn.peek_image_shape(image, dtype=types.INT32, adjust_orientation=False)
    height, width = shape[0], shape[1]
    short = math.min(height, width)
    rows, columns = {resize} * height // short, {resize} * width // short
    grey = fn.decoders.image(image, device="{decoder}", output_type=types.GRAY, adjust_orientation=False)
    wanted = fn.cast(fn.stack(rows, columns), dtype=types.FLOAT)
    whole = fn.resize(grey, size=wanted, interp_type=types.{kernel}, antialias=True)
    resized = fn.slice(whole, start=fn.stack(middle(rows), middle(columns)), shape=[{size}, {size}], axes=[0, 1])
"""

_TAIL: Final = """\
    return fn.reshape(resized, shape=[1, {size}, {size}], layout="CHW")
"""

_HELPERS: Final = '''

def middle(longer):
    """Where the centre begins: half of the difference, {rule}."""
    half = (longer - {size}) // 2
    return fn.cast(half{rounding}, dtype=types.INT32)
'''


def refusal(geometry: Geometry) -> str | None:
    """The reason why DALI cannot prepare images for a geometry, None if it can."""
    if geometry.mode == "pad_crop":
        return f"DALI has no resize into a black square, which the geometry {geometry.key} needs"
    if geometry.intensity != "unchanged":
        return f"DALI cannot stretch each image's stored values, as the geometry {geometry.key} needs"
    return None


def dali_source(geometry: Geometry, batch: int, *, gpu: bool) -> str:
    """The content of `1/dali.py` for a geometry that DALI supports (see `refusal`); `batch`: largest batch."""
    values = {
        "size": geometry.size,
        "resize": geometry.resize,
        "key": geometry.key,
        "batch": batch,
        "device": 0 if gpu else None,
        "decoder": "mixed" if gpu else "cpu",
        "kernel": "INTERP_CUBIC" if geometry.interpolation == "bicubic" else "INTERP_TRIANGULAR",
        "cut": "" if geometry.mode == "squash" else f" the shorter side to {geometry.resize}, takes the centre",
    }
    floored = geometry.mode == "floor_crop"
    values["rule"] = "rounded down" if floored else "halves to the even number"
    values["rounding"] = "" if floored else f" + ((longer - {geometry.size}) & half & 1)"
    if geometry.mode == "squash":
        return (_HEAD + _SQUASH + _TAIL).format(modules="fn, pipeline_def, types", **values)
    return (_HEAD + _CROP + _TAIL + _HELPERS).format(modules="fn, math, pipeline_def, types", **values)
