"""Image files -> native 8-bit grey, bright = radio-dense (docs/datasets.md §0.2)."""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageAccessError, ImageError, is_of_the_machine, words_of
from ...host.code_numbers import code_number
from ...host.machine_record import installed_version
from .kinds import image_kind
from .other_kinds import refusal
from .png_jpeg import decode_jpeg, decode_png

T = TypeVar("T")
R = TypeVar("R")

_MAX_BYTES = 1 << 29  # a file is read as a whole: the limit bounds the memory of one image


def read_grey(path: Path) -> NDArray[np.uint8]:
    """The image in `path`, uint8 [H, W], native size, contiguous. Safe to call from several threads.

    The file type (PNG, JPEG, DICOM) is found from the content, not the name. Raises ImageError, and nothing else,
    naming the file and the cause; it is an ImageAccessError if the cause is not the content of the file.
    """
    return decode_grey(read_bytes(path), str(path))


def is_there(path: Path) -> bool:
    """Whether `path` is a file. Raises ImageAccessError if this is unknown, as in another user's folder."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        raise ImageAccessError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_bytes(path: Path) -> bytes:
    """The content of an image file.

    Raises ImageError for a file that is too large for a radiograph, ImageAccessError if the file cannot be accessed.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ImageError(f"it has {size} bytes, the limit is {_MAX_BYTES}")
        return path.read_bytes()
    except ImageError as error:
        raise ImageError(f"{path} cannot be read: {error}.") from None
    except (OSError, MemoryError) as error:
        cause = getattr(error, "strerror", None) or str(error) or "not enough memory"
        raise ImageAccessError(f"{path} cannot be read: {cause}.") from error
    except ValueError as error:
        raise ImageError(f"{path} cannot be read: {error}.") from error


def decode_grey(data: bytes, name: str, *, stretched: bool = False) -> NDArray[np.uint8]:
    """As `read_grey`, from the bytes of a file; `name` is used in messages only. Raises ImageError.

    stretched: the grey levels follow from the stored values by the intensity rule of that name (docs/datasets.md §0.2).
    """
    image_format = image_kind(data)
    try:
        if image_format == "png":
            return np.ascontiguousarray(decode_png(data, stretched=stretched))
        if image_format == "jpeg":
            return np.ascontiguousarray(decode_jpeg(data, stretched=stretched))
        if image_format == "dicom":
            from .dicom.dicom_grey import decode_dicom

            return np.ascontiguousarray(decode_dicom(data, stretched=stretched))
        raise ImageError(refusal(data))
    except ImageError as error:
        raise type(error)(f"{name} cannot be read: {error}.") from error.__cause__
    # The decoding libraries can raise any exception on a damaged file; all are converted here.
    except Exception as error:
        if is_of_the_machine(error):
            raise ImageAccessError(f"{name} cannot be read on this machine at this time: {words_of(error)}.") from error
        if image_format == "dicom":  # whose values can be names of patients
            raise ImageError(f"{name} cannot be read: it is damaged ({type(error).__name__}).") from None
        raise ImageError(f"{name} cannot be read: it is damaged or of an unknown kind ({words_of(error)}).") from error


def decode_ahead(function: Callable[[T], R], items: Iterable[T], workers: int, window: int) -> Generator[R, None, None]:
    """`function(item)` for all items, in order, computed by `workers` threads at most `window` items ahead.

    The window bounds memory; closing the iterator (or an exception in its consumer) cancels calls not yet started.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def reader_version() -> str:
    """Names everything that the pixels depend on, the code included; part of the key of prepared images."""
    packages = ("pillow", "pydicom", "imagecodecs")
    return "+".join(
        [code_number("pixels"), *(f"{package}-{installed_version(package) or 'none'}" for package in packages)]
    )
