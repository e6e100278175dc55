"""The choice of the image decoder: the exact one on the CPU, or NVIDIA DALI on the GPU."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import EngineError, XBenchError
from ....engines.geometry import Geometry
from .dali import DaliDecoder, dali_reader, dali_version, supports
from .decode import read_grey, reader_version
from .resizing import to_model

_PROBE = Geometry("squash", 224, 224, "bicubic")
_ORIENTATION = 0x0112  # the EXIF tag
_LIMIT = 1.0  # mean difference in grey levels; DALI on a CPU has 0.1


@dataclass(frozen=True)
class Decoder:
    """`name`: "cpu" or "dali"; `device`: the number of the GPU, None for DALI on the CPU (tests)."""

    name: str
    device: int | None = 0

    def on_gpu(self, geometry: Geometry) -> bool:
        """Whether this geometry is decoded on the GPU; DALI does not have the resize of every geometry."""
        return self.name == "dali" and supports(geometry)

    def reader(self, geometry: Geometry) -> str:
        """Names everything that the pixels depend on; part of the key of prepared images."""
        return dali_reader() if self.on_gpu(geometry) else reader_version()

    def describe(self, geometry: Geometry) -> str:
        """The decoder's name and version; part of the key of results."""
        return f"{'dali' if self.on_gpu(geometry) else 'cpu'} {self.reader(geometry)}"


CPU = Decoder("cpu")


@dataclass(frozen=True)
class DecoderDifference:
    """Difference between DALI's pixels and the exact ones, in grey levels: largest and mean, and the share of pixels
    that differ."""

    largest: int
    mean: float
    share: float

    def __str__(self) -> str:
        return (
            f"differs from the exact decoder by at most {self.largest} of 255 grey levels, {self.mean:.2f} on average "
            f"({100 * self.share:.0f} % of the pixels)"
        )


def choose_decoder(name: str, device: int = 0) -> tuple[Decoder, str | None]:
    """The decoder named `name`, on this GPU, and a line for the user if it is DALI.

    `auto` is always the exact decoder: DALI's pixels differ by several grey levels, so it is used only on request.
    Raises MissingExtraError or EngineError when DALI was requested and cannot be used.
    """
    if name != "dali":
        return CPU, None
    difference = dali_difference(device)
    return Decoder("dali", device), f"decoder: dali {dali_version()}, {difference}; --decoder cpu is exact"


def dali_difference(device: int | None = 0) -> DecoderDifference:
    """Decodes generated images, one with an EXIF orientation, with DALI and with the exact decoder.

    `device` None: DALI on the CPU, for tests. Raises MissingExtraError, or EngineError when DALI cannot run here or its
    pixels differ too much.
    """
    from PIL import Image

    with TemporaryDirectory() as folder, DaliDecoder([_PROBE], device=device) as dali:
        paths = [Path(folder) / name for name in ("image.jpg", "image.png", "turned.jpg")]
        for path in paths:
            exif = Image.Exif()
            if path.stem == "turned":
                exif[_ORIENTATION] = 6  # viewers rotate it by 90 degrees; the decoders must not
            buffer = io.BytesIO()
            image_format = "JPEG" if path.suffix == ".jpg" else "PNG"
            Image.fromarray(_image()).save(buffer, image_format, quality=95, exif=exif)
            path.write_bytes(buffer.getvalue())
        errors = []
        for path, decoded in zip(paths, dali.decode(paths), strict=True):
            if isinstance(decoded, XBenchError):
                raise EngineError(f"DALI could not decode a test image: {decoded}")
            errors.append(np.abs(to_model(read_grey(path), _PROBE).astype(np.int64) - decoded[0][0]))
    error = np.stack(errors)
    difference = DecoderDifference(int(error.max()), float(error.mean()), float((error > 0).mean()))
    if max(float(one.mean()) for one in errors) > _LIMIT:
        raise EngineError(f"DALI decodes a test image wrongly: it {difference}.")
    return difference


def _image() -> NDArray[np.uint8]:
    """A smooth test image with an edge, 768 x 640."""
    y, x = np.mgrid[0:768, 0:640] / 768.0
    grey: NDArray[np.float64] = (
        120 + 60 * np.cos(9 * x) * np.sin(7 * y) + 50 * np.exp(-20 * ((x - 0.4) ** 2 + (y - 0.5) ** 2))
    )
    grey[100:160, 80:120] = 250
    return np.asarray(np.clip(grey, 0, 255), np.uint8)
