"""The demo's generated phantoms: repeatable, seeds apart, masks exact and well coded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from xbench_fast.demo.phantoms import FINDINGS, SIZE, SPAN, SPLITS, make, phantoms, run_lengths, seed_of, write

# Pixels and masks of the phantoms with seeds 1000000 .. 1000003; the generator promises them on every machine.
DIGEST = "3ff7d8bdd89cd78d7a2c86350a1bf1005f20fe56f4c274f6e3f07f812f9bc301"


@pytest.fixture(scope="module")
def items() -> list[Any]:
    """The first 48 held-out phantoms."""
    return list(phantoms("test", 48))


def decode(counts: list[int], height: int, width: int) -> NDArray[np.bool_]:
    """COCO's uncompressed run lengths, naively."""
    flat, value = [], False
    for run in counts:
        flat += [value] * run
        value = not value
    assert len(flat) == height * width
    mask = np.zeros((height, width), dtype=np.bool_)
    for place, bit in enumerate(flat):
        mask[place % height, place // height] = bit
    return mask


def test_same_seed_same_phantom_here_and_elsewhere() -> None:
    digest = hashlib.sha256()
    for index in range(4):
        first, again = make(seed_of("test", index)), make(seed_of("test", index))
        np.testing.assert_array_equal(first.image, again.image)
        digest.update(first.image.tobytes())
        for name, mask in sorted(first.masks.items()):
            np.testing.assert_array_equal(mask, again.masks[name])
            digest.update(name.encode() + np.packbits(mask).tobytes())
    assert digest.hexdigest() == DIGEST


def test_training_and_held_out_seeds_never_meet() -> None:
    ranges = {split: (seed_of(split, 0), seed_of(split, SPAN - 1)) for split in SPLITS}
    (a_low, a_high), (b_low, b_high) = sorted(ranges.values())
    assert a_low <= a_high < b_low <= b_high
    for split, index in (("test", -1), ("test", SPAN), ("validation", 0)):
        with pytest.raises(ValueError, match="no phantom"):
            seed_of(split, index)


def test_phantoms_are_plausible_pictures_with_sensible_masks(items: list[Any]) -> None:
    seen = dict.fromkeys(FINDINGS, 0)
    without = 0
    for item in items:
        assert item.image.shape == (SIZE, SIZE)
        assert item.image.dtype == np.uint8
        assert item.image.std() > 20
        without += not item.masks
        assert len(item.masks) <= 4
        for name, mask in item.masks.items():
            seen[name] += 1
            assert mask.shape == item.image.shape
            assert mask.dtype == np.bool_
            assert 20 <= mask.sum() <= 0.3 * mask.size, name
    assert min(seen.values()) >= 3
    assert 3 <= without <= 16


def test_calcification_is_brighter_than_its_surroundings(items: list[Any]) -> None:
    """The mask is where the thing was drawn: the brightest finding must stand out of a ring around its mask."""
    contrasts = []
    for item in items:
        if "Calcification" in item.masks:
            mask = item.masks["Calcification"]
            near = mask.copy()
            for _ in range(6):
                near[1:] |= near[:-1].copy()
                near[:-1] |= near[1:].copy()
                near[:, 1:] |= near[:, :-1].copy()
                near[:, :-1] |= near[:, 1:].copy()
            contrasts.append(item.image[mask].mean() - item.image[near & ~mask].mean())
    assert len(contrasts) >= 5
    assert min(contrasts) > 8


def test_written_files_say_what_was_drawn(items: list[Any], tmp_path: Path) -> None:
    items = items[:12]
    seen = write(tmp_path, items)
    content = json.loads((tmp_path / "annotations.json").read_text())
    assert [entry["name"] for entry in content["categories"]] == list(FINDINGS)
    assert len(content["images"]) == len(list((tmp_path / "images").iterdir())) == len(items)
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    found: dict[int, dict[str, NDArray[np.bool_]]] = {entry["id"]: {} for entry in content["images"]}
    for entry in content["annotations"]:
        mask = decode(entry["segmentation"]["counts"], *entry["segmentation"]["size"])
        found[entry["image_id"]][names[entry["category_id"]]] = mask
        rows, columns = np.nonzero(mask)
        box = [columns.min(), rows.min(), columns.max() - columns.min() + 1, rows.max() - rows.min() + 1]
        assert entry["bbox"] == box
        assert entry["area"] == mask.sum()
        assert entry["iscrowd"] == 0, "a finding is one object: average precision ignores crowds"
    for entry, item in zip(content["images"], items, strict=True):
        with Image.open(tmp_path / "images" / entry["file_name"]) as picture:
            assert picture.mode == "L"
            np.testing.assert_array_equal(np.asarray(picture), item.image)
        assert found[entry["id"]].keys() == item.masks.keys()
        for name, mask in item.masks.items():
            np.testing.assert_array_equal(found[entry["id"]][name], mask)
    assert sum(seen.values()) == len(content["annotations"])
    assert len({entry["patient_id"] for entry in content["images"]}) == len(items)


@given(height=st.integers(1, 6), width=st.integers(1, 6), data=st.data())
def test_run_lengths_decode_to_the_mask(height: int, width: int, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.array(bits).reshape(height, width)
    counts = run_lengths(mask)
    assert all(run > 0 for run in counts[1:])
    np.testing.assert_array_equal(decode(counts, height, width), mask)
