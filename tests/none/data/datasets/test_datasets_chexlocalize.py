"""CheXlocalize (docs/published-datasets.md §5, §10 item 5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import encode
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.chexlocalize import CheXlocalize
from xbench_fast.runtime.data.datasets.region_shapes import MaskRuns, RunText

H, W = 40, 50
KEYS = [
    "patient1_study1_view1_frontal",
    "patient1_study1_view2_lateral",
    "patient2_study1_view1_frontal",
    "patient3_study2_view1_frontal",
]
CLASSES = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema",
    "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture",
    "Support Devices",
)  # fmt: skip
SQUARE = [[5.0, 6.0], [14.0, 6.0], [14.0, 25.0], [5.0, 25.0]]


def compressed(mask: np.ndarray) -> str:
    """COCO's string, written from its description: runs, delta to the run two before, five bits a character."""
    runs, last, length = [], False, 0
    for value in mask.T.ravel():
        if value != last:
            runs.append(length)
            last, length = value, 0
        length += 1
    runs.append(length)
    text = ""
    for i, run in enumerate(runs):
        number, more = run - (runs[i - 2] if i > 2 else 0), True
        while more:
            bits, number = number & 31, number >> 5
            more = number != (-1 if bits & 16 else 0)
            text += chr((bits | (32 if more else 0)) + 48)
    return text


def square(low: int = 5) -> np.ndarray:
    mask = np.zeros((H, W), bool)
    mask[6:26, low:15] = True
    return mask


def rle(mask: np.ndarray) -> dict[str, Any]:
    return {"size": list(mask.shape), "counts": compressed(mask)}


MASKS: dict[str, Any] = {
    KEYS[0]: {"Airspace Opacity": rle(square()), "Edema": rle(np.zeros((H, W), bool))},
    KEYS[1]: {"Atelectasis": rle(square(7))},
}
POLYGONS: dict[str, Any] = {
    KEYS[0]: {"img_size": [H, W], "Airspace Opacity": [SQUARE]},
    KEYS[1]: {"Atelectasis": [[[7, 6], [14, 6], [14, 25], [7, 25]]]},
}


def labels_csv(*rows: tuple[str, str], columns: tuple[str, ...] = CLASSES) -> str:
    """Rows of (path, positive classes joined by |)."""
    lines = [",".join(("Path", *columns))]
    return "\n".join(
        [*lines, *(",".join((p, *("1.0" if c in on.split("|") else "0.0" for c in columns))) for p, on in rows)]
    )


LABELS = labels_csv(
    ("test/patient1/study1/view1_frontal.jpg", "Lung Opacity|Atelectasis"),
    ("test/patient1/study1/view2_lateral.jpg", "Lung Opacity|Atelectasis"),
    ("CheXpert-v1.0/test/patient2/study1/view1_frontal.jpg", "Fracture"),
    ("test/patient3/study2/view1_frontal.jpg", "No Finding"),
)


def make(
    root: Path, masks: Any = MASKS, polygons: Any = POLYGONS, labels: str = LABELS, **options: Any
) -> CheXlocalize:
    split = options.get("split", "test")
    (root / "CheXlocalize").mkdir(exist_ok=True)
    (root / "CheXpert").mkdir(exist_ok=True)
    for name, content in (("segmentations", masks), ("annotations", polygons)):
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (root / f"CheXlocalize/gt_{name}_{split}.json").write_text(text)
    (root / f"CheXpert/{split}_labels.csv").write_text(labels)
    return CheXlocalize(root, **options)


def test_masks_labels_by_study_and_both_path_styles(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    cases = dataset.cases()
    assert [case.case_id for case in cases] == KEYS and len(dataset.classes) == 13
    first, lateral, third, last = cases
    assert first.image == tmp_path / "CheXpert/test/patient1/study1/view1_frontal.jpg"
    assert (first.patient_id, first.rows, first.size) == ("patient1", (2,), (H, W))
    # The label file's Lung Opacity is Airspace Opacity; the all-zero mask of Edema is no region.
    assert set(first.regions) == {"Airspace Opacity"} and first.labels["Airspace Opacity"] == 1
    np.testing.assert_array_equal(first.regions["Airspace Opacity"].mask(H, W), square())
    # Positive by study, though nothing is drawn on this view.
    assert lateral.labels["Airspace Opacity"] == 1 and set(lateral.regions) == {"Atelectasis"}
    assert third.labels["Fracture"] == 1 and not third.regions and third.size is None
    assert set(last.labels.values()) == {0} and not dataset.notes
    assert [c.case_id for c in make(tmp_path, frontal_only=True).cases()] == [KEYS[0], KEYS[2], KEYS[3]]


def test_polygons_give_the_same_shape_and_may_lack_their_size(tmp_path: Path) -> None:
    cases = make(tmp_path, regions="polygons").cases()
    np.testing.assert_array_equal(cases[0].regions["Airspace Opacity"].mask(H, W), square())
    np.testing.assert_array_equal(cases[1].regions["Atelectasis"].mask(H, W), square(7))
    assert cases[0].size == (H, W) and cases[1].size is None
    image = tmp_path / "CheXpert/test/patient1/study1/view2_lateral.jpg"
    image.parent.mkdir(parents=True)
    image.write_bytes(encode(np.zeros((H, W), np.uint8), "JPEG"))
    found = audit(make(tmp_path, regions="polygons"), decode=True, threads=1)
    assert (found.pairs, found.regions_unchecked, found.degenerate, found.images_missing) == (2, 0, 0, 3)


def test_without_masks_the_polygons_are_drawn_and_that_is_noted(tmp_path: Path) -> None:
    dataset = make(tmp_path, masks=None)
    assert dataset.cases()[0].regions["Airspace Opacity"].mask(H, W).sum() == 200
    assert [n.kind for n in dataset.notes] == ["fallback"]
    (tmp_path / "CheXlocalize/gt_annotations_test.json").unlink()
    with pytest.raises(DataError, match=r"gt_segmentations_test\.json does not exist"):
        CheXlocalize(tmp_path).cases()


def test_masks_and_polygons_that_disagree_are_noted(tmp_path: Path) -> None:
    polygons = {KEYS[0]: {"img_size": [H, W], "Airspace Opacity": [[[0, 0], [3, 0], [3, 3]]], "Edema": [SQUARE]}}
    dataset = make(tmp_path, polygons=polygons)
    assert sorted(n.text.split("has ")[1] for n in dataset.notes) == [
        "'Atelectasis' in gt_segmentations_test.json only",
        "'Edema' in gt_annotations_test.json only",
    ]
    pixels = make(tmp_path, polygons=polygons, crosscheck="pixels")
    assert len(pixels.notes) == 3 and "differ in 210 pixels" in " ".join(n.text for n in pixels.notes)
    assert not make(tmp_path, polygons=POLYGONS, crosscheck="pixels").notes


def test_the_11th_to_13th_class_are_accepted_and_others_reported(tmp_path: Path) -> None:
    masks = {KEYS[2]: {"Fracture": rle(square()), "Pneumonia": rle(square()), "Lung Opacity": rle(square()), "Cat": {}}}
    dataset = make(tmp_path, masks=masks, polygons=None)
    case = next(c for c in dataset.cases() if c.case_id == KEYS[2])
    assert set(case.regions) == {"Airspace Opacity", "Fracture", "Pneumonia"}
    assert [(n.kind, n.subject) for n in dataset.notes if n.kind == "unknown_class"] == [("unknown_class", "Cat")]
    # Regions whose label is 0 are kept for grounding and noted.
    assert sum(n.kind == "disagreement" for n in dataset.notes) == 2 and case.labels["Pneumonia"] == 0


def test_validation_layout(tmp_path: Path) -> None:
    (tmp_path / "CheXpert/valid").mkdir(parents=True)
    labels = LABELS.replace("test/", "CheXpert-v1.0/valid/").replace("CheXpert-v1.0/CheXpert", "CheXpert")
    dataset = make(tmp_path, labels=labels, split="val")
    assert dataset.cases()[0].image == tmp_path / "CheXpert/valid/patient1/study1/view1_frontal.jpg"
    official = dataset.official()
    assert official is not None and (official.cases, official.pairs) == (234, 643)


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_the_path_of_a_study_may_end_with_a_slash(tmp_path: Path, end: str) -> None:
    film = tmp_path / "CheXpert/test/patient9/study1/view1_frontal.jpg"
    film.parent.mkdir(parents=True)
    film.touch()
    labels = labels_csv((f"CheXpert-v1.0/test/patient9/study1{end}", "Fracture"))
    cases = make(tmp_path, {}, {}, labels).cases()
    assert [(case.image, case.labels["Fracture"]) for case in cases] == [(film, 1)]


def test_labels_given_per_study_find_its_views_on_disk(tmp_path: Path) -> None:
    for place in (
        "patient1/study1/view1_frontal.jpg",
        "patient1/study1/view2_lateral.jpg",
        "patient4/study1/view1_frontal.jpg",
    ):
        (tmp_path / "CheXpert/test" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "CheXpert/test" / place).touch()
    labels = labels_csv(("test/patient1/study1", "Lung Opacity"), ("test/patient4/study1", "Edema"))
    cases = make(tmp_path, labels=labels).cases()
    assert [c.case_id for c in cases] == [*KEYS[:2], "patient4_study1_view1_frontal"]
    assert cases[1].labels["Airspace Opacity"] == 1 and cases[2].labels["Edema"] == 1


def test_a_film_without_label_is_unknown_where_nothing_is_drawn(tmp_path: Path) -> None:
    dataset = make(tmp_path, labels=labels_csv(("test/patient3/study2/view1_frontal.jpg", "")))
    case = next(c for c in dataset.cases() if c.case_id == KEYS[0])
    assert case.labels["Airspace Opacity"] == 1 and case.labels["Edema"] is None
    assert [n.kind for n in dataset.notes] == ["not_annotated"] * 2


def test_views_of_a_study_with_other_labels_are_noted(tmp_path: Path) -> None:
    labels = LABELS.replace("view2_lateral.jpg,0.0", "view2_lateral.jpg,1.0")
    assert [n.kind for n in make(tmp_path, labels=labels.replace("1.0,0.0,0.0,1.0", "0.0,0.0,1.0,1.0")).notes] == [
        "disagreement"
    ]


@pytest.mark.parametrize(
    ("masks", "cause"),
    [
        ({"../x": {}}, "is not like patient1_study1_view1_frontal"),
        ({"patient1_study1": {}}, "is not like"),
        ({f"patient{'1' * 400}_study1_view1_frontal": {}}, "is not like"),
        ({KEYS[0]: []}, "is not an object of findings"),
        ({KEYS[0]: {"Edema": {"size": [H, W]}}}, "not an object with size and counts"),
        ({KEYS[0]: {"Edema": {"size": [H], "counts": ""}}}, "list of 2 numbers"),
        ({KEYS[0]: {"Edema": {"size": [H, 1.5], "counts": ""}}}, "not in whole pixels"),
        ({KEYS[0]: {"Edema": {"size": [10**9, 10**9], "counts": ""}}}, "1000000000 pixels; check"),
        ({KEYS[0]: {"Edema": {"size": [4, 4], "counts": compressed(square())}}}, "does not fit its grid of 4 x 4"),
        ({KEYS[0]: {"Edema": {"size": [4, 4], "counts": "P"}}}, "middle of a number"),
        ({KEYS[0]: {"Edema": {"size": [4, 4], "counts": "~"}}}, "does not belong there"),
        ({KEYS[0]: {"Edema": {"size": [4, 4], "counts": "ooooooooooo0"}}}, "more than 35 bits"),
        ({KEYS[0]: {"Edema": {"size": [4, 4], "counts": "o"}}}, "middle of a number"),
        ({KEYS[0]: {"Edema": {"size": [4, 4], "counts": "O"}}}, "does not fit"),
        ({KEYS[0]: {"Edema": rle(square()), "Fracture": rle(square().T)}}, "other masks of the image are not"),
        ({KEYS[0]: {"Lung Opacity": rle(square()), "Airspace Opacity": rle(square())}}, "twice"),
        ("{" + ",".join(f'"{KEYS[0]}": {{}}' for _ in "ab") + "}", "appears twice"),
        ('{"a":' * 50_000, "is not a JSON file"),
        ("[]", "holds no object of images"),
        ("[" + "1" * 5000 + "]", "is not a JSON file"),
    ],
)
def test_masks_that_cannot_be_used_name_the_file(tmp_path: Path, masks: Any, cause: str) -> None:
    with pytest.raises(DataError, match=rf"gt_segmentations_test\.json.*{cause}"):
        make(tmp_path, masks=masks).cases()


@pytest.mark.parametrize(
    ("shape", "cause"),
    [
        ("x", "not a list of polygons"),
        ([[1, 2]], "not a list of 2 numbers"),
        ([[[1, None]]], "not a number"),
        ([[[1, 1e300], [2, 2], [3, 3]]], "pixels away"),
    ],
)
def test_polygons_that_cannot_be_used_name_the_file(tmp_path: Path, shape: Any, cause: str) -> None:
    with pytest.raises(DataError, match=rf"gt_annotations_test\.json.*{cause}"):
        make(tmp_path, polygons={KEYS[0]: {"Edema": shape}}, regions="polygons").cases()


def test_label_files_that_cannot_be_used(tmp_path: Path) -> None:
    for labels, cause in (
        (LABELS.replace("1.0", "0.7"), "row 2: the label of 'Airspace Opacity' is '0.7', not 0 or 1"),
        (LABELS.replace("test/patient1/study1/view1_frontal.jpg", "a/b.jpg"), "row 2: the path"),
        (LABELS.replace("patient3/study2", "patient1/study1"), "was listed in row 2 before"),
        (LABELS.replace("Edema", "Eczema"), "the header lacks Edema"),
        (LABELS.replace("Lung Opacity", "Opacity"), "the header lacks Lung Opacity"),
    ):
        with pytest.raises(DataError, match=cause):
            make(tmp_path, labels=labels).cases()
    with pytest.raises(ConfigError, match="must be true or false"):
        make(tmp_path, frontal_only="yes")


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_compressed_strings_and_runs_equal_the_mask(height: int, width: int, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.array(bits).reshape(height, width)
    region = RunText((height, width), compressed(mask), "coco")
    np.testing.assert_array_equal(region.mask(height, width), mask)
    assert region.area == mask.sum()
    np.testing.assert_array_equal(MaskRuns.of(mask).mask(height, width), mask)
