"""Names of images and classes in the built-in readers' files, and of images in tables beside them (§0.1)."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.chestxray14 import ChestXray14
from xbench_fast.runtime.data.datasets.covid_rural import CovidRural
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.phrases.ms_cxr import MsCxr
from xbench_fast.runtime.data.datasets.phrases.padchest_gr import PadChestGr
from xbench_fast.runtime.data.datasets.rsna import Rsna
from xbench_fast.runtime.data.datasets.siim import Siim
from xbench_fast.runtime.data.datasets.source.image_names import TableNames, stem_of
from xbench_fast.runtime.data.datasets.source.spelling import spelling_key
from xbench_fast.runtime.data.datasets.vindr import Vindr, VindrKaggle

BOXES = "image_id,class_name,rad_id,x_min,y_min,x_max,y_max\n"


def rsna(root: Path, name: str, finding: str) -> Dataset:
    (root / "stage_2_train_labels.csv").write_text("patientId,x,y,width,height,Target\na1,1,2,3,4,1\n")
    (root / "stage_2_detailed_class_info.csv").write_text(f"patientId,class\n{name},{finding}\n")
    (root / "list.csv").write_text(f"ID\n{name}\n")
    return Rsna(root, list="list.csv", images=".")


def siim(root: Path, name: str, finding: str) -> Dataset:
    (root / "train-rle.csv").write_text(f" ImageId , EncodedPixels\n{name}, 0 3\n1.2.3, -1.0\n")
    (root / "list.csv").write_text(f"ImageId\n{name}\n")
    return Siim(root, list="list.csv")


def covid(root: Path, name: str, finding: str) -> Dataset:
    (root / "pngs_masks").mkdir()
    (root / "list.csv").write_text(f"filepath\n{name}\n")
    return CovidRural(root, list="list.csv", images=".")


def det10(root: Path, name: str, finding: str) -> Dataset:
    (root / "test.json").write_text(json.dumps([{"file_name": name, "syms": [finding], "boxes": [[1, 2, 3, 4]]}]))
    return ChestXDet10(root, images=".")


def nih(root: Path, name: str, finding: str) -> Dataset:
    (root / "BBox_List_2017.csv").write_text(f"Image Index,Finding Label,Bbox [x,y,w,h],,,\n{name},{finding},1,2,3,4\n")
    (root / "Data_Entry_2017.csv").write_text(f"Image Index,Finding Labels\na1.png,{finding}|pleural thickening\n")
    (root / "test_list.txt").write_text(f"{name}\n")
    return ChestXray14(root, images=".", recognition_images="test_list")


def vindr(root: Path, name: str, finding: str) -> Dataset:
    (root / "annotations_train.csv").write_text(f"{BOXES}{name},{finding},R1,1,2,3,4\n")
    (root / "sizes.csv").write_text("image_id,dim0,dim1\na1.dicom,90,80\n")
    return Vindr(root, split="train", images=".", sizes="sizes.csv")


def kaggle(root: Path, name: str, finding: str) -> Dataset:
    (root / "train.csv").write_text(f"{BOXES}{name},{finding},R1,1,2,3,4\na1,no finding,R2,NaN,NaN,NaN,NaN\n")
    return VindrKaggle(root, images=".", readers="any")


def mscxr(root: Path, name: str, finding: str) -> Dataset:
    head = "dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height"
    (root / "MS_CXR_Local_Alignment_v1.0.0.csv").write_text(f"{head}\n{name},{finding},text,nan,1,2,3,4,12,10\n")
    return MsCxr(root)


def padchest(root: Path, name: str, finding: str) -> Dataset:
    found = {"sentence_en": "A.", "abnormal": 1.0, "boxes": [[0.1, 0.2, 0.3, 0.4]], "labels": [finding]}
    (root / "grounded_reports_20240819.json").write_text(
        json.dumps([{"StudyID": "1", "ImageID": name, "findings": [found]}])
    )
    (root / "master_table.csv").write_text("ImageID,PatientID,label,label_group,split\na1.png,nan,ILD,Edema,train\n")
    return PadChestGr(root)


Maker = Callable[[Path, str, str], Dataset]
# name -> (maker, a class, the same in other spellings)
READERS: dict[str, tuple[Maker, str, tuple[str, ...]]] = {
    "rsna": (rsna, "Lung Opacity", ("lung opacity", "Lung_Opacity")),
    "siim": (siim, "Pneumothorax", ()),
    "covid_rural": (covid, "COVID-19", ()),
    "chestxdet10": (det10, "Mass", ("mass", " MASS")),
    "chestxray14": (nih, "Infiltrate", ("infiltrate", "infiltration")),
    "vindr": (vindr, "Nodule/Mass", ("nodule/mass", "Nodule / Mass")),
    "vindr_kaggle": (kaggle, "Pleural effusion", ("Pleural Effusion", "pleural_effusion", "Pleural\u00a0effusion")),
    "mscxr": (mscxr, "Lung Opacity", ("lung  opacity", "Lung-Opacity")),
    "padchest_gr": (padchest, "ILD", ("ild", "ILD ")),
}


@pytest.mark.parametrize("name", ["a1", "a1.png", "a1.DCM", "sub/a1.dicom", "sub\\a1.jpg", "./a1", "C:\\x\\a1.jpeg"])
@pytest.mark.parametrize("reader", READERS)
def test_a_name_counts_without_folders_and_extension(tmp_path: Path, reader: str, name: str) -> None:
    make, finding, _ = READERS[reader]
    (tmp_path / "a1.png").touch()
    (case,) = make(tmp_path, name, finding).cases()
    assert case.case_id == "a1" and case.image == tmp_path / "a1.png"


@pytest.mark.parametrize("name", ["", ".png", "sub/", "../a1.png", "a/../../a1", ".."])
@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_names_no_image_is_refused(tmp_path: Path, reader: str, name: str) -> None:
    make, finding, _ = READERS[reader]
    if (reader, name) == ("covid_rural", ""):
        pytest.skip("a row without any cell is blank, and no row")
    with pytest.raises(DataError):
        make(tmp_path, name, finding).cases()


@pytest.mark.parametrize("reader", [name for name, (_, _, others) in READERS.items() if others])
def test_a_class_in_another_spelling_is_that_class(tmp_path: Path, reader: str) -> None:
    make, finding, others = READERS[reader]
    for number, other in enumerate((finding, *others)):
        root = tmp_path / str(number)
        root.mkdir()
        dataset = make(root, "a1", other)
        (case,) = dataset.cases()
        if reader == "padchest_gr":
            assert dataset.classes == ("Edema",) and set(case.regions) == {"Edema"}
            continue
        kinds = [note.kind for note in dataset.notes]
        assert "unknown_class" not in kinds and "disagreement" not in kinds
        known = spelling_key(other) == spelling_key(finding) if reader != "rsna" else False
        assert not known or set(case.regions) == {finding}
        told = [note for note in dataset.notes if note.kind == "spelling" and f"'{other.strip()}'" in note.text]
        assert bool(told) == bool(number), "the official spelling is no note"


def test_labels_of_one_file_that_differ_in_spelling_alone_are_one_class(tmp_path: Path) -> None:
    padchest(tmp_path, "a1", "x")
    both = [{"sentence_en": text, "abnormal": True, "boxes": [[0.1, 0.2, 0.3, 0.4]], "labels": [label]}
            for text, label in (("A.", "Pleural effusion"), ("B.", "pleural Effusion"))]  # fmt: skip
    (tmp_path / "grounded_reports_20240819.json").write_text(json.dumps([{"ImageID": "a1", "findings": both}]))
    dataset = PadChestGr(tmp_path)
    assert dataset.classes == ("Pleural effusion",) and len(dataset.cases()) == 2
    assert [note.kind for note in dataset.notes if note.kind in ("spelling", "alike_classes")] == ["spelling"]


def test_two_folders_with_one_name_are_refused(tmp_path: Path) -> None:
    entries = [{"file_name": name, "syms": [], "boxes": []} for name in ("a/1.png", "1.png", "b\\1.png")]
    (tmp_path / "test.json").write_text(json.dumps(entries))
    with pytest.raises(DataError, match=r"row 3: file_name 'b\\\\1.png' lies in another folder than 'a/1' before"):
        ChestXDet10(tmp_path).cases()


def test_an_image_below_the_folder_is_found_as_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_data/sub").mkdir(parents=True)
    (tmp_path / "test_data/sub/1.png").touch()
    (tmp_path / "test.json").write_text(json.dumps([{"file_name": "sub\\1.png", "syms": [], "boxes": []}]))
    (case,) = ChestXDet10(tmp_path).cases()
    assert case.image == tmp_path / "test_data/sub/1.png" and case.case_id == "1"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Image Index,Finding Label,Bbox [x,y,w,h],,,", "1_0.png,Mass,1,2,3,4,,,"),
        (",Image Index,Finding Label,Bbox [x,y,w,h]", "0,1_0.png,Mass,1,2,3,4"),
        ("Unnamed: 0,Image Index,Finding Label,Bbox [x,y,w,h],Unnamed: 6", "0,1_0.png,Mass,1,2,3,4,nan"),
        ("Image Index,Finding Label,x,y,w,h,split", "1_0.png,Mass,1,2,3,4,test"),
        ("Image Index,Finding Label,split,x,y,width,height", "1_0.png,Mass,test,1,2,3,4"),
        ('Image Index,Finding Label,"Bbox [x,y,w,h]",,,', "1_0.png,Mass,1,2,3,4"),
    ],
)
def test_headers_of_the_box_file_of_nih(tmp_path: Path, header: str, row: str) -> None:
    (tmp_path / "BBox_List_2017.csv").write_text(f"{header}\n{row}\n")
    entries = "Unnamed: 0,Image Index,Finding Labels,Follow-up #,\n0,1_0.png,Mass,1\n1,2_0.png,No Finding,1,\n"
    (tmp_path / "Data_Entry_2017.csv").write_text(entries)
    dataset = ChestXray14(tmp_path)
    (case,) = dataset.cases()
    assert case.regions["Mass"].mask(9, 9)[2:6, 1:4].all() and case.regions["Mass"].mask(9, 9).sum() == 12
    assert case.labels["Mass"] == 1 and case.labels["Nodule"] == 0
    assert {note.kind for note in dataset.notes} == {"no_images_folder"}


def test_a_row_of_the_box_file_that_is_shifted_is_refused(tmp_path: Path) -> None:
    header = "Image Index,Finding Label,Bbox [x,y,w,h],,,"
    (tmp_path / "BBox_List_2017.csv").write_text(f"{header}\n1_0.png,Mass,1,2,3,4,5\n")
    with pytest.raises(DataError, match="row 2: 7 cells"):
        ChestXray14(tmp_path).cases()


def test_the_name_of_an_image_alone() -> None:
    assert [stem_of(name) for name in ("a.b.png", "x\\y\\a.dcm", "./a", "a.tiff")] == ["a.b", "a", "a", "a.tiff"]
    assert stem_of(unicodedata.normalize("NFD", "é.png")) == "é"
    assert spelling_key("Nodule\u200b / Mass") == spelling_key("nodule/mass") != spelling_key("nodule mass")


def test_a_table_names_a_case_by_path_name_stem_or_id() -> None:
    image = Path("/data/images/patient1/view1.png")
    other = Path("/data/images/patient2/view1.png")
    for name in ("patient1\\view1.png", "images/patient1/view1", "id1", "./patient1/view1.png"):
        table = TableNames([name, "patient2/view1.png"])
        assert (table.of("id1", image), table.of("id2", other)) == (name, "patient2/view1.png")
    assert TableNames(["x/view1.jpg"]).of("id1", image) == "x/view1.jpg", "its stem"
    assert TableNames(["x/view1.jpg", "y/view1.jpg"]).of("id1", image) is None, "a stem of two"
    assert TableNames(["1.png", "2.png"]).of("1", Path("/d/2.png")) == "2.png", "an id of COCO is not a file name"
    assert TableNames(["é.png"]).of("1", Path(unicodedata.normalize("NFD", "/d/é.png"))) == "é.png"
