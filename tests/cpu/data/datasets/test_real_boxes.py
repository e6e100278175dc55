"""The statistics of boxes raise no alarm on real annotations, whole or in small parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xbench_fast.runtime.data.datasets.checking.audit_images import read_headers
from xbench_fast.runtime.data.datasets.checking.box_statistics import box_warnings
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.host.config import load_config
from xbench_fast.runtime.results.loaded_dataset import load_dataset

REPOSITORY = Path(__file__).parents[4]
LISTS = [f"mavl_{part}.csv" for part in ("train", "val", "test")]
PHRASES = {"image": "path", "class": "category_name", "width": "w", "height": "h"}
REAL: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "chestxdet10 test": ("chestxdet10", "chestxdet10", "chestxdet10", {}),
    "chestxdet10 train": ("chestxdet10", "chestxdet10", "chestxdet10", {"split": "train"}),
    "chestxdet10 here": ("chestxdet10", "chestxdet10", "chestxdet10", {"annotations": "all_subset.json"}),
    "chestxray14": ("chestxray14", "nih_cxr14", "nih_cxr14", {}),
    "chestxray14 here": ("chestxray14", "nih_cxr14", "nih_cxr14", {"annotations": "BBox_List_2017_subset.csv"}),
    "rsna": ("rsna", "rsna/full", "rsna/stage_2_train_images", {}),
    "rsna here": ("rsna", "rsna", "rsna/stage_2_train_images", {}),
    "siim": ("siim", "siim/full", "siim", {"annotations": "train-rle.csv"}),
    "siim rows": ("siim", "siim/full", "siim", {"annotations": LISTS, "list": LISTS[2], "split": "paper"}),
    "siim here": ("siim", "siim", "siim", {"annotations": "train-rle-sample.csv"}),
}


def check(dataset: Dataset) -> None:
    cases = dataset.cases()
    sizes = read_headers([case for case in cases if case.image.is_file()], 2).sizes
    assert box_warnings(dataset, cases, sizes) == box_warnings(dataset, cases, {}) == {}
    for count in (5, 12, 40):
        for start in range(0, min(len(cases), 1000), count):
            assert box_warnings(dataset, cases[start : start + count], sizes) == {}, (count, start)


@pytest.mark.parametrize("name", REAL)
def test_real_annotations(shared: Path, name: str) -> None:
    reader, notes, images, options = REAL[name]
    folder = str(shared / "data/images" / images)
    check(DATASETS.load(reader)(shared / "data/annotations" / notes, images=folder, **options))


def test_the_demo_and_boxes_of_phrases(shared: Path) -> None:
    check(load_dataset(load_config(REPOSITORY / "demo/xbench.toml").datasets["chestxdet10"]).dataset)
    file = "MS_CXR_Local_Alignment_v1.1.0.csv"
    check(DATASETS.load("csv")(shared / "boxes/ms_cxr", annotations=file, columns=PHRASES, images="."))


def test_masks_and_polygons(shared: Path) -> None:
    data = shared / "data"
    folder, labels = (
        str(data / path) for path in ("images/chexlocalize/CheXpert/valid", "annotations/chexlocalize/valid.csv")
    )
    files = {
        "segmentations": str(data / "annotations/chexlocalize/gt_segmentations_val.json"),
        "polygons": str(data / "annotations/chexlocalize/gt_annotations_val.json"),
    }
    for regions in files:
        reader = DATASETS.load("chexlocalize")
        check(reader(data, split="val", regions=regions, images=folder, labels=labels, **files))
