"""The coverage audit (docs/datasets.md §0.1), and datasets that others add."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from make_images import encode
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Case, Dataset, Note, OfficialCounts
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.region_boxes import Boxes


def demo(root: Path) -> Coco:
    """Six images: two good, one missing, one damaged, one constant of another size, one without size and boxes."""
    images = [{"id": n, "file_name": f"{n}.png", "height": 2000, "width": 3000} for n in range(5)]
    annotations = [
        {"image_id": 0, "category_id": 1, "bbox": [10, 10, 900, 900]},
        {"image_id": 0, "category_id": 1, "bbox": [0, 0, 50, 50]},
        {"image_id": 0, "category_id": 2, "bbox": [1, 1, 1, 1]},
        {"image_id": 1, "category_id": 2, "bbox": [4000, 10, 20, 20]},
        {"image_id": 2, "category_id": 1, "bbox": [10, 10, 0, 900]},
        {"image_id": 5, "category_id": 1, "bbox": [0, 0, 4, 4]},
        {"image_id": 1, "category_id": 9, "bbox": [0, 0, 4, 4]},
    ]
    document = {
        "categories": [{"id": 1, "name": "Disc"}, {"id": 2, "name": "Bar"}],
        "images": [*images, {"id": 5, "file_name": "5.png", "labels": {"Bar": None}}],
        "annotations": annotations,
    }
    (root / "annotations.json").write_text(json.dumps(document))
    (root / "images").mkdir()
    picture = encode(np.arange(6_000_000, dtype=np.uint32).astype(np.uint8).reshape(2000, 3000), "PNG")
    for number in (0, 1):
        (root / f"images/{number}.png").write_bytes(picture)
    (root / "images/3.png").write_bytes(picture[: len(picture) // 2])
    (root / "images/4.png").write_bytes(encode(np.full((20, 30), 9, np.uint8), "PNG"))
    (root / "images/5.png").write_bytes(encode(np.eye(30, dtype=np.uint8), "PNG"))
    (root / "images/stray.png").write_bytes(b"")
    return Coco(root)


def test_every_count_of_a_small_dataset(tmp_path: Path) -> None:
    found = audit(demo(tmp_path), decode=True, threads=2)
    assert (found.images_expected, found.images_present, found.images_missing) == (6, 5, 1)
    assert found.missing == (str(tmp_path / "images/2.png"),)
    assert found.unreadable == 1 and "3.png cannot be read" in found.unreadable_reasons[0]
    assert (found.constant, found.size_differs, found.unannotated_files) == (1, 1, 1)
    assert found.unannotated == (str(tmp_path / "images/stray.png"),)
    assert (found.with_region, found.without_finding) == (4, 2)
    assert found.pairs == 5 and found.pairs_per_class == {"Disc": 3, "Bar": 2}
    assert found.positives == {"Disc": 3, "Bar": 2} and found.negatives == {"Disc": 3, "Bar": 3}
    assert found.unknown == {"Disc": 0, "Bar": 1}
    assert found.boxes == 6 and found.boxes_per_class == {"Disc": 4, "Bar": 2}
    # Outside the image: one; without area: one. No grid point meets the pixel (1, 1) and column 10 of 2000 x 3000.
    assert (found.outside, found.clipped) == (1, 0) and "1: the region of 'Bar'" in found.outside_regions[0]
    assert found.degenerate == 2 and found.sub_pixel == 2 and found.regions_unchecked == 0
    assert "covers no pixel" in found.degenerate_regions[0] and "has no area" in found.degenerate_regions[1]
    assert found.unknown_classes == {"9": 1} and found.notes == {"degenerate": 1, "unknown_class": 1}
    assert found.is_official is None and not found.checks and not found.passed
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["pairs"] == 5 and plain["passed"] is False


def test_without_decoding_what_needs_pixels_is_not_claimed(tmp_path: Path) -> None:
    found = audit(demo(tmp_path))
    assert (found.unreadable, found.constant, found.size_differs) == (None, None, None)
    assert found.images_missing == 1
    assert (found.degenerate, found.sub_pixel, found.regions_unchecked) == (2, 2, 0), "sizes stand in the headers"
    (tmp_path / "images/5.png").write_bytes(b"damaged")
    assert audit(Coco(tmp_path)).regions_unchecked == 1


def test_decoding_uses_the_cores_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("xbench_fast.runtime.data.datasets.checking.audit_images")
    used: list[int] = []

    def noting(threads: int, **options: str) -> ThreadPoolExecutor:
        used.append(threads)
        return ThreadPoolExecutor(threads, **options)

    monkeypatch.setattr(module, "ThreadPoolExecutor", noting)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    audit(demo(tmp_path), decode=True)
    audit(Coco(tmp_path), decode=True, threads=2)
    assert used == [3, 2]


def test_a_box_beyond_an_image_of_unknown_annotation_size_fails_the_audit(tmp_path: Path) -> None:
    """Where the annotation states a size, images may be of another one, and a box outside is only counted."""
    image = {"id": 0, "file_name": "a.png"}
    document = {
        "categories": [{"id": 1, "name": "Disc"}],
        "images": [image],
        "annotations": [{"image_id": 0, "category_id": 1, "bbox": [10, 10, 12, 12]}],
    }
    (tmp_path / "images").mkdir()
    found = []
    for side, size in ((20, {}), (19, {}), (19, {"height": 19, "width": 19})):
        (tmp_path / "images/a.png").write_bytes(encode(np.eye(side, dtype=np.uint8), "PNG"))
        (tmp_path / "annotations.json").write_text(json.dumps({**document, "images": [{**image, **size}]}))
        found.append(audit(Coco(tmp_path), decode=True, threads=1))
    assert [(a.misfits, a.passed, a.pairs) for a in found] == [(0, True, 1), (1, False, 1), (0, True, 1)]
    assert found[1].misfit_regions == (
        "0: a box of 'Disc' reaches 3 pixels beyond 19 x 19; the image seems to be resized",
    )


class Mine(Dataset):
    """A reader as somebody else would write it."""

    name = "mine"
    title = "Mine"
    classes = ("a",)
    ids = ("1", "2")

    def sources(self) -> Sequence[Path]:
        return ()

    def official(self) -> OfficialCounts:
        return OfficialCounts(cases=2, pairs=1, boxes=3, pairs_per_class={"a": 1}, boxes_per_class={"a": 3})

    def read(self, notes: list[Note]) -> Sequence[Case]:
        image = self.root / "x.png"
        regions = {"a": Boxes(((0, 0, 2, 2), (1, 1, 3, 3)))}
        return [Case(i, image, {"a": int(i == "1")}, regions if i == "1" else {}, "all") for i in self.ids]


def test_official_counts_are_compared_when_the_set_is_complete(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(encode(np.eye(8, dtype=np.uint8), "PNG"))
    found = audit(Mine(tmp_path))
    assert found.is_official and not found.passed
    assert [(c.name, c.expected, c.found) for c in found.checks if not c.passed] == [
        ("boxes", 3, 2),
        ("boxes of a", 3, 2),
    ]
    assert found.to_json()["checks"][0] == {"name": "cases", "expected": 2, "found": 2, "passed": True}


def test_a_reader_of_somebody_else_is_found_by_its_path(tmp_path: Path) -> None:
    assert DATASETS.load(f"{__file__}:Mine")(tmp_path).cases()[0].case_id == "1"
    assert DATASETS.names() == [
        "chestxdet10", "chestxray14", "chexlocalize", "coco", "covid_rural", "csv", "cvat", "dicom", "labelme", "masks",
        "mscxr", "nifti", "padchest_gr", "rsna", "siim", "vindr", "vindr_kaggle", "voc", "yolo",
    ]  # fmt: skip


def test_a_reader_that_repeats_an_id_is_told_so(tmp_path: Path) -> None:
    twice = type("Twice", (Mine,), {"ids": ("1", "1")})
    with pytest.raises(DataError, match="yields the case '1' twice"):
        twice(tmp_path).cases()


def test_counts_of_the_official_test_set(shared: Path) -> None:
    folder = shared / "data/annotations/chestxdet10"
    found = audit(DATASETS.load("chestxdet10")(folder, images=shared / "data/images/chestxdet10"))
    assert found.is_official and all(check.passed for check in found.checks) and len(found.checks) == 23
    assert (found.images_expected, found.without_finding, found.pairs, found.boxes) == (542, 83, 966, 1476)
    assert found.degenerate == 0 and found.sub_pixel == 0 and not found.unknown_classes
    assert found.images_missing == 542 - 6 or found.images_present >= 6


def test_mean_region_sizes_of_the_official_test_set(shared: Path) -> None:
    dataset = DATASETS.load("chestxdet10")(shared / "data/annotations/chestxdet10")
    mean = {"Atelectasis": 3.60, "Calcification": 0.48, "Consolidation": 11.96, "Effusion": 9.73, "Emphysema": 32.10,
            "Fibrosis": 10.47, "Fracture": 1.19, "Mass": 2.71, "Nodule": 0.55, "Pneumothorax": 3.18}  # fmt: skip
    for finding, expected in mean.items():
        regions = [case.regions[finding] for case in dataset.cases() if finding in case.regions]
        share = np.mean([region.mask(1024, 1024).mean() for region in regions]) * 100
        assert abs(share - expected) <= 0.005 + 1e-9, finding
