"""Images as the models see them: goldens of the official pipelines, and what part of the frame they cover."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import encode
from PIL import Image
from xbench_fast.engines.errors import BundleError, ImageError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.images.area import resize_area
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.resizing import field_of_view, to_model

CLIP = Geometry("crop", 224, 224, "bicubic")
FLOORED = Geometry("floor_crop", 224, 224, "bicubic")
CARZERO = Geometry("pad_crop", 224, 256, "area")
AFLOC = Geometry("pad_crop", 224, 224, "area")
CHEXZERO = Geometry("pad_crop", 320, 320, "lanczos")
SHAPES = ("portrait", "landscape", "square", "small", "truncated")


def smooth(height: int, width: int) -> np.ndarray:
    rows, columns = np.mgrid[0:height, 0:width]
    return (127 + 60 * np.sin(rows / 17) + 60 * np.cos(columns / 23)).astype(np.uint8)


@pytest.mark.parametrize(
    ("mode", "interpolation", "sentence"),
    [
        ("sqash", "bicubic", r"Unknown geometry 'sqash': did you mean 'squash'\? known are squash, crop, flo"),
        ("crop", "cubic", "Unknown interpolation 'cubic': did you mean 'bicubic'"),
        (3, "area", "Unknown geometry '3': known are squash"),
    ],
)
def test_unknown_names(mode: str, interpolation: str, sentence: str) -> None:
    with pytest.raises(BundleError, match=sentence):
        Geometry(mode, 224, 224, interpolation)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
def test_crop_equals_the_official_clip_pipeline(shared: Path, shape: str) -> None:
    with np.load(shared / "parity/clip_vit_b_32.npz") as golden:
        found = to_model(golden[f"preprocess_in_{shape}"], CLIP)
        np.testing.assert_array_equal(found, golden[f"preprocess_out_{shape}"])


@pytest.mark.parametrize(
    ("model", "geometry", "step", "shape"),
    [
        *(("carzero", CARZERO, 1, shape) for shape in SHAPES),
        *(("afloc", AFLOC, 2, each) for each in (*SHAPES, "narrow")),
    ],
)
def test_area_averaging_equals_the_official_pipelines(
    shared: Path, model: str, geometry: Geometry, step: int, shape: str
) -> None:
    with np.load(shared / f"parity/{model}.npz") as golden:
        source, expected = golden[f"preprocess_in_{shape}"], golden[f"preprocess_out_{shape}"]
    np.testing.assert_array_equal(to_model(source, geometry)[::step, ::step], expected)


@pytest.mark.parametrize("shape", ["portrait", "landscape", "square", "small", "narrow"])
def test_lanczos_into_a_black_square_equals_the_official_chexzero_pipeline(shared: Path, shape: str) -> None:
    with np.load(shared / "parity/chexzero.npz") as golden:
        found = to_model(golden[f"preprocess_in_{shape}"], CHEXZERO)
        np.testing.assert_array_equal(found[::3, ::3], golden[f"preprocess_square_{shape}"])


SQUARES = {"chexzero": (CHEXZERO, "preprocess_square", 3), "afloc": (AFLOC, "preprocess_out", 2)}


@pytest.mark.parametrize(("model", "most", "filled"), [("chexzero", 241, 3), ("afloc", 238, 1)])
def test_16_bits_are_stretched_where_the_authors_cut_them(shared: Path, model: str, most: int, filled: int) -> None:
    """The high byte alone leaves a file of 12 bits almost black; of one that fills 16 bits it is nearly the same
    (docs/parity.md §3.10 and §3.11)."""
    geometry, name, step = SQUARES[model]
    with np.load(shared / f"parity/{model}.npz") as golden:
        given, wanted = golden["preprocess_in_deep"], golden[f"{name}_deep"]
    whole = np.linspace(0, 65535, given.size).astype(np.uint16)
    whole = np.random.default_rng(0).permuted(whole).reshape(given.shape)
    for stored, bound in ((given, most), (whole, filled)):
        cut = to_model((stored >> 8).astype(np.uint8), geometry)
        seen = to_model(decode_grey(encode(stored, "PNG"), "deep"), geometry)
        assert np.abs(seen.astype(int) - cut).max() == bound
        if stored is given:
            np.testing.assert_array_equal(cut[::step, ::step], wanted)
            assert cut.max() <= 18 and seen.max() >= 250


@pytest.mark.parametrize(("model", "most"), [("chexzero", 12), ("afloc", 2)])
def test_colour_is_grey_before_the_resize(shared: Path, model: str, most: int) -> None:
    geometry, name, step = SQUARES[model]
    with np.load(shared / f"parity/{model}.npz") as golden:
        given, wanted = golden["preprocess_in_colour"], golden[f"{name}_colour"]
    seen = to_model(decode_grey(encode(given, "PNG"), "colour"), geometry)
    assert np.abs(seen[::step, ::step].astype(int) - wanted).max() == most


def chexzeros_square(stored: Image.Image) -> np.ndarray:
    """The steps of CheXzero's preparation: resize, then grey, then the middle of a black square."""
    ratio = 320 / max(stored.size)
    image = stored.convert("RGB").resize([int(side * ratio) for side in stored.size], Image.Resampling.LANCZOS)
    square = Image.new("L", (320, 320))
    square.paste(image.convert("L"), tuple((320 - side) // 2 for side in image.size))
    return np.asarray(square)


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 300), (320, 1), (2, 5), (303, 200), (319, 320), (321, 641), (700, 611), (97, 98)]
)
def test_chexzeros_preparation_of_any_size(size: tuple[int, int]) -> None:
    """Enlarged and shrunk, one pixel wide or short of a pixel; grey, with opacity, and of a palette of greys."""
    height, width = size
    grey = np.random.default_rng(height).integers(0, 256, (height, width), np.uint8)
    wanted = chexzeros_square(Image.fromarray(grey))
    for mode in ("L", "LA", "RGB", "RGBA", "P"):
        np.testing.assert_array_equal(to_model(decode_grey(encode(grey, "PNG", mode), mode), CHEXZERO), wanted)


REAL = ("nih_cxr14/*.png", "chexlocalize/CheXpert/valid/*/*/*.jpg")  # two of them have an opacity
# SHA-256 of the pixels of all, one after another, as OpenCV 5.0 and Pillow 13 prepare them by the authors' steps.
PREPARED = {
    "afloc": "8d5501cf89f2a1ec401857d85f5a3f4d0884cc79c6d96aa9a9732103bc502602",
    "chexzero": "1c7dfbec7be6cbaf4a688ff1b982b9d5d735027138e2119e7c99e648b6e83476",
}


@pytest.mark.parametrize("model", PREPARED)
def test_real_radiographs_are_prepared_as_the_authors_do(shared: Path, model: str) -> None:
    paths = [path for pattern in REAL for path in sorted((shared / "data/images").glob(pattern))]
    found = [to_model(decode_grey(path.read_bytes(), path.name), SQUARES[model][0]) for path in paths]
    assert len(found) == 14
    assert sha256(b"".join(pixels.tobytes() for pixels in found)).hexdigest() == PREPARED[model]


def test_only_chexzero_truncates_the_longer_side() -> None:
    """The quotient is rounded before the product is truncated: 320 / 303 * 303 is below 320."""
    assert not to_model(np.full((303, 200), 255, np.uint8), CHEXZERO)[319:].any()
    assert field_of_view(CHEXZERO, 303, 200) == (0.0, -54 / 211, 320 / 319, 266 / 211)
    assert field_of_view(AFLOC, 303, 200)[::2] == (0.0, 1.0)


@pytest.mark.parametrize(("model", "size"), [("kad_224", 224), ("kad", 512)])
def test_squash_equals_the_official_kad_pipeline(shared: Path, model: str, size: int) -> None:
    with np.load(shared / f"parity/{model}.npz") as golden:
        source, expected = golden["pre_pixels"], golden["pre_image"]
    found = to_model(source, Geometry("squash", size, size, "bicubic")).astype(np.float32) / 255
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    normalised = (found[None, ::8, ::8] - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(normalised, expected, atol=1e-6)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_one_grey_channel_equals_three_equal_ones(interpolation: str) -> None:
    grey = smooth(301, 457)
    method = Image.Resampling.BILINEAR if interpolation == "bilinear" else Image.Resampling.BICUBIC
    colour = np.asarray(Image.fromarray(grey).convert("RGB").resize((224, 224), method))
    found = to_model(grey, Geometry("squash", 224, 224, interpolation))  # type: ignore[arg-type]
    for channel in range(3):
        np.testing.assert_array_equal(found, colour[..., channel])


def test_an_image_of_the_right_size_is_not_touched() -> None:
    grey = smooth(224, 224)
    np.testing.assert_array_equal(to_model(grey, CLIP), grey)
    np.testing.assert_array_equal(to_model(grey, Geometry("squash", 224, 224, "bicubic")), grey)


@pytest.mark.parametrize("geometry", [CLIP, FLOORED, CARZERO, CHEXZERO, Geometry("squash", 224, 224, "bilinear")])
@given(height=st.integers(1, 400), width=st.integers(1, 400))
@settings(max_examples=40)
def test_the_result_is_always_the_models_input(geometry: Geometry, height: int, width: int) -> None:
    found = to_model(smooth(height, width), geometry)
    assert found.shape == (geometry.size,) * 2 and found.dtype == np.uint8 and found.flags.c_contiguous


def test_a_strip_is_refused() -> None:
    with pytest.raises(ImageError, match="too narrow"):
        to_model(np.zeros((1, 30_000), np.uint8), CLIP)


def mean_of_area(grey: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Every output pixel as the mean over a fine subdivision: source pixels are cut into rows x columns parts."""
    height, width = grey.shape
    fine = np.repeat(np.repeat(grey.astype(np.float64), rows, 0), columns, 1)
    return fine.reshape(rows, height, columns, width).mean((1, 3))


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_shrinking_is_the_mean_of_the_area(height: int, width: int, data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    seed = data.draw(st.integers(0, 1000))
    grey = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    assert np.abs(resize_area(grey, rows, columns) - mean_of_area(grey, rows, columns)).max() <= 0.5 + 1e-9


def test_squash_sees_everything() -> None:
    assert field_of_view(Geometry("squash", 512, 512, "bicubic"), 300, 700) == (0.0, 0.0, 1.0, 1.0)


def test_crop_sees_the_middle_of_the_longer_side() -> None:
    # 1000 x 2000 -> 224 x 448, offset 112.
    assert field_of_view(CLIP, 1000, 2000) == (0.0, 0.25, 1.0, 0.75)
    assert field_of_view(CLIP, 2000, 1000) == (0.25, 0.0, 0.75, 1.0)
    # 233 x 410 -> 224 x 394, offset 85.
    assert field_of_view(CLIP, 233, 410) == (0.0, 85 / 394, 1.0, (85 + 224) / 394)


def test_pad_crop_exceeds_the_frame_by_its_padding() -> None:
    # 1000 x 2000 -> 128 x 256, 64 rows of padding above and below; the crop takes rows and columns 16..240.
    assert field_of_view(CARZERO, 1000, 2000) == (-48 / 128, 16 / 256, (240 - 64) / 128, 240 / 256)
    assert field_of_view(CARZERO, 1024, 1024) == (16 / 256, 16 / 256, 240 / 256, 240 / 256)


@pytest.mark.parametrize("geometry", [CLIP, FLOORED, CARZERO, CHEXZERO])
@pytest.mark.parametrize(("height", "width"), [(1000, 1400), (1400, 1000), (900, 900), (1203, 2001)])
def test_a_landmark_is_where_the_field_of_view_says(geometry: Geometry, height: int, width: int) -> None:
    row, column, radius = height * 0.45, width * 0.55, min(height, width) * 0.03
    rows, columns = np.mgrid[0:height, 0:width] + 0.5
    blob = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * radius**2))
    seen = to_model((255 * blob).astype(np.uint8), geometry).astype(np.float64)
    y0, x0, y1, x1 = field_of_view(geometry, height, width)
    y = (seen.sum(1) @ (np.arange(len(seen)) + 0.5)) / seen.sum() / len(seen)
    x = (seen.sum(0) @ (np.arange(len(seen)) + 0.5)) / seen.sum() / len(seen)
    assert abs((y0 + y * (y1 - y0)) * height - row) < height / 448
    assert abs((x0 + x * (x1 - x0)) * width - column) < width / 448


@pytest.mark.parametrize(("long", "round_half", "floor"), [(33, 0, 0), (34, 1, 1), (35, 2, 1), (37, 2, 2), (39, 4, 3)])
@pytest.mark.parametrize("mode", ["crop", "floor_crop"])
def test_half_a_pixel_is_rounded_as_the_library_rounds(mode: Any, long: int, round_half: int, floor: int) -> None:
    """torchvision's centre begins at round((long - size) / 2), halves to even; that of transformers is rounded down."""
    offset = round_half if mode == "crop" else floor
    grey = np.random.default_rng(0).integers(0, 256, (long, long), np.uint8)
    geometry = Geometry(mode, 32, long, "bilinear")
    assert Geometry.from_key(geometry.key) == geometry and geometry.key.startswith(f"{mode}-32")
    np.testing.assert_array_equal(to_model(grey, geometry), grey[offset : offset + 32, offset : offset + 32])
    corners = (offset / long, offset / long, (offset + 32) / long, (offset + 32) / long)
    assert field_of_view(geometry, long, long) == corners


def test_half_of_the_size_rounds_half_up_as_opencv_does() -> None:
    grey = np.array([[0, 1, 2, 2], [1, 0, 3, 3], [255, 255, 7, 8], [255, 254, 8, 7]], np.uint8)
    assert resize_area(grey, 2, 2).tolist() == [[1, 3], [255, 8]]
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 256, (36, 50), dtype=np.uint8)
    blocks = [[sum(noise[y : y + 2, x : x + 2].reshape(-1).tolist()) for x in range(0, 50, 2)] for y in range(0, 36, 2)]
    np.testing.assert_array_equal(resize_area(noise, 18, 25), [[(total + 2) // 4 for total in row] for row in blocks])
    stripes = np.array([[0, 0, 1, 1, 0, 0, 0, 0] * 2] * 2, np.uint8)  # a quarter of the width: means of 2 halves
    assert resize_area(stripes, 1, 4).tolist() == [[0, 0, 0, 0]], "half to even where it is not half of both sides"
