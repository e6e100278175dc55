"""View, sex, age and other attributes of cases, from each source of docs/datasets.md §0.8."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import pytest
from pydicom.dataset import Dataset as Header
from pydicom.dataset import FileMetaDataset
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.attributes.lookup import CaseAttributes, look_up
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.chestxray14 import ChestXray14
from xbench_fast.runtime.data.datasets.chexlocalize import CheXlocalize
from xbench_fast.runtime.data.datasets.dataset import Case, Dataset
from xbench_fast.runtime.data.datasets.rsna import Rsna
from xbench_fast.runtime.data.datasets.siim import Siim
from xbench_fast.runtime.results.cell_key import cases_digest

CANARY = "ZZCANARY"


class Own(Dataset):
    """A reader that fills the attributes itself."""

    name, title, classes = "own", "Own", ("a",)
    given: tuple[dict[str, str | float] | None, ...] = ()

    def sources(self) -> tuple[Path, ...]:
        return ()

    def read(self, notes: object) -> list[Case]:
        every = enumerate(self.given)
        return [Case(f"c{n}", self.root / f"c{n}.dcm", {"a": 0}, {}, "all", attributes=own) for n, own in every]


def own(root: Path, *given: dict[str, str | float] | None) -> Own:
    found = Own(root)
    found.given = given
    return found


def ids(dataset: Dataset) -> list[str]:
    return [case.case_id for case in dataset.cases()]


def of(dataset: Dataset, file: Path | None = None) -> CaseAttributes:
    return look_up(ids(dataset), dataset, file)


def write_image(path: Path, syntax: str = ExplicitVRLittleEndian, **tags: str) -> None:
    header = Header()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = syntax
    header.SOPClassUID, header.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", "1.2.3"
    header.PatientName = CANARY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tag, value in tags.items():
            setattr(header, tag, value)
        header.save_as(path, enforce_file_format=True)


def test_cases_are_no_heavier_and_results_do_not_depend_on_attributes(tmp_path: Path) -> None:
    plain, told = own(tmp_path, None), own(tmp_path, {"sex": "F"})
    assert plain.cases()[0].attributes is None and told.cases()[0].attributes == {"sex": "F"}
    assert cases_digest(plain.cases(), tmp_path) == cases_digest(told.cases(), tmp_path)


def test_headers_of_real_images(shared: Path) -> None:
    """View and sex in all, ages as bare digits, no manufacturer."""
    root = shared / "data"
    rsna = Rsna(root / "annotations/rsna", images=str(root / "images/rsna/stage_2_train_images"))
    found = of(rsna)
    assert len(found.cases) == 50 and set(found.names) == {"view", "sex", "age"} and not found.notes
    assert {case["view"] for case in found.cases} == {"AP", "PA"} and {case["sex"] for case in found.cases} == {
        "F",
        "M",
    }
    assert all(0 < float(case["age"]) <= 100 for case in found.cases)
    annotations = str(root / "annotations/siim/train-rle-sample.csv")
    siim = Siim(root / "images/siim", annotations=annotations)
    assert any(set(case) == {"view", "sex", "age"} for case in of(siim).cases)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"PatientAge": "68"}, {"age": 68.0}),
        ({"PatientAge": "045Y"}, {"age": 45.0}),
        ({"PatientAge": "018M"}, {"age": 1.5}),
        ({"PatientAge": "413"}, {}),
        ({"PatientAge": "old"}, {}),
        ({"PatientAge": ""}, {}),
        ({}, {}),
        ({"PatientSex": "O", "ViewPosition": "LL"}, {"sex": "O", "view": "LL"}),
        ({"PatientSex": "f", "ViewPosition": "ap "}, {"sex": "F", "view": "AP"}),
        ({"Manufacturer": "Philips  Medical Systems"}, {"manufacturer": "Philips Medical Systems"}),
        ({"Manufacturer": 61 * "x"}, {}),
    ],
)
def test_headers(
    tmp_path: Path,
    tags: dict[str, str],
    expected: dict[str, object],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_image(tmp_path / "c0.dcm", **tags)
    caplog.clear()
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")  # those of pydicom quote the header
        found = of(own(tmp_path, None))
    assert found.cases == (expected,) and found.source.startswith("DICOM headers")
    told = caplog.text + "".join(capfd.readouterr())
    assert CANARY not in told and not any(value in told for value in tags.values() if len(value) > 1)


def test_images_without_a_header(tmp_path: Path) -> None:
    write_image(tmp_path / "c0.dcm", PatientSex="F")
    (tmp_path / "c1.dcm").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    (tmp_path / "c2.dcm").write_bytes((tmp_path / "c0.dcm").read_bytes()[:140])
    write_image(tmp_path / "c4.dcm", DeflatedExplicitVRLittleEndian, PatientSex="F")
    found = of(own(tmp_path, *[None] * 5))  # c3 is missing
    assert [bool(case) for case in found.cases] == [True, False, False, False, False]
    assert found.notes == ("4 of 5 images are not DICOM, or missing; their attributes are unknown",)
    (tmp_path / "c0.dcm").unlink()
    assert "no table has any, and no image is DICOM" in of(own(tmp_path, None)).notes[0]


NIH = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],\n"
)


def test_the_entry_file_of_nih_serves_its_own_images(tmp_path: Path) -> None:
    boxes = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n"
    boxes += "".join(f"0000000{n}_000.png,Mass,1,1,9,9,,,\n" for n in (1, 2, 3))
    (tmp_path / "BBox_List_2017.csv").write_text(boxes)
    rows = ["1_000.png,Mass,0,1,058Y,F,PA", "2_000.png,Mass,0,2,411,M,AP", "9_000.png,Mass,0,9,7,M,AP"]
    entries = NIH + "".join(f"0000000{row},9,9,0.1,0.1,\n" for row in rows)
    (tmp_path / "Data_Entry_2017.csv").write_text(entries)
    found = of(ChestXray14(tmp_path))
    assert found.cases == ({"age": 58.0, "sex": "F", "view": "PA"}, {"sex": "M", "view": "AP"}, {})
    assert found.source == "Data_Entry_2017.csv" and set(found.names) == {"view", "sex", "age"}
    assert found.notes == (
        "Data_Entry_2017.csv has no row for 1 of 3 cases; their attributes are unknown",
        "1 ages in Data_Entry_2017.csv are not between 0 and 120 years, so unknown",
    )


def test_the_entry_file_of_nih_serves_sets_made_of_its_images(shared: Path, tmp_path: Path) -> None:
    entries = shared / "data/annotations/nih_cxr14/Data_Entry_2017_v2020_subset.csv"
    root = shared / "data/annotations/chestxdet10"
    named = ChestXDet10(root, annotations="test_subset.json", patients="file_name_to_nih.csv")
    found = of(named, entries)
    assert {"view", "sex", "age"} == set(found.names) and any(found.cases)
    index = dict(line.split(",")[1:] for line in (root / "file_name_to_nih.csv").read_text().splitlines())
    lines = {line.split(",")[0]: line.split(",") for line in entries.read_text().splitlines()}
    for case, described in zip(named.cases(), found.cases, strict=True):
        row = lines.get(index[case.image.name])
        assert described == ({} if row is None else {"age": float(row[4]), "sex": row[5], "view": row[6]})
    with pytest.raises(DataError, match=r"names none of the \d+ cases.* the option patients of the dataset must name"):
        of(ChestXDet10(root, annotations="test_subset.json"), entries)


def test_the_labels_of_chexpert(shared: Path, tmp_path: Path) -> None:
    root = shared / "data/annotations/chexlocalize"
    header, *rows = (root / "valid.csv").read_text().splitlines()
    rows += [rows[0].replace("view1_frontal", "view2_lateral").replace("Frontal,AP", "Lateral,")]
    (tmp_path / "labels.csv").write_text("\n".join([header, *rows]) + "\n")
    options = {"split": "val", "labels": str(tmp_path / "labels.csv"), "images": str(tmp_path)}
    dataset = CheXlocalize(root, segmentations="gt_segmentations_val.json", **options)
    told = dict(zip(ids(dataset), of(dataset).cases, strict=True))
    assert told["patient64541_study1_view1_frontal"] == {"sex": "M", "age": 73.0, "view": "AP"}
    assert told["patient64541_study1_view2_lateral"]["view"] == "lateral"
    names = header.split(",")
    kept = [place for place, name in enumerate(names) if name not in ("Sex", "Age", "Frontal/Lateral", "AP/PA")]
    for number, line in enumerate(lines := [header, *rows]):
        lines[number] = ",".join(line.split(",")[place] for place in kept)
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    found = of(CheXlocalize(root, segmentations="gt_segmentations_val.json", **options))
    assert not found.names and found.notes == ("labels.csv has no attributes",), "as for the test set"


def test_a_table_of_a_user(tmp_path: Path) -> None:
    data = own(tmp_path, None, None, None)
    write_image(tmp_path / "c0.dcm", PatientSex="F", ViewPosition="AP")
    table = tmp_path / "who.csv"
    table.write_text("case,patient_id,Gender,age,site,note\nc0,p,male,45,north,\nc1.dcm,q,,200,nan,x\nz,q,F,3,south,\n")
    found = of(data, table)
    assert found.cases == ({"sex": "M", "age": 45.0, "site": "north"}, {"note": "x"}, {}), "one source, not the headers"
    assert found.notes == (
        "who.csv has no row for 1 of 3 cases; their attributes are unknown",
        "1 rows of who.csv name no case of these results",
        "1 ages in who.csv are not between 0 and 120 years, so unknown",
    )
    assert look_up(["c0"], None, table).cases == found.cases[:1], "case ids do without the dataset's folder"
    assert look_up(["c1"], None, tmp_path / "who.csv" if table.write_text("case,sex\nc1,F\n") else None).cases == (
        {"sex": "F"},
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "case,age\nc0,fifty\n",
            r"who\.csv, row 2: the value in the column 'age' is not a number of years, nor an age",
        ),
        ("case,site\nc0," + 61 * "x" + "\n", r"row 2: the value in the column 'site' has more than 60 characters"),
        ("case,sex\nc0,F\nc0,M\n", r"row 3: 'c0' has other values here than in row 2; delete one of them"),
        ("case,sex\n,F\n", r"row 2: the column 'case' is empty; name the case there or delete the row"),
        ("case,sex\nc0,F,M\n", r"row 2: 3 cells, the header has 2"),
        ("case,sex\nc0\n", r"row 2: 1 cells, the header has 2"),
        ("case,sex,gender\nc0,F,F\n", r"row 1: two columns give the attribute 'sex'"),
        ("who,sex\nc0,F\n", r"row 1: the header needs a column that names the case, one of case, image, .* it has who"),
        ("case,patient_id\nc0,p\n", r"row 1: it has no column of an attribute, such as view, sex or age"),
        ("case,sex\nx,F\n", r"names none of the 1 cases, the first of which is 'c0'; its column of cases must hold"),
        ("", r"row 1: the header needs"),
    ],
)
def test_bad_rows_are_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "who.csv").write_text(text)
    with pytest.raises(DataError, match=sentence) as error:
        of(own(tmp_path, None), tmp_path / "who.csv")
    assert "fifty" not in str(error.value) and 61 * "x" not in str(error.value), "values stay in their file"


def test_a_reader_can_fill_them(tmp_path: Path) -> None:
    found = of(own(tmp_path, {"Gender": "female", "age": 31, "site": "north"}, None, {"age": 130.0}))
    assert found.cases == ({"sex": "F", "age": 31.0, "site": "north"}, {}, {}) and found.source == "the reader own"
    with pytest.raises(DataError, match=r"The reader of 'own' gives the case 'c0' an attribute 'age' that is not a"):
        of(own(tmp_path, {"age": "old"}))


def test_the_entry_file_gives_rsna_its_patients(tmp_path: Path) -> None:
    (tmp_path / "stage_2_train_labels.csv").write_text("patientId,x,y,width,height,Target\na,,,,,0\nb,,,,,0\n")
    (tmp_path / "stage_2_train_images").mkdir()
    (tmp_path / "who.csv").write_text("image,nih_image_index\na,00000007_000.png\nb,00000007_013.png\n")
    assert [case.patient_id for case in Rsna(tmp_path).cases()] == ["a", "b"]
    dataset = Rsna(tmp_path, patients="who.csv")
    assert [case.patient_id for case in dataset.cases()] == ["00000007", "00000007"]
    entries = tmp_path / "Data_Entry_2017.csv"
    entries.write_text(NIH + "00000007_013.png,Mass,0,7,61,F,AP,9,9,0.1,0.1,\n")
    assert of(dataset, entries).cases == ({}, {"age": 61.0, "sex": "F", "view": "AP"})


def test_json_of_a_coco_case_has_none(tmp_path: Path) -> None:
    """A field that is None costs nothing where nobody asks."""
    (tmp_path / "test.json").write_text(json.dumps([{"file_name": "1.png", "syms": [], "boxes": []}]))
    (tmp_path / "test_data").mkdir()
    assert [case.attributes for case in ChestXDet10(tmp_path).cases()] == [None]
