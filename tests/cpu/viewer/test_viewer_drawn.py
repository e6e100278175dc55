"""Annotations are drawn in OHIF, stored in an archive, fetched, read and scored. A slow job: XBENCH_OHIF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from viewer_hands import Hands
from viewer_objects import DRAWN, STROKES, draw_regions, drawn_mask, drawn_objects
from viewer_scored import assert_equal, on_grid, scored


@pytest.fixture(scope="module")
def film(root: Path) -> bytes:
    return (root / "tests/formats/dicom/film.dcm").read_bytes()


@pytest.fixture(scope="module")
def drawn(film: bytes) -> Mapping[str, Any]:
    """What the archive has after the drawing, and the label map of the viewer."""
    held = {}

    def draw(hand: Hands) -> None:
        draw_regions(hand.opened())
        hand.report("drawn")
        held["labels"] = hand.opened("segmentation").segment(*STROKES)
        hand.store_segmentation("painted")

    return drawn_objects(film, draw) | held


def test_drawn_regions_are_scored(drawn: Mapping[str, Any], film: bytes, tmp_path: Path) -> None:
    masks: dict[str, NDArray[np.bool_]] = {finding: on_grid(drawn_mask(finding)) for finding in DRAWN}
    rows = scored(tmp_path / "world", film, [drawn["drawn"]], masks)
    for finding, mask in masks.items():
        assert_equal(rows[finding], mask)


def test_a_painted_segmentation_is_scored(drawn: Mapping[str, Any], film: bytes, tmp_path: Path) -> None:
    masks = {finding: on_grid(drawn["labels"] == value) for value, (finding, _) in enumerate(STROKES, 1)}
    rows = scored(tmp_path / "world", film, [drawn["painted"]], masks)
    for finding, mask in masks.items():
        assert_equal(rows[finding], mask)
