"""Labels in files: 1, 0, -1 for uncertain and blank for unknown, in every reader that has any (§0.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reader_world import runs
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.case import UNCERTAIN
from xbench_fast.runtime.data.datasets.chestxray14 import ChestXray14
from xbench_fast.runtime.data.datasets.chexlocalize import CheXlocalize
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.readers.reader_consensus import majority
from xbench_fast.runtime.data.datasets.rsna import Rsna
from xbench_fast.runtime.data.datasets.source.csv_cells import is_blank, read_label
from xbench_fast.runtime.data.datasets.vindr import Vindr

OBSERVED = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)
# Why a reader has no label that could be uncertain.
WITHOUT = {
    "siim": "a mask or -1 for none",
    "covid_rural": "a mask or none",
    "chestxdet10": "a list of the findings, after all ten were looked for",
    "mscxr": "phrases that are there",
    "padchest_gr": "sentences that are there",
    "voc": "shapes", "labelme": "shapes", "cvat": "shapes", "yolo": "shapes", "masks": "masks", "nifti": "masks",
    "dicom": "masks and graphics",
}  # fmt: skip


def rsna(root: Path, value: str, **options: Any) -> Dataset:
    (root / "stage_2_train_labels.csv").write_text(f"patientId,x,y,width,height,Target\na,,,,,{value}\nb,1,2,3,4,1\n")
    return Rsna(root, **options)


def chexlocalize(root: Path, value: str, **options: Any) -> Dataset:
    (root / "CheXpert").mkdir(exist_ok=True)
    (root / "CheXlocalize").mkdir(exist_ok=True)
    cells = ["0.0"] * 14
    cells[5] = value
    path = "CheXpert-v1.0-small/test/patient1/study1/view1_frontal.jpg"
    (root / "CheXpert/test_labels.csv").write_text(f"Path,{OBSERVED}\n{path},{','.join(cells)}\n")
    (root / "CheXlocalize/gt_segmentations_test.json").write_text("{}")
    return CheXlocalize(root, **options)


def nih(root: Path, value: str, **options: Any) -> Dataset:
    (root / "BBox_List_2017.csv").write_text("Image Index,Finding Label,Bbox [x,y,w,h],,,\n1_0.png,Mass,1,2,3,4\n")
    (root / "Data_Entry_2017.csv").write_text(f",Image Index,Mass,Nodule,Hernia\n0,1_0.png,1,{value},0\n")
    return ChestXray14(root, **options)


def vindr(root: Path, value: str, **options: Any) -> Dataset:
    (root / "annotations_test.csv").write_text("image_id,class_name,x_min,y_min,x_max,y_max\na,ILD,1,2,3,4\n")
    (root / "image_labels_test.csv").write_text(f"image_id,ILD,Edema,Other diseases,No finding\na,1,{value},0,0\n")
    return Vindr(root, **options)


MAKERS = {
    "rsna": (rsna, "pneumonia"), "chexlocalize": (chexlocalize, "Edema"), "chestxray14": (nih, "Nodule"),
    "vindr": (vindr, "Edema"),
}  # fmt: skip
VALUES = {"0": 0, "0.0": 0, "1.0": 1, "-1": None, "-1.0": None, "": None, "nan": None, "NaN": None, "NA": None}


@pytest.mark.parametrize("name", DATASETS.names())
def test_every_reader_of_a_label_file_has_the_option(name: str) -> None:
    has = "uncertain" in DATASETS.load(name).option_help
    assert has != (name in WITHOUT)
    assert name not in MAKERS or has


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("value", [each for each in VALUES if each != "1.0"])
def test_what_a_label_file_says(tmp_path: Path, name: str, value: str) -> None:
    make, finding = MAKERS[name]
    dataset = make(tmp_path, value)
    assert dataset.cases()[0].labels[finding] == VALUES[value], "blank is unknown, never 0"
    assert dataset.uncertain_labels == value.startswith("-1")


@pytest.mark.parametrize("name", MAKERS)
def test_the_policy_decides_uncertain_labels_and_no_other(tmp_path: Path, name: str) -> None:
    make, finding = MAKERS[name]
    found = {policy: make(tmp_path, "-1.0", uncertain=policy) for policy in ("ignore", "positive", "negative")}
    labels = {policy: dataset.cases()[0].labels for policy, dataset in found.items()}
    assert {policy: each[finding] for policy, each in labels.items()} == {"ignore": None, "positive": 1, "negative": 0}
    assert len({tuple((k, v) for k, v in each.items() if k != finding) for each in labels.values()}) == 1
    (note,) = [note for note in found["positive"].notes if note.kind == "uncertain"]
    assert note.subject == finding and note.text.endswith("1; the policy is positive")
    assert UNCERTAIN not in {
        label for dataset in found.values() for case in dataset.cases() for label in case.labels.values()
    }
    with pytest.raises(ConfigError, match=r"'uncertain' .* cannot be 'zeros'"):
        make(tmp_path, "-1", uncertain="zeros").cases()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("value", ["2", "0.5", "yes", "-2", "1e999", "u"])
def test_what_is_no_label_is_refused_with_its_row(tmp_path: Path, name: str, value: str) -> None:
    make, _ = MAKERS[name]
    with pytest.raises(DataError, match=rf"\.csv, row 2: .* is '{value}', not 0 or 1, -1 for uncertain, or blank"):
        make(tmp_path, value).cases()


def test_a_cell_of_a_label() -> None:
    assert [read_label(text) for text in (" 1 ", "1.00", "True", "false", "-1.", "<NA>")] == [
        1,
        1,
        1,
        0,
        UNCERTAIN,
        None,
    ]
    assert is_blank(" NaN ") and is_blank("#N/A") and not is_blank("0") and not is_blank("-")


def test_a_majority_that_hangs_on_readers_who_were_not_sure() -> None:
    votes = {
        (1, 1, 0): 1,
        (1, 0, 0): 0,
        (1, -1, 0): -1,
        (-1, -1, 0): -1,
        (-1, 0, 0): 0,
        (1, 1, -1): 1,
        (-1,): -1,
        (1, 0): 0,
    }
    assert {each: majority(each) for each in votes} == votes


def test_votes_of_three_readers(tmp_path: Path) -> None:
    rows = "".join(f"a,ILD,R{reader},1,2,9,9\n" for reader in (1, 2, 3))
    (tmp_path / "annotations_train.csv").write_text(f"image_id,class_name,rad_id,x_min,y_min,x_max,y_max\n{rows}")
    labels = "a,R1,1,-1\na.dicom,R2,1,\ntrain\\a.png,R3,0,nan\n"
    (tmp_path / "image_labels_train.csv").write_text(f"image_id,rad_id,ild,Edema\n{labels}")
    dataset = Vindr(tmp_path, split="train")
    (case,) = dataset.cases()
    assert (case.labels["ILD"], case.labels["Edema"], dataset.uncertain_labels) == (1, None, 1)
    assert [note.text for note in dataset.notes if note.kind == "spelling"] == [
        "'ild' differs from 'ILD' in spelling alone and is taken for it: 1 times"
    ]


def test_a_region_counts_whatever_its_uncertain_label_becomes(tmp_path: Path) -> None:
    (tmp_path / "stage_2_train_labels.csv").write_text("patientId,x,y,width,height,Target\na,1,2,3,4,-1\n")
    for policy, label in (("ignore", None), ("positive", 1), ("negative", 0)):
        dataset = Rsna(tmp_path, uncertain=policy)
        (case,) = dataset.cases()
        assert case.labels == {"pneumonia": label} and case.regions["pneumonia"].mask(9, 9).sum() == 12
        assert ("disagreement" in {note.kind for note in dataset.notes}) == (policy == "negative")


def test_rsna_as_pandas_writes_it(tmp_path: Path) -> None:
    rows = ",patientId,x,y,width,height,Target\n0,a,1.0,2.0,3.0,4.0,1.0\n1,b.dcm,NaN,nan,,NA,0.0\n2,img\\c.dcm,,,,,\n"
    (tmp_path / "stage_2_train_labels.csv").write_text(rows)
    dataset = Rsna(tmp_path)
    assert [(c.case_id, c.labels["pneumonia"], len(c.regions)) for c in dataset.cases()] == [
        ("a", 1, 1), ("b", 0, 0), ("c", None, 0)
    ]  # fmt: skip
    assert [(n.kind, n.row) for n in dataset.notes if n.kind != "no_images_folder"] == [("not_annotated", 4)]
    for row, cause in (("d,1,2,3,4,", "Target is '', but the row has a box"), ("a,,,,,0", "but 1 in row 2")):
        (tmp_path / "stage_2_train_labels.csv").write_text(rows + f"3,{row}\n")
        with pytest.raises(DataError, match=f"row 5: .*{cause}"):
            Rsna(tmp_path).cases()


def test_a_class_with_two_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "annotations_test.csv").write_text("image_id,class_name,x_min,y_min,x_max,y_max\na,ILD,1,2,3,4\n")
    (tmp_path / "image_labels_test.csv").write_text("image_id,Lung cyst,lung_cyst\na,1,0\n")
    with pytest.raises(DataError, match="the columns 'Lung cyst' and 'lung_cyst' are both 'Lung cyst'"):
        Vindr(tmp_path).cases()


def test_names_of_chexpert_from_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "CheXpert/test/patient1/study1"
    chexlocalize(tmp_path, "1.0")
    root.mkdir(parents=True)
    (root / "view1_frontal.png").touch()
    (root / "._view2_frontal.jpg").touch()
    labels = tmp_path / "CheXpert/test_labels.csv"
    masks = {
        "CheXpert\\test\\patient1\\study1\\view1_frontal.jpg": {"edema": {"size": [10, 12], "counts": runs(0, 3, 117)}}
    }
    (tmp_path / "CheXlocalize/gt_segmentations_test.json").write_text(json.dumps(masks))
    head, row = labels.read_text().splitlines()
    for path in (
        r"CheXpert-v1.0\test\patient1\study1\view1_frontal.jpg", "/data/test/patient1/study1/view1_frontal.PNG",
        "test/patient1/study1", "patient1_study1_view1_frontal",
    ):  # fmt: skip
        labels.write_text(f"{head.replace('Pleural Effusion', 'pleural_effusion')}\n{path},{row.partition(',')[2]}\n")
        dataset = CheXlocalize(tmp_path)
        (case,) = dataset.cases()
        assert (case.case_id, case.labels["Edema"], [*case.regions]) == ("patient1_study1_view1_frontal", 1, ["Edema"])
        assert case.image == root / "view1_frontal.png"
        assert {note.subject for note in dataset.notes if note.kind == "spelling"} == {"Pleural Effusion", "Edema"}
