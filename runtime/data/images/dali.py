"""Decoding on the GPU through NVIDIA DALI: JPEG by nvJPEG, the resize on the GPU, the result passed on by DLPack.

DALI is not bit-identical to the official pipelines: at the border it repeats the last pixel where Pillow
renormalises its filter, and nvJPEG may round differently. Its pixels are therefore stored separately from the exact
ones, and results name the decoder. DALI decodes grey 8-bit JPEG and PNG files itself. All other files (DICOM, 16 bits,
colour) are decoded on the CPU, and DALI only resizes their pixels.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import EngineError, ImageError, MissingExtraError
from ....engines.extras import CUDA_EXTRAS, missing_package
from ....engines.geometry import Geometry
from ...host.code_numbers import code_number
from .decode import decode_grey, read_bytes, reader_version
from .kinds import image_kind
from .png_jpeg import check_pixels, jpeg_frame, png_size
from .resizing import resize_plan

_DCT = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive JPEG
_DISTRIBUTIONS = ("nvidia-dali-cuda120", "nvidia-dali-cuda130", "nvidia-dali-cuda110")


@dataclass(frozen=True)
class DeviceBatch:
    """Images in the memory of the device, valid until the next batch.

    `tensors`: for each geometry uint8 [n, S, S, 1] with `__dlpack__`; `numbers`: their indices in the list of files;
    `sizes`: native (height, width) of each.
    """

    tensors: tuple[Any, ...]
    numbers: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]

    def to_host(self) -> list[NDArray[np.uint8]]:
        """For each geometry, a copy uint8 [n, S, S] in host memory."""
        hosts = [tensor.as_cpu() if hasattr(tensor, "as_cpu") else tensor for tensor in self.tensors]
        return [np.array(host)[..., 0] for host in hosts]


def dali_version() -> str | None:
    """The installed version of DALI; None when it is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def dali_reader() -> str:
    """Names everything that the pixels depend on, as `decode.reader_version` does for the exact decoder."""
    return f"dali-{dali_version()}-{code_number('dali')}+{reader_version()}"


def supports(geometry: Geometry) -> bool:
    """Whether DALI can make this geometry; it has no padding, no area averaging, and no exact intensity rule."""
    return geometry.interpolation in ("bilinear", "bicubic") and geometry.intensity == "unchanged"


class DaliDecoder:
    """Decodes files, each once, to one or several geometries. Use as a context manager, from one thread.

    `device`: number of the GPU; None runs the same pipelines on the CPU (for tests only). `read`: a file -> its bytes.
    Raises MissingExtraError when DALI is not installed, EngineError when it cannot run here.
    """

    def __init__(
        self,
        geometries: Sequence[Geometry],
        *,
        batch: int = 64,
        threads: int = 2,
        device: int | None = 0,
        read: Callable[[Path], bytes] = read_bytes,
    ) -> None:
        for geometry in geometries:
            if not supports(geometry):
                raise EngineError(f"DALI cannot make {geometry.key}; use --decoder cpu.")
        self.geometries = tuple(geometries)
        self._batch, self._threads, self._device, self._read = batch, threads, device, read
        try:
            # A file of another kind must not stop a batch that DALI could decode, so there are two pipelines.
            self._encoded = self._make(encoded=True)
            self._pixels = self._make(encoded=False)
        except ImportError as error:
            raise MissingExtraError(missing_package("DALI", *CUDA_EXTRAS.values())) from error
        # DALI raises RuntimeErrors with different messages if there is no usable GPU.
        except Exception as error:
            raise EngineError(f"DALI cannot run here: {' '.join(str(error).split())[:300]}") from error

    def _make(self, *, encoded: bool) -> Any:
        return _pipeline(self.geometries, self._batch, self._threads, self._device, encoded=encoded)

    def __enter__(self) -> DaliDecoder:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._encoded = self._pixels = None

    def batches(self, paths: Sequence[Path], errors: dict[int, ImageError]) -> Iterator[DeviceBatch]:
        """The images in batches, in device memory; an image that cannot be read is entered in `errors` instead."""
        for start in range(0, len(paths), self._batch):
            encoded: list[tuple[int, NDArray[np.uint8], tuple[int, int]]] = []
            pixels: list[tuple[int, NDArray[np.uint8], tuple[int, int]]] = []
            files: dict[int, bytes] = {}
            for number in range(start, min(start + self._batch, len(paths))):
                try:
                    files[number] = self._read(paths[number])
                    size = _plain_size(files[number])
                    if size is None:
                        pixels.append(self._decoded(number, files[number], paths[number]))
                        continue
                    self._check(*size)
                    encoded.append((number, np.frombuffer(files[number], np.uint8), size))
                except ImageError as error:
                    errors[number] = error
            decoded_batch = self._try(encoded)
            if decoded_batch is not None:
                yield decoded_batch
            else:
                # One damaged file stops the batch; the exact decoder finds the file and the reason.
                for number, _, _ in encoded:
                    try:
                        pixels.append(self._decoded(number, files[number], paths[number]))
                    except ImageError as error:
                        errors[number] = error
            if pixels:
                yield self._run(self._pixels, pixels)

    def decode(self, paths: Sequence[Path]) -> list[tuple[list[NDArray[np.uint8]], int, int] | ImageError]:
        """For each file: its pixels uint8 [S, S] in each geometry, on the host, and the native height and width; or the
        error."""
        errors: dict[int, ImageError] = {}
        decoded: dict[int, tuple[list[NDArray[np.uint8]], int, int]] = {}
        for batch in self.batches(paths, errors):
            host = batch.to_host()
            for index, (number, (height, width)) in enumerate(zip(batch.numbers, batch.sizes, strict=True)):
                decoded[number] = ([np.ascontiguousarray(images[index]) for images in host], height, width)
        return [decoded[number] if number in decoded else errors[number] for number in range(len(paths))]

    def _check(self, height: int, width: int) -> None:
        for geometry in self.geometries:
            resize_plan(height, width, geometry)

    def _decoded(self, number: int, data: bytes, path: Path) -> tuple[int, NDArray[np.uint8], tuple[int, int]]:
        grey = decode_grey(data, str(path))
        self._check(*grey.shape)
        return number, grey[..., None], (grey.shape[0], grey.shape[1])

    def _try(self, items: Sequence[tuple[int, NDArray[np.uint8], tuple[int, int]]]) -> DeviceBatch | None:
        """The batch, or None when DALI cannot decode one of its files; the pipeline is then rebuilt."""
        if not items:
            return None
        try:
            return self._run(self._encoded, items)
        except RuntimeError:
            self._encoded = self._make(encoded=True)
            return None

    def _run(self, pipeline: Any, items: Sequence[tuple[int, NDArray[np.uint8], tuple[int, int]]]) -> DeviceBatch:
        pipeline.feed_input("image", [data for _, data, _ in items])
        for index, geometry in enumerate(self.geometries):
            plans = [resize_plan(*size, geometry) for _, _, size in items]
            pipeline.feed_input(f"size{index}", [np.array(plan[:2], np.float32) for plan in plans])
            pipeline.feed_input(f"start{index}", [np.array(plan[2:], np.int32) for plan in plans])
        tensors = tuple(output.as_tensor() for output in pipeline.run())
        return DeviceBatch(tensors, tuple(item[0] for item in items), tuple(item[2] for item in items))


def _pipeline(geometries: Sequence[Geometry], batch: int, threads: int, device: int | None, *, encoded: bool) -> Any:
    dali, fn, types = (importlib.import_module(f"nvidia.dali{part}") for part in ("", ".fn", ".types"))
    pipeline = dali.Pipeline(batch_size=batch, num_threads=threads, device_id=device, prefetch_queue_depth=1)
    with pipeline:
        image = fn.external_source(name="image", dtype=types.UINT8, ndim=1 if encoded else 3)
        if encoded:
            placement = "cpu" if device is None else "mixed"
            # An EXIF orientation is not applied: sizes and regions refer to the pixels as stored.
            image = fn.decoders.image(image, device=placement, output_type=types.GRAY, adjust_orientation=False)
        elif device is not None:
            image = image.gpu()
        image = fn.reinterpret(image, layout="HWC")
        outputs = []
        for index, geometry in enumerate(geometries):
            interpolation = types.INTERP_CUBIC if geometry.interpolation == "bicubic" else types.INTERP_TRIANGULAR
            size = fn.external_source(name=f"size{index}", dtype=types.FLOAT, ndim=1)
            start = fn.external_source(name=f"start{index}", dtype=types.INT32, ndim=1)
            resized = fn.resize(image, size=size, interp_type=interpolation, antialias=True)
            outputs.append(fn.slice(resized, start=start, shape=[geometry.size] * 2, axes=[0, 1]))
        pipeline.set_outputs(*outputs)
    pipeline.build()
    return pipeline


def _plain_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) of a grey 8-bit JPEG or PNG, which DALI decodes as Pillow does; None: another type of file.

    Raises ImageError for a damaged header.
    """
    image_format = image_kind(data)
    if image_format == "jpeg":
        try:
            frame = jpeg_frame(data)
        except ImageError:
            return None  # the exact decoder names the file and the reason
        if frame.marker not in _DCT or (frame.bits, frame.channels) != (8, 1):
            return None
        size = frame.height, frame.width
    elif image_format == "png" and data[24:26] == b"\x08\x00" and data[28:29] == b"\x00":
        size = png_size(data)
        if b"tRNS" in data[: data.find(b"IDAT")]:
            return None
    else:
        return None
    check_pixels(size)
    return size
