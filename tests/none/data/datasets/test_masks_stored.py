"""What of a stored PNG mask is the mask: colours, opacity, palettes, 16 bits (docs/formats.md §9.8)."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.datasets.masks.mask_files import decode_png
from xbench_fast.runtime.data.datasets.masks.mask_reader import MaskReader

WHERE = (Path("a.png"), None)
INSIDE = np.zeros((12, 16), np.bool_)
INSIDE[4:9, 3:10] = True
ROI = np.zeros((12, 16), np.bool_)
ROI[2:11, 1:14] = True
BYTES = (INSIDE * 255).astype(np.uint8)
OPAQUE = np.full(INSIDE.shape, 255, np.uint8)
ALPHA = "the mask is in the opacity"


def png(depth: int, colour_type: int, samples: NDArray[Any], *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG file made by hand: samples [H, W] or [H, W, channels], of 1, 2, 4, 8 or 16 bits."""
    height, width = samples.shape[:2]
    rows = samples.reshape(height, -1)
    if depth < 8:
        parts = np.split(rows.astype(np.uint8).reshape(height, -1, 8 // depth), 8 // depth, axis=2)
        packed = sum(part[..., 0] << (8 - depth * (place + 1)) for place, part in enumerate(parts)).astype(np.uint8)
    else:
        packed = np.ascontiguousarray(rows.astype(">u2" if depth == 16 else "u1")).view(np.uint8)
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    content = zlib.compress(b"".join(b"\0" + row.tobytes() for row in packed))
    parts = [(b"IHDR", header), *chunks, (b"IDAT", content), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def coloured(inside: Sequence[int], outside: Sequence[int], opacity: Any = None) -> NDArray[Any]:
    """[H, W, 3 or 4]: one colour in the region, another one beside it."""
    colours = np.where(INSIDE[..., None], inside, outside)
    return colours if opacity is None else np.dstack([colours, opacity])


def grey_alpha(grey: Any, opacity: Any) -> NDArray[Any]:
    return np.dstack([np.broadcast_to(grey, INSIDE.shape), np.broadcast_to(opacity, INSIDE.shape)])


def palette(indices: NDArray[Any], colours: bytes, opacity: bytes | None = None) -> bytes:
    return png(8, 3, indices, (b"PLTE", colours), *([(b"tRNS", opacity)] if opacity is not None else []))


RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)
DIM = (INSIDE * 200).astype(np.uint16)  # Pillow would read the 16 bits of these colours as 0
FULL = 65535
FILES: dict[str, tuple[bytes, str]] = {
    "one colour": (png(8, 6, coloured(RED, RED, BYTES)), ALPHA),
    "black": (png(8, 6, coloured(BLACK, BLACK, BYTES)), ALPHA),
    "half opaque": (png(8, 6, coloured(RED, RED, BYTES // 2)), ALPHA),
    "premultiplied": (png(8, 6, coloured(RED, BLACK, BYTES)), ""),
    "red on transparent white": (png(8, 6, coloured(RED, WHITE, BYTES)), ALPHA),
    "opaque colours": (png(8, 6, coloured(WHITE, BLACK, OPAQUE)), ""),
    "transparent everywhere": (png(8, 6, coloured(WHITE, BLACK, OPAQUE * 0)), ""),
    "opacity nowhere 0": (png(8, 6, coloured(WHITE, BLACK, 255 - BYTES // 2)), "varies and is nowhere 0; the colours"),
    "grey and opacity": (png(8, 4, grey_alpha(255, BYTES)), ALPHA),
    "black grey and opacity": (png(8, 4, grey_alpha(0, BYTES)), ALPHA),
    "grey, opaque": (png(8, 4, grey_alpha(BYTES, 255)), ""),
    "grey with a transparent 0": (png(8, 0, BYTES, (b"tRNS", b"\0\0")), ""),
    "4 bits with a transparent 0": (png(4, 0, INSIDE * 3, (b"tRNS", b"\0\0")), ""),
    "16 bits with a transparent 0": (png(16, 0, DIM, (b"tRNS", b"\0\0")), ""),
    "colours with a transparent black": (png(8, 2, coloured(RED, BLACK), (b"tRNS", bytes(6))), ""),
    "16 bits, grey": (png(16, 0, DIM), ""),
    "16 bits, colours": (png(16, 2, np.dstack([DIM] * 3)), ""),
    "16 bits, colours, opaque": (png(16, 6, np.dstack([DIM] * 3 + [np.full_like(DIM, FULL)])), ""),
    "16 bits, opacity": (png(16, 6, np.dstack([np.full_like(DIM, FULL)] * 3 + [DIM])), ALPHA),
    "16 bits, grey, opaque": (png(16, 4, grey_alpha(DIM, FULL)), ""),
    "16 bits, grey and opacity": (png(16, 4, grey_alpha(FULL, DIM)), ALPHA),
    "palette": (palette(INSIDE, bytes([0, 0, 0, 255, 255, 255])), ""),
    "palette without black": (palette(INSIDE, bytes([9, 9, 9, 255, 0, 0])), ""),
    "palette, transparent background": (palette(INSIDE, bytes([255, 0, 0] * 2), b"\0\xff"), ""),
    "palette of one colour, all indices 1 and 2": (palette(1 + INSIDE, bytes([255, 0, 0] * 3), b"\xff\0\xff"), ALPHA),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_what_varies_is_the_mask(name: str) -> None:
    data, remark = FILES[name]
    if name.startswith("16 bits, ") and name != "16 bits, grey":
        pytest.importorskip("imagecodecs")
    reader = MaskReader()
    np.testing.assert_array_equal(reader.region(decode_png(data), "Mass", WHERE), INSIDE)
    notes = reader.notes()
    assert [note.kind for note in notes] == ["mask_in_alpha"] * bool(remark)
    assert all(remark in note.text and note.subject == "Mass" and note.file == WHERE[0] for note in notes)


def test_another_decoder_gives_the_same_values() -> None:
    """Pillow reads what has 8 bits; the files made by hand are what they seem to be."""
    for name, (data, _) in FILES.items():
        if not name.startswith("16 bits"):
            alpha = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))[..., 3]
            opacity = decode_png(data).opacity
            np.testing.assert_array_equal(OPAQUE if opacity is None else opacity, alpha, err_msg=name)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            png(8, 6, coloured(BLACK, WHITE, BYTES)),
            "its colours say that 157 pixels are region, its opacity .* that 35",
        ),
        (png(8, 6, coloured(WHITE, BLACK, ROI * 255)), r"that 35 pixels .* \(alpha channel\) that 117 are; state in"),
        (png(8, 0, BYTES, (b"tRNS", b"\0\xff")), "that 35 pixels are region, .* that 157 are"),
        (png(4, 0, INSIDE * 3, (b"tRNS", b"\0\3")), "that 35 pixels are region, .* that 157 are"),
        (png(16, 0, DIM, (b"tRNS", b"\0\xc8")), "that 35 pixels are region, .* that 157 are"),
        (png(8, 2, coloured(RED, WHITE)), "none of its colours is black, so nothing says what lies outside; state in"),
        (palette(INSIDE, bytes([255, 255, 255, 0, 0, 0])), "its palette has black at another index than 0, and a col"),
        (palette(INSIDE, bytes([0, 0, 0, 255, 0, 0]), b"\xff\0"), "that 35 pixels are region, .* that 157 are"),
        (png(8, 0, 1 + INSIDE), "none of its 2 values is 0, so nothing says what lies outside; ask"),
    ],
)
def test_what_can_mean_two_things_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(ImageError, match=sentence):
        MaskReader("; ask").region(decode_png(data), "Mass", WHERE)


def test_a_soft_edge_is_in_the_opacity_or_in_the_colours() -> None:
    """A brush on a transparent layer, with its colour or multiplied by it."""
    soft = BYTES.copy()
    soft[4, 3:10] = 60
    for colours in (np.where(soft[..., None] > 0, RED, BLACK), soft[..., None] * np.array([1, 0, 0])):
        reader = MaskReader()
        stored = decode_png(png(8, 6, np.dstack([colours, soft])))
        np.testing.assert_array_equal(reader.region(stored, "Mass", WHERE), INSIDE)
        assert [note.kind for note in reader.notes()] == ["not_binary"]
        np.testing.assert_array_equal(reader.region(stored, "Mass", WHERE, threshold=128), soft == 255)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_values_of_few_bits_are_the_stored_ones(depth: int) -> None:
    """Pillow makes 17 of 1 in 4 bits, and 85 of 1 in 2 bits; a colour is what it makes of them."""
    top = 2**depth - 1
    values = np.where(ROI, 1, 0) if depth == 1 else np.where(INSIDE, 2, ROI)
    for colour_type, chunks in (
        (0, []), (0, [(b"tRNS", b"\0\0")]), (3, [(b"PLTE", bytes(range(3 * (top + 1))))]),
    ):  # fmt: skip
        stored = decode_png(png(depth, colour_type, values, *chunks))
        np.testing.assert_array_equal(stored.values, values)
        np.testing.assert_array_equal(MaskReader().classes(stored, "", WHERE, colours=False), values)
    stored = decode_png(png(depth, 0, values, (b"tRNS", b"\0\1")))
    np.testing.assert_array_equal(stored.opacity, np.where(values == 1, 0, 255))
    colours = MaskReader().classes(decode_png(png(depth, 0, values)), "", WHERE, colours=True)
    np.testing.assert_array_equal(colours, values * (255 // top) * 0x010101)


def test_16_bits_need_their_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imagecodecs", None)
    with pytest.raises(ImageError, match="colours or opacity of 16 bits, and the package imagecodecs"):
        decode_png(FILES["16 bits, colours"][0])
    assert decode_png(FILES["16 bits, grey"][0]).values.max() == 200


def test_an_animation_is_no_mask() -> None:
    stream = io.BytesIO()
    Image.fromarray(BYTES).save(stream, "PNG", save_all=True, append_images=[Image.fromarray(255 - BYTES)])
    with pytest.raises(ImageError, match="it is an animation"):
        decode_png(stream.getvalue())
    pytest.importorskip("imagecodecs")
    frames = (b"acTL", struct.pack(">II", 2, 0)), (b"fcTL", struct.pack(">IIIIIHHBB", 0, 16, 12, 0, 0, 1, 1, 0, 0))
    with pytest.raises(ImageError, match="it is an animation"):
        decode_png(png(16, 2, np.dstack([DIM] * 3), *frames))


def test_classes_of_transparent_files() -> None:
    reader = MaskReader()
    values = 1 + INSIDE.astype(np.uint8)

    def classes(data: bytes, *, colours: bool = False) -> Any:
        return reader.classes(decode_png(data), "", WHERE, colours=colours)

    np.testing.assert_array_equal(classes(png(8, 4, grey_alpha(values, 255))), values)
    np.testing.assert_array_equal(classes(png(8, 4, grey_alpha(9, values))), values)
    assert reader.notes()[-1].text.startswith("the values are in the opacity")
    np.testing.assert_array_equal(classes(png(8, 4, grey_alpha(values, BYTES))), np.where(INSIDE, 2, 0))
    assert reader.notes()[-1].text == "transparent pixels with a value, which are of no class: 157"
    data = palette(values, bytes([0, 0, 0, 255, 0, 0, 0, 0, 9]), b"\xff\0\xff")
    np.testing.assert_array_equal(classes(data, colours=True), np.where(INSIDE, 9, 0))
    np.testing.assert_array_equal(classes(png(8, 0, values * 127), colours=True), 127 * values.astype(int) * 0x010101)
    with pytest.raises(ImageError, match="it has colours, not values"):
        classes(png(8, 2, coloured(RED, BLACK)))
    with pytest.raises(ImageError, match="it has 16 bits, the colours in the option values have 8"):
        classes(png(16, 0, DIM), colours=True)
