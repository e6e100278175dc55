"""Opens a DICOM file: where its data set begins, and in which transfer syntax it is.

pydicom reads here and nowhere else. Its warnings, log lines and exceptions quote values, and in a damaged file any
value can be a patient's name: none of them leaves this module.
"""

from __future__ import annotations

import logging
import struct
import warnings
import zlib
from collections.abc import Sequence
from io import BytesIO
from typing import BinaryIO, Final

from .....engines.errors import ImageError
from ..kinds import KIND_BYTES, dicom_start
from .elements import BIG_ENDIAN, DEFLATED, EXPLICIT, IMPLICIT, DataSet, tag_of, valid_uid

_PIXELS: Final = frozenset({0x7FE0_0008, 0x7FE0_0009, 0x7FE0_0010})
_DICOM_PACKAGES: Final = r"(pydicom|highdicom)(\.|$)"


def open_data_set(stream: BinaryIO, tags: Sequence[str] = (), *, pixels: bool = True, inflated: int = 0) -> DataSet:
    """The data set of a DICOM file, with or without its preamble, from a seekable stream.

    tags: the keywords of the elements to be kept, all if there are none. pixels: False ends before the pixels.
    inflated: the most bytes that a deflated data set may have; with 0 one is refused. Raises ImageError, which quotes
    no value.
    """
    silence_pydicom()
    from pydicom.filereader import read_dataset

    begin = dicom_start(stream.read(KIND_BYTES))
    if begin is None:
        raise ImageError("it is not a DICOM file")
    stream.seek(begin)
    try:
        syntax = _transfer_syntax(stream)
        if syntax == DEFLATED:
            stream = _inflated(stream, inflated)
        parsed = read_dataset(
            stream,
            syntax == IMPLICIT,
            syntax != BIG_ENDIAN,
            stop_when=None if pixels else lambda tag, vr, length: int(tag) in _PIXELS,
            specific_tags=[tag_of(keyword) for keyword in tags] or None,
        )
    except (ImageError, MemoryError, ImportError):
        raise
    # pydicom can raise any exception on a damaged file.
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ImageError(f"it is damaged or incomplete ({type(error).__name__})") from None
    if not tags and not len(parsed):  # pydicom drops all elements of a file that ends within its pixels
        raise ImageError("its data set is truncated or empty")
    return DataSet(parsed, syntax)


def _transfer_syntax(stream: BinaryIO) -> str:
    """The transfer syntax of a file; leaves `stream` at the data set.

    Without file meta information the first element of the data set shows whether its VRs are explicit, and its byte
    order; compressed pixels cannot be recognised then, and are refused where frames are looked for.
    """
    from pydicom.filereader import read_dataset

    begin = stream.tell()
    head = stream.read(8)
    stream.seek(begin)
    explicit = head[4:6].isalpha() and head[4:6].isupper()
    if struct.unpack("<H", head[:2])[0] != 0x0002:
        if not explicit:
            return IMPLICIT
        return EXPLICIT if struct.unpack("<H", head[:2])[0] < 0x0100 else BIG_ENDIAN
    meta = read_dataset(stream, not explicit, True, stop_when=lambda tag, vr, length: int(tag) >> 16 != 0x0002)
    stated = DataSet(meta, "").text("TransferSyntaxUID")
    if not stated:
        raise ImageError("it lacks the tag TransferSyntaxUID")
    syntax = valid_uid(stated)
    if not syntax:
        raise ImageError("its TransferSyntaxUID is not a valid identifier, the file is damaged")
    return syntax


def _inflated(stream: BinaryIO, most: int) -> BinaryIO:
    """A deflated data set as a stream. Checked before it is read: pydicom would inflate one of any size."""
    if not most:
        raise ImageError("its data set is deflated as a whole; store it with another transfer syntax")
    unpacked = zlib.decompressobj(-zlib.MAX_WBITS).decompress(stream.read(), most + 1)
    if len(unpacked) > most:
        raise ImageError(f"its deflated data set has more than {most} bytes")
    return BytesIO(unpacked)


def silence_pydicom() -> None:
    """Drops what pydicom and highdicom would say of a file: their warnings and log lines quote values.

    All are settings of the process. They are looked at before each file, because a test or a program that sets
    warnings aside for a while removes them.
    """
    if not warnings.filters or getattr(warnings.filters[0][3], "pattern", None) != _DICOM_PACKAGES:
        warnings.filterwarnings("ignore", module=_DICOM_PACKAGES)
    logger = logging.getLogger("pydicom")
    if _drop not in logger.filters:
        logger.addFilter(_drop)
    # highdicom has a logger for each module, which a filter of their parent would not see.
    logging.getLogger("highdicom").setLevel(logging.CRITICAL + 1)


def _drop(record: logging.LogRecord) -> bool:
    return False
