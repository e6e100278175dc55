"""Regions that look like what lies outside of a finding (docs/formats.md §9.8)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xbench_fast.runtime.data.datasets.masks.mask_files import StoredMask
from xbench_fast.runtime.data.datasets.masks.mask_reader import MaskReader

WHERE = (Path("a.png"), None)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        ((slice(20, 35), slice(10, 40)), "covers 91% of the image and 100% of its edge"),
        ((slice(0, 15), slice(0, 30)), "covers 91% of the image and 84% of its edge"),  # in a corner
        ((slice(50, 60), slice(0, 80)), "covers 83% of the image and 64% of its edge"),  # along the diaphragm
        ((slice(0, 60), slice(41, 80)), "covers 51% of the image and 51% of its edge"),  # a side
        ((slice(0, 60), slice(40, 80)), ""),
        ((slice(0, 1), slice(0, 80)), "covers 98% of the image and 71% of its edge"),
    ],
)  # fmt: skip
def test_an_inverted_mask_of_a_finding_at_the_edge(finding: tuple[slice, slice], text: str) -> None:
    reader, mask = MaskReader(), np.ones((60, 80), np.bool_)
    mask[finding] = False
    for each in (mask, mask[:, ::-1], mask[::-1]):
        reader.region(StoredMask(each), "Mass", WHERE)
    assert [note.kind for note in reader.notes()] == ["inverted"] * 3 * bool(text)
    assert all(f"the region {text}: the mask may be inverted" in note.text for note in reader.notes())


def test_a_large_region_is_no_inverted_mask() -> None:
    """Lungs, a whole chest, and what touches a side of its image: much of the image, little of its edge."""
    rows, columns = np.mgrid[-1:1:60j, -1:1:80j]
    lungs = ((abs(columns) - 0.45) / 0.4) ** 2 + (rows / 0.85) ** 2 < 1
    chest = (columns / 0.95) ** 2 + (rows / 0.92) ** 2 < 1
    side = np.asarray(columns < -0.1)
    cut = (columns / 1.05) ** 2 + (rows / 0.8) ** 2 < 1
    for mask in (lungs, chest, side, cut):
        reader = MaskReader()
        reader.region(StoredMask(mask), "Mass", WHERE)
        assert not reader.notes() and mask.mean() > 0.4
    reader = MaskReader()
    reader.region(StoredMask((columns / 1.05) ** 2 + (rows / 0.95) ** 2 < 1), "Mass", WHERE)
    assert "covers 76% of the image and 13% of its edge" in reader.notes()[0].text  # larger than any finding


def test_what_is_inverted_is_counted_by_class() -> None:
    reader, whole = MaskReader(), np.ones((8, 9), np.bool_)
    corner, half = whole.copy(), whole.copy()
    corner[0, -1] = False
    half[1:-1] = False  # all four corners, a quarter of the image
    for mask in (whole, ~whole, corner, half, ~corner):
        reader.region(StoredMask(mask), "Mass", WHERE)
    reader.region(StoredMask(whole), "Rib", WHERE, is_part=True)
    assert [(note.kind, note.subject, note.text) for note in reader.notes()] == [
        ("inverted", "Mass", f"the region {what}: the mask may be inverted or of another kind (2 of 5 masks of 'Mass')")
        for what in ("is the whole image", "covers 99% of the image and 97% of its edge")
    ]
