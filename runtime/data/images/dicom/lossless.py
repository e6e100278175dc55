"""Lossless JPEG by the predictors 5, 6 and 7 of ITU-T T.81, where differences modulo 2^P must be detected.

T.81 H.1.2.1 takes differences modulo 2^16, some encoders take them modulo 2^P. Predictors 1 to 4 are sums, so one
decoder serves both: the values are equal modulo 2^P. Predictors 5 to 7 halve, so their neighbours must be reduced
first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from .jpeg_header import JpegHeader


def decode_averaging(frame: bytes, header: JpegHeader) -> NDArray[np.uint16]:
    """The values [rows, columns] of a stream of less than 16 bits by one of these predictors.

    Decoded as a stream of 16 bits, values keep what exceeds 2^P: only differences modulo 2^P exceed it. All predictors
    commute with a constant, so the start value of 16 bits moves every value by the same amount.
    """
    from imagecodecs import jpeg8_decode

    wide = bytearray(frame)
    wide[header.frame + 4] = 16
    words = np.asarray(jpeg8_decode(bytes(wide)))
    values = words - np.uint16((1 << 15) - (1 << header.precision - 1))
    if int(values.max()) < 1 << header.precision:
        return values
    if header.shift:
        raise ImageError("its lossless JPEG has a point transform and differences modulo its range, which is not read")
    from .....metrics_gpu.compiled import compiled

    restart = header.restart // words.shape[1] if header.restart else 1 << 30  # in rows, T.81 H.1.1
    loop: Any = compiled(_reduced)
    return np.asarray(loop(words, header.precision, header.predictor, restart))


def _reduced(words: Any, precision: int, predictor: int, restart: int) -> Any:
    """The differences of values decoded modulo 2^16, decoded again modulo 2^precision; uint16 [rows, columns]."""
    rows, columns = words.shape
    values = np.empty((rows, columns), np.uint16)
    mask = (1 << precision) - 1
    for y in range(rows):
        for x in range(columns):
            first = y % restart == 0
            if first and x == 0:
                old, new = np.int64(1 << 15), np.int64(1 << (precision - 1))
            elif first:
                old, new = np.int64(words[y, x - 1]), np.int64(values[y, x - 1])
            elif x == 0:
                old, new = np.int64(words[y - 1, x]), np.int64(values[y - 1, x])
            else:
                a, b, c = np.int64(words[y, x - 1]), np.int64(words[y - 1, x]), np.int64(words[y - 1, x - 1])
                d, e, f = np.int64(values[y, x - 1]), np.int64(values[y - 1, x]), np.int64(values[y - 1, x - 1])
                if predictor == 5:
                    old, new = a + ((b - c) >> 1), d + ((e - f) >> 1)
                elif predictor == 6:
                    old, new = b + ((a - c) >> 1), e + ((d - f) >> 1)
                else:
                    old, new = (a + b) >> 1, (d + e) >> 1
            values[y, x] = (new + np.int64(words[y, x]) - old) & mask
    return values
