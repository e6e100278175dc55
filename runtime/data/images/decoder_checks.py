"""Checks the image decoders of this machine, each on a small generated image; used by `xbench-fast doctor`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

from ....engines.errors import ImageError, words_of
from ...host.installation_checks import MachineCheck, installed_version, tried


def check_decoders() -> Iterator[MachineCheck]:
    """PNG, JPEG and the transfer syntaxes of DICOM."""
    for image_format in ("PNG", "JPEG"):
        yield tried("decoder", image_format, installed_version("pillow"), partial(_round_trip, image_format))
    from .samples import SYNTAXES

    for name in SYNTAXES:
        package = "pydicom" if name in ("uncompressed", "RLE") else "imagecodecs"
        yield tried("decoder", f"DICOM {name}", installed_version(package), partial(_dicom_round_trip, name))


def check_gpu_decoder() -> Iterator[MachineCheck]:
    """NVIDIA DALI; it is optional, so it is no problem if it is not usable."""
    from .dali import dali_version
    from .decoders import dali_difference

    release = dali_version()
    if release is None:
        yield MachineCheck("gpu", "DALI decoder", False, None, "not installed; the exact decoders on the CPU are used")
        return
    try:
        yield MachineCheck("gpu", "DALI decoder", True, release, str(dali_difference()))
    # A broken installation can raise any exception; it is the reason of the check.
    except Exception as error:
        yield MachineCheck("gpu", "DALI decoder", False, release, words_of(error))


def _round_trip(image_format: str) -> None:
    import numpy as np
    from PIL import Image

    from .decode import decode_grey

    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8), 130, np.uint8)).save(buffer, image_format)
    if abs(int(decode_grey(buffer.getvalue(), f"a test {image_format}")[0, 0]) - 130) > 2:
        raise ValueError(f"a test {image_format} was decoded to wrong values")


def _dicom_round_trip(name: str) -> None:
    import numpy as np

    from .decode import decode_grey
    from .samples import dicom_sample, sample_pixels

    try:
        grey = decode_grey(dicom_sample(name), f"a test DICOM in {name}")
    except ImageError as error:
        # The sample is not damaged, so a message about a damaged file would be wrong.
        raise ValueError(str(error.__cause__ or error)) from error
    if not np.array_equal(grey, sample_pixels()):
        raise ValueError(f"a test DICOM in {name} was decoded to wrong values")
