"""The intensity rule of BioViL: each image's stored values from its minimum to its maximum, before the resize."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from evaluation_world import World
from make_images import dicom, encode
from numpy.typing import NDArray
from PIL import Image
from pydicom.uid import JPEGBaseline8Bit
from synthetic import SIZE, make_bundle, make_dataset, model, prompt_set
from xbench_fast import prepare
from xbench_fast.engines.errors import ImageError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest_json import parse_manifest
from xbench_fast.export.triton.dali_step import refusal
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.data.cache import image_store as store_module
from xbench_fast.runtime.data.cache.image_store import PreparedStore
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.images.dali import supports
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.intensity import stretch_stored
from xbench_fast.runtime.data.images.resizing import to_model
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.serving.inference.request_images import DISPLAY_SIDE, prepare_file, prepare_grey

GEOMETRY = Geometry("crop", 448, 512, "bilinear", "stretched")
SMALL = Geometry("crop", 24, 28, "bilinear", "stretched")
RNG = np.random.default_rng(4)
NARROW = RNG.integers(40, 91, (61, 50)).astype(np.uint8)
DEEP = RNG.integers(300, 3800, (50, 61)).astype(np.uint16)
COLOUR = RNG.integers(10, 201, (44, 40, 3)).astype(np.uint8)
REAL = (
    "nih_cxr14/*.png",
    "chexlocalize/CheXpert/valid/*/*/*.jpg",
    "dicom_variety/*.dcm",
    "rsna/stage_2_train_images/c64*.dcm",
)


def naive(stored: NDArray[Any], geometry: Geometry = GEOMETRY) -> NDArray[np.uint8]:
    """The authors' steps, one after another: stretch the whole array, grey, shorter side, centre."""
    levels = stored.astype(np.float64)
    levels -= levels.min()
    levels /= levels.max()
    levels *= 255
    image = Image.fromarray(levels.astype(np.uint8)).convert("L")
    width, height = image.size
    side, size = geometry.resize, geometry.size
    if width <= height:
        image = image.resize((side, int(side * height / width)), Image.Resampling.BILINEAR)
    else:
        image = image.resize((int(side * width / height), side), Image.Resampling.BILINEAR)
    left, top = (round((length - size) / 2) for length in image.size)
    return np.asarray(image.crop((left, top, left + size, top + size)))


def stored_values(path: Path) -> NDArray[Any]:
    """As the authors' loader reads a file, but a MONOCHROME1 DICOM inverted, as this project's images are."""
    if path.suffix != ".dcm":
        return np.asarray(Image.open(path))
    file = pydicom.dcmread(path)
    if file.file_meta.TransferSyntaxUID == JPEGBaseline8Bit:
        file.pixel_array_options(decoding_plugin="pillow")  # pylibjpeg's values differ by up to 2 levels
    values = file.pixel_array.astype(np.int64)
    return values.max() + values.min() - values if file.PhotometricInterpretation == "MONOCHROME1" else values


def through(data: bytes, geometry: Geometry) -> NDArray[np.uint8]:
    return to_model(decode_grey(data, "an image", stretched=geometry.stretched), geometry)


@pytest.mark.parametrize("name", ["portrait", "landscape", "square", "small", "narrow", "deep", "colour"])
@pytest.mark.parametrize("of", ["biovil_t", "biovil"])
def test_pixels_of_the_authors_code(shared: Path, of: str, name: str) -> None:
    with np.load(shared / "parity" / f"{of}.npz") as golden:
        given, wanted = golden[f"preprocess_in_{name}"], golden[f"preprocess_out_{name}"]
    geometry = replace(GEOMETRY, size=448 if of == "biovil_t" else 480)
    np.testing.assert_array_equal(through(encode(given, "PNG"), geometry)[::3, ::3], wanted)
    np.testing.assert_array_equal(naive(given, geometry)[::3, ::3], wanted)


def test_pixels_of_real_radiographs(shared: Path) -> None:
    paths = [path for pattern in REAL for path in sorted((shared / "data/images").glob(pattern))]
    kinds = [Image.open(path).mode if path.suffix != ".dcm" else "dcm" for path in paths]
    chosen = [paths[kinds.index("RGBA")], paths[kinds.index("L")], *(p for p in paths if p.suffix != ".png")]
    assert len(chosen) == 8
    for path in chosen:
        found = through(path.read_bytes(), GEOMETRY)
        np.testing.assert_array_equal(found, naive(stored_values(path)), err_msg=str(path))


@pytest.mark.parametrize("stored", [NARROW, DEEP, COLOUR], ids=["narrow", "deep", "colour"])
def test_it_acts_on_what_is_stored(stored: NDArray[Any]) -> None:
    """Not on 8 bits, not on grey, and not on the resized image; the levels differ from those that others see."""
    data = encode(stored, "PNG")
    np.testing.assert_array_equal(through(data, SMALL), naive(stored, SMALL))
    grey = decode_grey(data, "an image")
    assert not np.array_equal(decode_grey(data, "an image", stretched=True), grey)
    plain = replace(SMALL, intensity="unchanged")
    assert not np.array_equal(through(data, SMALL), stretch_stored(through(data, plain)))
    if stored.ndim == 3:
        assert not np.array_equal(decode_grey(data, "an image", stretched=True), stretch_stored(grey))


@pytest.mark.parametrize("mode", ["1", "LA", "P", "RGBA", "CMYK"])
def test_other_kinds_of_pixels(mode: str) -> None:
    """Opacity counts, as it does in the array of the loader; a palette and inks are colours first."""
    data = encode(COLOUR, "JPEG" if mode == "CMYK" else "PNG", mode)
    image = Image.open(io.BytesIO(data))
    stored = np.asarray(image if mode in ("LA", "RGBA") else image.convert("RGB"))
    np.testing.assert_array_equal(through(data, SMALL), naive(stored, SMALL))


def test_a_jpeg() -> None:
    data = encode(NARROW, "JPEG", quality=95)
    np.testing.assert_array_equal(through(data, SMALL), naive(np.asarray(Image.open(io.BytesIO(data))), SMALL))


def test_division_comes_before_multiplication() -> None:
    """A level that is whole in exact arithmetic can be one lower in the loader's."""
    ranges = [np.arange(most + 1, dtype=np.uint16) for most in range(1, 400)]
    for stored in ranges:
        np.testing.assert_array_equal(stretch_stored(stored), (stored / float(stored[-1]) * 255).astype(np.uint8))
    assert any((stretch_stored(stored) != stored * 255 // stored[-1].astype(int)).any() for stored in ranges)


def test_a_constant_image_is_black() -> None:
    for stored in (np.full((30, 40), 77, np.uint8), np.full((30, 40), 7777, np.uint16)):
        assert not decode_grey(encode(stored, "PNG"), "an image", stretched=True).any()
        assert not decode_grey(dicom(stored, bits=8 * stored.itemsize), "an image", stretched=True).any()


def test_more_than_sixteen_bits_are_refused() -> None:
    with pytest.raises(ImageError, match="more than 16 bits"):
        stretch_stored(np.array([[0, 65536]], np.int32))


def test_a_dicom_without_window_and_rescale() -> None:
    plain = dicom(DEEP, bits=12)
    shown = dicom(DEEP, bits=12, WindowCenter=900, WindowWidth=300, RescaleSlope=2, RescaleIntercept=-1000)
    wanted = naive(DEEP, SMALL)
    falling = dicom(DEEP, bits=12, RescaleSlope=-1, RescaleIntercept=4095)  # no MONOCHROME1, so not inverted
    for data in (plain, shown, falling, dicom(DEEP.astype(np.int16) - 2000, bits=12)):
        np.testing.assert_array_equal(through(data, SMALL), wanted)
    np.testing.assert_array_equal(through(dicom(NARROW), SMALL), naive(NARROW, SMALL))


def test_a_dicom_keeps_what_its_values_mean() -> None:
    """MONOCHROME1 is inverted; padding is black and no extreme."""
    inverted = DEEP.max() + DEEP.min() - DEEP
    np.testing.assert_array_equal(
        through(dicom(DEEP, bits=12, photometric="MONOCHROME1"), SMALL), naive(inverted, SMALL)
    )
    padded = DEEP.copy()
    padded[:4] = 0
    found = decode_grey(dicom(padded, bits=12, PixelPaddingValue=0), "a.dcm", stretched=True)
    least = int(padded[4:].min())
    wanted = ((padded[4:].astype(np.float64) - least) / float(padded.max() - least) * 255).astype(np.uint8)
    assert not found[:4].any()
    np.testing.assert_array_equal(found[4:], wanted)


def test_a_bundle_holds_it_and_an_older_one_has_none(tmp_path: Path) -> None:
    geometry = Geometry("squash", SIZE, SIZE, "bilinear", "stretched")
    manifest = make_bundle(tmp_path / "blocks-32", geometry=geometry).manifest
    content = json.loads(manifest.dump())
    assert content["geometry"]["intensity"] == "stretched"
    assert parse_manifest(manifest.dump(), "mine").geometry == geometry == Geometry.from_key(geometry.key)
    assert geometry.key == f"squash-{SIZE}-{SIZE}-bilinear-stretched"
    old = replace(manifest, geometry=replace(geometry, intensity="unchanged"))
    assert "intensity" not in json.loads(old.dump())["geometry"]
    assert parse_manifest(old.dump(), "mine").geometry.intensity == "unchanged"


def test_prepared_images_of_both_rules_are_decoded_together_and_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = Coco(make_dataset(tmp_path / "data", 3)).cases()
    for number, case in enumerate(cases):
        case.image.write_bytes(encode(NARROW + np.uint8(number), "PNG"))
    asked: list[bool] = []

    def counted(*given: Any, stretched: bool = False) -> NDArray[np.uint8]:
        asked.append(stretched)
        return decode_grey(*given, stretched=stretched)

    monkeypatch.setattr(store_module, "decode_grey", counted)
    plain = replace(SMALL, intensity="unchanged")
    for again in (False, True):
        with (
            PreparedStore.open(tmp_path / "cache", "mine", cases, SMALL) as mine,
            PreparedStore.open(tmp_path / "cache", "mine", cases, plain) as other,
        ):
            mine.others, other.others = [other], [mine]
            np.testing.assert_array_equal(mine.load(0)[0], naive(NARROW, SMALL))
            np.testing.assert_array_equal(other.load(0)[0], to_model(NARROW, plain))
            assert sorted(asked) == [False, True], again


def test_a_served_image_and_an_array() -> None:
    data, wanted = encode(DEEP, "PNG"), naive(DEEP, SMALL)
    served = prepare_file(data, SMALL, "Image 0", side=DISPLAY_SIDE)
    np.testing.assert_array_equal(served.pixels, wanted)
    np.testing.assert_array_equal(served.display, decode_grey(data, "an image"))  # what a reader sees is not stretched
    np.testing.assert_array_equal(prepare_grey(NARROW, SMALL).pixels, naive(NARROW, SMALL))
    np.testing.assert_array_equal(prepare(NARROW, SMALL)[0, 0], naive(NARROW, SMALL))


def test_an_evaluation_reads_stretched_pixels(tmp_path: Path) -> None:
    geometry = Geometry("squash", SIZE, SIZE, "bilinear", "stretched")
    bundle = make_bundle(tmp_path / "models" / "blocks-32", geometry=geometry).path
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 4), "coco")
    cases = Coco(data.root).cases()
    for number, case in enumerate(cases):
        grey = np.asarray(Image.open(case.image).convert("L"))
        case.image.write_bytes(encode((grey // 3 + number).astype(np.uint8), "PNG"))
    world = World(tmp_path)
    world.run([bundle], [data], sweep=sweep)
    pixels = [np.asarray(Image.fromarray(decode_grey(case.image.read_bytes(), "", stretched=True)).resize(
        (SIZE, SIZE), Image.Resampling.BILINEAR)) for case in cases]  # fmt: skip
    wanted = model(np.stack(pixels)[:, None], prompt_set().features)[0]
    table = world.table("blocks-32--coco").to_pylist()
    found = {(row["case_id"], row["finding"]): row["logit"] for row in table}
    assert found == {
        (case.case_id, finding): wanted[number, prompt_set().findings.index(finding)]
        for number, case in enumerate(cases)
        for finding in {row["finding"] for row in table}
    }


def test_dali_leaves_it_to_the_exact_decoder() -> None:
    assert not supports(SMALL) and supports(replace(SMALL, intensity="unchanged"))
    assert "stretch" in (refusal(SMALL) or "") and refusal(replace(SMALL, intensity="unchanged")) is None
