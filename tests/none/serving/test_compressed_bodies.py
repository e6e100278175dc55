"""Compressed bodies, part by part, against Python's own gzip and zlib."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest
from xbench_fast.runtime.serving.http.bodies import Decompressor, coding_of
from xbench_fast.runtime.serving.http.error_response import UnknownCoding
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest

NOISE = np.random.default_rng(0).integers(0, 256, 3000, np.uint8).tobytes()
FLAT = bytes(1_500_000)
STEP = 1 << 18


def through(coding: str, *parts: bytes) -> bytes:
    decompressor = Decompressor(coding)
    found = b""
    for part in parts:
        for step in decompressor.steps(part):
            assert len(step) <= STEP
            found += step
    decompressor.end()
    return found


@pytest.mark.parametrize("data", [b"", b"x", NOISE, FLAT, FLAT[:STEP], NOISE + FLAT])
@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate"])
def test_what_was_compressed_comes_back(coding: str, data: bytes) -> None:
    packed = zlib.compress(data) if coding == "deflate" else gzip.compress(data)
    for size in (len(packed), 1000, 7):
        assert through(coding, *(packed[at : at + size] for at in range(0, len(packed), size))) == data


def test_members_of_gzip_are_joined() -> None:
    packed = gzip.compress(NOISE) + gzip.compress(b"") + gzip.compress(FLAT)
    assert through("gzip", packed) == NOISE + FLAT == gzip.decompress(packed)
    assert through("gzip", gzip.compress(NOISE), gzip.compress(b"x")) == NOISE + b"x"


def damaged(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("coding", "packed", "words"),
    [
        ("gzip", b"{}", "is not gzip"),
        ("gzip", zlib.compress(NOISE), "is not gzip"),
        ("deflate", gzip.compress(NOISE), "is not deflate"),
        ("deflate", zlib.compress(NOISE, wbits=-15), "is not deflate"),
        ("gzip", b"", "ends before its gzip stream does"),
        ("gzip", gzip.compress(NOISE)[:-1], "ends before its gzip"),
        ("gzip", gzip.compress(NOISE) + gzip.compress(NOISE)[:20], "ends before"),
        ("gzip", gzip.compress(NOISE) + b"x", "is not gzip|ends before"),
        ("gzip", damaged(gzip.compress(NOISE), -6), "is not gzip"),
        ("deflate", damaged(zlib.compress(NOISE), -2), "is not deflate"),
        ("deflate", zlib.compress(NOISE) + zlib.compress(NOISE), "bytes beyond the end"),
        ("deflate", zlib.compress(NOISE)[:100], "ends before its deflate"),
    ],
)
def test_what_is_damaged_is_refused(coding: str, packed: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        through(coding, packed)


def test_the_rest_of_a_bomb_is_not_decompressed() -> None:
    """Thirty thousand bytes that become thirty million."""
    bomb = zlib.compress(bytes(30_000_000))
    steps = Decompressor("deflate").steps(bomb)
    assert sum(len(next(steps)) for _ in range(4)) == 4 * STEP


@pytest.mark.parametrize(
    ("headers", "coding"),
    [
        ([], ""),
        ([""], ""),
        (["identity"], ""),
        (["GZip"], "gzip"),
        (["identity, deflate"], "deflate"),
        (["identity", " x-gzip "], "x-gzip"),
        (["br"], None),
        (["zstd"], None),
        (["gzip, gzip"], None),
        (["gzip", "deflate"], None),
        (["gzip;q=1"], None),
    ],
)
def test_codings_that_are_taken(headers: list[str], coding: str | None) -> None:
    if coding is not None:
        assert coding_of(headers) == coding
        return
    with pytest.raises(UnknownCoding, match="is not taken; send the body as gzip or deflate"):
        coding_of(headers)
