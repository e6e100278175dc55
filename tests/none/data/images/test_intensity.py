"""Histogram equalisation: equal to scikit-image on every level, applied before the resize, and part of the key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from synthetic import make_bundle
from xbench_fast.engines.errors import BundleError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest_json import parse_manifest
from xbench_fast.engines.strict_json import CHECKSUM, checksum_of
from xbench_fast.runtime.data.images.dali import supports
from xbench_fast.runtime.data.images.decoders import CPU, Decoder
from xbench_fast.runtime.data.images.intensity import equalise_histogram
from xbench_fast.runtime.data.images.resizing import to_model

PLAIN = Geometry("squash", 24, 24, "bilinear")
EQUALISED = Geometry("squash", 24, 24, "bilinear", "equalised")

# sha256 of (255 * equalize_hist(image / 255)).astype(uint8) by scikit-image 0.26.0.
BY_SCIKIT_IMAGE = {
    "gradient": "ef6d9d4cadff072e",
    "narrow": "42f5e6d6622bac52",
    "two": "b49b7159ea116147",
    "flat": "e0205519f6bcde42",
    "black": "e0205519f6bcde42",
    "full": "ae9557ad59ce9cbe",
}


def image(name: str) -> NDArray[np.uint8]:
    y, x = np.mgrid[0:96, 0:80]
    made = {
        "gradient": (3 * x + 2 * y) % 256,
        "narrow": 100 + (x * y) % 23,
        "two": np.where(x < 30, 17, 203),
        "flat": np.full((8, 8), 130),
        "black": np.zeros((8, 8)),
        "full": (x * 7919 + y * 104729) % 65537 * 256 // 65537,
    }
    return np.asarray(made[name], np.uint8)


@pytest.mark.parametrize("name", BY_SCIKIT_IMAGE)
def test_pixels_are_those_that_scikit_image_gave(name: str) -> None:
    assert hashlib.sha256(equalise_histogram(image(name)).tobytes()).hexdigest()[:16] == BY_SCIKIT_IMAGE[name]


def test_pixels_equal_an_installed_scikit_image() -> None:
    exposure = pytest.importorskip("skimage.exposure", reason="scikit-image is not installed")
    rng = np.random.default_rng(5)
    for _ in range(200):
        count = int(rng.integers(1, 257))
        levels = rng.choice(256, count, replace=False).astype(np.uint8)
        grey = rng.choice(levels, size=(23, 31), p=rng.dirichlet(np.full(count, 0.3)))
        wanted = (255 * exposure.equalize_hist(grey.astype(float) / 255)).astype(np.uint8)
        np.testing.assert_array_equal(equalise_histogram(grey), wanted)


def test_the_native_image_is_equalised_and_then_resized() -> None:
    grey = image("narrow")
    np.testing.assert_array_equal(to_model(grey, EQUALISED), to_model(equalise_histogram(grey), PLAIN))
    assert not np.array_equal(to_model(grey, EQUALISED), equalise_histogram(to_model(grey, PLAIN)))


def test_the_intensity_is_part_of_the_key_and_the_old_keys_stay() -> None:
    assert (PLAIN.key, EQUALISED.key) == ("squash-24-24-bilinear", "squash-24-24-bilinear-equalised")
    for geometry in (PLAIN, EQUALISED, Geometry("pad_crop", 224, 256, "area", "equalised")):
        assert Geometry.from_key(geometry.key) == geometry


@pytest.mark.parametrize("text", ["", "squash", "squash-24-24", "squash-24-24-bilinear-sharp", "squash-x-24-bilinear",
                                  "squash-24-24-bilinear-equalised-more"])  # fmt: skip
def test_other_texts_are_no_key(text: str) -> None:
    with pytest.raises(BundleError):
        Geometry.from_key(text)


def test_a_bundle_cannot_hold_it() -> None:
    with pytest.raises(BundleError, match="cannot store the intensity 'equalised'"):
        EQUALISED.to_json()


def test_dali_leaves_it_to_the_exact_decoder() -> None:
    assert supports(PLAIN) and not supports(EQUALISED)
    assert Decoder("dali").describe(EQUALISED) == CPU.describe(EQUALISED)


def test_a_bundle_that_is_written_has_none(tmp_path: Path) -> None:
    manifest = make_bundle(tmp_path / "blocks-32").manifest
    assert set(json.loads(manifest.dump())["geometry"]) == {"mode", "size", "resize", "interpolation"}
    with pytest.raises(BundleError, match="cannot store the intensity"):
        replace(manifest, geometry=replace(manifest.geometry, intensity="equalised")).dump()
    content = json.loads(manifest.dump())
    content["geometry"]["intensity"] = "equalised"
    content[CHECKSUM] = checksum_of(content)
    with pytest.raises(BundleError, match="'geometry' has the intensity 'equalised'"):
        parse_manifest(json.dumps(content).encode(), "mine")
