"""Counts and all-ones baselines of the real annotation files, through the readers and the metrics.

Sources: the counts of docs/published-datasets.md §1-§6, docs/metrics.md §13, and the paper's Table 1, whose
CLIP rows on RSNA and SIIM are those of an all-ones mask.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.chexlocalize_shapes import read_polygons
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.region_grid import region_grid
from xbench_fast.runtime.data.datasets.region_shapes import RunText, Union
from xbench_fast.runtime.data.datasets.rsna import Rsna
from xbench_fast.runtime.reporting.tables.metric_names import percent

MAVL = ["mavl_train.csv", "mavl_val.csv", "mavl_test.csv"]


@pytest.fixture(scope="module")
def annotations(shared: Path) -> Path:
    return shared / "data/annotations"


def open_dataset(name: str, root: Path, **options: Any) -> Dataset:
    found = DATASETS.load(name)(root, **options)
    assert isinstance(found, Dataset)
    return found


def floor(dataset: Dataset, digits: int = 3) -> tuple[str, str, int]:
    """Dice and IoU in per cent of an all-ones mask, macro over the classes, and the number of pairs."""
    parts, group, known = [], [], dict[tuple[int, str], Counts]()
    for case in dataset.cases():
        assert case.size is not None
        for finding, region in case.regions.items():
            key = id(region), finding  # rows of an image share its region; both live as long as the dataset
            if key not in known:
                grid, sub_pixel = region_grid(region, *case.size)
                assert grid.any() and not sub_pixel
                known[key] = sweep(np.ones((1, 1, 1), np.float32), grid[None])
            parts.append(known[key])
            group.append(dataset.classes.index(finding))
    scores = grounding(Pairs(Counts.concatenate(parts), np.array(group), list(dataset.classes)))
    return percent(scores.value("floor_dice"), digits), percent(scores.value("floor_iou"), digits), len(parts)


def test_all_ones_on_rsna(annotations: Path) -> None:
    dataset = open_dataset("rsna", annotations / "rsna/full", list="medklip_test.csv", split="paper")
    assert floor(dataset) == ("20.199", "11.972", 1218)


def test_all_ones_on_the_rows_and_on_the_images_of_siim(annotations: Path) -> None:
    folder = annotations / "siim/full"
    rows = open_dataset("siim", folder, annotations=MAVL, list="mavl_test.csv", split="paper")
    assert floor(rows) == ("3.163", "1.638", 647)
    images = open_dataset("siim", folder, annotations=MAVL, list="mavl_test.csv")
    assert floor(images) == ("2.991", "1.547", 594)
    # docs/metrics.md §13 states the images' value on both grids.
    share = [np.mean(case.regions["Pneumothorax"].mask(1024, 1024)) for case in images.cases() if case.regions]
    assert percent(float(np.mean([2 * a / (1 + a) for a in share])), 3) == "2.990"


def test_all_ones_on_chestxray14(annotations: Path) -> None:
    assert floor(open_dataset("chestxray14", annotations / "nih_cxr14"), 2) == ("12.26", "7.06", 984)


def test_all_ones_on_chestxdet10(annotations: Path) -> None:
    assert floor(open_dataset("chestxdet10", annotations / "chestxdet10")) == ("12.216", "7.603", 966)


@pytest.mark.parametrize(
    ("options", "cases", "positive"),
    [
        ({"annotations": MAVL}, 10_675, 2_379),
        ({"annotations": MAVL, "unit": "row"}, 11_582, 3_286),
        ({}, 12_047, 2_669),
        ({"unit": "row"}, 12_954, 3_576),
        ({"list": "mavl_test.csv"}, 2_264, 594),
        ({"list": "mavl_test.csv", "split": "paper"}, 2_317, 647),
    ],
)
def test_counts_of_siim(annotations: Path, options: dict[str, Any], cases: int, positive: int) -> None:
    dataset = open_dataset("siim", annotations / "siim/full", **options)
    found = dataset.cases()
    official = dataset.official()
    assert official is not None and (official.cases, official.pairs) == (cases, positive)
    assert len(found) == cases and sum(len(case.regions) for case in found) == positive
    assert sum(case.labels["Pneumothorax"] or 0 for case in found) == positive and not dataset.notes


def test_rows_of_a_siim_image(annotations: Path) -> None:
    """1 to 10 rows per positive image; both distributions give the test list's images the same runs."""
    folder = annotations / "siim/full"
    dataset = open_dataset("siim", folder)
    numbers = Counter(len(case.rows) for case in dataset.cases() if case.regions)
    assert numbers[1] == 2_045 and max(numbers) == 10 and min(numbers) == 1
    one = open_dataset("siim", folder, list="mavl_test.csv").cases()
    other = open_dataset("siim", folder, list="mavl_test.csv", annotations=MAVL).cases()
    weight = np.zeros((1024, 1024), np.int64)
    for a, b in zip(one, other, strict=True):
        assert a.case_id == b.case_id and a.labels == b.labels
        if a.regions:
            mine, theirs = a.regions["Pneumothorax"], b.regions["Pneumothorax"]
            parts = [set(r.parts if isinstance(r, Union) else (r,)) for r in (mine, theirs)]
            assert parts[0] == parts[1]
            weight += mine.mask(1024, 1024)
    # Lung apices: heaviest in the upper lateral quarters. A transposed decode would put the weight at the left.
    upper, left = weight[:512].sum() / weight.sum(), weight[:, :512].sum() / weight.sum()
    assert upper > 0.55 and 0.35 < left < 0.65


def test_region_sizes_of_siim(annotations: Path) -> None:
    """Mean 1.37 %, median 0.82 %, 32 % below 0.5 % of the image, over the positive images of stage 2."""
    regions = [c.regions["Pneumothorax"] for c in open_dataset("siim", annotations / "siim/full").cases() if c.regions]
    whole = 1024 * 1024
    shares = [r.area / whole if isinstance(r, RunText) else np.mean(r.mask(1024, 1024)) for r in regions]
    assert f"{np.mean(shares):.2%} {np.median(shares):.2%} {np.mean(np.array(shares) < 0.005):.0%}" == "1.37% 0.82% 32%"


def test_counts_of_chestxray14(annotations: Path, shared: Path) -> None:
    dataset = open_dataset("chestxray14", annotations / "nih_cxr14", images=shared / "data/images/nih_cxr14")
    found = audit(dataset)
    assert found.is_official and len(found.checks) == 19 and all(check.passed for check in found.checks)
    assert (found.images_present, found.pairs, found.boxes, found.sub_pixel, found.degenerate) == (12, 984, 984, 0, 0)
    assert Counter(len(case.regions) for case in dataset.cases()) == {1: 787, 2: 83, 3: 9, 4: 1}
    mean = {"Atelectasis": (3.18, 1.86), "Cardiomegaly": (17.54, 17.06), "Effusion": (6.84, 5.54),
            "Infiltrate": (9.64, 5.64), "Mass": (4.22, 1.46), "Nodule": (0.51, 0.45), "Pneumonia": (9.40, 5.68),
            "Pneumothorax": (5.19, 3.57)}  # fmt: skip
    for finding, (expected, median) in mean.items():
        regions = [case.regions[finding] for case in dataset.cases() if finding in case.regions]
        # These shares are of 224 x 224; see below for what the native grid gives.
        share = [region_grid(region, 1024, 1024)[0].mean() * 100 for region in regions]
        native = [region.mask(1024, 1024).mean() * 100 for region in regions]
        assert min(abs(np.mean(share) - expected), abs(np.mean(native) - expected)) <= 0.006, finding
        assert min(abs(np.median(share) - median), abs(np.median(native) - median)) <= 0.006, finding


def test_real_entry_file_of_chestxray14(annotations: Path, shared: Path) -> None:
    """The films of the entry subset have labels, and every box of theirs is a label too (0 exceptions)."""
    folder = annotations / "nih_cxr14"
    entries = folder / "Data_Entry_2017_v2020_subset.csv"
    dataset = open_dataset("chestxray14", folder, annotations="BBox_List_2017_subset.csv", entries=entries)
    assert not [note for note in dataset.notes if note.kind not in ("no_images_folder",)]
    assert len(dataset.cases()) == 12 and sum(len(case.regions) for case in dataset.cases()) == 12
    text = entries.read_text()
    for case in dataset.cases():
        line = next(row for row in text.splitlines() if row.startswith(case.case_id)).split(",")
        assert {c for c in dataset.classes if case.labels[c]} == {
            c for c in dataset.classes if c.replace("Infiltrate", "Infiltration") in line[1].split("|")
        }
        assert int(case.patient_id or 0) == int(line[3]) and None not in case.labels.values()


def test_counts_of_the_covid_lists(annotations: Path, tmp_path: Path) -> None:
    (tmp_path / "pngs_masks").mkdir()
    seen: set[str] = set()
    for name, cases in (("train", 132), ("val", 44), ("test", 45)):
        dataset = open_dataset("covid_rural", tmp_path, list=annotations / f"covid_rural/{name}.csv", split="paper")
        found = {case.case_id for case in dataset.cases()}
        official = dataset.official()
        assert official is not None and len(found) == cases == official.cases and not found & seen
        assert all((case.patient_id or "").startswith("COVID-19-AR-") for case in dataset.cases())
        assert {note.kind for note in dataset.notes} == {"no_images_folder"}
        seen |= found
    assert len(seen) == 221


def test_chexlocalize_polygons_give_exactly_the_released_masks(annotations: Path, shared: Path) -> None:
    folder = annotations / "chexlocalize"
    films = shared / "data/images/chexlocalize/CheXpert/valid"
    dataset = open_dataset(
        "chexlocalize", folder, split="val", segmentations="gt_segmentations_val.json", crosscheck="pixels",
        polygons="gt_annotations_val.json", labels="valid.csv", images=films,
    )  # fmt: skip
    found = audit(dataset, decode=True, threads=2)
    assert found.passed and not dataset.notes and found.is_official is False and found.pairs == 4
    assert (found.images_present, found.size_differs, found.unannotated_files) == (2, 0, 0)
    outlines = read_polygons(folder / "gt_annotations_val.json", dataset._keys, dataset.classes, [])  # type: ignore[attr-defined]
    compared = 0
    for case in dataset.cases():
        assert case.size == outlines.sizes[case.case_id]
        for finding, region in case.regions.items():
            drawn = outlines.regions[case.case_id][finding].mask(*case.size)
            np.testing.assert_array_equal(region.mask(*case.size), drawn)
            compared += 1
    assert compared == 4
    labels = {case.case_id.partition("_")[0]: case.labels for case in dataset.cases()}
    assert [c for c, value in labels["patient64541"].items() if value] == [
        "Airspace Opacity", "Cardiomegaly", "Enlarged Cardiomediastinum",
    ]  # fmt: skip
    assert [c for c, value in labels["patient64542"].items() if value] == ["Support Devices"]


def test_siim_film_with_its_row(annotations: Path, shared: Path) -> None:
    dataset = open_dataset(
        "siim", shared / "data/images/siim", annotations=annotations / "siim/train-rle-sample.csv"
    ).cases()
    present = [case for case in dataset if case.image.is_file()]
    assert len(present) == 1 and present[0].labels == {"Pneumothorax": 0} and not present[0].regions


def test_counts_of_the_whole_label_file_and_list(annotations: Path) -> None:
    folder = annotations / "rsna/full"
    whole = Rsna(folder)
    assert len(whole.cases()) == 26_684
    assert sum(case.labels["pneumonia"] or 0 for case in whole.cases()) == 6_012
    numbers = [len(case.regions["pneumonia"].corners) for case in whole.cases() if case.regions]  # type: ignore[attr-defined]
    assert sum(numbers) == 9_555 and [numbers.count(n) for n in (1, 2, 3, 4)] == [2_614, 3_266, 119, 13]
    listed = Rsna(folder, list="medklip_test.csv")
    positive = [case.regions["pneumonia"] for case in listed.cases() if case.labels["pneumonia"]]
    assert (len(listed.cases()), len(positive)) == (5_337, 1_218)
    assert {note.kind for note in (*whole.notes, *listed.notes)} == {"no_images_folder"}
    # Check values of the split (docs/published-datasets.md §1): mean region native and at 224, median, all-ones Dice.
    native = np.array([region.mask(1024, 1024).mean() for region in positive])
    grids = [region_grid(region, 1024, 1024) for region in positive]
    share = np.array([grid.mean() for grid, _ in grids])
    assert not any(sub_pixel for _, sub_pixel in grids)
    assert f"{native.mean():.3%} {share.mean():.3%} {np.median(native):.2%}" == "11.964% 11.972% 9.06%"
    assert f"{(2 * share / (1 + share)).mean():.3%}" == "20.199%"
